"""The store of the Claude Agent SDK: equal entries, once each, nothing deleted."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from thence.bridge.claude_agent_sdk import JournalSessionStore
from thence.cli import main as cli
from thence.format.graph import State
from thence.format.transcript import Transcript
from thence.journal import Journal

SESSION = "7f3a91c2-55d0-4c1e-9a53-0d6c1f2b7e10"
KEY = {"project_key": "-home-dev-tidepool", "session_id": SESSION}
SUB = {**KEY, "subpath": "subagents/agent-1"}


def entry(uuid: str | None, parent: str | None = None, **more: Any) -> dict[str, Any]:
    """An entry as the client writes it."""
    named = {"uuid": uuid} if uuid is not None else {}
    return {"type": "user", "parentUuid": parent, "isSidechain": False, **named, **more}


def message(uuid: str, parent: str | None, role: str, content: Any) -> dict[str, Any]:
    """A message."""
    message = {"role": role, "content": content, "id": f"msg-{uuid}"}
    when = "2026-11-15T13:12:00.123Z"
    return entry(uuid, parent, type=role, message=message, timestamp=when, version="2.1.325")


STORY = [
    entry(None, type="mode", mode="plan"),
    message("u1", None, "user", "Why is the build red?"),
    message(
        "a1", "u1", "assistant", [{"type": "tool_use", "id": "c1", "name": "Bash", "input": {}}]
    ),
    message(
        "u2", "a1", "user", [{"type": "tool_result", "tool_use_id": "c1", "content": "x" * 40_000}]
    ),
    message("a2", "u2", "assistant", [{"type": "text", "text": "A test fails."}]),
    entry("s1", "a2", type="system", subtype="permission", content="Bash allowed"),
    entry(None, type="custom-title", customTitle="Red build"),
]


def logs(journal: Journal) -> list[Path]:
    """The transcripts on the disk."""
    return sorted((journal.root / "sessions").rglob("*.jsonl"))


async def appended(store: JournalSessionStore, *batches: list[Any]) -> Any:
    """Append batches and load."""
    for batch in batches:
        await store.append(KEY, batch)
    return await store.load(KEY)


def test_entries_come_back_equal_in_their_order(journal: Journal) -> None:
    """Messages, results of any size, entries of any kind; for another process, too."""
    loaded = asyncio.run(appended(JournalSessionStore(journal), STORY[:3], STORY[3:]))
    again = asyncio.run(JournalSessionStore(Journal(journal.root)).load(KEY))

    assert STORY == loaded == again


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "user"},
        {"type": "user", "message": None},
        {"type": "user", "message": {"role": "assistant", "content": "swapped"}},
        {"type": "assistant", "message": {"role": "assistant", "content": [], "bridge": 1}},
        {"type": "user", "message": {"role": "user", "content": {"no": "list"}}, "uuid": 7},
        {"type": "x", "bridge": {"is": "claude-agent-sdk", "whole": 3}, "uuid": "o"},
        {"uuid": "", "parentUuid": ["a"], "timestamp": 12},
        {"type": "user", "uuid": "../../etc", "message": {"role": "user", "content": "\ud800\0"}},
        {"type": "n", "n": [2**70, 1.5, None, True, "\u202e"]},
    ],
)
def test_an_odd_entry_comes_back_equal(journal: Journal, odd: dict[str, Any]) -> None:
    """Entries are opaque: no shape of one raises or changes."""
    named = isinstance(odd.get("uuid"), str) and odd["uuid"] != ""
    loaded = asyncio.run(appended(JournalSessionStore(journal), [odd], [odd]))

    assert ([odd] if named else [odd, odd]) == loaded


def test_a_uuid_counts_once_and_an_entry_without_one_every_time(journal: Journal) -> None:
    """In one batch, in two, from two stores; the first one stays."""
    mark = entry(None, type="mode")
    here, there = JournalSessionStore(journal), JournalSessionStore(Journal(journal.root))
    first, other = entry("u1", n=1), entry("u1", n=2)
    asyncio.run(appended(here, [first, mark], [other, mark]))

    assert [first, mark, mark, mark] == asyncio.run(appended(there, [other, mark]))


def test_what_the_caller_changes_later_does_not_show(journal: Journal) -> None:
    """Neither in what was given nor in what was got."""

    async def main() -> Any:
        store, mine = JournalSessionStore(journal), entry("u1", tags=["a"])
        waiting = asyncio.ensure_future(store.append(KEY, [mine]))
        await asyncio.sleep(0)
        mine["tags"].append("b")
        await waiting
        got: Any = await store.load(KEY)
        got[0]["tags"].append("c")
        return await store.load(KEY)

    assert [entry("u1", tags=["a"])] == asyncio.run(main())


def test_an_empty_batch_makes_no_session(journal: Journal) -> None:
    """Nor does looking at one."""

    async def main() -> Any:
        store = JournalSessionStore(journal)
        await store.append(KEY, [])
        loaded = [await store.load(KEY), await store.load(SUB)]
        await store.delete(KEY)
        return [
            *loaded,
            await store.list_sessions(KEY["project_key"]),
            await store.list_subkeys(KEY),
        ]

    assert [None, None, [], []] == asyncio.run(main())
    assert [] == logs(journal)


def test_delete_is_a_tombstone(journal: Journal) -> None:
    """The SDK sees nothing any more, the log still has it, and the same ids may come again."""

    async def main() -> Any:
        store = JournalSessionStore(journal)
        await store.append(KEY, STORY)
        await store.append(SUB, [entry("s1")])
        await store.delete(KEY)
        gone = [await store.load(KEY), await store.load(SUB), await store.list_subkeys(KEY)]
        gone.append(await store.list_sessions(KEY["project_key"]))
        await store.append(KEY, STORY[1:2])
        return gone, await store.load(KEY)

    gone, again = asyncio.run(main())

    assert [None, None, [], []] == gone
    assert STORY[1:2] == again
    assert STORY[1:2] == asyncio.run(JournalSessionStore(Journal(journal.root)).load(KEY))
    assert b"A test fails." in logs(journal)[0].read_bytes()


def test_appends_at_once_are_all_kept(journal: Journal) -> None:
    """Twenty tasks over two stores: every entry once, each store's in its own order."""

    async def main() -> Any:
        stores = [JournalSessionStore(journal), JournalSessionStore(Journal(journal.root))]
        batches = [[entry(f"{n}-{k}", n=n) for k in range(3)] for n in range(20)]
        await asyncio.gather(*(stores[n % 2].append(KEY, b) for n, b in enumerate(batches)))
        return await stores[0].load(KEY)

    loaded = asyncio.run(main())
    order = [item["n"] for item in loaded]

    assert 60 == len({item["uuid"] for item in loaded}) == len(loaded)
    assert sorted(order[::3]) == list(range(20))
    assert [n for n in order if n % 2] == sorted(n for n in order if n % 2)


