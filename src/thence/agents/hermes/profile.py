"""What people call Hermes Agent, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import HookFile, Profile, ServerFile, ToolForm

EVENTS = ("on_session_start", "on_session_end", "subagent_stop", "on_session_finalize")

PROFILE = Profile(
    label="Hermes",
    reader="thence.agents.hermes.reader:Hermes",
    usual_folders=(".hermes",),
    lists_running=True,
    colours=("#2c6e77", "#7cc5cf"),
    newest_version="0.19",
    resume_option=("hermes", "--resume"),
    prompt_command=("hermes", "chat"),
    prompt_words=("-q", "{}"),
    home_variable="HERMES_HOME",
    rewind_hint="in Hermes: /undo",
    records=("user", "assistant", "tool", "system", "session", "child", "rewind", "usage"),
    forms={
        "shell": ToolForm("terminal", {"command": "command"}),
        "read": ToolForm("read_file", {"path": "path"}),
        "write": ToolForm("write_file", {"path": "path", "content": "content"}),
        "edit": ToolForm(
            "patch", {"path": "path", "old": "old_string", "new": "new_string"}, {"mode": "replace"}
        ),
    },
    hooks=(
        HookFile(
            "config.yaml",
            EVENTS,
            form="yaml",
            has_shell=False,
            needs_consent="Hermes asks you to allow the hook when it starts next; without a"
            " terminal: hermes --accept-hooks",
        ),
    ),
    servers=ServerFile("config.yaml", form="yaml", key="mcp_servers"),
    sample="thence.agents.hermes.sample:write",
)
