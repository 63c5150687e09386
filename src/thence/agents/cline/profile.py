"""What people call Cline, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import HookFile, OldSessions, Profile, ServerFile

_OLD = "versions before 3 and of the VS Code extension"
_EDITORS = tuple(
    f"{place}/globalStorage/saoudrizwan.claude-dev"
    for place in (
        ".config/*/User",
        "Library/Application Support/*/User",
        "AppData/Roaming/*/User",
        ".vscode-server/data/User",
    )
)

EVENTS = ("TaskStart", "TaskComplete", "TaskError", "TaskCancel", "SessionShutdown")

PROFILE = Profile(
    label="Cline",
    reader="thence.agents.cline.reader:Cline",
    usual_folders=(".cline",),
    lists_running=True,
    colours=("#5b4bb0", "#a99bf0"),
    newest_version="3.0.65",
    resume_option=("cline", "--id"),
    prompt_words=("{}",),
    prompt_resume_option=(),  # with an id it opens its interface
    home_variable="CLINE_DIR",
    more_variables=("CLINE_DATA_DIR", "CLINE_SESSION_DATA_DIR"),
    rewind_hint="in Cline: restore a checkpoint",
    records=("user", "assistant", "session"),
    hooks=tuple(
        HookFile(
            f"hooks/{event}.sh",
            (event,),
            form="script",
            is_own_file=True,
            config_variable="CLINE_DIR",
            config_folder=".cline",
        )
        for event in EVENTS
    ),
    servers=ServerFile(
        "data/settings/cline_mcp_settings.json",
        config_variable="CLINE_DIR",
        config_folder=".cline",
    ),
    older=(
        OldSessions("data/tasks/*/api_conversation_history.json", _OLD, names="folder"),
        OldSessions(
            "tasks/*/api_conversation_history.json", _OLD, folders=_EDITORS, names="folder"
        ),
    ),
    sample="thence.agents.cline.sample:write",
)
