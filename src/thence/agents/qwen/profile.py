"""What people call Qwen Code, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import (
    SILENT_EVENTS,
    BriefHook,
    HookFile,
    OldSessions,
    Profile,
    ServerFile,
    ToolForm,
)

PROFILE = Profile(
    label="Qwen Code",
    reader="thence.agents.qwen.reader:Qwen",
    usual_folders=(".qwen",),
    resume_option=("qwen", "--resume"),
    prompt_words=("-p", "{}"),
    home_variable="QWEN_HOME",
    more_variables=("QWEN_RUNTIME_DIR",),
    rewind_hint="in Qwen Code: /rewind, or press Esc twice",
    lists_running=True,
    colours=("#5b4bb0", "#9d8fe8"),
    forms={
        "shell": ToolForm("run_shell_command", {"command": "command"}, {"is_background": False}),
        "read": ToolForm("read_file", {"path": "file_path"}),
        "write": ToolForm("write_file", {"path": "file_path", "content": "content"}),
        "edit": ToolForm("edit", {"path": "file_path", "old": "old_string", "new": "new_string"}),
        "search": ToolForm("grep_search", {"pattern": "pattern"}),
    },
    hooks=(HookFile("settings.json", SILENT_EVENTS, brief=BriefHook()),),
    servers=ServerFile("settings.json"),
    handoff="thence.agents.qwen.handoff:WRITER",
    newest_version="0.24.4",
    records=(
        *("user", "assistant", "user/notification", "system/ui_telemetry"),
        *("system/attribution_snapshot", "system/custom_title", "system/slash_command"),
        *("system/rewind", "system/session_artifact_snapshot", "system/chat_compression"),
        *("system/at_command",),
    ),
    older=(OldSessions("tmp/*/chats/session-*.json", "versions before 0.2"),),
    sample="thence.agents.qwen.sample:write",
)
