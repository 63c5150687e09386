"""What people call Mistral Vibe, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import Profile

PROFILE = Profile(
    label="Mistral Vibe",
    resume_option=("vibe", "--resume"),
    home_variable="VIBE_HOME",
    rewind_hint="in Mistral Vibe: start a new session",
)
