"""What people call GitHub Copilot CLI, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import Profile

PROFILE = Profile(
    label="Copilot CLI",
    resume_option=("copilot", "--resume"),
    home_variable="COPILOT_HOME",
    rewind_hint="in Copilot CLI: /rewind",
    needs_equals=True,
)
