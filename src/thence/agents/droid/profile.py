"""What people call Droid, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import Profile

PROFILE = Profile(
    label="Droid",
    resume_option=("droid", "--resume"),
    home_variable="FACTORY_HOME_OVERRIDE",
    home_is_parent=True,
    rewind_hint="in Droid: /rewind-conversation",
)
