"""The hostile corpus through every adapter and both commands: nothing raises, hangs or is lost.

Limits are those of the corpus: two seconds of processor time for each thing that is done with a
file, 300 MB for all of them. Only the chain of 100,000 records may take ten, as its entry says.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.pace import by_pace
from thence.agents import Cursor, adapters
from thence.agents.sessions import load, read_all
from thence.format.facts import Fact
from thence.format.session_graph import REWRITTEN, SessionGraph
from thence.memory.readouts import readout_of

SECONDS = 2.0
MEGABYTES = 300
MEGABYTES_OF_LONG = 475  # records beside their rows, as long as a file is shown: 441 to 452 seen
SMALL = 600_000
"""Bytes of a file that is looked at every day; larger ones are left to the slow tests."""

DRIVER = Path(__file__).with_name("hostile.py")
NOBODYS = {"empty", "only_newlines", "nul_only", "utf16le", "random_bytes"}
NOBODYS |= {"pretty_printed_json", "empty_objects"}
"""Files in which no agent's record is to be found."""

Case = dict[str, Any]


# Making the corpus takes longer than reading it; single files of its kind are read every day.
pytestmark = pytest.mark.slow


def cases(corpus: Path, kind: str) -> list[Case]:
    """The cases of one kind: files, trees or series."""
    known: list[Case] = json.loads((corpus / "manifest.json").read_text())["cases"]
    return [case for case in known if case["path"].startswith(f"{kind}/")]


def looked_at(corpus: Path, known: list[Case]) -> list[tuple[Case, dict[str, Any]]]:
    """Run the driver over some files."""
    done = subprocess.run(
        [sys.executable, DRIVER],
        input="".join(f"{corpus / case['path']}\n" for case in known),
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"NO_COLOR": "1"},
    )
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    return list(zip(known, reports, strict=True))


def faults(case: Case, report: dict[str, Any]) -> Iterable[str]:
    """What is wrong with how a file was read."""
    name = Path(case["path"]).name
    is_long = name == "chain_100k_deep.jsonl"  # 100,000 prompts, each read and judged
    limit = 10 * SECONDS if is_long else 2 * SECONDS  # a busy machine takes longer
    slow = {step: took for step, took in report["seconds"].items() if took > limit}
    yield from (f"{name}: {step} took {took} s" for step, took in slow.items())
    yield from (f"{name}: {wrong}" for wrong in report["wrong"])
    if report["megabytes"] > (MEGABYTES_OF_LONG if is_long else MEGABYTES):
        yield f"{name}: {report['megabytes']} MB"
    if bool(report["agents"]) is (name.partition(".")[0] in NOBODYS):
        yield f"{name}: claimed by {report['agents']}"
    if len(report["agents"]) > 1:
        yield f"{name}: claimed by several: {report['agents']}"
    counts = report["counts"]
    counted = {what: counts[field] for what, field in FIELDS.items()}
    if case.get("expect", counted) != counted:
        yield f"{name}: counted {counted}, not {case['expect']}"
    if case.get("orphans", counts.get("orphaned_tool_use_ids")) != counts.get(
        "orphaned_tool_use_ids"
    ):
        yield f"{name}: orphans {counts['orphaned_tool_use_ids']}"
    if case.get("orphans_count", 0) not in (0, len(counts.get("orphaned_tool_use_ids", ()))):
        yield f"{name}: {len(counts['orphaned_tool_use_ids'])} orphans"
    tokens = case.get("tokens", {})
    if not tokens.items() <= counts.get("tokens", {}).items():
        yield f"{name}: tokens {counts['tokens']}"


FIELDS = {"good": "good_records", "bad": "bad_lines", "blank": "blank_lines"}


@pytest.mark.sampled
def test_small_files_are_read_and_counted_as_the_manifest_says(
    corpus: Path, record_property: Callable[[str, object], None]
) -> None:
    """Through every adapter, in every form, within the limits."""
    small = [case for case in cases(corpus, "files") if case["bytes"] <= SMALL]
    known = small[:: by_pace(everyday=32, full=32, prove=1)]
    record_property("cases", len(known))

    assert [] == [fault for pair in looked_at(corpus, known) for fault in faults(*pair)]
    assert 80 < len(small)


@pytest.mark.sampled
def test_large_files_are_read_and_counted_as_the_manifest_says(
    corpus: Path, record_property: Callable[[str, object], None]
) -> None:
    """The same for long lines, deep chains and wide stars."""
    large = [case for case in cases(corpus, "files") if case["bytes"] > SMALL]
    known = large[:: by_pace(everyday=48, full=48, prove=1)]
    record_property("cases", len(known))

    assert [] == [fault for pair in looked_at(corpus, known) for fault in faults(*pair)]


# -- trees ------------------------------------------------------------------------------------


def sessions_in(corpus: Path, name: str) -> dict[str, list[str]]:
    """Which sessions each adapter finds in a tree, and holds something in them."""
    root = corpus / "trees" / name
    out: dict[str, list[str]] = {}
    for agent, adapter in adapters().items():
        sources = list(adapter.find(root))
        out[agent] = [source.path for source in sources if read_all(adapter, source)[0]]
    return {agent: sessions for agent, sessions in out.items() if sessions}


@pytest.mark.parametrize(
    ("tree", "agent"),
    [("symlinks", "claude"), ("spill", "claude"), ("subagents", "claude")],
)
def test_tree_holds_as_many_sessions_as_the_manifest_says(
    corpus: Path, tree: str, agent: str
) -> None:
    """Links are not followed, side files are no sessions."""
    case = next(case for case in cases(corpus, "trees") if f"/{tree}/" in case["path"])
    sessions = sessions_in(corpus, tree)

    assert {agent: case["sessions"]} == {name: len(some) for name, some in sessions.items()}


