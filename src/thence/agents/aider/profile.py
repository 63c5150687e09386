"""What people call aider, and how it goes on with the chats of a repository: it has no ids."""

from __future__ import annotations

from thence.agents.profiles import Profile

PROFILE = Profile(
    label="aider",
    reader="thence.agents.aider.reader:Aider",
    usual_folders=(".aider",),
    file_endings=(".aider.chat.history.md",),
    has_status=False,
    colours=("#14776a", "#5fc9b8"),
    newest_version="0.86",
    resume_option=("aider", "--restore-chat-history"),
    resumes_by_folder=True,
    start_command=("aider",),
    prompt_words=("--message", "{}"),
    home_variable="AIDER_CHAT_HISTORY_FILE",
    home_file=".aider.chat.history.md",
    lost_on_resume="Files that were added to the chat are not; add them again.",
    rewind_hint="in aider: /undo takes back its last commit",
    records=("start", "prompt", "answer", "command", "edit", "usage", "note"),
    tools={"edit": ("applied_edit",)},
    sample="thence.agents.aider.sample:write",
)
