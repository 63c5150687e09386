"""What people call Kilo, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import Profile

PROFILE = Profile(
    label="Kilo",
    resume_option=("kilo", "--session"),
    home_variable="XDG_DATA_HOME",
    rewind_hint="in Kilo: /undo",
    home_is_parent=True,
    more_variables=("KILO_DB",),
)
