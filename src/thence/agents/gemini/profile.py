"""What people call Gemini CLI, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import BriefHook, HookFile, OldSessions, Profile, ServerFile, ToolForm

PROFILE = Profile(
    label="Gemini CLI",
    reader="thence.agents.gemini.reader:Gemini",
    usual_folders=(".gemini",),
    resume_option=("gemini", "--resume"),
    prompt_words=("-p", "{}"),
    home_variable="GEMINI_CLI_HOME",
    rewind_hint="in Gemini CLI: /rewind, or press Esc twice",
    home_is_parent=True,
    colours=("#2a5fc4", "#82aaff"),
    forms={
        "shell": ToolForm("run_shell_command", {"command": "command"}),
        "read": ToolForm("read_file", {"path": "file_path"}),
        "write": ToolForm("write_file", {"path": "file_path", "content": "content"}),
        "edit": ToolForm(
            "replace", {"path": "file_path", "old": "old_string", "new": "new_string"}
        ),
        "search": ToolForm("grep_search", {"pattern": "pattern"}),
    },
    hooks=(
        HookFile(
            "settings.json",
            ("SessionStart", "AfterAgent", "PreCompress", "SessionEnd"),
            timeout=3000,  # milliseconds
            brief=BriefHook(timeout=10_000, after_compaction=False),
        ),
    ),
    servers=ServerFile("settings.json"),
    handoff="thence.agents.gemini.handoff:WRITER",
    newest_version="0.61.0",
    records=(
        *("user", "gemini", "list", "list of *", "metadata", "session", "session context"),
        *("info", "error", "warning", "repeated message"),
    ),
    older=(
        OldSessions("tmp/*/chats/session-*.json", "versions before 0.40"),
        OldSessions("antigravity*/conversations/*.[dp]b", "Antigravity"),
    ),
    sample="thence.agents.gemini.sample:write",
)
