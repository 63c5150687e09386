"""What people call Gemini CLI, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import BriefHook, HookFile, Profile, ServerFile

PROFILE = Profile(
    label="Gemini CLI",
    reader="thence.agents.gemini.reader:Gemini",
    usual_folders=(".gemini",),
    resume_option=("gemini", "--resume"),
    home_variable="GEMINI_CLI_HOME",
    rewind_hint="in Gemini CLI: /rewind, or press Esc twice",
    home_is_parent=True,
    colours=("#2a5fc4", "#82aaff"),
    hooks=(
        HookFile(
            "settings.json",
            ("SessionStart", "AfterAgent", "PreCompress", "SessionEnd"),
            timeout=3000,  # milliseconds
            brief=BriefHook(timeout=10_000, after_compaction=False),
        ),
    ),
    servers=ServerFile("settings.json"),
    newest_version="0.61.0",
    records=(
        *("user", "gemini", "list", "list of *", "metadata", "session", "session context"),
        *("info", "error", "warning"),
    ),
)
