"""What people call Continue, and how it goes on with a session."""

from __future__ import annotations

from thence.agents.profiles import Profile, ServerFile, ToolForm

PROFILE = Profile(
    label="Continue",
    reader="thence.agents.continue_.reader:Continue",
    usual_folders=(".continue",),
    has_status=False,
    colours=("#a3335f", "#f08fb4"),
    newest_version="1.5.47",
    records=("user", "assistant", "thinking", "tool", "system", "summary", "session", "result"),
    resume_option=("cn", "--fork"),  # `--resume` takes no id: it is always the last session
    prompt_words=("-p", "{}"),
    home_variable="CONTINUE_GLOBAL_DIR",
    rewind_hint="in Continue: start a new session",
    lost_on_resume="Continue resumes a copy of the session.",
    tools={"search": ("Search",)},
    forms={
        "shell": ToolForm("Bash", {"command": "command"}),
        "read": ToolForm("Read", {"path": "filepath"}),
        "write": ToolForm("Write", {"path": "filepath", "content": "content"}),
        "edit": ToolForm("Edit", {"path": "file_path", "old": "old_string", "new": "new_string"}),
        "search": ToolForm("Search", {"pattern": "pattern"}),
    },
    servers=ServerFile("config.yaml", form="yaml", is_list=True),
    sample="thence.agents.continue_.sample:write",
)
