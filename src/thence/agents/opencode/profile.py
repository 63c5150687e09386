"""What people call OpenCode, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import Profile

PROFILE = Profile(
    label="OpenCode",
    resume_option=("opencode", "--session"),
    home_variable="XDG_DATA_HOME",
    rewind_hint="in OpenCode: /undo",
    home_is_parent=True,
    more_variables=("OPENCODE_DB",),
)