def test_file_of_any_name_is_read(corpus: Path) -> None:
    """Names that are no text, too. All of them hold the same session, so it is one."""
    claude = adapters()["claude"]
    [source] = claude.find(corpus / "trees" / "names")
    facts, _ = read_all(claude, source)

    assert 16 == len({fact.file for fact in facts})
    assert 4 == len(standing(SessionGraph(source.uid, facts)))


def test_special_files_are_not_opened(corpus: Path) -> None:
    """Neither a pipe nor a folder under the name of a log keeps the rest from being read."""
    assert sessions_in(corpus, "specials").get("claude")


def test_deep_tree_is_no_crash(corpus: Path) -> None:
    """Sixty levels are beyond the depth that is looked at."""
    assert len(sessions_in(corpus, "deep").get("claude", [])) <= 1


def test_grok_tree_is_listed_whole(corpus: Path) -> None:
    """Names of folders are display text, a broken summary costs no session."""
    grok = adapters()["grok"]
    sources = list(grok.find(corpus / "trees" / "grok"))

    assert 3 == len(sources)
    assert 2 == sum(bool(read_all(grok, source)[0]) for source in sources)


def test_many_files_are_read_once(corpus: Path) -> None:
    """A second read of what has not changed parses no line."""
    claude = adapters()["claude"]
    sessions = lines = 0
    for source in claude.find(corpus / "trees" / "many"):
        facts, batch = read_all(claude, source)
        sessions += bool(facts)
        lines += claude.read(source, batch.cursor).lines

    assert (1000, 0) == (sessions, lines)


def test_nothing_outside_a_tree_is_read(corpus: Path) -> None:
    """A link that leads out gives nothing away."""
    claude = adapters()["claude"]
    text = repr([read_all(claude, s)[0] for s in claude.find(corpus / "trees" / "symlinks")])

    assert "prompt" in text
    assert "OUTSIDECANARY" not in text


def test_subagents_of_a_tree_are_channels_and_copies_count_once(corpus: Path) -> None:
    """Four of them: one mislabelled, one of a workflow, one beside the session.

    All of them repeat the bills of the session's own two responses.
    """
    claude = adapters()["claude"]
    [source] = claude.find(corpus / "trees" / "subagents")
    session = SessionGraph(source.uid, read_all(claude, source)[0])

    assert 4 <= len({fact.channel for fact in session.facts} - {"main"})
    assert 2 * 26 == session.spent.rolled_up


def test_nothing_of_a_log_became_a_file(corpus: Path) -> None:
    """The paths that logs name are text: none of them came to be."""
    assert not Path("/tmp/hostile_pwned").exists()
    assert [] == list(corpus.rglob("*pwned*"))


# -- series -----------------------------------------------------------------------------------


def grown(corpus: Path, name: str, work: Path) -> tuple[list[Fact], Path]:
    """Read a file again after each of its steps, as one who comes back to it."""
    claude = adapters()["claude"]
    facts: list[Fact] = []
    cursor: Cursor | None = None
    path = work / "projects" / "-p" / "none"
    for number, source_step in enumerate(sorted((corpus / "series" / name).iterdir())):
        [log] = source_step.iterdir()
        path = work / "projects" / "-p" / log.name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if path.exists() else "wb") as file:
            file.write(log.read_bytes())
            file.truncate()
        os.utime(path, ns=(10**18 + number, 10**18 + number))
        source = claude.at(path)
        while source is not None:
            batch = claude.read(source, cursor)
            facts += batch.events
            cursor = batch.cursor
            if batch.done:
                break
    return facts, path


def standing(session: SessionGraph) -> set[str]:
    """The records that the log holds."""
    return {event.native_id for event in session.events if event.why != REWRITTEN}


@pytest.mark.parametrize(
    "name",
    [
        "grow_by_bytes",
        "shrink_then_grow",
        "torn_then_repaired",
        "torn_then_next_on_same_line",
        "replaced_same_size",
        "prefix_rewritten",
    ],
)
def test_file_read_as_it_grows_is_the_file_read_at_once(
    corpus: Path, tmp_path: Path, name: str
) -> None:
    """Whatever was done to it between two reads: nothing twice, nothing stale, nothing mixed."""
    case = next(case for case in cases(corpus, "series") if case["path"].endswith(f"/{name}"))
    facts, path = grown(corpus, name, tmp_path)
    again = load(path).graph
    session = SessionGraph(again.uid, facts)

    assert standing(again) == standing(session)
    assert readout_of(again).messages().messages == readout_of(session).messages().messages
    assert case.get("records", len(standing(session))) == len(standing(session))


@pytest.mark.parametrize(("name", "gone"), [("shrink_then_grow", 40), ("replaced_same_size", 0)])
def test_what_a_file_no_longer_holds_stays_dead(
    corpus: Path, tmp_path: Path, name: str, gone: int
) -> None:
    """Read once, kept for ever, with the reason."""
    facts, path = grown(corpus, name, tmp_path)
    session = SessionGraph(load(path).graph.uid, facts)
    lost = {event.native_id for event in session.events if event.why == REWRITTEN}

    assert gone == len(lost)


def test_series_are_all_looked_at(corpus: Path, tmp_path: Path) -> None:
    """The names above are those of the corpus."""
    shutil.rmtree(tmp_path)

    assert 6 == len(cases(corpus, "series"))
    assert 8 == len(cases(corpus, "trees"))
