"""What people call Kilo, and how it resumes a session. It is a fork of OpenCode: same tools."""

from __future__ import annotations

from thence.agents.opencode.profile import PROFILE as OPENCODE
from thence.agents.profiles import Profile, ServerFile

PROFILE = Profile(
    label="Kilo",
    reader="thence.agents.kilo.reader:Kilo",
    usual_folders=(".local/share/kilo",),
    has_status=False,
    colours=("#8a6d00", "#d6bd4a"),
    newest_version="7.7",
    records=OPENCODE.records,
    resume_option=("kilo", "--session"),
    prompt_command=("kilo", "run"),
    prompt_words=("{}",),
    home_variable="XDG_DATA_HOME",
    rewind_hint="in Kilo: /undo",
    home_is_parent=True,
    forms=OPENCODE.forms,
    servers=ServerFile(
        "kilo/kilo.json",
        key="mcp",
        config_variable="XDG_CONFIG_HOME",
        is_command_list=True,
        more={"type": "local", "enabled": True},
    ),
    handoff="thence.agents.kilo.handoff:WRITER",
    more_variables=("KILO_DB",),
    sample="thence.agents.kilo.sample:write",
)
