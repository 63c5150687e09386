"""What people call GitHub Copilot CLI, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import Profile

PROFILE = Profile(
    label="Copilot CLI",
    reader="thence.agents.copilot.reader:Copilot",
    usual_folders=(".copilot",),
    resume_option=("copilot", "--resume"),
    home_variable="COPILOT_HOME",
    rewind_hint="in Copilot CLI: /rewind",
    needs_equals=True,
    colours=("#2f6b3a", "#7cc08a"),
    newest_version="1.0.102",
    records=(
        *("abort", "hook.*", "tool.*", "assistant.*", "session.*", "system.*", "subagent.*"),
        *("user.message", "permission.*", "human_response.recorded", "skill.invoked"),
    ),
)
