"""What people call Kilo, and how it resumes a session. It is a fork of OpenCode: same tools."""

from __future__ import annotations

from msgspec.structs import replace

from thence.agents.opencode.profile import PROFILE as OPENCODE
from thence.agents.opencode.profile import SERVERS

PROFILE = replace(
    OPENCODE,
    label="Kilo",
    reader="thence.agents.kilo.reader:Kilo",
    usual_folders=(".local/share/kilo",),
    colours=("#8a6d00", "#d6bd4a"),
    newest_version="7.7",
    resume_option=("kilo", "--session"),
    prompt_command=("kilo", "run"),
    rewind_hint="in Kilo: /undo",
    servers=replace(SERVERS, path="kilo/kilo.json"),
    handoff="thence.agents.kilo.handoff:WRITER",
    more_variables=("KILO_DB",),
    sample="thence.agents.kilo.sample:write",
)
