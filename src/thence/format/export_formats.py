"""A session in the forms that leave the machine: lines, one flat journal, Markdown, a page.

Pure: a session goes in, texts come out. Whatever a log says stays text: in Markdown, tags and
images are escaped outside of code, and fences are longer than any run of backticks inside them; in
HTML everything is escaped, with no script, no link and nothing that is loaded from elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID, uuid5

import msgspec

from thence.format import spills
from thence.format.derived_events import log_ends, time_of
from thence.format.facts import TYPED
from thence.format.figures import clean_text, several, short_id
from thence.format.graph import State
from thence.format.normal import SessionEvent
from thence.format.records import text_of

if TYPE_CHECKING:
    from thence.format.normal import SessionEvent
    from thence.format.readout import Readout
    from thence.format.records import JSON

_SPACE = UUID("6f2a6b0e-6d0b-5d0c-9a51-7e1f0c1a5b10")
"""Where ids of flattened events come from: the same session always becomes the same file."""


class BranchChoice(NamedTuple):
    """Which part of a session is told: the live line, the line to one fact, or everything.

    What stands in the sessions that it continues comes first, unless `own` is set. Results that
    lie outside of the log stand in their places, unless `full` is off.
    """

    to: int | None = None
    every: bool = False
    own: bool = False
    full: bool = True


LIVE = BranchChoice()
BORDER = "border"
"""The piece that stands where the part of another session ends."""
_SPEAKERS = {"user_msg": "You", "assistant_msg": "Assistant", "thinking": "Thought"}


class Piece(NamedTuple):
    """One thing that was said or done."""

    kind: str
    title: str
    text: str
    ts: str | None = None
    failed: bool = False
    off: str = ""
    """Where it stands, if not on the line that is told: a dead branch, a subagent."""


def lines(session: Readout, notes: Sequence[SessionEvent] = (), **label: JSON) -> Iterator[JSON]:
    """Yield the session, then every event in whatever state, one object each.

    The `notes` are events that people wrote; the `label` says what they call the session.
    """
    from thence.format.normal import number_events

    fields = msgspec.to_builtins(session.head.portable_session)
    yield {"type": "session", "title": session.title, **label, **fields}
    events = [*session.events, *session.derived(), *log_ends(session.events), *notes]
    for event in number_events(events):
        yield {"type": "event", **session.with_payload(event).to_object()}


def flat(session: Readout) -> Iterator[JSON]:
    """Yield the live line as a journal of its own that names no other file, and can be resumed.

    What was spilled stands in its results again; what the line took stands with its answers.
    """
    from thence.format import schema
    from thence.format.records import Header

    about = session.head.session
    name = str(uuid5(_SPACE, session.uid))
    start = about.started_at or "1970-01-01T00:00:00.000Z"
    header = Header(
        session_id=name,
        start_ts=start,
        schema_version=schema.CURRENT,
        cwd=about.cwd,
        model=about.model,
    )
    before = str(uuid5(_SPACE, f"{name}/header"))
    yield _event("header", start, before, None, msgspec.to_builtins(header))
    messages = session.messages(full=True).messages
    bills = _bills(session, messages)
    for number, message in enumerate(messages):
        uuid = str(uuid5(_SPACE, f"{name}/{number}"))
        yield _event(message["role"], start, uuid, before, {**message, **bills.get(number, {})})
        before = uuid
    end = about.ended_at or start
    done = {"end_ts": end, "reason": "exported"}
    yield _event("terminator", end, str(uuid5(_SPACE, f"{name}/end")), before, done)


def _bills(session: Readout, messages: list[dict[str, JSON]]) -> dict[int, dict[str, JSON]]:
    """Return what the live line took by the numbers of the answers it was taken for.

    An answer is known by its calls and texts; what is not found, because a summary stands for it,
    goes to the answer before it or else to the first: the sums stay true.
    """
    from thence.format.derived_events import place_of, sum_usages

    answers = [n for n, message in enumerate(messages) if message["role"] == "assistant"]
    places: dict[tuple[JSON, JSON], int] = {}
    for number in reversed(answers):
        places |= dict.fromkeys(map(_mark, messages[number]["content"]), number)
    taken: dict[int, list[SessionEvent]] = {}
    at = answers[0] if answers else 0
    for record in session.records if answers else ():
        if record.usage is not None and place_of(record.blocks[0]) == "live":
            spoken = (block for turn in session.messages_in(record) for block in turn["content"])
            known = (places[mark] for block in spoken if (mark := _mark(block)) in places)
            at = max(at, next(known, at))
            taken.setdefault(at, []).append(record.blocks[0])
    out: dict[int, dict[str, JSON]] = {}
    for number, events in taken.items():
        usage = sum_usages(event.usage for event in events if event.usage is not None)
        costs = [event.cost_usd for event in events if event.cost_usd is not None]
        known_cost = {"cost_usd": sum(costs)} if costs else {}
        model = {"model": events[-1].model} if events[-1].model else {}
        out[number] = {"usage": msgspec.to_builtins(usage), **known_cost, **model}
    return out


def _mark(block: JSON) -> tuple[JSON, JSON]:
    """What tells a block from others: the id of a call, the words of a text."""
    text = block.get("id") or block.get("text") or block.get("thinking")
    return block.get("type"), text if isinstance(text, str) else None


def _event(kind: str, ts: str, uuid: str, before: str | None, payload: JSON) -> JSON:
    return {"type": kind, "ts": ts, "uuid": uuid, "prev_uuid": before, "payload": payload}


def pieces(session: Readout, branch: BranchChoice = LIVE) -> Iterator[Piece]:
    """Yield what was said and done on a line, compacted parts included; or on all of them."""
    for part in () if branch.own else session.inherited(branch.to, boundaries=False):
        outputs = _outputs(part.session, branch)
        made = (_piece(event, outputs) for event in part.session.events_along(part.places))
        yield from (piece for piece in made if piece is not None and piece.text.strip())
        words = f"{short_id(part.session.native)}, {several(part.messages, 'message')}"
        yield Piece(BORDER, "Continued from", words)
    line = {session.records[at].id for at in session.graph.chain(branch.to, boundaries=False)}
    outputs = _outputs(session, branch)
    for event in session.events:
        if event.state is State.INTERNAL or not (branch.every or event.native_id in line):
            continue
        piece = _piece(session.with_payload(event), outputs)
        if piece is not None and piece.text.strip():
            off = "" if event.native_id in line else _off(event)
            yield piece._replace(off=off) if off else piece


def _off(event: SessionEvent) -> str:
    if event.channel != "main":
        return f"subagent {event.channel.removeprefix('agent:')}"
    words = {State.ROLLED_BACK: "rolled back", State.REPLAYED: "copied"}
    return words.get(event.state or State.DEAD, "discarded branch")


class _Outputs(NamedTuple):
    """Outputs outside of a log: ours by the names in placeholders, other agents' by their calls."""

    by_name: Mapping[str, str]
    by_call: Mapping[str, str]

    def resolve(self, event: SessionEvent) -> JSON:
        """Return the payload of a result with its output in place."""
        if spills.spilled_in(event.payload):
            return spills.resolve_placeholders(event.payload, self.by_name)
        return self.by_call.get(event.call or "", event.payload)


