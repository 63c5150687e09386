"""What people call Qwen Code, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import Profile

PROFILE = Profile(
    label="Qwen Code",
    resume_option=("qwen", "--resume"),
    home_variable="QWEN_HOME",
    more_variables=("QWEN_RUNTIME_DIR",),
    rewind_hint="in Qwen Code: /rewind, or press Esc twice",
)
