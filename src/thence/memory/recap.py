"""A recap: the sessions that answer a question, on one page.

What was asked, decided, changed, what failed and what helped, and how it ended: told from digests
and from what a search finds, so that an evicted session has its place too. Nobody's model is
asked; the same store gives the same page. Events are named, so that each can be opened. The page
has so many tokens at most: what matters less is left out first, and that is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from thence.format.records import JSON
from thence.memory.labels import labels_of, search, texts_of
from thence.memory.notes import Note, matching_notes
from thence.memory.origins import in_brackets
from thence.memory.recall import event_name, shown_rows
from thence.memory.search import (
    CLOSE,
    OPEN,
    OUTCOME_NAMES,
    Hit,
    Query,
    SearchAnswer,
    hits,
    narrow,
    parse,
)
from thence.memory.session_status import Now, digest_now
from thence.memory.store import Filter, SessionRow, Store

if TYPE_CHECKING:
    from thence.memory.search import SearchMatch

TOKENS: Final = 1_500
"""What a page has at most, unless another number is asked for."""
SESSIONS: Final = 3
CHARACTERS_PER_TOKEN: Final = 4
NAME: Final = 13
"""Characters of a session's id, enough to tell any two apart that began at another moment."""

_HITS = 60  # events that are looked at to find the sessions
_QUOTES = 3
_NEAR = 0.5  # of the best session's worth: what is less is not told
_LINE = 220
_FILES = 8


