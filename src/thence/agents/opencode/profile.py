"""What people call OpenCode, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import OldSessions, Profile, ServerFile, ToolForm

SERVERS = ServerFile(
    "opencode/opencode.json",
    key="mcp",
    config_variable="XDG_CONFIG_HOME",
    is_command_list=True,
    more={"type": "local", "enabled": True},
)

PROFILE = Profile(
    label="OpenCode",
    reader="thence.agents.opencode.reader:OpenCode",
    usual_folders=(".local/share/opencode",),
    has_status=False,
    colours=("#4a5a6a", "#a3b4c6"),
    newest_version="1.18",
    records=(
        *("model call", "text", "reasoning", "tool", "file", "compaction", "revert", "agent"),
        *("session", "subtask", "retry", "error"),
    ),
    resume_option=("opencode", "--session"),
    prompt_command=("opencode", "run"),
    prompt_words=("{}",),
    home_variable="XDG_DATA_HOME",
    rewind_hint="in OpenCode: /undo",
    home_is_parent=True,
    forms={
        "shell": ToolForm("bash", {"command": "command"}, {"description": "run by another agent"}),
        "read": ToolForm("read", {"path": "filePath"}),
        "write": ToolForm("write", {"path": "filePath", "content": "content"}),
        "edit": ToolForm("edit", {"path": "filePath", "old": "oldString", "new": "newString"}),
        "search": ToolForm("grep", {"pattern": "pattern"}),
    },
    servers=SERVERS,
    handoff="thence.agents.opencode.handoff:WRITER",
    more_variables=("OPENCODE_DB",),
    older=(
        OldSessions("storage/session/*/ses_*.json", "versions before 1.2"),
        OldSessions("project/*/storage/session/info/ses_*.json", "versions of 2025"),
    ),
    sample="thence.agents.opencode.sample:write",
)
