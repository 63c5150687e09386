"""What people call goose, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import Profile

PROFILE = Profile(
    label="goose",
    resume_option=("goose", "session", "--resume", "--session-id"),
    home_variable="GOOSE_PATH_ROOT",
    rewind_hint="goose has no command for it: edit the message in its desktop app",
    more_variables=("XDG_DATA_HOME",),
)