class Mention(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that an event says."""

    text: str
    event_id: int | None = None
    what: str = ""
    """The kind of the event, or of the command; who decided."""


class RecalledFailure(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error, and what was done before it did not come back."""

    text: str
    event_id: int | None = None
    count: int = 1
    is_settled: bool = False
    fixes: list[Mention] = []


class RecalledSession(msgspec.Struct, frozen=True):
    """One session that answers."""

    session_uid: str
    title: str
    project: str | None
    ended_at: str | None
    outcome: str
    is_evicted: bool
    score: float
    asked: list[str]
    quotes: list[Mention]
    decided: list[Mention]
    files: list[str]
    commands: list[Mention]
    failed: list[RecalledFailure]
    ended: str
    origin: str = ""
    """Where it comes from, in words; empty for a session of this machine."""


class Recap(msgspec.Struct, frozen=True):
    """The page: sessions, the best first, and decisions and notes that are about the question."""

    question: str
    explanation: str
    sessions: list[RecalledSession]
    notes: list[Note]


def recap(
    store: Store, written: Iterable[Note], question: str, now: Now, *, sessions: int = SESSIONS
) -> Recap:
    """Return the page that answers a question; `written` are notes of all kinds, names too."""
    query, written = parse(question), list(written)
    notes = texts_of(written)
    answer = search(store, query, _HITS)
    by: dict[str, list[SearchMatch]] = {}
    for match in answer.matches:
        if match.state != "internal":
            by.setdefault(match.session_uid, []).append(match)
    best = max((some[0].score for some in by.values()), default=0.0)
    chosen = [uid for uid, some in by.items() if some[0].score >= _NEAR * best][:sessions]
    wanted = Filter(uids=tuple(chosen))
    rows = shown_rows(store, chosen, labels_of(written))
    digests = {entry["uid"]: entry for entry in store.read_table("digests", wanted)}
    out = [
        _recall_session(
            *(store, query, row),
            digest_now(digests.get(uid) or {}, row, now.of(row)),
            *(by[uid], notes),
        )
        for uid in chosen
        if (row := rows.get(uid)) is not None
    ]
    apart = [note for note in _about(notes, query) if note.session_uid not in chosen]
    explanation = "; ".join(filter(None, (answer.explanation, *answer.hints)))
    return Recap(question, explanation, out, apart[:_QUOTES])


def _about(notes: Sequence[Note], query: Query) -> list[Note]:
    """Return the notes that have at least half of the words of a question, the newest first."""
    counts = dict.fromkeys(range(len(notes)), 0)
    for terms in query.wanted:
        holding = {id(note) for note in matching_notes(notes, narrow(query, terms))}
        for at, note in enumerate(notes):
            counts[at] += id(note) in holding
    most = max(counts.values(), default=0)
    enough = max(most, (len(query.wanted) + 1) // 2, 1)
    return [notes[at] for at in sorted(counts, reverse=True) if counts[at] >= enough]


def _recall_session(  # noqa: PLR0917
    store: Store,
    query: Query,
    row: SessionRow,
    digest: dict[str, JSON],
    matches: Sequence[SearchMatch],
    notes: Sequence[Note],
) -> RecalledSession:
    session = row.session
    uid = session.session_uid
    snippets: dict[str, Any] = digest.get("snippets") or {}
    asked = [snippets.get("first_prompt") or row.title or "", snippets.get("last_prompt") or ""]
    shown = hits(SearchAnswer(list(matches[:_QUOTES])), query, store.blobs).hits
    own = [Mention(n.text, None, n.author) for n in notes if n.session_uid == uid]
    return RecalledSession(
        uid,
        row.title or "",
        session.cwd,
        session.ended_at,
        str(digest.get("outcome") or "unknown"),
        session.evicted_at is not None,
        round(matches[0].score, 4),
        list(dict.fromkeys(filter(None, asked))),
        [entry for entry in map(_quote, shown) if entry.text and not _repeats(entry.text, asked)],
        own + _corrections(digest),
        [entry["path"] for entry in digest.get("files") or () if entry.get("edits")],
        _commands_that_worked(digest),
        [_failure(entry) for entry in digest.get("errors") or ()],
        snippets.get("last_reply") or "; ".join(digest.get("reasons") or ()),
        row.origin,
    )


def _corrections(digest: dict[str, JSON]) -> list[Mention]:
    """Return what the user said to change the agent's course."""
    return [
        Mention(entry.get("what") or "", entry.get("event"), "user")
        for entry in digest.get("interventions") or ()
    ]


def _commands_that_worked(digest: dict[str, JSON]) -> list[Mention]:
    return [
        Mention(entry.get("line") or "", entry.get("event"), entry.get("what") or "")
        for entry in digest.get("commands") or ()
        if not entry.get("failed")
    ]


def _repeats(text: str, asked: Iterable[str]) -> bool:
    """Return whether a text is the beginning of a prompt that is told anyway."""
    plain = " ".join(text.strip("…").split())
    return any(" ".join(prompt.split()).startswith(plain) for prompt in asked)


def _quote(hit: Hit) -> Mention:
    text = "" if hit.kind == "digest" else hit.snippet.replace(OPEN, "").replace(CLOSE, "")
    return Mention(text, hit.shown_at, hit.kind)


def _failure(error: dict[str, Any]) -> RecalledFailure:
    fixes = [Mention(fix["what"], fix["event"]) for fix in error.get("fix") or ()]
    return RecalledFailure(
        error.get("quote") or error["fingerprint"],
        error.get("first"),
        error.get("count") or 1,
        error.get("settled_by") is not None,
        fixes,
    )


# -- as text --------------------------------------------------------------------------------


def lines(page: Recap, tokens: int = TOKENS) -> list[str]:
    """Return the page as lines, of so many tokens at most; of each session the same share."""
    return [line for _, some in sections(page, tokens) for line in some]


def sections(
    page: Recap, tokens: int = TOKENS
) -> Iterator[tuple[RecalledSession | None, list[str]]]:
    """Yield what stands before the sessions, with None, then each session with its lines."""
    room = CHARACTERS_PER_TOKEN * tokens
    first = [page.explanation] if page.explanation else []
    first += [
        f"{note.kind} {(note.ts or '')[:10]}, {note.author}: {_flat(note.text)}"
        for note in page.notes
    ]
    if not page.sessions and not page.notes:
        first.append("no matches")
    if first:
        yield None, first
    room -= sum(len(line) + 1 for line in first)
    for left, session in zip(range(len(page.sessions), 0, -1), page.sessions, strict=True):
        some = _fit_lines(list(_session(session)), room // left)
        room -= sum(len(line) + 1 for line in some)
        yield session, some


def _fit_lines(rated: list[tuple[int, str]], room: int) -> list[str]:
    """Return the lines that fit, those that matter most; how many were left out is said."""
    room -= 40  # for that sentence
    fits: set[int] = set()
    for at in sorted(range(len(rated)), key=lambda at: (rated[at][0], at)):
        if len(rated[at][1]) + 1 > room:
            break
        room -= len(rated[at][1]) + 1
        fits.add(at)
    left = len(rated) - len(fits)
    more = [f"  ({left} more lines: thence show --digest)"] if left else []
    return [line for at, (_, line) in enumerate(rated) if at in fits] + more


_BOOK_KEEPING: Final = ("lifecycle", "digest", "title")
"""Kinds of matches that say nothing by themselves."""
_KIND_WORDS: Final = {
    "user_msg": "prompt",
    "assistant_msg": "answer",
    "thinking": "thought",
    "tool_call": "call",
    "tool_result": "output",
}
"""What kinds of events are called on the page."""


def _session(session: RecalledSession) -> Iterator[tuple[int, str]]:
    """Yield lines about a session, each with how much it matters: 0 most."""
    agent, _, native = session.session_uid.partition(":")
    day = (session.ended_at or "undated")[:10]
    gone = ", transcript removed" if session.is_evicted else ""
    folder = f" in {_flat(session.project, 60)}" if session.project else ""
    outcome = OUTCOME_NAMES[session.outcome]
    head = f"{agent}:{native[:NAME]} {day} {outcome}{gone}{folder}"
    yield 0, f"{head}{in_brackets(session.origin)}: {_flat(session.title, 120)}"
    for at, text in enumerate(session.asked):
        if at or _flat(text, 120) != _flat(session.title, 120):
            yield 1 + at, f"  asked: {_flat(text)}"
    for at, quote in enumerate(session.quotes):
        if quote.what not in _BOOK_KEEPING:
            what = _KIND_WORDS.get(quote.what, quote.what)
            yield at, f"  {what}{_at(quote)}: {_flat(quote.text)}"
    for at, decided in enumerate(session.decided[:5]):
        what = "decided" if decided.event_id is None else "corrected"
        by = f", {decided.what}" if decided.event_id is None else ""
        yield 1 + at, f"  {what}{by}{_at(decided)}: {_flat(decided.text)}"
    if session.files:
        left = len(session.files) - _FILES
        more = f" and {left} more" if left > 0 else ""
        yield 1, f"  changed: {_flat(', '.join(session.files[:_FILES]))}{more}"
    for at, command in enumerate(session.commands[-3:]):
        yield 2 + at, f"  {command.what}{_at(command)}: {_flat(_subject(command.text), 140)}"
    for at, failure in enumerate(session.failed[:4]):
        yield from _failure_lines(failure, 1 + at)
    if session.ended:
        yield 1, f"  ended: {_flat(session.ended)}"


def _failure_lines(failure: RecalledFailure, matters: int) -> Iterator[tuple[int, str]]:
    often = f" {failure.count}x" if failure.count > 1 else ""
    yield matters, f"  failed{often}{_at(failure)}: {_flat(failure.text, 160)}"
    for fix in failure.fixes[:1]:
        yield matters, f"    fixed by{_at(fix)}: {_flat(fix.text, 140)}"
    if failure.is_settled and not failure.fixes:
        yield matters + 1, "    went well when tried again"


_MESSAGE = re.compile(
    r"""\bgit commit\b[^|;&]*? (?:-\w*m|--message)[ =](["'])(.+?)(?:\1|$)""", re.DOTALL
)


def _subject(command: str) -> str:
    """Return the message of a commit without the command around it; other commands as they are."""
    message = _MESSAGE.search(command)
    return message[2] if message else command


def _at(mention: Mention | RecalledFailure) -> str:
    return "" if mention.event_id is None else f" {event_name(mention.event_id)}"


def _flat(text: str, room: int = _LINE) -> str:
    line = " ".join(text[: 4 * room].split())
    return line if len(line) <= room else line[: room - 1] + "…"
