"""What people call goose, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import OldSessions, Profile, ServerFile, ToolForm

PROFILE = Profile(
    label="goose",
    reader="thence.agents.goose.reader:Goose",
    usual_folders=(".local/share/goose", "Library/Application Support/Block.goose"),
    has_status=False,
    colours=("#7a5c1e", "#d1ab63"),
    newest_version="1.34",
    records=("user", "assistant", "session", "usage"),
    resume_option=("goose", "session", "--resume", "--session-id"),
    start_command=("goose", "session"),
    prompt_command=("goose", "run"),
    prompt_words=("-t", "{}"),
    home_variable="XDG_DATA_HOME",
    rewind_hint="goose has no command for it: edit the message in its desktop app",
    home_is_parent=True,
    more_variables=("GOOSE_PATH_ROOT",),
    forms={
        "shell": ToolForm("shell", {"command": "command"}),
        "write": ToolForm("write", {"path": "path", "content": "content"}),
        "edit": ToolForm("edit", {"path": "path", "old": "before", "new": "after"}),
    },
    servers=ServerFile(
        "goose/config.yaml",
        form="yaml",
        key="extensions",
        renamed={"command": "cmd", "env": "envs"},
        config_variable="XDG_CONFIG_HOME",
        more={
            "type": "stdio",
            "name": "thence",
            "description": "past sessions",
            "enabled": True,
            "timeout": 60,
        },
    ),
    older=(OldSessions("sessions/*.jsonl", "versions before 1.10"),),
    sample="thence.agents.goose.sample:write",
)
