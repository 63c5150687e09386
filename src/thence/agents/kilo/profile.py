"""What people call Kilo, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import Profile, ServerFile, ToolForm

PROFILE = Profile(
    label="Kilo",
    reader="thence.agents.kilo.reader:Kilo",
    usual_folders=(".local/share/kilo",),
    has_status=False,
    colours=("#8a6d00", "#d6bd4a"),
    newest_version="7.7",
    resume_option=("kilo", "--session"),
    home_variable="XDG_DATA_HOME",
    rewind_hint="in Kilo: /undo",
    home_is_parent=True,
    forms={
        "shell": ToolForm("bash", {"command": "command"}, {"description": "run by another agent"}),
        "read": ToolForm("read", {"path": "filePath"}),
        "write": ToolForm("write", {"path": "filePath", "content": "content"}),
        "edit": ToolForm("edit", {"path": "filePath", "old": "oldString", "new": "newString"}),
        "search": ToolForm("grep", {"pattern": "pattern"}),
    },
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
