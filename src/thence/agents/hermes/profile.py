"""What people call Hermes Agent, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import Profile

PROFILE = Profile(
    label="Hermes",
    resume_option=("hermes", "--resume"),
    home_variable="HERMES_HOME",
    rewind_hint="in Hermes: /undo",
)
