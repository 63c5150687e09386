"""What people call Claude Code, how it is resumed, told of commands and given sessions."""

from __future__ import annotations

from thence.agents.profiles import USUAL_EVENTS, BriefHook, HookFile, Profile, ServerFile, ToolForm

PROFILE = Profile(
    label="Claude Code",
    reader="thence.agents.claude.reader:Claude",
    usual_folders=(
        *(".claude", ".config/claude", ".config/Claude"),
        *("Library/Application Support/Claude", "AppData/Roaming/Claude"),
    ),
    resume_option=("claude", "--resume"),
    prompt_words=("-p", "{}"),
    home_variable="CLAUDE_CONFIG_DIR",
    rewind_hint="in Claude Code: press Esc twice, or /rewind",
    lists_running=True,
    colours=("#b4663c", "#d58a62"),
    newest_version="2.1.325",
    records=(
        *("user", "assistant", "summary", "system", "system/*", "attachment/*", "progress/*"),
        *("queue-operation*", "api-request*", "file-history-*", "last-prompt", "cost-state"),
        *("tools-used", "mode", "permission-mode", "pr-link", "worktree-state", "agent-name"),
        *("custom-title", "ai-title", "frame-link", "started", "result", "relocated"),
        *("bridge-session", "atis-latch", "tool_use", "tool_result", "thence-handoff"),
    ),
    forms={
        "shell": ToolForm("Bash", {"command": "command"}),
        "read": ToolForm("Read", {"path": "file_path"}),
        "write": ToolForm("Write", {"path": "file_path", "content": "content"}),
        "edit": ToolForm("Edit", {"path": "file_path", "old": "old_string", "new": "new_string"}),
        "search": ToolForm("Grep", {"pattern": "pattern"}),
    },
    hooks=(
        HookFile(
            "settings.json",
            USUAL_EVENTS,
            brief=BriefHook(matcher="startup|resume|clear|compact"),
        ),
    ),
    servers=ServerFile(".claude.json", is_beside=True),
    handoff="thence.agents.claude.handoff:WRITER",
    side_file="thence.agents.claude.spills:side_file",
    sample="thence.agents.claude.sample:write",
)
