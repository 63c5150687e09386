"""Sessions of further real clients: captured while they are written, exact, resumed as printed.

Each client talks to a model on loopback, whose bills are what ours must be.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agents import thence
from tests.e2e.clients import ALL, Client, client, order

pytestmark = pytest.mark.e2e

PROMPT = "Which function here finds the low tide? Count the lines too."
ANSWER = "low() does, in tide.py, and it takes the maximum where the minimum is meant."
NEXT = "Say that again in French, please."
DONE = "C'est low(), dans tide.py, qui prend le maximum."
COUNT = "wc -l tide.py && false"
LATEST_S = 2.0
"""Within this time of being written, what is said is in our store."""


def answers(found: Client) -> dict[str, list[Any]]:
    """Return what the model says: a read, a command that fails, an answer; then another answer."""
    return {PROMPT: [found.read, found.run(COUNT), ANSWER], NEXT: [DONE]}


def billed(bills: list[dict[str, Any]], found: Client) -> list[int]:
    """Return input, cached input and output of all that the client's files can know of."""
    known = [bill for bill in bills if found.logs_side_calls or not bill["side"]]
    return [sum(bill[name] for bill in known) for name in ("input", "cached", "output")]


def counted(session: dict[str, Any]) -> list[int]:
    """Return input, cached input and output of a session."""
    spent = [session["spent"][name] for name in ("live", "dead", "side")]
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    fresh, read, written = (sum(usage.get(name, 0) for usage in spent) for name in names)
    return [fresh + read + written, read, sum(usage.get("output_tokens", 0) for usage in spent)]


def summaries(session: dict[str, Any], kind: str) -> list[str]:
    """Return what the events of a kind say."""
    return [event["summary"] for event in session["events"] if event["kind"] == kind]


def shown(found: Client, home: Path, uid: str) -> dict[str, Any]:
    """Return a session after a sweep, as our command shows it."""
    swept, ran = order(
        found, home, {}, thence("sweep", "--json"), thence("show", uid, "--json")
    )["ran"]
    assert [0, 0] == [swept["code"], ran["code"]], (swept, ran)
    session: dict[str, Any] = json.loads(ran["out"])
    return session


@pytest.mark.parametrize("name", [found.name for found in ALL])
def test_a_session_is_captured_in_time_counted_exactly_and_resumed(
    name: str, tmp_path: Path
) -> None:
    """In our store within two seconds, with calls, outcomes and tokens; the printed command works."""
    found = client(name)
    home = tmp_path / "home"
    found.settle(home)
    (home / found.folder).mkdir(parents=True, exist_ok=True)
    watch = {"folder": found.folder, "texts": [PROMPT, ANSWER], "sweep": thence()}
    first = order(found, home, answers(found), found.ask(PROMPT), watch=watch)
    (ran,) = first["ran"]
    print(f"{name}: in the store after {list(first['lags'].values())} s")
    assert 0 == ran["code"], ran
    resume = thence("resume", "--last", "--json")
    way = json.loads(order(found, home, {}, thence("sweep"), resume)["ran"][1]["out"])
    session = shown(found, home, way["session_uid"])
    results = [event for event in session["events"] if event["kind"] == "tool_result"]

    assert [PROMPT] == summaries(session, "user_msg")
    assert 2 == len(summaries(session, "tool_call")) == len(results)
    assert ANSWER in summaries(session, "assistant_msg")
    assert [False, True] == [bool(event.get("failed")) for event in results]
    assert billed(first["billed"], found) == counted(session)
    assert {PROMPT, ANSWER} == first["lags"].keys()
    assert all(lag is not None and lag <= LATEST_S for lag in first["lags"].values()), first["lags"]

    command = [f"{key}={value}" for key, value in way["env"].items()]
    command += found.ask_again(way["argv"], NEXT)
    second = order(found, home, answers(found), command)
    assert 0 == second["ran"][0]["code"], second["ran"]
    sent = json.dumps(second["asked"][0], ensure_ascii=False)
    session = shown(found, home, way["session_uid"])

    assert sent.index(PROMPT) < sent.index(ANSWER) < sent.rindex(NEXT)
    assert [PROMPT, NEXT] == summaries(session, "user_msg")
    assert DONE in summaries(session, "assistant_msg")
    assert billed([*first["billed"], *second["billed"]], found) == counted(session)
