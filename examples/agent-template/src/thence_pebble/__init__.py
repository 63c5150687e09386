"""Pebble, an agent that does not exist, for thence.

This module is data only: thence imports the reader and the other parts when it needs them.
"""

from __future__ import annotations

from thence.agents.profiles import HookFile, Profile, ServerFile, ToolForm

PROFILE = Profile(
    label="Pebble",
    reader="thence_pebble.reader:Pebble",
    usual_folders=(".pebble",),
    lists_running=True,
    home_variable="PEBBLE_HOME",
    colours=("#7a5c2e", "#cfa96a"),
    resume_option=("pebble", "--resume"),
    prompt_words=("-p", "{}"),
    rewind_hint="in Pebble: /back",
    tools={"shell": ("pebble_run",)},
    forms={"shell": ToolForm("pebble_run", {"command": "script"})},
    hooks=(HookFile("settings.json", ("SessionStart", "Stop")),),
    servers=ServerFile("servers.json"),
    handoff="thence_pebble.handoff:WRITER",
    sample="thence_pebble.sample:write",
)
