"""What people call Kimi Code, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import Profile

PROFILE = Profile(
    label="Kimi Code",
    resume_option=("kimi", "--session"),
    home_variable="KIMI_CODE_HOME",
    id_prefix="session_",
    rewind_hint="in Kimi Code: /undo",
)