def _outputs(session: Readout, branch: BranchChoice) -> _Outputs:
    """Return the outputs of a session that lie outside of its log, as far as they are stored."""
    if not branch.full:
        return _Outputs({}, {})
    return _Outputs(session.outputs_by_name(), session.outputs_by_call())


def _piece(event: SessionEvent, outputs: _Outputs) -> Piece | None:
    payload = event.payload
    if event.kind in _SPEAKERS:
        text = payload.get("thinking") if isinstance(payload, dict) else None
        body = text if isinstance(text, str) else _text(payload) or event.summary
        return Piece(event.kind, _SPEAKERS[event.kind], body, event.ts)
    if event.kind == "tool_call":
        arguments = json.dumps(payload, indent=2, ensure_ascii=False)
        return Piece("tool_call", f"Tool: {event.tool or 'unknown'}", arguments, event.ts)
    if event.kind == "tool_result":
        title = "Result, failed" if event.failed else "Result"
        text = _text(outputs.resolve(event))
        return Piece("tool_result", title, text, event.ts, bool(event.failed))
    return None


def _text(payload: JSON) -> str:
    if isinstance(payload, dict):
        text = payload.get(TYPED, payload.get("text"))
        if isinstance(text, str):
            return text
    return text_of(payload) or ("" if payload is None else json.dumps(payload, ensure_ascii=False))


