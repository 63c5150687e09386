"""Searching: what a user types becomes a question, and answers become snippets.

    words "a phrase" begin* -without this OR that
    agent:codex project:tidepool model:opus tool:Bash kind:error file:app.py
    after:2026-01-01 before:2026-02 outcome:fail cost>1.50

Projects and models are asked for by any part of their names, files by words of their paths, of
which the last may be a beginning (`file:src/app*`).
Any text is a question: what cannot be meant as a filter is searched for as words, so that pasting
an error message works. Chinese, Japanese and Korean are found by any characters inside a sentence
(see `pairs`). Answers come newest first from the part of the memory that a budget of
time reaches; they say how far back that was, and whether there were more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise

import msgspec

from thence.errors import ThenceError
from thence.format.expressions import expression
from thence.format.facts import Block, words_of
from thence.format.figures import TICKS
from thence.format.normal import DERIVED, KINDS, derived_id, implied_kinds
from thence.format.records import JSON
from thence.memory import pairs
from thence.memory.packs import Blobs
from thence.memory.spelling import load

CAP = 2_000
"""Candidates that are looked at, the newest first."""

BUDGET = 0.012
"""Seconds after which a search stops going further back."""

AROUND = 90
OPEN, CLOSE = "\x02", "\x03"
"""Stand around what was found in a snippet; no log's text gets here with them inside."""

