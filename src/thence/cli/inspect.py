"""`thence show --stats`: what one session file holds, counted, and what became of it.

The counts are the file's own, by the definitions of `format.counts`; a glued line is bad, and
what was saved from it is a field of its own. Beside them stands what only the session can tell:
states, live and dead events, ties to others. The file is read as a stream. A session too large
to be put together in memory is counted all the same, and a notice says what is missing.
"""

from __future__ import annotations

import os
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import click

from thence.agents import Adapter, Source, adapters
from thence.agents.files import MAX_LIST_BYTES, Plain, Zstandard, measure_source, open_regular
from thence.agents.sessions import LoadedSession, check_readable, find_source, load_source
from thence.cli import options
from thence.cli.reading import exit_code, flowed, notices, skipped_line
from thence.cli.screen import tell
from thence.cli.terminal import (
    as_json,
    clean,
    cut,
    say,
    several,
    short,
    size,
    style,
    width,
    wrap,
)
from thence.errors import NotReadable
from thence.format import codec
from thence.format.counts import Counts
from thence.format.records import JSON, Notice, Place, Skipped
from thence.memory.readouts import opened

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 96 << 20
"""Bytes of the largest session that is put together here."""

RECORDS = 150_000
"""Records of the longest file whose session is."""

GONE = ("dead", "rolled_back")
ON_LINE = ("live", "orphaned")


@click.command(
    "inspect",
    help="Count what a session file holds: records, links, calls, tokens, damage.",
    epilog="Exit codes: 0 done, 1 not readable, 3 done but lines were skipped, 10 no such file.",
)
@click.argument("path", metavar="ID|PATH")
@options.as_json
def command(path: str, *, json: bool) -> int:
    """Print the counts of one file."""
    from thence.cli.kept import file_of

    told = inspected(file_of(path))
    if json:
        say(as_json(told))
    else:
        tell(text(told, width()))
    return exit_code(told["skipped"])


def inspected(path: Path) -> dict[str, JSON]:
    """Give all that is known of one file, by the names of the contract."""
    check_readable(path)
    adapter, source = find_source(path, adapters()) or (None, None)
    if path.is_dir():
        if source is None:
            message = f"not a session of a known agent: {path}"
            raise NotReadable(message, hint="give the path of one session file")
        path = Path(source.path)
    if source is not None and any(file.rows is not None for file in source.files):
        message = f"a database has no lines to count: {path}"
        raise NotReadable(message, hint=f"thence show {path} shows its last session")
    own = source.files if source else ()
    told = _counted(path, is_document=any(f.is_document and Path(f.path) == path for f in own))
    told["agent"] = source.adapter if source else None
    told["session_id"] = source.session if source else None
    told |= _untold()
    if adapter is None or source is None:
        told["notices"] = [Notice("unknown", "no known agent writes such a file")]
    elif (total := measure_source(source)[0]) > LIMIT or told["good_records"] > RECORDS:
        most = f"up to {size(LIMIT)} and {RECORDS:,} records a session is analysed"
        told["notices"] = [
            Notice(
                "too large to tell active and discarded branches apart", f"{size(total)}; {most}"
            )
        ]
    else:
        told |= _session(adapter, source, path)
    return told


# -- the file -------------------------------------------------------------------------------


def _counted(path: Path, *, is_document: bool = False) -> dict[str, JSON]:
    """Return what a file holds, line by line; a document is one record, however many lines."""
    try:
        handle = open_regular(str(path))
    except OSError as error:
        message = f"cannot open {path}: {error.strerror}"
        raise NotReadable(message, hint="thence opens regular files, not links") from None
    counts, whole = Counts(), sha256()
    try:
        length = os.fstat(handle).st_size
        plain = Plain(handle, length)
        content = Zstandard(handle) if path.suffix == ".zst" else plain
        if is_document:
            raw = b"".join(plain.chunks(0)) if length <= MAX_LIST_BYTES else None
            counts.add(Place(1, 0, length), raw, ended=True)
        else:
            for place, line, ended in codec.split(content.chunks(0)):
                counts.add(place, line, ended=ended)
        for chunk in plain.chunks(0):
            whole.update(chunk)
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}"
        raise NotReadable(message, hint="the disk may be failing") from None
    finally:
        os.close(handle)
    return {"file": str(path), "bytes": length, "sha256": whole.hexdigest(), **counts.to_dict()}


# -- the session ----------------------------------------------------------------------------


def _untold() -> dict[str, JSON]:
    """The fields of a session that is not put together."""
    empty: tuple[str, ...] = ("live", "dead", "lower_bound", "edges", "notices", "skipped")
    none = ("title", "states", "turn", "spent")
    return {**dict.fromkeys(none), **{name: [] for name in empty}, "salvaged": 0}


