"""`thence show --stats`: what one session file holds, counted, and what became of it.

The counts are the file's own, by the definitions of `cli.file_counts`; a glued line is bad, and
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
import msgspec

from thence.agents import Adapter, Source, adapters
from thence.agents.contents import Plain, Zstandard
from thence.agents.files import MAX_LIST_BYTES, measure_source, open_regular
from thence.agents.sessions import check_readable, find_source, load_source
from thence.cli import options, wiring
from thence.cli.file_counts import Counts
from thence.cli.read_notices import exit_code, flow, notices, skipped_line
from thence.cli.terminal import answer, clean, cut, several, short, size, style, width, wrap
from thence.errors import NotReadable
from thence.format import codec
from thence.format.graph import State
from thence.format.records import JSON, Notice, Place, Skipped
from thence.memory.readouts import open_loaded
from thence.memory.session_status import TURN_WORDS, turn_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from thence.format.derived_events import Spent

MAX_ANALYSED_BYTES = 96 << 20  # a session takes about six times its file in memory
"""Bytes of the largest session that is put together here."""

MAX_ANALYSED_RECORDS = 150_000
"""Records of the longest file whose session is."""

DISCARDED_STATES = ("dead", "rolled_back")
LIVE_STATES = ("live", "orphaned")


@click.command(
    "inspect",
    epilog="Exit codes: 0 done, 1 not readable, 3 done but lines were skipped, 10 no such file.",
)
@click.argument("path", metavar="ID|PATH")
@options.as_json
def command(path: str, *, json: bool) -> int:
    """Print the counts of one file."""
    from thence.cli.lookup import file_of

    clean = wiring.printing_gate().value
    counts = inspect_file(file_of(path))
    report = {name: _cleaned(value, clean) for name, value in counts.items()}
    return answer(report, text(report, width()), json=json, code=exit_code(report["skipped"]))


def _cleaned(value: JSON, clean: Callable[[JSON], JSON]) -> JSON:
    """Return a value of a report without secrets: names of models and versions may hold some."""
    if isinstance(value, list | tuple):
        return type(value)(_cleaned(item, clean) for item in value)
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        cleaned = {name: _cleaned(field, clean) for name, field in fields.items()}
        return msgspec.structs.replace(value, **cleaned)
    return clean(value)


def inspect_file(path: Path) -> dict[str, JSON]:
    """Return all that is known of one file, by the names of the contract."""
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
    report = _count_file(path, is_document=any(f.is_document and Path(f.path) == path for f in own))
    report["agent"] = source.adapter if source else None
    report["session_id"] = source.session if source else None
    report |= _empty_session()
    if adapter is None or source is None:
        report["notices"] = [Notice("unknown", "no known agent writes such a file")]
    elif (total := measure_source(source)[0]) > MAX_ANALYSED_BYTES or report[
        "good_records"
    ] > MAX_ANALYSED_RECORDS:
        most = (
            f"up to {size(MAX_ANALYSED_BYTES)} and {MAX_ANALYSED_RECORDS:,} records"
            " a session is analysed"
        )
        report["notices"] = [
            Notice(
                "too large to tell active and discarded branches apart", f"{size(total)}; {most}"
            )
        ]
    else:
        report |= _session(adapter, source, path)
    return report


# -- the file -------------------------------------------------------------------------------


def _count_file(path: Path, *, is_document: bool = False) -> dict[str, JSON]:
    """Return what a file holds, line by line; a document is one record, however many lines."""
    try:
        handle = open_regular(str(path))
    except OSError as error:
        message = f"cannot open {path}: {error.strerror}"
        raise NotReadable(message, hint="thence opens regular files, not links") from None
    counts, digest = Counts(), sha256()
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
            digest.update(chunk)
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}"
        raise NotReadable(message, hint="the disk may be failing") from None
    finally:
        os.close(handle)
    return {"file": str(path), "bytes": length, "sha256": digest.hexdigest(), **counts.to_dict()}


# -- the session ----------------------------------------------------------------------------


def _empty_session() -> dict[str, JSON]:
    """The fields of a session that is not put together."""
    empty: tuple[str, ...] = ("live", "dead", "lower_bound", "edges", "notices", "skipped")
    none = ("title", "states", "turn", "spent")
    return {**dict.fromkeys(none), **{name: [] for name in empty}, "salvaged": 0}


def _session(adapter: Adapter, source: Source, path: Path) -> dict[str, JSON]:
    gate = wiring.printing_gate()
    loaded = load_source(adapter, source)
    opened = open_loaded(gate.session(loaded))
    session = opened.session
    states: Counter[str] = Counter()
    ids: dict[str, list[int]] = {}
    for event in session.events:
        state = event.state.value if event.state else ""
        states[state] += 1
        ids.setdefault(state, []).append(event.event_id)
    name = os.path.abspath(path)  # noqa: PTH100 - resolve() would follow links
    here = [skip for skip in loaded.skipped if os.path.abspath(skip.source) == name]  # noqa: PTH100
    return {
        "file": gate.path(str(path), session.head.session.cwd),
        "title": session.title,
        "states": dict(states),
        "live": [event_id for state in LIVE_STATES for event_id in ids.get(state, ())],
        "dead": [event_id for state in DISCARDED_STATES for event_id in ids.get(state, ())],
        "turn": turn_object(session.turn(), wiring.standing(session)),
        "spent": _spent(session.head.spent),
        "lower_bound": list(session.head.lower_bound),
        "edges": list(session.edges),
        "salvaged": sum(skip.salvaged for skip in here),
        "skipped": here,
        "notices": notices(opened),
    }


def _spent(spent: Spent) -> JSON:
    return {"live": spent.live, "dead": spent.dead, "side": spent.side, "all": spent.rolled_up}


# -- as text --------------------------------------------------------------------------------


def text(report: dict[str, JSON], room: int) -> Iterator[str]:
    """Yield the counts as lines: a name to the left, what there is to know to the right."""
    title = report["title"] or Path(report["file"]).name
    yield style(cut(clean(title.split("\n")[0]), room), bold=True)
    who = [report["agent"] or "unknown agent", report["session_id"], size(report["bytes"])]
    yield style(cut(clean(" · ".join(filter(None, who))), room), fg="bright_black")
    yield ""
    for name, parts in _rows(report):
        for at, line in enumerate(flow(parts, room - 10)):
            yield style(f"{name if not at else '':<10}", fg="bright_black") + line
    yield from _damage(report, room)


def _rows(report: dict[str, JSON]) -> Iterator[tuple[str, list[str]]]:
    blank, longest = report["blank_lines"], report["longest_line"]
    yield (
        "lines",
        [
            f"{report['lines']:,}",
            f"{report['bad_lines']:,} bad" if report["bad_lines"] else "none bad",
            f"{blank:,} blank" if blank else "",
            f"longest {size(longest)}",
            "no newline at the end" if report["no_final_newline"] else "",
        ],
    )
    yield "records", _rank(report["records_by_type"])
    if "unique_uuids" in report:
        yield "links", _links(report)
    if "tool_use" in report:
        lost = report["orphaned_tool_use_ids"]
        yield (
            "tools",
            [
                several(report["tool_use"], "call"),
                several(report["tool_result"], "result"),
                f"{len(lost):,} without a result" if lost else "",
            ],
        )
    if "tokens" in report:
        yield "tokens", [f"{name.replace('_', ' ')} {n:,}" for name, n in report["tokens"].items()]
    for name in ("models", "client_versions"):
        if report.get(name):
            yield name.rpartition("_")[2], _rank(report[name])
    if report.get("first_timestamp"):
        yield "time", [f"{report['first_timestamp'][:19]} to {report['last_timestamp'][:19]}"]
    yield from _session_rows(report)


def _session_rows(report: dict[str, JSON]) -> Iterator[tuple[str, list[str]]]:
    from thence.cli.session_text import STATES

    if report["states"]:
        states = report["states"].items()
        yield "states", [f"{STATES.get(state, state)} {n:,}" for state, n in states]
        spent = report["spent"]
        parts = [
            f"{short(spent[name].total)} {STATES[State(name)]}" for name in ("live", "dead", "side")
        ]
        yield "spent", [part for part in parts if not part.startswith("0 ")] or ["no tokens"]
        yield (
            "turn",
            [
                TURN_WORDS[report["turn"]["state"]],
                "torn last line" if report["turn"]["torn"] else "",
            ],
        )
    for edge in report["edges"][:5]:
        way = "to" if edge.child else "from"
        yield "tie", [f"{edge.link} {way} {edge.session}", edge.how]


def _rank(named: dict[str, int]) -> list[str]:
    """Return what there is most of first; of many kinds the rest together."""
    order = sorted(named.items(), key=lambda pair: (-pair[1], pair[0]))
    rest = sum(number for _, number in order[12:])
    shown = [f"{cut(name, 40)} {number:,}" for name, number in order[:12]]
    return [*shown, f"{rest:,} of {len(order) - 12} more"] if rest else shown or ["none"]


def _links(report: dict[str, JSON]) -> list[str]:
    named = (
        ("root", report["roots"]),
        ("leaf", report["leaves"]),
        ("broken parent", report["broken_parents"]),
        ("repeated uuid", report["duplicate_uuid_records"]),
        ("fork point", report["fork_points"]),
        ("boundary", report["compact_boundaries"]),
        ("sidechain record", report["sidechain_records"]),
    )
    plural = {"leaf": "leaves", "boundary": "boundaries"}
    return [
        several(report["unique_uuids"], "uuid"),
        *(f"{n:,} {plural.get(name, name + 's') if n != 1 else name}" for name, n in named if n),
    ]


def _damage(report: dict[str, JSON], room: int) -> Iterator[str]:
    skipped: list[Skipped] = report["skipped"]
    if skipped or report["notices"] or report["lower_bound"]:
        yield ""
    for skip in skipped[:10]:
        yield cut(skipped_line(skip), room)
    if len(skipped) > 10:
        yield f"and {len(skipped) - 10:,} more skipped lines; --json has them all"
    for notice in report["notices"]:
        yield from wrap(f"note: {notice.what}: {notice.detail}", room)
