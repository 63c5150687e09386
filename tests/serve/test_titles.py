"""Sessions found by the titles that their clients made, over HTTP, in the viewer and by agents."""

from __future__ import annotations

import json

from tests.agents import rollouts
from tests.serve.conftest import House
from thence.serve.questions import Questions

THREAD = "01a00000-0000-7000-8000-0000000000aa"


def test_a_word_of_a_title_finds_the_session_everywhere(own_house: House) -> None:
    """The name of a thread is in none of its records, only in the client's list of names."""
    house = own_house
    folder = house.homes.codex / "sessions" / "2026" / "01" / "01"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [rollouts.meta(THREAD, cwd="/home/dev/books"), rollouts.user("speed up the dump")]
    path = folder / f"rollout-2026-01-01T00-00-00-{THREAD}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    named = {"id": THREAD, "thread_name": "Flamingo ledger", "updated_at": "2026-01-01T00:00:00Z"}
    with (house.homes.codex / "session_index.jsonl").open("a", encoding="utf-8") as names:
        names.write(json.dumps(named) + "\n")
    house.swept()
    uid = f"codex:{THREAD}"
    hits = house.ask("/api/search?q=flamingo").json["hits"]
    listed = house.ask("/api/sessions?q=flamingo").json["sessions"]
    page = house.ask("/sessions?q=flamingo").body.decode()
    questions = Questions(house.store, lambda *_: {})
    answer = questions.answer("search", {"query": "flamingo"})

    assert [(uid, "title", None)] == [
        (hit["session_uid"], hit["kind"], hit["event_id"]) for hit in hits
    ]
    assert [uid] == [row["session_uid"] for row in listed]
    assert "<mark>Flamingo</mark> ledger" in page
    assert THREAD[:8] in answer
    assert "title" in answer
    assert "Flamingo" in answer