_PIECE = expression(
    r"""(?P<no>-)?(?:(?P<name>[a-z]+)(?P<sign>:|>=?|<=?))?(?:"(?P<phrase>[^"]*)"?|(?P<word>\S+))"""
)
_FILTERS = frozenset(
    {"agent", "project", "model", "tool", "kind", "file", "before", "after", "outcome", "cost"}
)
_MOST = Decimal(2**63 - 1)  # of anything, in any store
_DATE = expression(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?(?:T[\d:.]+Z?)?")


class BadQuery(ThenceError):
    """A search that cannot mean anything: a date that is none, nothing but exclusions."""

    exit_code = 2


class Query(msgspec.Struct, frozen=True):
    """A question to a store."""

    match: str = ""
    """For the index; empty when only filters were given."""
    terms: tuple[str, ...] = ()
    """What to point at in a snippet."""
    wanted: tuple[tuple[str, ...], ...] = ()
    """The same for an index of another kind: of each group one term at least."""
    without: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    """Tokens to filter by, all of them."""
    derived: str | None = None
    """The kind asked for, if it is one of events that are derived from others."""
    agent: str | None = None
    project: str | None = None
    model: str | None = None
    outcome: str | None = None
    after: int | None = None
    before: int | None = None
    ticks_over: int | None = None
    ticks_under: int | None = None

    @property
    def narrows_sessions(self) -> bool:
        """Whether something beyond the index must be looked up."""
        return any(
            value is not None
            for value in (
                *(self.project, self.model, self.outcome),
                *(self.after, self.before, self.ticks_over, self.ticks_under),
            )
        )


class Found(msgspec.Struct, frozen=True):
    """One event that answers, before its text was looked at."""

    session_uid: str
    event_id: int | None
    ts: int
    kind: str
    state: str | None
    ref: str | None
    score: float
    seq: int | None = None
    text: str | None = None
    """The text itself, where there is no ref to it: digests."""
    session: int = 0
    row: int | None = None
    derived_from: int | None = None
    """The event whose words these are, where the one that was found is derived from it."""


class Answer(msgspec.Struct, frozen=True):
    """What a store found."""

    found: list[Found]
    capped: bool = False
    searched_back_to: str | None = None


class Hit(msgspec.Struct, frozen=True):
    """One answer, as `thence search --json` gives it."""

    session_uid: str
    event_id: int | None
    seq: int | None
    ts: str | None
    kind: str
    snippet: str
    score: float
    state: str | None = None
    unread: str | None = None
    """Why there is no text to show: one damaged pack must not cost the other answers."""
    derived_from: int | None = None
    """The event that says it, where this one is derived from another."""

    @property
    def shown_at(self) -> int | None:
        """The event that a page of the session shows it at."""
        return self.event_id if self.derived_from is None else self.derived_from


class Hits(msgspec.Struct, frozen=True):
    """All answers of one page."""

    hits: list[Hit]
    capped: bool = False
    searched_back_to: str | None = None

    @property
    def unread(self) -> list[str]:
        """Why texts could not be read, one for each."""
        return [hit.unread for hit in self.hits if hit.unread is not None]


# -- questions ------------------------------------------------------------------------------


def parse(text: str) -> Query:
    """Read what a user typed."""
    wanted: list[tuple[str, ...]] = []
    without: list[str] = []
    terms: list[str] = []
    given: dict[str, JSON] = {}
    meta: list[str] = []
    either = False
    # Half characters, as an argument of a command may hold, are in no store.
    for piece in _PIECE.finditer(text.encode("utf-8", "replace").decode()):
        name, sign = piece["name"], piece["sign"]
        value = piece["phrase"] if piece["phrase"] is not None else piece["word"]
        if name is not None and (name not in _FILTERS or (sign != ":" and name != "cost")):
            value, name = piece[0].removeprefix("-"), None
        if name is not None:
            _filter(name, sign, value, given, meta, wanted)
            continue
        if value == "OR" and wanted and piece["phrase"] is None and not piece["no"]:
            either = True
            continue
        term = _term(value, phrase=piece["phrase"] is not None)
        if term is None:
            continue
        if piece["no"]:
            without.append(term)
        elif either:
            wanted[-1] = (*wanted[-1], term)
            either = False
        else:
            wanted.append((term,))
        if not piece["no"]:
            terms.append(value)
    match = _match(wanted, without, meta)
    return Query(match, tuple(terms), tuple(wanted), tuple(without), tuple(meta), **given)


def _term(text: str, *, phrase: bool) -> str | None:
    """Spell words for the index; all of them quoted, so that none is taken for an operator."""
    term = pairs.search_term(text, is_prefix=not phrase and text.endswith("*"))
    if not term.words:
        return None
    return '"' + " ".join(term.words) + '"' + ("*" if term.is_prefix else "")


def _match(wanted: Sequence[Sequence[str]], without: Sequence[str], meta: Sequence[str]) -> str:
    if without and not wanted and not meta:
        raise BadQuery("a search needs something to look for, not only what to leave out")
    groups = [group[0] if len(group) == 1 else f"({' OR '.join(group)})" for group in wanted]
    parts = [f"body : ({' AND '.join(groups)})"] if groups else []
    parts += [f'meta : "{word}"' for word in meta]
    match = " AND ".join(parts)
    return match + "".join(f" NOT body : {term}" for term in without)


def _filter(  # noqa: PLR0917
    name: str,
    sign: str,
    value: str,
    given: dict[str, JSON],
    meta: list[str],
    wanted: list[tuple[str, ...]],
) -> None:
    if name == "file":
        if (term := _term(value, phrase=False)) is not None:
            wanted.append((term,))
            meta.append("kindtoolcall")
    elif name in ("agent", "tool", "kind"):
        meta.append(name + token(value))
        if name == "kind" and value in DERIVED:
            given["derived"] = value
        kinds = (*KINDS, "note")  # what people wrote down is no event of a session
        if name == "kind" and value not in kinds:
            raise BadQuery(
                f"no kind of event is called {value!r}", hint=f"one of {', '.join(kinds)}"
            )
    elif name in ("before", "after"):
        given[name] = moment(value)
    elif name == "cost":
        given["ticks_under" if sign.startswith("<") else "ticks_over"] = _ticks(value)
    else:
        given[name] = value


def moment(text: str) -> int:
    """Read a date, or a time ago such as 7d, as milliseconds."""
    ago = re.fullmatch(r"(\d{1,4})([hdw])", text)
    if ago:
        hours = int(ago[1]) * {"h": 1, "d": 24, "w": 168}[ago[2]]
        return int((datetime.now(UTC) - timedelta(hours=hours)).timestamp() * 1000)
    date = _DATE.fullmatch(text)
    try:
        if date is None:
            raise ValueError
        year, month, day = (int(part or 1) for part in date.groups())
        return int(datetime(year, month, day, tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        raise BadQuery(
            f"not a date: {text!r}", hint="write 2026-01-31, 2026-01, or 7d for a week ago"
        ) from None


def _ticks(text: str) -> int:
    try:
        return int(min(max(Decimal(text.lstrip("$")) * TICKS, -_MOST), _MOST))
    except (ArithmeticError, ValueError):
        raise BadQuery(f"not an amount: {text!r}", hint="write cost>1.50") from None


# -- the index's own words ------------------------------------------------------------------


@lru_cache(maxsize=4096)
def meta(agent: str, kind: str, tool: str | None, implied: int = 0) -> str:
    """Spell what an event is as words of the index; the tokenizer knows letters and digits only.

    Among them are the kinds of events that are derived from it: their words are its own.
    """
    words = [f"agent{token(agent)}", f"kind{token(kind)}"]
    words += [f"tool{token(tool)}"] if tool else []
    words += [f"kind{token(other)}" for other in implied_kinds(implied)]
    return " ".join(words)


def token(text: str) -> str:
    """Spell a name with letters and digits alone."""
    return "".join(c for c in text.lower() if c.isascii() and c.isalnum())


# -- answers --------------------------------------------------------------------------------


def as_asked(found: Sequence[Found], query: Query) -> list[Found]:
    """Return what was found as the events that were asked for: those derived from what has words.

    Their number stays that of the event they are derived from: there they are shown.
    """
    kind = query.derived
    return [
        one
        if kind is None or one.event_id is None or one.kind == kind
        else msgspec.structs.replace(
            one,
            event_id=derived_id(one.session_uid, kind, one.event_id),
            kind=kind,
            derived_from=one.event_id,
        )
        for one in found
    ]


def hits(answer: Answer, query: Query, blobs: Blobs) -> Hits:
    """Look at the text of what was found."""
    made = [_hit(found, query.terms, blobs) for found in answer.found]
    return Hits(made, answer.capped, answer.searched_back_to)


def _hit(found: Found, terms: Sequence[str], blobs: Blobs) -> Hit:
    text, unread = found.text or "", None
    if found.text is None and found.ref is not None:
        try:
            text = payload_words(blobs, found.ref)
        except ThenceError as error:
            unread = str(error)
    when = datetime.fromtimestamp(found.ts / 1000, UTC) if found.ts else None
    return Hit(
        found.session_uid,
        found.event_id,
        found.seq,
        when.isoformat(timespec="milliseconds").replace("+00:00", "Z") if when else None,
        found.kind,
        snippet(text, terms),
        round(found.score, 4),
        found.state,
        unread,
        found.derived_from,
    )


def payload_words(blobs: Blobs, ref: str) -> str:
    """Return the text of a payload, as it is indexed and shown."""
    return words_of(Block("lifecycle", "system", payload=load(blobs.read(ref))))


def snippet(text: str, terms: Iterable[str]) -> str:
    """Cut out the place where a text says what was asked for, and point at it."""
    patterns = [_pattern(words) for term in terms if (words := pairs.pieces_of(term))]
    if not patterns:
        return " ".join(text[: 2 * AROUND].replace(OPEN, "").replace(CLOSE, "").split())
    find = re.compile("|".join(sorted(patterns, key=len, reverse=True)), re.IGNORECASE)
    first = find.search(pairs.usual_form(text))
    start = max(pairs.place_in(text, first.start()) - AROUND, 0) if first else 0
    piece = text[start : start + 3 * AROUND].replace(OPEN, "").replace(CLOSE, "")
    shown = " ".join(_marked(piece, find).split())
    more = "…" if len(text) > start + 3 * AROUND else ""
    return ("…" if start else "") + shown + more


def _pattern(words: Sequence[str]) -> str:
    """Return the expression that finds words one after the other, in a text in its usual form."""
    # The index takes an underscore for a gap between words, and needs none beside some scripts.
    out = "" if pairs.is_run(words[0]) else rf"(?<![^\W_{pairs.CHARACTERS}])"
    for before, word in pairwise(["", *words]):
        if before:
            out += r"[\W_]*" if pairs.is_run(before) or pairs.is_run(word) else r"[\W_]+"
        out += re.escape(word)
    return out


def _marked(text: str, find: re.Pattern[str]) -> str:
    """Return a text with marks around what an expression finds in its usual form."""
    out, end = "", 0
    for match in find.finditer(pairs.usual_form(text)):
        start, stop = (pairs.place_in(text, place) for place in match.span())
        out += f"{text[end:start]}{OPEN}{text[start:stop]}{CLOSE}"
        end = stop
    return out + text[end:]
