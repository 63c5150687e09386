"""aider: a history as its client writes it, line by line, and what of it can be counted."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.agents.agents import outcomes, prompts_of, sessions_of
from tests.memory.stored import dump, sweep
from tests.pace import SUITE_BYTES, SUITE_ROUNDS
from thence.agents.aider.chat import NO_COUNT, RESTORED, ROUNDED
from thence.agents.aider.reader import NAME, Aider
from thence.agents.profiles import agents
from thence.agents.sessions import load_source, read_all
from thence.memory.readouts import readout_of
from thence.testing import AgentSuite
from thence.testing.readers import CHECKS

FIRST = """
# aider chat started at 2026-05-04 10:50:42

> Aider v0.86.1  
> Main model: openai/made-up with diff edit format  
> Git repo: .git with 3 files  

#### Fix low() so that it takes the minimum.  
#### And say why.  

Here it is.

#### A heading of the model's own

tide.py
```python
<<<<<<< SEARCH
    return max(hours)
=======
    return min(hours)
>>>>>>> REPLACE
```

> Tokens: 1.0k sent, 23 received. Cost: $0.0012 message, $0.0012 session.  
> Applied edit to tide.py  
> Commit 1a2b3c4 fix: take the minimum  

#### /add high.py  

> Added high.py to the chat.  
"""  # noqa: W291 - as aider writes them
SECOND = """
# aider chat started at 2026-05-05 09:00:00

> Aider v0.86.1  
> Model: openai/made-up with diff edit format  

#### /ask Is it right now?  

Yes.

> Tokens: 12k sent, 2.0k cache hit, 999 received.  

#### And the other one?  

Partly

> ^C  
"""  # noqa: W291


def first_of(root: Path) -> Any:
    """Return the session whose first chat is the oldest."""
    return min(sessions_of(Aider(), root).items(), key=lambda pair: pair[0])[1]


def write(root: Path) -> None:
    """Write the histories of two repositories."""
    (root / NAME).write_text(FIRST + SECOND)
    (root / "other").mkdir()
    (root / "other" / NAME).write_text(SECOND)


NOT_AS_OTHERS = ("hostile_lines", "moving")
"""A line that means nothing is what the model said, as far as anybody can tell; and the folder of a
history is where the file lies. Both have tests here."""


@pytest.mark.sampled
@pytest.mark.parametrize("check", [check for check in CHECKS if check not in NOT_AS_OTHERS])
def test_the_agent_suite_passes(check: str) -> None:
    """Steps, damage, rewriting and hostile values change nothing that must stay."""
    assert [] == AgentSuite(
        agents()["aider"], write, rounds=SUITE_ROUNDS, bytewise=SUITE_BYTES
    ).complaints(check)


def test_garbage_costs_no_prompt_no_edit_and_no_bill(tmp_path: Path) -> None:
    """It is shown as text; nothing raises."""
    write(tmp_path)
    before = first_of(tmp_path)
    path = tmp_path / NAME
    chance = random.Random(1)
    for _ in range(20):
        lines = (FIRST + SECOND).encode().splitlines(keepends=True)
        for bad in (b"\xff\xfe\x00\n", b"{\n", b"####\n", b">\n", b"> Tokens: k sent, received\n"):
            lines.insert(chance.randrange(7, len(lines) + 1), bad)
        path.write_bytes(b"".join(lines))
        now = first_of(tmp_path)

        assert [words for words, _ in prompts_of(before)][1:] == [
            words for words, _ in prompts_of(now) if words in dict(prompts_of(before))
        ][-2:]
        assert (outcomes(before), before.spent.own) == (outcomes(now), now.spent.own)


def test_a_history_that_was_moved_is_the_same_session_in_another_folder(tmp_path: Path) -> None:
    """Nothing is read again, no event has another id."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    write(here)
    before = {source.session: read_all(Aider(), source) for source in Aider().find(here)}
    here.rename(there)
    after = {source.session: source for source in Aider().find(there)}

    assert before.keys() == after.keys()
    for name, (facts, batch) in before.items():
        assert [] == Aider().read(after[name], batch.cursor).events
        again, _ = read_all(Aider(), after[name])
        assert [fact.node for fact in facts] == [fact.node for fact in again]
    assert str(there) == first_of(there).session().cwd


