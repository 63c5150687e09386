"""What people call Codex, how it is resumed, told of commands and given sessions."""

from __future__ import annotations

from thence.agents.profiles import HookFile, Profile, ServerFile, ToolForm

EVENTS = (
    *("SessionStart", "UserPromptSubmit", "SubagentStop", "PreCompact"),
    *("Stop", "SessionEnd"),
)

PROFILE = Profile(
    label="Codex",
    reader="thence.agents.codex.reader:Codex",
    usual_folders=(".codex",),
    has_status=False,
    resume_option=("codex", "resume"),
    is_positional=True,
    home_variable="CODEX_HOME",
    lost_on_resume="approvals granted for that session only; Codex asks again",
    rewind_hint="in Codex: press Esc twice",
    colours=("#3f6f8f", "#6fa3c6"),
    newest_version="0.166.0",
    forms={
        "shell": ToolForm("exec_command", {"command": "cmd"}),
        "todos": ToolForm("update_plan", {"items": "plan", "text": "step", "status": "status"}),
    },
    hooks=(HookFile("config.toml", form="notify"), HookFile("hooks.json", EVENTS)),
    servers=ServerFile(
        "config.toml", form="toml", key="mcp_servers", more={"startup_timeout_sec": 60}
    ),
    handoff="thence.agents.codex.handoff:WRITER",
    sample="thence.agents.codex.sample:write",
)
