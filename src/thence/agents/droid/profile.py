"""What people call Droid, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import USUAL_EVENTS, HookFile, Profile, ServerFile, ToolForm

PROFILE = Profile(
    label="Droid",
    reader="thence.agents.droid.reader:Droid",
    usual_folders=(".factory",),
    has_status=False,
    colours=("#8a4b1f", "#dd9b6a"),
    newest_version="0.225",
    resume_option=("droid", "--resume"),
    prompt_command=("droid", "exec"),
    prompt_resume_option=("droid", "exec", "--session-id"),
    prompt_words=("{}",),
    home_variable="FACTORY_HOME_OVERRIDE",
    home_is_parent=True,
    rewind_hint="in Droid: /rewind-conversation",
    records=("session_start", "message", "agent_turn_outcome", "compaction_state", "total"),
    forms={
        "shell": ToolForm("Execute", {"command": "command"}, {"summary": "run by another agent"}),
        "read": ToolForm("Read", {"path": "file_path"}),
        "write": ToolForm("Create", {"path": "file_path", "content": "content"}),
        "edit": ToolForm("Edit", {"path": "file_path", "old": "old_str", "new": "new_str"}),
        "search": ToolForm("Grep", {"pattern": "pattern"}),
    },
    hooks=(HookFile("settings.json", USUAL_EVENTS),),
    servers=ServerFile("mcp.json", more={"type": "stdio"}),
    sample="thence.agents.droid.sample:write",
)
