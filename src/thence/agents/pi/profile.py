"""What people call pi, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import Profile, ToolForm

PROFILE = Profile(
    label="pi",
    reader="thence.agents.pi.reader:Pi",
    usual_folders=(".pi",),
    has_status=False,
    resume_option=("pi", "--session"),
    prompt_words=("-p", "{}"),
    home_variable="PI_CODING_AGENT_DIR",
    more_variables=("PI_CODING_AGENT_SESSION_DIR",),
    rewind_hint="in pi: /tree",
    lost_on_resume="The memory of extensions is not restored.",
    takes_equals=False,  # its parser takes the next word as it is
    colours=("#8a3f6b", "#d183b0"),
    forms={
        "shell": ToolForm("bash", {"command": "command"}),
        "read": ToolForm("read", {"path": "path"}),
        "write": ToolForm("write", {"path": "path", "content": "content"}),
        "search": ToolForm("grep", {"pattern": "pattern"}),
    },
    handoff="thence.agents.pi.handoff:WRITER",
    newest_version="0.74.2",
    records=(
        *("session", "message", "model_change", "thinking_level_change", "compaction"),
        *("compaction/kept", "custom", "custom_message", "label", "session_info"),
        *("branch_summary", "branchSummary", "compactionSummary"),
    ),
    sample="thence.agents.pi.sample:write",
)