def _session(adapter: Adapter, source: Source, path: Path) -> dict[str, JSON]:
    loaded = load_source(adapter, source)
    whole = loaded.whole
    states: Counter[str] = Counter()
    ids: dict[str, list[int]] = {}
    for event in whole.events:
        state = event.state.value if event.state else ""
        states[state] += 1
        ids.setdefault(state, []).append(event.event_id)
    name = os.path.abspath(path)  # noqa: PTH100 - resolve() would follow links
    here = [skip for skip in loaded.skipped if os.path.abspath(skip.source) == name]  # noqa: PTH100
    return {
        "title": whole.title,
        "states": dict(states),
        "live": [one for state in ON_LINE for one in ids.get(state, ())],
        "dead": [one for state in GONE for one in ids.get(state, ())],
        "turn": whole.turn(),
        "spent": _spent(loaded),
        "lower_bound": sorted({notice.detail for notice in whole.unbilled}),
        "edges": whole.edges,
        "salvaged": sum(skip.salvaged for skip in here),
        "skipped": here,
        "notices": notices(opened(loaded)),
    }


def _spent(loaded: LoadedSession) -> JSON:
    spent = loaded.whole.spent
    return {"live": spent.live, "dead": spent.dead, "side": spent.side, "all": spent.rolled_up}


# -- as text --------------------------------------------------------------------------------


def text(told: dict[str, JSON], room: int) -> Iterator[str]:
    """Give the counts as lines: a name to the left, what there is to know to the right."""
    title = told["title"] or Path(told["file"]).name
    yield style(cut(clean(title.split("\n")[0]), room), bold=True)
    who = [told["agent"] or "unknown agent", told["session_id"], size(told["bytes"])]
    yield style(cut(clean(" · ".join(filter(None, who))), room), fg="bright_black")
    yield ""
    for name, said in _rows(told):
        for at, line in enumerate(flowed(said, room - 10)):
            yield style(f"{name if not at else '':<10}", fg="bright_black") + line
    yield from _damage(told, room)


def _rows(told: dict[str, JSON]) -> Iterator[tuple[str, list[str]]]:
    blank, longest = told["blank_lines"], told["longest_line"]
    yield (
        "lines",
        [
            f"{told['lines']:,}",
            f"{told['bad_lines']:,} bad" if told["bad_lines"] else "none bad",
            f"{blank:,} blank" if blank else "",
            f"longest {size(longest)}",
            "no newline at the end" if told["no_final_newline"] else "",
        ],
    )
    yield "records", _ranked(told["records_by_type"])
    if "unique_uuids" in told:
        yield "links", _links(told)
    if "tool_use" in told:
        lost = told["orphaned_tool_use_ids"]
        yield (
            "tools",
            [
                several(told["tool_use"], "call"),
                several(told["tool_result"], "result"),
                f"{len(lost):,} without a result" if lost else "",
            ],
        )
    if "tokens" in told:
        yield "tokens", [f"{name.replace('_', ' ')} {n:,}" for name, n in told["tokens"].items()]
    for name in ("models", "client_versions"):
        if told.get(name):
            yield name.rpartition("_")[2], _ranked(told[name])
    if told.get("first_timestamp"):
        yield "time", [f"{told['first_timestamp'][:19]} to {told['last_timestamp'][:19]}"]
    yield from _session_rows(told)


def _session_rows(told: dict[str, JSON]) -> Iterator[tuple[str, list[str]]]:
    if told["states"]:
        yield "states", [f"{state} {n:,}" for state, n in told["states"].items()]
        spent = told["spent"]
        parts = [f"{short(spent[name].total)} {name}" for name in ("live", "dead", "side")]
        yield "spent", [part for part in parts if not part.startswith("0 ")] or ["no tokens"]
        yield "turn", [told["turn"].state.value, "torn last line" if told["turn"].torn else ""]
    for edge in told["edges"][:5]:
        way = "to" if edge.child else "from"
        yield "tie", [f"{edge.link} {way} {edge.session}", edge.how]


def _ranked(named: dict[str, int]) -> list[str]:
    """Give what there is most of first; of many kinds the rest together."""
    order = sorted(named.items(), key=lambda pair: (-pair[1], pair[0]))
    rest = sum(number for _, number in order[12:])
    shown = [f"{cut(name, 40)} {number:,}" for name, number in order[:12]]
    return [*shown, f"{rest:,} of {len(order) - 12} more"] if rest else shown or ["none"]


def _links(told: dict[str, JSON]) -> list[str]:
    named = (
        ("root", told["roots"]),
        ("leaf", told["leaves"]),
        ("broken parent", told["broken_parents"]),
        ("repeated uuid", told["duplicate_uuid_records"]),
        ("fork point", told["fork_points"]),
        ("boundary", told["compact_boundaries"]),
        ("sidechain record", told["sidechain_records"]),
    )
    plural = {"leaf": "leaves", "boundary": "boundaries"}
    return [
        several(told["unique_uuids"], "uuid"),
        *(f"{n:,} {plural.get(name, name + 's') if n != 1 else name}" for name, n in named if n),
    ]


def _damage(told: dict[str, JSON], room: int) -> Iterator[str]:
    skipped: list[Skipped] = told["skipped"]
    if skipped or told["notices"] or told["lower_bound"]:
        yield ""
    for skip in skipped[:10]:
        yield cut(skipped_line(skip), room)
    if len(skipped) > 10:
        yield f"and {len(skipped) - 10:,} more skipped lines; --json has them all"
    for notice in told["notices"]:
        yield from wrap(f"note: {notice.what}: {notice.detail}", room)
