"""What people call Kimi Code, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import HookFile, OldSessions, Profile, ServerFile, ToolForm

EVENTS = (
    *("SessionStart", "UserPromptSubmit", "SubagentStop", "PreCompact"),
    *("Stop", "StopFailure", "Interrupt", "SessionEnd"),
)

PROFILE = Profile(
    label="Kimi Code",
    reader="thence.agents.kimi.reader:Kimi",
    usual_folders=(".kimi-code",),
    has_status=False,
    resume_option=("kimi", "--session"),
    prompt_words=("-p", "{}"),
    home_variable="KIMI_CODE_HOME",
    id_prefix="session_",
    rewind_hint="in Kimi Code: /undo",
    colours=("#7c6a12", "#cdb754"),
    forms={
        "shell": ToolForm("Bash", {"command": "command"}),
        "read": ToolForm("Read", {"path": "path"}),
        "write": ToolForm("Write", {"path": "path", "content": "content"}),
        "edit": ToolForm("Edit", {"path": "path", "old": "old_string", "new": "new_string"}),
        "search": ToolForm("Grep", {"pattern": "pattern"}),
    },
    hooks=(HookFile("config.toml", EVENTS, form="tables"),),
    servers=ServerFile("mcp.json"),
    handoff="thence.agents.kimi.handoff:WRITER",
    newest_version="2.1.0",
    records=(
        *("metadata", "agent.*", "context.*", "file_history.*", "forked", "full_compaction.*"),
        *("micro_compaction.*", "llm.*", "permission.*", "plugin.*", "profile.bind", "prompt.*"),
        *("runtime.*", "step.*", "subagent.*", "token_counting.*", "turn.*", "usage.record"),
        *("config.update", "skill.*", "goal.*", "plan.*", "task.*", "cron.*", "todo.*"),
        *("tools.*", "hook.*"),
    ),
    older=(
        OldSessions(
            "sessions/*/*/context.jsonl",
            "kimi-cli",
            folders=(".kimi",),
            variable="KIMI_SHARE_DIR",
            names="folder",
        ),
    ),
    sample="thence.agents.kimi.sample:write",
)