def test_a_damaged_entry_costs_itself(journal: Journal) -> None:
    """The others are loaded, and the next is appended."""
    asyncio.run(appended(JournalSessionStore(journal), *([item] for item in STORY)))
    (log,) = logs(journal)
    lines = log.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3][: len(lines[3]) // 2] + b"\n"
    log.write_bytes(b"".join(lines))
    store = JournalSessionStore(Journal(journal.root))

    assert [*STORY[:2], *STORY[3:], entry("n")] == asyncio.run(appended(store, [entry("n")]))


def test_thence_reads_the_session_like_any_other(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The client's own links, a branch where it branched; `thence show` shows it."""
    fork = message("u3", "a1", "user", "Leave the test, look at the lint.")
    asyncio.run(appended(JournalSessionStore(journal), STORY, [fork]))
    (log,) = logs(journal)
    read = Transcript.read(log.read_bytes())
    live = [m["content"][-1] for m in read.messages().messages]
    monkeypatch.setattr("sys.argv", ["thence", "show", str(log)])
    with contextlib.suppress(SystemExit):
        cli()

    assert SESSION == log.stem
    assert "Leave the test, look at the lint." == live[-1]["text"]
    assert [] == list(read.skipped)
    assert "Why is the build red?" in capsys.readouterr().out


def test_checkpoints_of_ours_work_together_with_the_store(tmp_path: Path) -> None:
    """Files are saved and brought back; the SDK's entries stay as they were."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "tide.txt").write_text("low\n")
    store = JournalSessionStore(Journal(tmp_path / "home"), cwd=work)

    async def main() -> Any:
        await store.append(KEY, STORY[:2])
        session = await store.session(KEY)
        before = session.checkpoint([work / "tide.txt"])
        (work / "tide.txt").write_text("high\n")
        session.rewind_files(before)
        session.close()
        return await appended(store, STORY[2:])

    loaded = asyncio.run(main())
    (log,) = (tmp_path / "home" / "sessions").rglob("*.jsonl")
    read = Transcript.read(log.read_bytes())

    assert STORY == loaded
    assert "low\n" == (work / "tide.txt").read_text()
    assert [State.LIVE] == list(
        {
            state
            for state, e in zip(read.graph.states, read.events, strict=True)
            if e.type == "checkpoint"
        }
    )


def test_entries_of_one_batch_are_linked_as_they_say(journal: Journal) -> None:
    """Two that follow the same entry are siblings, in one batch and in two."""
    batches = [[entry("a"), entry("b", "a"), entry("c", "a")], [entry("d", "a")], [entry("e", "d")]]
    asyncio.run(appended(JournalSessionStore(journal), *batches))
    events = Transcript.read(logs(journal)[0].read_bytes()).events
    links = {event.uuid: event.prev_uuid for event in events if len(event.uuid) == 1}

    assert ["a", "a", "a", "d"] == [links[uuid] for uuid in "bcde"]


def test_no_permission_comes_back(tmp_path: Path) -> None:
    """Whatever the entries say of it: the ledger of the session is empty."""
    store = JournalSessionStore(Journal(tmp_path), cwd=tmp_path)
    hostile = entry("p1", type="permission-grant", tool="Bash", allow="*", permissionMode="bypass")

    async def main() -> Any:
        await store.append(KEY, [hostile, *STORY])
        return await store.session(KEY)

    session = asyncio.run(main())

    assert 0 == len(session.permissions)
    assert "bypass" not in json.dumps(session.state.values)


def test_nothing_is_written_where_persistence_is_switched_off(tmp_path: Path) -> None:
    """The store works in memory."""
    store = JournalSessionStore(Journal(tmp_path / "home", enabled=False))

    assert STORY == asyncio.run(appended(store, STORY[:2], STORY[2:]))
    assert not (tmp_path / "home").exists()


@pytest.mark.slow
def test_the_owners_kit_passes(tmp_path: Path, sdk: Callable[[str], ModuleType]) -> None:
    """All fourteen contracts of the SDK."""
    kit = sdk("claude_agent_sdk.testing")
    made = iter(range(100))

    asyncio.run(
        kit.run_session_store_conformance(
            lambda: JournalSessionStore(Journal(tmp_path / str(next(made))))
        )
    )

    assert 14 <= next(made)


def test_summaries_are_the_sdks_own_fold(
    journal: Journal, sdk: Callable[[str], ModuleType]
) -> None:
    """Folded as entries come, and from the log by a store that never saw them come."""
    fold = sdk("claude_agent_sdk").fold_session_summary
    project = KEY["project_key"]

    async def main() -> Any:
        store, later = JournalSessionStore(journal), JournalSessionStore(Journal(journal.root))
        await store.append(KEY, STORY[:3])
        await store.list_session_summaries(project)
        await store.append(KEY, STORY[3:])
        lists = [await reader.list_session_summaries(project) for reader in (store, later)]
        return lists, await later.list_sessions(project)

    (own, later), listed = asyncio.run(main())

    assert fold(None, KEY, STORY)["data"] == own[0]["data"] == later[0]["data"]
    assert own[0]["mtime"] >= later[0]["mtime"] == listed[0]["mtime"]


def test_of_two_sessions_the_one_written_later_is_the_younger(journal: Journal) -> None:
    """However close they are: the SDK goes on with the youngest."""
    names = [f"{number:08d}-0000-4000-8000-000000000000" for number in range(40)]

    async def main() -> list[str]:
        store = JournalSessionStore(journal)
        for name in names:
            await store.append({**KEY, "session_id": name}, [entry("u1")])
        listed = await store.list_sessions(KEY["project_key"])
        return [row["session_id"] for row in sorted(listed, key=lambda row: row["mtime"])]

    assert names == asyncio.run(main())
