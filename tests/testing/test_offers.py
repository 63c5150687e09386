"""The checks of what agents offer: each finds out what is wrong with a part."""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any

import msgspec
import pytest

from thence.agents.handoffs import HandoffHistory, HandoffWriter
from thence.agents.profiles import Agent, HookFile, Profile, ServerFile, ToolForm, agents
from thence.agents.samples import Machine, put
from thence.format.records import JSON
from thence.testing import offers

PROFILE = msgspec.structs.replace(
    agents()["claude"].profile, hooks=(), servers=None, handoff="", sample=""
)


def agent(**changes: Any) -> Agent:
    """Return an agent that is well but for this."""
    return Agent("claude", msgspec.structs.replace(PROFILE, **changes))


def outside(_bound: HandoffHistory) -> dict[str, list[JSON]]:
    """Write where nothing of the agent lies."""
    return {"../elsewhere.jsonl": []}


def silent(_bound: HandoffHistory) -> dict[str, list[JSON]]:
    """Write a log that says nothing."""
    return {f"projects/-work/{offers.SESSION}.jsonl": [{"type": "summary", "summary": "x"}]}


def by_chance(machine: Machine, _now: datetime) -> None:
    """Write something else each time, and no session."""
    put(machine.home / "projects" / "x.txt", [{"n": random.random()}])
    (machine.work / "tidepool").mkdir(parents=True, exist_ok=True)


OUTSIDE, SILENT = HandoffWriter(outside), HandoffWriter(silent)


def test_an_agent_that_offers_nothing_is_well() -> None:
    """Parts are optional."""
    checks = (offers.resuming, offers.tool_forms, offers.settings)
    bare = Agent("claude", Profile(label="x", reader=PROFILE.reader))

    assert [] == [words for check in checks for words in check(bare)]
    assert [] == [*offers.handing_over(bare), *offers.made_up(bare), *offers.labelling(bare)]


@pytest.mark.parametrize(
    ("check", "changes", "words"),
    [
        (offers.labelling, {"label": " "}, "label is empty"),
        (offers.labelling, {"colours": ("red", "#112233")}, "#rrggbb"),
        (offers.resuming, {"resume_option": ("/bin/x", "--resume")}, "PATH"),
        (offers.resuming, {"resume_option": ("x",)}, "is_positional"),
        (offers.resuming, {"resume_option": ("x", "-r")}, "long_option"),
        (offers.tool_forms, {"tools": {"hammer": ("x",)}}, "no kind of tool"),
        (offers.tool_forms, {"tools": {"shell": ("Read",)}}, "Read is no shell"),
        (offers.tool_forms, {"forms": {"read": ToolForm("Bash", {"path": "x"})}}, "not known as"),
        (offers.tool_forms, {"forms": {"read": ToolForm("Read", {})}}, "names path"),
        (offers.tool_forms, {"forms": {"fly": ToolForm("Fly", {})}}, "no form"),
        (offers.settings, {"hooks": (HookFile("s.json", ()),)}, "not found again"),
        (offers.handing_over, {"handoff": "pathlib:Path"}, "no Writer"),
        (offers.handing_over, {"handoff": f"{__name__}:OUTSIDE"}, "outside"),
        (offers.handing_over, {"handoff": f"{__name__}:SILENT"}, "reads back"),
        (offers.made_up, {"sample": f"{__name__}:by_chance"}, "the same bytes"),
        (offers.made_up, {"sample": f"{__name__}:by_chance"}, "finds no session"),
        (offers.made_up, {"sample": f"{__name__}:by_chance"}, "into the projects"),
    ],
)
def test_what_is_wrong_is_said(check: Any, changes: dict[str, Any], words: str) -> None:
    """One fault each."""
    assert [] != [problem for problem in check(agent(**changes)) if words in problem]


def test_a_server_that_is_not_found_again_is_said() -> None:
    """Its entry stands under a name that nobody reads."""
    odd = agent(servers=ServerFile("s.yaml", form="yaml", key="a: b"))

    with pytest.raises(Exception, match="cannot find where"):
        list(offers.settings(odd))
