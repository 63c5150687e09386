"""What people call Grok, how it is resumed, told of commands and given sessions."""

from __future__ import annotations

from thence.agents.profiles import USUAL_EVENTS, HookFile, Profile, ServerFile, ToolForm

PROFILE = Profile(
    label="Grok",
    reader="thence.agents.grok.reader:Grok",
    usual_folders=(".grok",),
    resume_option=("grok", "-r"),
    prompt_words=("-p", "{}"),
    long_option="--resume",
    home_variable="GROK_HOME",
    rewind_hint="in Grok: /rewind",
    lists_running=True,
    colours=("#6b6f76", "#a2a8b0"),
    newest_version="1.0.41",
    records=(
        *("task_completed", "session_*", "agent_message_chunk", "agent_thought_chunk"),
        *("phase_changed", "loop_started", "hook_execution", "tool_*", "permission_*", "turn_*"),
        *("first_token", "rewind_*", "background_tasks", "compaction_checkpoint"),
        *("auto_compact_*", "subagent_*", "system", "user", "user_message_chunk", "assistant"),
        *("retry_state", "plan", "mcp_*", "reasoning", "backend_tool_call"),
    ),
    forms={
        "shell": ToolForm(
            "run_terminal_command",
            {"command": "command"},
            {"description": "run by another agent"},
        ),
        "read": ToolForm("read_file", {"path": "target_file"}),
        "write": ToolForm("write", {"path": "file_path", "content": "content"}),
        "edit": ToolForm(
            "search_replace", {"path": "file_path", "old": "old_string", "new": "new_string"}
        ),
        "search": ToolForm("grep", {"pattern": "pattern"}),
        "server": ToolForm("use_tool", {"name": "tool_name", "input": "tool_input"}),
    },
    hooks=(HookFile("hooks/thence.json", USUAL_EVENTS, is_own_file=True),),
    servers=ServerFile(
        "config.toml", form="toml", key="mcp_servers", more={"startup_timeout_sec": 60}
    ),
    handoff="thence.agents.grok.handoff:WRITER",
    side_file="thence.agents.grok.reader:side_file",
    sample="thence.agents.grok.sample:write",
)
