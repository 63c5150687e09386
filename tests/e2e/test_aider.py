"""aider, which has no tools, ids or exact counts: captured in time, edits applied, resumed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.e2e import cell
from tests.e2e.agents import ADDRESS, thence
from tests.e2e.clients import MODEL, Client, fetched, order
from tests.e2e.test_agents import LATEST_S, counted, shown, summaries
from thence.agents.aider.reader import NAME

pytestmark = pytest.mark.e2e

PROMPT = "Let low() take the minimum."
WORDS = "low() took the maximum; now it takes the minimum."
ANSWER = f"""{WORDS}

tide.py
```
def low(hours):
    return min(hours)
```
"""
NEXT = "And what of the high tide?"
DONE = "There is no function for it yet."

OPTIONS = (
    *("--model", f"openai/{MODEL}", "--edit-format", "whole", "--no-git", "--yes-always"),
    *("--no-show-model-warnings", "--no-check-update", "--no-show-release-notes"),
    *("--analytics-disable", "--no-stream", "--no-pretty"),
)
AIDER = Client(
    "aider",
    "aider",
    "project",
    # In a file: aider writes its command line into the history, long before it asks anything.
    (*OPTIONS, "--message-file", "ask.txt", "tide.py"),
    (*OPTIONS, "--message", "{}"),
    ("", ""),
    ("", {}),
    {
        "OPENAI_API_KEY": "none",
        "OPENAI_API_BASE": f"{ADDRESS}/v1",
        "AIDER_CHAT_HISTORY_FILE": f"{cell.HOME}/project/{NAME}",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    },
    logs=NAME,
)
SCRIPT = {PROMPT: [ANSWER], NEXT: [DONE]}


def is_rounded(exact: int, shown_: int) -> bool:
    """Return whether a count is the least that aider's words for the exact one can mean."""
    return exact - 100 <= shown_ <= exact


def test_chats_of_aider_are_captured_in_time_and_resumed_by_the_printed_command(
    tmp_path: Path,
) -> None:
    """Prompt, answer, edit, least tokens; the second chat goes on from the first."""
    fetched(AIDER)
    home = tmp_path / "home"
    AIDER.settle(home)
    (home / "project" / "ask.txt").write_text(PROMPT)
    watch = {
        "folder": AIDER.folder,
        "logs": AIDER.logs,
        "texts": [PROMPT, WORDS],
        "sweep": thence(),
    }
    asks = {"watch": watch, "needs_tools": False}
    first = order(AIDER, home, SCRIPT, AIDER.ask(PROMPT), **asks)
    assert 0 == first["ran"][0]["code"], first["ran"]
    sys.stdout.write(f"aider: in the store after {list(first['lags'].values())} s\n")
    resume = order(AIDER, home, {}, thence("sweep"), thence("resume", "--last", "--json"))["ran"][1]
    way = json.loads(resume["out"])
    session = shown(AIDER, home, way["session_uid"])
    (bill,) = first["billed"]
    spent = counted(session)

    assert all(lag is not None and lag <= LATEST_S for lag in first["lags"].values()), first["lags"]
    assert "    return min(hours)\n" in (home / "project" / "tide.py").read_text()
    assert [PROMPT] == summaries(session, "user_msg")
    assert any(text.startswith(WORDS) for text in summaries(session, "assistant_msg"))
    assert any("tide.py" in text for text in summaries(session, "edit"))
    assert is_rounded(bill["input"], spent[0]), (bill, spent)
    assert bill["output"] == spent[2]

    assert ["aider", "--restore-chat-history"] == way["argv"]
    command = [f"{key}={value}" for key, value in way["env"].items()]
    second = order(
        AIDER, home, SCRIPT, [*command, *AIDER.ask_again(way["argv"], NEXT)], needs_tools=False
    )
    assert 0 == second["ran"][0]["code"], second["ran"]
    sent = json.dumps(second["asked"][0], ensure_ascii=False)
    session = shown(AIDER, home, way["session_uid"])
    prompts = [e for e in session["events"] if e["kind"] == "user_msg"]

    assert sent.index(PROMPT) < sent.index(WORDS) < sent.rindex(NEXT)
    assert [(PROMPT, "live"), (NEXT, "live")] == [(e["summary"], e["state"]) for e in prompts]
    assert DONE in summaries(session, "assistant_msg")
    messages = thence("show", way["session_uid"], "--as", "messages", "--json")
    chain = order(AIDER, home, {}, messages)["ran"][0]["out"]
    assert chain.index(PROMPT) < chain.index(WORDS) < chain.index(NEXT) < chain.index(DONE)
