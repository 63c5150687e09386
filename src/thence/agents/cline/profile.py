"""What people call Cline, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import Profile

PROFILE = Profile(
    label="Cline",
    resume_option=("cline", "--id"),
    home_variable="CLINE_DIR",
    more_variables=("CLINE_DATA_DIR", "CLINE_SESSION_DATA_DIR"),
    rewind_hint="in Cline: restore a checkpoint",
)
