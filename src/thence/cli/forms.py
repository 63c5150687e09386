"""A session in the forms that leave the machine: lines, one flat journal, Markdown, a page.

Pure: a session goes in, texts come out. Whatever a log says stays text: Markdown fences are longer
than any run of backticks inside them, and in HTML everything is escaped, with no script, no link
and nothing that is loaded from elsewhere.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID, uuid5

import msgspec

from thence.format.records import text_of

if TYPE_CHECKING:
    from thence.format.normal import SessionEvent
    from thence.format.records import JSON
    from thence.format.whole import Whole

_SPACE = UUID("6f2a6b0e-6d0b-5d0c-9a51-7e1f0c1a5b10")
"""Where ids of flattened events come from: the same session always becomes the same file."""

_SAID = {"user_msg": "You", "assistant_msg": "Assistant", "thinking": "Thought"}


class Piece(NamedTuple):
    """One thing that was said or done on the live line."""

    kind: str
    title: str
    text: str
    ts: str | None = None
    failed: bool = False


def lines(whole: Whole) -> Iterator[JSON]:
    """Give the session, then every event in whatever state, one object each."""
    from thence.format.normal import numbered

    fields = msgspec.to_builtins(whole.session())
    yield {"type": "session", "title": whole.title, **fields}
    for event in numbered([*whole.events, *whole.derived]):
        yield {"type": "event", **msgspec.to_builtins(event)}


def flat(whole: Whole) -> Iterator[JSON]:
    """Give the live line as a journal of its own that names no other file, and can be resumed."""
    from thence.format import schema
    from thence.format.records import Header

    session = whole.session()
    name = str(uuid5(_SPACE, session.session_uid))
    start = session.started_at or "1970-01-01T00:00:00.000Z"
    header = Header(
        session_id=name,
        start_ts=start,
        schema_version=schema.CURRENT,
        cwd=session.cwd,
        model=session.model,
    )
    before = str(uuid5(_SPACE, f"{name}/header"))
    yield _event("header", start, before, None, msgspec.to_builtins(header))
    for number, message in enumerate(whole.messages().messages):
        uuid = str(uuid5(_SPACE, f"{name}/{number}"))
        yield _event(message["role"], start, uuid, before, dict(message))
        before = uuid
    end = session.ended_at or start
    done = {"end_ts": end, "reason": "exported"}
    yield _event("terminator", end, str(uuid5(_SPACE, f"{name}/end")), before, done)


def _event(kind: str, ts: str, uuid: str, before: str | None, payload: JSON) -> JSON:
    return {"type": kind, "ts": ts, "uuid": uuid, "prev_uuid": before, "payload": payload}


def pieces(whole: Whole) -> Iterator[Piece]:
    """Give what was said and done on the live line, compacted parts included."""
    for event in whole.events:
        if event.state == "live" and event.channel == "main":
            piece = _piece(event)
            if piece is not None and piece.text.strip():
                yield piece


def _piece(event: SessionEvent) -> Piece | None:
    payload = event.payload
    if event.kind in _SAID:
        text = payload.get("thinking") if isinstance(payload, dict) else None
        said = text if isinstance(text, str) else _text(payload) or event.summary
        return Piece(event.kind, _SAID[event.kind], said, event.ts)
    if event.kind == "tool_call":
        given = json.dumps(payload, indent=2, ensure_ascii=False)
        return Piece("tool_call", f"Tool: {event.tool or 'unknown'}", given, event.ts)
    if event.kind == "tool_result":
        title = "Result, failed" if event.failed else "Result"
        return Piece("tool_result", title, _text(payload), event.ts, bool(event.failed))
    return None


def _text(payload: JSON) -> str:
    if isinstance(payload, dict) and isinstance(payload.get("text"), str):
        told: str = payload["text"]
        return told
    return text_of(payload) or ("" if payload is None else json.dumps(payload, ensure_ascii=False))


def left_out(whole: Whole) -> str:
    """Say what a page of the live line does not show."""
    from collections import Counter

    states = Counter(event.state.value for event in whole.events if event.state is not None)
    told = [f"{states[name]} {name}" for name in ("dead", "rolled_back", "side") if states[name]]
    return f"Not shown: events {', '.join(told)}." if told else ""


def markdown(whole: Whole) -> Iterator[str]:
    """Give a session as Markdown."""
    yield f"# {_one_line(whole.title or 'Session')}"
    yield ""
    yield from (f"- {name}: {value}" for name, value in _about(whole))
    for piece in pieces(whole):
        moment = f" ({piece.ts[:19].replace('T', ' ')})" if piece.ts else ""
        yield ""
        if piece.kind in ("user_msg", "assistant_msg"):
            yield f"## {piece.title}{moment}"
            yield ""
            yield piece.text.rstrip()
            continue
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", piece.text)), default=0))
        yield f"**{_one_line(piece.title)}**"
        yield ""
        yield f"{fence}{'json' if piece.kind == 'tool_call' else 'text'}"
        yield piece.text.rstrip("\n")
        yield fence
    if told := left_out(whole):
        yield ""
        yield f"*{told}*"


def page(whole: Whole) -> Iterator[str]:
    """Give a session as one HTML file."""
    title = html.escape(_one_line(whole.title or "Session"))
    yield "<!doctype html>"
    yield f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield '<meta name="viewport" content="width=device-width">'
    yield f"<style>{_STYLE}</style></head><body><main>"
    yield f"<h1>{title}</h1><ul>"
    yield from (f"<li>{html.escape(f'{name}: {value}')}</li>" for name, value in _about(whole))
    yield "</ul>"
    for piece in pieces(whole):
        text, head = html.escape(piece.text.rstrip("\n")), html.escape(piece.title)
        moment = f" <time>{html.escape(piece.ts[:19])}</time>" if piece.ts else ""
        if piece.kind in ("user_msg", "assistant_msg"):
            yield f'<section class="{piece.kind}"><h2>{head}{moment}</h2>'
            yield f"<pre>{text}</pre></section>"
        else:
            kind = f"{piece.kind} failed" if piece.failed else piece.kind
            yield (
                f'<details class="{kind}"><summary>{head}{moment}</summary>'
                f"<pre>{text}</pre></details>"
            )
    yield f"<p>{html.escape(left_out(whole))}</p></main></body></html>"


_STYLE = (
    ":root{color-scheme:light dark}main{max-width:50rem;margin:auto;padding:1rem;"
    "font:1rem/1.5 system-ui,sans-serif}pre{white-space:pre-wrap;overflow-wrap:anywhere;"
    "font:inherit}details pre{font:.85rem/1.4 ui-monospace,monospace}h2{font-size:1rem;"
    "margin-bottom:0}time{opacity:.6;font-weight:400}.user_msg{border-left:4px solid #58f;"
    "padding-left:1rem}.failed summary{color:#c33}"
)


def _about(whole: Whole) -> Iterator[tuple[str, str]]:
    session = whole.session()
    told = {
        "session": session.session_uid,
        "model": session.model,
        "folder": session.cwd,
        "branch": session.git_branch,
        "began": session.started_at,
        "ended": session.ended_at,
    }
    yield from ((name, _one_line(value)) for name, value in told.items() if value)


def _one_line(text: str) -> str:
    return " ".join(text.split())
