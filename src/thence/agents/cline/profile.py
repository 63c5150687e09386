"""What people call Cline, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import Profile

PROFILE = Profile(
    label="Cline",
    reader="thence.agents.cline.reader:Cline",
    usual_folders=(".cline",),
    colours=("#5b4bb0", "#a99bf0"),
    newest_version="3.0.65",
    resume_option=("cline", "--id"),
    home_variable="CLINE_DIR",
    more_variables=("CLINE_DATA_DIR", "CLINE_SESSION_DATA_DIR"),
    rewind_hint="in Cline: restore a checkpoint",
    records=("user", "assistant", "session"),
    sample="thence.agents.cline.sample:write",
)
