"""What people call Codex, how it is resumed, told of commands and given sessions."""

from __future__ import annotations

from thence.agents.profiles import SILENT_EVENTS, BriefHook, HookFile, Profile, ServerFile, ToolForm

PROFILE = Profile(
    label="Codex",
    reader="thence.agents.codex.reader:Codex",
    usual_folders=(".codex",),
    has_status=False,
    resume_option=("codex", "resume"),
    prompt_command=("codex", "exec"),
    prompt_words=("{}",),
    is_positional=True,
    home_variable="CODEX_HOME",
    lost_on_resume="Approvals are not restored; Codex will ask.",
    rewind_hint="in Codex: press Esc twice",
    colours=("#3f6f8f", "#6fa3c6"),
    newest_version="0.166.0",
    records=(
        *("inter_agent_communication", "realtime_item", "event_msg/thread_rolled_back"),
        *("response_item/web_search_call", "response_item/tool_search_*"),
        *("response_item/image_generation_call", "response_item/local_shell_call*"),
        *("session_meta", "turn_context", "compacted", "state", "world_state"),
        *("token_usage_record", "inter_agent_communication_metadata", "thence_handoff", "user"),
        *("assistant", "system", "tool_result", "message", "reasoning", "function_call"),
        *("function_call_output", "response_item/message", "response_item/ghost_snapshot"),
        *("response_item/agent_message", "response_item/additional_tools"),
        *("response_item/reasoning", "response_item/compaction", "event_msg/token_count"),
        *("event_msg/agent_message", "event_msg/agent_reasoning"),
        *("event_msg/agent_reasoning_raw_content", "event_msg/agent_reasoning_section_break"),
        *("event_msg/item_completed", "event_msg/item_started", "event_msg/user_message"),
        *("event_msg/task_started", "event_msg/task_complete", "event_msg/turn_started"),
        *("event_msg/turn_complete", "event_msg/thread_settings_applied"),
        *("event_msg/patch_apply_begin", "event_msg/patch_apply_end"),
        *("event_msg/web_search_begin", "event_msg/web_search_end"),
        *("event_msg/mcp_tool_call_begin", "event_msg/mcp_tool_call_end"),
        *("event_msg/entered_review_mode", "event_msg/exited_review_mode"),
        *("event_msg/guardian_assessment", "event_msg/turn_aborted"),
        *("event_msg/exec_command_begin", "event_msg/exec_command_end"),
        *("event_msg/image_generation_end", "event_msg/thread_goal_updated"),
        *("event_msg/collab_*", "event_msg/context_compacted", "event_msg/sub_agent_activity"),
        *("event_msg/thread_name_updated", "event_msg/view_image_tool_call"),
        *("event_msg/dynamic_tool_call_*", "event_msg/undo_completed", "event_msg/error"),
        *("event_msg/warning", "event_msg/stream_error"),
    ),
    forms={
        "shell": ToolForm("exec_command", {"command": "cmd"}),
        "todos": ToolForm("update_plan", {"items": "plan", "text": "step", "status": "status"}),
    },
    hooks=(
        HookFile("config.toml", form="notify"),
        HookFile("hooks.json", SILENT_EVENTS, brief=BriefHook()),
    ),
    servers=ServerFile(
        "config.toml", form="toml", key="mcp_servers", more={"startup_timeout_sec": 60}
    ),
    handoff="thence.agents.codex.handoff:WRITER",
    sample="thence.agents.codex.sample:write",
)
