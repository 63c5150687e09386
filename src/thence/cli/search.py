"""`thence search`: find what was said or done in any session."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click
import msgspec

from thence.cli import options, wiring
from thence.cli.columns import (
    DIM,
    ago,
    present,
    project,
    short_id,
    short_ids,
    tell,
    title_text,
    when,
)
from thence.cli.terminal import (
    as_json,
    clean,
    columns,
    cut,
    format_duration,
    justify,
    say,
    several,
    style,
    width,
)
from thence.errors import SKIPS
from thence.format.normal import KINDS
from thence.memory.recall import event_name, read_hits

if TYPE_CHECKING:
    from thence.format.records import JSON
    from thence.memory.notes import Note
    from thence.memory.search import Hit, Hits, Query
    from thence.memory.store import Store

DEFAULT_ROWS = 20
MAX_HITS_PER_SESSION = 3
"""Hits of one session that are shown before the rest is counted."""

_KINDS = {
    "user_msg": "you",
    "assistant_msg": "answer",
    "thinking": "thought",
    "tool_call": "call",
    "tool_result": "result",
    "lifecycle": "note",
    "human_intervention": "you",
    "test_run": "test run",
    "completion": "finish",
}


@click.command(
    "search",
    epilog='Words, "a phrase", a prefix*, -without, this OR that, or a question, and filters:'
    " agent:codex project:tidepool model:opus tool:Bash kind:error file:app.py"
    " after:2026-01-01 before:7d outcome:failed tag:release cost>1.50."
    f" kind: takes {', '.join(KINDS)} and note."
    " An error, test_run, edit, retry, human_intervention or completion is found by the words"
    " of its original event; kind:decision and kind:note find recorded decisions and notes."
    " Filters alone list sessions. If few sessions have all words, partial matches follow. A word"
    " without matches is searched by its parts, prefix, other forms and similar spellings, and"
    " the output says so. Put -- before a word that starts with -.",
)
@click.argument("query", nargs=-1, required=True)
@click.option("-n", "number", type=click.IntRange(1, 500), default=DEFAULT_ROWS, show_default=True)
@click.option("--offset", type=click.IntRange(0), default=0, help="Skip N results.")
@click.option("--exact", is_flag=True, help="Only exact matches of all words.")
@options.utc
@options.tz
@options.as_json
def command(
    query: tuple[str, ...],
    number: int,
    offset: int,
    *,
    exact: bool,
    utc: bool,
    tz: str | None,
    json: bool,
) -> int:
    """Print what was found, session by session."""
    from thence.memory.labels import search, with_tagged
    from thence.memory.local_days import zone_named
    from thence.memory.notes import matching_notes
    from thence.memory.search import parse

    zone = zone_named("UTC" if utc else tz)
    # What the shell took for one word, quoted, was meant as one phrase only if it says so.
    asked = with_tagged(parse(" ".join(query), exact=exact, zone=zone), wiring.labels())
    notes = matching_notes(wiring.clean_notes(), asked)[offset : offset + number]
    with wiring.store(must_exist=not notes) as store:
        began = time.monotonic()
        answer = read_hits(store, search(store, asked, number, offset), asked)
        took = round(1000 * (time.monotonic() - began))
        if json:
            say(as_json({**as_object(answer), "notes": [_note_object(n, asked) for n in notes]}))
            return SKIPS if answer.unread else 0
        results = SearchResults(store, answer, present().astimezone(zone))
        tell(results.lines(width(), took, notes, asked))
    return SKIPS if answer.unread else 0


def _note_object(note: Note, asked: Query) -> JSON:
    """Return a decision or note under the names of the contract, its text as a snippet."""
    from thence.memory.search import snippet

    text, marks = split_marks(snippet(note.text, asked.terms))
    fields: dict[str, JSON] = msgspec.to_builtins(note)
    del fields["text"]
    return {**fields, "snippet": text, "marks": marks}


def as_object(answer: Hits) -> dict[str, JSON]:
    """Return an answer under the names of the contract; `marks` say where in a snippet it is."""
    out: list[JSON] = []
    for hit in answer.hits:
        text, marks = split_marks(hit.snippet)
        fields: dict[str, JSON] = msgspec.to_builtins(hit)
        out.append({**fields, "snippet": text, "marks": marks})
    counted = answer.answer
    return {
        "hits": out,
        "total": counted.total,
        "sessions": counted.sessions,
        "capped": counted.capped,
        "searched_back_to": counted.searched_back_to,
        "how": counted.how,
        "explanation": counted.explanation,
        "hints": list(counted.hints),
    }


def split_marks(snippet: str) -> tuple[str, list[list[int]]]:
    """Part a snippet into its text and the places that were asked for."""
    from thence.memory.search import CLOSE, OPEN

    text, marks = "", []
    for piece in re.split(f"({OPEN}[^{CLOSE}]*{CLOSE})", snippet):
        if piece.startswith(OPEN):
            marks.append([len(text), len(text) + len(piece) - 2])
        text += piece.strip(OPEN + CLOSE) if piece.startswith(OPEN) else piece
    return text, marks


class SearchResults:
    """Hits, gathered by their sessions."""

    def __init__(self, store: Store, answer: Hits, at: datetime) -> None:
        from thence.memory.recall import shown_rows

        self._hits, self._unread, self._answer = answer.hits, answer.unread, answer.answer
        self._at = at
        self._by: dict[str, list[Hit]] = {}
        for hit in answer.hits:
            self._by.setdefault(hit.session_uid, []).append(hit)
        self._rows = shown_rows(store, self._by, wiring.labels())
        self._ids = short_ids([uid.partition(":")[2] for uid in self._by])

    def lines(self, room: int, took: int, notes: Sequence[Note], asked: Query) -> Iterator[str]:
        """Yield the answer as text, decisions and notes first."""
        if not self._by and not notes:
            yield f"{self._answer.count}, {format_duration(took)}{self._far()}"
            yield from self._how(room)
            return
        shown, counted = len(self._hits), self._answer
        some = f" ({shown} shown)" if shown < (counted.total or counted.sessions) else ""
        parts = [f"{counted.count}{some}"] if self._by else []
        parts += [several(many, kind) for kind, many in Counter(n.kind for n in notes).items()]
        yield cut(f"{', '.join(parts)}, {format_duration(took)}{self._far()}", room)
        yield from self._how(room)
        yield ""
        yield from self._notes(notes, asked, room)
        for uid, hits in self._by.items():
            yield from self._session(uid, hits, room)
        first = next((hit for hit in self._hits if hit.event_id is not None), None)
        if first is not None and first.event_id is not None:
            name = self._ids[first.session_uid.partition(":")[2]]
            yield ""
            yield style("open one at the match:", fg=DIM) + style(
                f"  thence show {name} --around {event_name(first.event_id)}", bold=True
            )
        if unread := self._unread:
            much = several(len(unread), "match")
            words = f"{much} without text: {clean(unread[0])}; see thence doctor"
            yield style(cut(words, room), fg="red")

    def _notes(self, notes: Iterable[Note], asked: Query, room: int) -> Iterator[str]:
        """Yield two lines for each decision or note: what it is and who wrote it, what it says."""
        from thence.memory.search import snippet

        for note in notes:
            left = f"{note.kind}{_session_named(note)}, {clean(note.author)}"
            where = f"  {project(note.cwd)}" if note.cwd else ""
            head = justify(f"{left}{where}", ago(when(note.ts), self._at), room - 2)
            yield style(f"  {head}", fg=DIM)
            yield f"    {highlight(snippet(note.text, asked.terms), room - 4)}"

    def _how(self, room: int) -> Iterator[str]:
        """Yield how it was found, and what is to be said of the question."""
        for text in filter(None, (self._answer.explanation, *self._answer.hints)):
            yield cut(clean(text), room)

    def _far(self) -> str:
        """Say how far back the search went, where it did not reach the beginning."""
        back = when(self._answer.searched_back_to)
        if not self._answer.capped or back is None:
            return ""
        return f", back to {back.astimezone(self._at.tzinfo):%Y-%m-%d} only"

    def _session(self, uid: str, hits: Sequence[Hit], room: int) -> Iterator[str]:
        row = self._rows.get(uid)
        name = self._ids[uid.partition(":")[2]]
        title = title_text(row.title if row else None)
        age = ago(when(row.session.ended_at), self._at) if row else ""
        evicted = "digest only  " if row and row.session.evicted_at else ""
        origin = f"{clean(row.origin)}  " if row and row.origin else ""
        right = f"{origin}{evicted}{age}"
        shown = justify(title, right, room - 4 - len(name))
        yield f"  {style(name, fg=DIM)}  {style(shown, bold=True)}"
        for hit in hits[:MAX_HITS_PER_SESSION] if self._answer.how != "filters" else ():
            yield self._hit(hit, room)
        if len(hits) > MAX_HITS_PER_SESSION:
            yield style(f"    and {len(hits) - MAX_HITS_PER_SESSION} more", fg=DIM)

    def _hit(self, hit: Hit, room: int) -> str:
        place = event_name(hit.event_id) if hit.event_id is not None else ""
        kind = _KINDS.get(hit.kind, hit.kind)
        if hit.state in ("dead", "rolled_back"):
            kind = f"╳ {kind}"
        left = f"    {place:<9}{kind:<9}"
        if hit.unread is not None:
            return style(left, fg=DIM) + style("text unreadable", fg="red")
        return style(left, fg=DIM) + highlight(hit.snippet, room - columns(left))


def _session_named(note: Note) -> str:
    """Say which session a note belongs to, if it belongs to one."""
    uid = note.session_uid
    return f" of {clean(short_id(uid.partition(':')[2]))}" if uid is not None else ""


def highlight(snippet: str, room: int) -> str:
    """Cut a snippet to a line and point at what was asked for: in colour, or in brackets."""
    text, marks = split_marks(snippet)
    text = clean(text)  # one sign for one: the places stay
    plain = not sys.stdout.isatty()
    start = 0
    if marks and columns(text[: marks[0][1]]) > room - 8:
        start = max(marks[0][0] - room // 3, 0)
    out, at, used = ("…" if start else ""), start, 1 if start else 0
    for begin, end in [*marks, [len(text), len(text)]]:
        if begin < at:
            continue
        before = text[at:begin]
        left = room - used
        if columns(before) > left or left <= 0:
            return out + cut(before + text[begin:], left)
        out += before
        used += columns(before)
        word = text[begin:end]
        extra = 2 if plain else 0
        if columns(word) + extra > room - used:
            return out + ("…" if room > used and word else "")
        if word:
            out += f"[{word}]" if plain else style(word, fg="yellow", bold=True)
        used += columns(word) + extra * bool(word)
        at = end
    return out