def test_prompts_answers_edits_and_settings_are_read(tmp_path: Path) -> None:
    """Headings of the model are no prompts, commands of the user are none either."""
    write(tmp_path)
    graph = first_of(tmp_path)
    session = graph.session()
    answers = [e.payload["text"] for e in graph.events if e.kind == "assistant_msg"]

    assert [
        ("Fix low() so that it takes the minimum. And say why.", "live"),
        ("/ask Is it right now?", "live"),
        ("And the other one?", "live"),
    ] == prompts_of(graph)
    assert answers[0].startswith("Here it is.\n\n#### A heading of the model's own\n\ntide.py\n```")
    assert answers[0].endswith(">>>>>>> REPLACE\n```")
    assert [("applied_edit", True, False, None)] == outcomes(graph)
    assert (str(tmp_path), "openai/made-up") == (session.cwd, session.model)
    assert "interrupted" in str(graph.turn().state)


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_chat_knows_of_the_one_before_only_if_aider_restored_it(
    is_restored: bool, tmp_path: Path
) -> None:
    """What a chat did not know of is cleared, not left: its tokens are live."""
    restored = f"> {RESTORED}  \n\n#### /ask" if is_restored else "#### /ask"
    text = FIRST + SECOND.replace("#### /ask", restored, 1)
    path = tmp_path / NAME
    path.write_text(text)
    graph = first_of(tmp_path)
    messages = json.dumps(readout_of(graph).messages().messages)

    assert ("Here it is." in messages) is is_restored
    assert "Is it right now?" in messages
    assert {"live"} == {state for _, state in prompts_of(graph)}


@pytest.mark.slow
def test_a_history_that_grows_chat_by_chat_is_stored_as_if_read_at_once(tmp_path: Path) -> None:
    """Some chats go on from the one before, others begin anew; what is sealed stays right."""
    home = tmp_path / "home"
    home.mkdir()
    path = home / NAME
    path.write_text(FIRST)
    for number in range(12):
        header = f"> {RESTORED}  \n\n#### /ask" if number % 3 else "#### /ask"
        chat = SECOND.replace("#### /ask", header, 1).replace("other one", f"other {number}")
        with path.open("a") as file:
            file.write(chat.replace("09:00:00", f"09:{number:02}:00"))
        sweep(tmp_path / "grown", {"aider": [home]})
    sweep(tmp_path / "once", {"aider": [home]})

    assert dump(tmp_path / "once") == dump(tmp_path / "grown")


def test_rounded_tokens_are_a_minimum_and_say_so(tmp_path: Path) -> None:
    """1.0k is 950 at least, 12k is 11,500; small numbers are exact; a lost count is told."""
    write(tmp_path)
    (_, first), (_, second) = sorted(
        sessions_of(Aider(), tmp_path).items(), key=lambda pair: pair[0]
    )

    assert 950 + 23 + 11_500 + 999 == first.spent.own
    assert 11_500 + 999 == second.spent.own
    assert {ROUNDED, NO_COUNT} == {notice.detail for notice in first.unbilled}
    exact = tmp_path / "exact"
    exact.mkdir()
    (exact / NAME).write_text(FIRST.replace("1.0k", "712"))
    (source,) = Aider().find(exact)
    small = load_source(Aider(), source).graph
    assert (712 + 23, []) == (small.spent.own, list(small.unbilled))


def test_only_histories_of_aider_are_taken(tmp_path: Path) -> None:
    """Another Markdown file is none, nor is a link; a copy under another name is one."""
    write(tmp_path)
    (tmp_path / "README.md").write_text("# aider\n")
    (tmp_path / "saved.md").write_text(FIRST)
    (tmp_path / "third").mkdir()
    (tmp_path / "third" / NAME).symlink_to(tmp_path / NAME)
    saved = Aider().at(tmp_path / "saved.md")

    assert None is Aider().at(tmp_path / "README.md")
    assert saved is not None
    assert 2 == len(list(Aider().find(tmp_path)))


def test_the_variable_names_the_place(tmp_path: Path) -> None:
    """And aider's own folder is the usual one."""
    named = {"AIDER_CHAT_HISTORY_FILE": str(tmp_path / "x" / NAME)}

    assert [tmp_path / "x", tmp_path / ".aider"] == Aider().roots(tmp_path, named)
    at_home = {"AIDER_CHAT_HISTORY_FILE": str(tmp_path / NAME)}
    assert [tmp_path / ".aider"] == Aider().roots(tmp_path, at_home)
