"""What people call Mistral Vibe, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import HookFile, OldSessions, Profile, ServerFile, ToolForm

PROFILE = Profile(
    label="Mistral Vibe",
    reader="thence.agents.vibe.reader:Vibe",
    usual_folders=(".vibe",),
    lists_running=True,
    colours=("#b5440c", "#ff9a5c"),
    newest_version="3.0",
    resume_option=("vibe", "--resume"),
    prompt_words=("-p", "{}"),
    home_variable="VIBE_HOME",
    rewind_hint="in Mistral Vibe: start a new session",
    records=("message", "reasoning", "effect", "total"),
    forms={
        "shell": ToolForm("bash", {"command": "command"}),
        "read": ToolForm("read_file", {"path": "path"}),
        "write": ToolForm("write_file", {"path": "path", "content": "content"}),
    },
    hooks=(
        HookFile(
            "hooks.toml",
            ("post_agent",),
            form="tables",
            event_name="type",
            more={"name": "thence"},
        ),
    ),
    servers=ServerFile(
        "config.toml",
        form="toml",
        key="mcp_servers",
        is_list=True,
        more={"transport": "stdio"},
    ),
    older=(
        OldSessions("logs/session/session_*.json", "Vibe 1"),
        OldSessions("logs/session/session_*/meta.json", "Vibe 2", names="folder"),
    ),
    sample="thence.agents.vibe.sample:write",
)
