"""What people call GitHub Copilot CLI, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import HookFile, OldSessions, Profile, ServerFile, ToolForm

EVENTS = (
    *("sessionStart", "userPromptSubmitted", "subagentStop", "preCompact"),
    *("agentStop", "errorOccurred", "sessionEnd"),
)

PROFILE = Profile(
    label="Copilot CLI",
    reader="thence.agents.copilot.reader:Copilot",
    usual_folders=(".copilot",),
    resume_option=("copilot", "--resume"),
    prompt_words=("-p", "{}"),
    home_variable="COPILOT_HOME",
    rewind_hint="in Copilot CLI: /rewind",
    needs_equals=True,
    lists_running=True,
    colours=("#2f6b3a", "#7cc08a"),
    forms={
        "shell": ToolForm("bash", {"command": "command"}, {"description": "run by another agent"}),
        "read": ToolForm("view", {"path": "path"}),
        "write": ToolForm("create", {"path": "path", "content": "file_text"}),
        "edit": ToolForm("edit", {"path": "path", "old": "old_str", "new": "new_str"}),
        "search": ToolForm("grep", {"pattern": "pattern"}),
    },
    hooks=(
        HookFile(
            "hooks/thence.json",
            EVENTS,
            is_own_file=True,
            command_name="bash",
            more={"version": 1},
        ),
    ),
    servers=ServerFile("mcp-config.json", more={"type": "local", "tools": ["*"]}),
    handoff="thence.agents.copilot.handoff:WRITER",
    newest_version="1.0.102",
    records=(
        *("abort", "hook.*", "tool.*", "assistant.*", "session.*", "system.*", "subagent.*"),
        *("user.message", "permission.*", "human_response.recorded", "skill.invoked"),
    ),
    older=(OldSessions("history-session-state/*.json", "versions of 2025"),),
    sample="thence.agents.copilot.sample:write",
)