def left_out(session: Readout, branch: BranchChoice = LIVE) -> str:
    """Say what a page of one line does not show."""
    from collections import Counter

    if branch.every:
        return ""
    line = {session.records[at].id for at in session.graph.chain(branch.to, boundaries=False)}
    rest = (event for event in session.events if event.native_id not in line)
    states = Counter(event.state.value for event in rest if event.state is not None)
    names = ("live", "dead", "rolled_back", "side")
    counts = [f"{states[name]} {name.replace('_', ' ')}" for name in names if states[name]]
    return f"Not shown: events {', '.join(counts)}." if counts else ""


def markdown(
    session: Readout,
    branch: BranchChoice = LIVE,
    zone: tzinfo = UTC,
    *,
    name: str | None = None,
) -> Iterator[str]:
    """Yield a session as Markdown, under the `name` that its user gave it."""
    yield f"# {_escape_inline(_one_line(name or session.title or 'Session'))}"
    yield ""
    yield from (f"- {name}: {_escape_inline(value)}" for name, value in _about(session))
    for piece in pieces(session, branch):
        if piece.kind == BORDER:
            yield from ("", f"*{piece.title} {_escape_inline(piece.text)}*", "", "---")
            continue
        moment = f" ({note})" if (note := _moment(piece.ts, zone)) else ""
        off = f", {_escape_inline(_one_line(piece.off))}" if piece.off else ""
        yield ""
        if piece.kind in ("user_msg", "assistant_msg"):
            yield f"## {piece.title}{off}{moment}"
            yield ""
            yield from _inert_markdown(piece.text.rstrip())
            continue
        yield f"**{_escape_inline(_one_line(piece.title))}{off}**"
        yield ""
        yield from _fence(piece.text.rstrip("\n"), "json" if piece.kind == "tool_call" else "text")
    if note := left_out(session, branch):
        yield ""
        yield f"*{note}*"


# -- Markdown of logs, made inert -----------------------------------------------------------

_LINE_END = re.compile(r"\r\n|\r|\n")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^`]*)")
_LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]{1,24}")
_DRAWN = frozenset(
    {"dataview", "dataviewjs", "dot", "geojson", "graphviz"}
    | {"math", "mermaid", "plantuml", "stl", "topojson"}
)
"""Languages that some readers run or draw instead of showing them."""
_ACTIVE = re.compile(r"<(?=[A-Za-z/!?])|!(?=\[)")
"""Where a tag, a comment, an automatic link or an image begins."""
_TICKS = re.compile("`+")
MAX_TICKS = 200
"""Runs of backticks in a line of which the code is looked for."""


def _inert_markdown(text: str) -> Iterator[str]:
    """Yield the lines of a Markdown text without HTML or images; code stays as it is.

    Code in fences is written anew, so that every reader sees it begin and end in the same places.
    """
    prose: list[str] = []
    code: list[str] = []
    fence = language = ""
    for line in _LINE_END.split(text):
        mark = _FENCE.fullmatch(line)
        if fence and mark and mark[1].startswith(fence) and not mark[2].strip():
            yield from ("", *_fence("\n".join(code), language), "")
            fence, code = "", []
        elif fence:
            code.append(line)
        elif mark:
            yield from _inert_prose(prose)
            prose, fence, language = [], mark[1], mark[2].strip()
        else:
            prose.append(line)
    if fence:
        yield from ("", *_fence("\n".join(code), language), "")
    yield from _inert_prose(prose)


def _fence(text: str, language: str) -> Iterator[str]:
    """Yield the lines of a block of code that ends nowhere inside its text."""
    fence = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
    is_shown = _LANGUAGE.fullmatch(language) and language.lower() not in _DRAWN
    yield f"{fence}{language if is_shown else 'text'}"
    yield text
    yield fence


def _inert_prose(lines: list[str]) -> Iterator[str]:
    """Yield the lines between blocks of code, escaped paragraph by paragraph."""
    paragraph: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            paragraph.append(line)
            continue
        spans = [_code_spans(part) for part in paragraph]
        # Where one line leaves a backtick open, readers differ in what is code after it.
        is_clear = None not in spans
        for part, spans_of_part in zip(paragraph, spans, strict=True):
            yield _escape_inline(part, spans_of_part if is_clear else None)
        paragraph = []
        yield line


def _code_spans(line: str) -> list[tuple[int, int]] | None:
    """Return where code begins and ends in a line; None if readers may differ."""
    runs = [match.span() for match in _TICKS.finditer(line)]
    spans: list[tuple[int, int]] = []
    if len(runs) > MAX_TICKS:
        return None
    while runs:
        start, end = runs.pop(0)
        lengths = [close - begin for begin, close in runs]
        if line[:start].endswith("\\") or end - start not in lengths:
            return None
        at = lengths.index(end - start)
        spans.append((start, runs[at][1]))
        if "|" in line[start : runs[at][1]]:  # a table would cut it there
            return None
        del runs[: at + 1]
    return spans


