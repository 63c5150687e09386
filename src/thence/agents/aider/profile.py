"""What people call aider. It has no ids of sessions, so nothing resumes one by its id."""

from __future__ import annotations

from thence.agents.profiles import Profile

PROFILE = Profile(
    label="aider",
    reader="thence.agents.aider.reader:Aider",
    usual_folders=(".aider",),
    has_status=False,
    colours=("#14776a", "#5fc9b8"),
    newest_version="0.86",
    start_command=("aider",),
    prompt_words=("--message", "{}"),
    home_variable="AIDER_CHAT_HISTORY_FILE",  # the file; here the folder with it is one too
    rewind_hint="in aider: /undo takes back its last commit",
    records=("start", "prompt", "answer", "command", "edit", "usage", "note"),
    tools={"edit": ("applied_edit",)},
    sample="thence.agents.aider.sample:write",
)