def _escape_inline(text: str, code: list[tuple[int, int]] | None = None) -> str:
    """Return a line in which no tag and no image begins, outside of the code in it."""

    def escaped(match: re.Match[str]) -> str:
        if any(start <= match.start() < end for start, end in code or ()):
            return match[0]
        return "&lt;" if match[0] == "<" else "&#33;"

    return _ACTIVE.sub(escaped, text)


def document(lines: Iterable[str]) -> str:
    """Return the lines of Markdown or a page as a text that no program obeys."""
    return clean_text("\n".join(lines))


def page(
    session: Readout,
    branch: BranchChoice = LIVE,
    zone: tzinfo = UTC,
    *,
    name: str | None = None,
) -> Iterator[str]:
    """Yield a session as one HTML file that loads nothing and runs nothing."""
    title = html.escape(_one_line(name or session.title or "Session"))
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">'
    yield '<meta name="viewport" content="width=device-width">'
    yield f"<title>{title}</title>"
    yield f"<style>{_STYLE}</style></head><body><main>"
    yield f"<h1>{title}</h1><ul>"
    yield from (f"<li>{html.escape(f'{name}: {value}')}</li>" for name, value in _about(session))
    yield "</ul>"
    for piece in pieces(session, branch):
        yield from _section(piece, zone)
    yield f"<p>{html.escape(left_out(session, branch))}</p></main></body></html>"


def _section(piece: Piece, zone: tzinfo) -> Iterator[str]:
    text, head = html.escape(piece.text.rstrip("\n")), html.escape(piece.title)
    if piece.kind == BORDER:
        yield f"<p><i>{head} {text}</i></p><hr>"
        return
    moment = (
        f" <time>{html.escape(time_text)}</time>" if (time_text := _moment(piece.ts, zone)) else ""
    )
    off = f" <i>{html.escape(piece.off)}</i>" if piece.off else ""
    marks = ("failed" if piece.failed else "", "off" if piece.off else "")
    kind = " ".join(filter(None, (piece.kind, *marks)))
    if piece.kind in ("user_msg", "assistant_msg"):
        yield f'<section class="{kind}"><h2>{head}{off}{moment}</h2>'
        yield f"<pre>{text}</pre></section>"
    else:
        yield f'<details class="{kind}"><summary>{head}{off}{moment}</summary>'
        yield f"<pre>{text}</pre></details>"


def _moment(ts: str | None, zone: tzinfo) -> str:
    moment = time_of(ts)
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M:%S}" if moment is not None else ""


def _policy() -> str:
    """Allow our own style and nothing else: no script, picture, frame, form or base."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


_STYLE = (
    ":root{color-scheme:light dark;--dim:#666;--you:#2563c9;--bad:#b3261e;--rule:#ddd}"
    "@media(prefers-color-scheme:dark){:root{--dim:#999;--you:#7aa7ff;--bad:#ff8a80;--rule:#444}}"
    "main{max-width:50rem;margin:auto;padding:1rem;font:1rem/1.5 system-ui,sans-serif}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;font:inherit;margin:.25rem 0 1rem}"
    "h1{font-size:1.4rem}h2{font-size:1rem;margin-bottom:0}ul{color:var(--dim);padding-left:1rem}"
    "time,i{color:var(--dim);font-weight:400;font-size:.85rem}"
    "details{margin:.25rem 0;border-left:2px solid var(--rule);padding-left:.75rem}"
    "details pre{font:.85rem/1.4 ui-monospace,monospace}summary{cursor:pointer;color:var(--dim)}"
    ".user_msg{border-left:4px solid var(--you);padding-left:1rem}.user_msg h2{color:var(--you)}"
    ".failed summary{color:var(--bad)}.off{opacity:.75;margin-left:2rem}"
)


def _about(readout: Readout) -> Iterator[tuple[str, str]]:
    session = readout.head.session
    fields = {
        "session": session.session_uid,
        "model": session.model,
        "folder": session.cwd,
        "branch": session.git_branch,
        "began": session.started_at,
        "ended": session.ended_at,
    }
    yield from ((name, _one_line(value)) for name, value in fields.items() if value)


def _one_line(text: str) -> str:
    return " ".join(text.split())
