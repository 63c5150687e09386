"""Searching: what a user types becomes a question, and answers become snippets.

    words "a phrase" begin* -without this OR that
    agent:codex project:tidepool model:opus tool:Bash kind:error file:app.py
    after:2026-01-01 before:2026-02 outcome:failed cost>1.50

Days begin at midnight in a zone, by default that of this machine. Agents are asked for by their
stored names or by those that people read (`agent:codex`, `agent:"Claude Code"`).
Projects and models are asked for by any part of their names, files by words of their paths, of
which the last may be a beginning (`file:src/app*`).
Any text is a question: what cannot be meant as a filter is searched for as words, so that pasting
an error message works, and a name that is near to one of a filter is said. Words that every
sentence has do not count beside others (see `vocabulary`). Chinese, Japanese and Korean are found
by any characters inside a sentence (see `pairs`). Answers come best first (see `ranking`) from the
part of the memory that a budget of time reaches; they say how they were found, how far back that
was, and whether there were more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, Literal, TypeVar

import msgspec

from thence.agents.profiles import stored_name
from thence.errors import ThenceError
from thence.format.expressions import expression
from thence.format.facts import Block, words_of
from thence.format.figures import TICKS, several
from thence.format.normal import DERIVED, KINDS, derived_id, implied_kinds
from thence.memory import cjk_pairs
from thence.memory.highlighting import marking_of
from thence.memory.packs import BlobStore, read_each
from thence.memory.storable_json import load
from thence.memory.vocabulary import STOP_WORDS, nearest

MAX_ROWS = 2_000
"""Candidates that are looked at, the newest first."""

BUDGET_S = 0.006
"""Seconds after which a search stops going further back."""

MAX_PHRASE_WORDS = 6
"""Words that are also looked for as one phrase."""

SNIPPET_CONTEXT_CHARS = 90
OPEN, CLOSE = "\x02", "\x03"
"""Stand around what was found in a snippet; no log's text gets here with them inside."""

_PIECE = expression(
    r"""(?P<no>-)?(?:(?P<name>[a-z]+)(?P<sign>:|>=?|<=?))?(?:"(?P<phrase>[^"]*)"?|(?P<word>\S+))"""
)
OUTCOME_NAMES: Final[dict[str, str]] = {
    "success": "done",
    "fail": "failed",
    "abandoned": "abandoned",
    "waiting": "waiting",
    "unknown": "unclear",
    "running": "running",
}
"""What people read in place of outcomes as they are stored."""
OUTCOME_WORDS: Final = {name: outcome for outcome, name in OUTCOME_NAMES.items()} | {
    "failure": "fail",
    "succeeded": "success",
}
"""The words for outcomes, and the outcome that each means."""
_FILTER_NAMES = (
    *("agent", "project", "model", "tool", "kind", "file", "after", "before", "outcome", "cost"),
    "tag",
)
_FILTERS = frozenset(_FILTER_NAMES)
_SCHEME = expression(
    r"https?|file|ftp|ssh|git|data|mailto|std|node|npm|error|warning|fatal|note|[a-z]"
)
"""What stands before a colon in addresses and messages."""

_META_NAMES = ("agent", "kind", "tool")
_MAX_NUMBER = 2**63 - 1  # of anything, in any store
_DATE = expression(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")


Name = TypeVar("Name", bound=str)

EVENT_KINDS: Final = (*KINDS, "note")
"""Kinds to ask for; what people wrote down is no event of a session."""


class BadQuery(ThenceError):
    """A search that cannot mean anything: a date that is none, nothing but exclusions."""

    exit_code = 2


def named(what: str, word: str, known: Iterable[Name]) -> Name:
    """Return the one of some names that a word is; BadQuery with the nearest where it is none."""
    names = list(known)
    if word in names:
        return names[names.index(word)]
    meant = nearest(word.lower(), names)
    hint = f"did you mean {meant}?" if meant else f"one of {', '.join(names)}"
    raise BadQuery(f"unknown {what} {word[:80]!r}", hint=hint)


def stored_outcome(word: str) -> str:
    """Return the outcome that a word means, by the names that people read or as it is stored."""
    stored = OUTCOME_WORDS.get(word.lower(), word)
    if stored not in OUTCOME_NAMES:
        named("outcome", word, OUTCOME_NAMES.values())
    if stored == "running":  # never stored: it holds only while somebody looks
        hint = "thence ls --running and the filter active list the sessions that run"
        raise BadQuery("what runs cannot be searched for", hint=hint)
    return stored


How = Literal["all", "any", "near", "filters"]
"""By all words, by any of them, by words near to those that were typed, or by filters alone."""


class Query(msgspec.Struct, frozen=True):
    """A question to a store."""

    match: str = ""
    """For the index; empty when only filters were given."""
    terms: tuple[str, ...] = ()
    """What to mark, as it was typed; with a star at its end, the beginning of a word."""
    wanted: tuple[tuple[str, ...], ...] = ()
    """The same for an index of another kind: of each group one term at least."""
    without: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    """Tokens to filter by, all of them."""
    words: tuple[str, ...] = ()
    """How each group was typed; empty for one that answers must have: a phrase alone, a file."""
    phrase: str = ""
    """What was typed as one term, where it is several words and nothing else."""
    exact: bool = False
    """Whether only what has all words answers."""
    hints: tuple[str, ...] = ()
    """What to say of the question itself: names of filters that are none."""
    text: str = ""
    """The words as they were typed, stop words included, filters left out."""
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
    tag: str | None = None
    uids: frozenset[str] | None = None
    """The sessions that have this tag, once somebody looked that up (`labels.with_tagged`)."""

    @property
    def has_phrases(self) -> bool:
        """Whether a phrase was typed beside other words."""
        return any(word.startswith('"') for word in self.words)

    @property
    def lists_sessions(self) -> bool:
        """Whether filters alone are asked for that sessions meet, not single events."""
        of_events = any(not mark.startswith("agent") for mark in self.marks)
        narrows = self.narrows_sessions or self.agent is not None or self.tag is not None
        return narrows and not self.wanted and not self.without and not of_events

    def takes(self, ticks: int) -> bool:
        """Return whether a session of this cost is among those that are asked for."""
        over = self.ticks_over is None or ticks > self.ticks_over
        return over and (self.ticks_under is None or ticks < self.ticks_under)

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


class SearchMatch(msgspec.Struct, frozen=True):
    """One event that answers, before its text was looked at."""

    session_uid: str
    event_id: int | None
    ts: int
    kind: str
    state: str | None
    ref: str | None
    """Where its text lies."""
    score: float
    seq: int | None = None
    text: str | None = None
    """The text itself, where there is no ref to it: digests."""
    session: int = 0
    row: int | None = None
    derived_from: int | None = None
    """The event whose words these are, where the one that was found is derived from it."""


class SearchAnswer(msgspec.Struct, frozen=True):
    """What a store found: the matches that were asked for, and how many there are in all."""

    matches: list[SearchMatch]
    total: int = 0
    """Matches in all, in so many `sessions`; at least that where it is `capped`."""
    sessions: int = 0
    capped: bool = False
    searched_back_to: str | None = None
    how: How = "all"
    words: tuple[str, ...] = ()
    """Words that were typed and found, the rarest first, where not all were found together."""
    instead: tuple[tuple[str, str], ...] = ()
    """Words that were found nowhere, each with what was looked for instead."""
    hints: tuple[str, ...] = ()
    is_by_meaning: bool = False
    """Whether some sessions were found by meaning alone."""

    @property
    def count(self) -> str:
        """How many matches there are in how many sessions, in words."""
        if not self.sessions:
            return "no matches"
        least = "at least " if self.capped else ""
        matches = "" if self.how == "filters" else f"{several(self.total, 'match')} in "
        return f"{least}{matches}{several(self.sessions, 'session')}"

    @property
    def explanation(self) -> str:
        """How it was found, in words; empty where that goes without saying."""
        notes = []
        if self.how == "any" and self.words:
            notes.append(f"no exact match; best matches for: {', '.join(self.words)}")
        if self.instead:
            swaps = ", ".join(f"{other} instead of {word}" for word, other in self.instead)
            notes.append(f"searched {swaps}")
        if self.is_by_meaning:
            notes.append("some matches by meaning")
        return "; ".join(notes)


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
    origin: str = ""
    """Where its session comes from, in words; empty for a session of this machine."""

    @property
    def shown_at(self) -> int | None:
        """The event that a page of the session shows it at."""
        return self.event_id if self.derived_from is None else self.derived_from


class Hits(msgspec.Struct, frozen=True):
    """The answers of one page, with their texts."""

    hits: list[Hit]
    answer: SearchAnswer

    @property
    def unread(self) -> list[str]:
        """Why texts could not be read, one for each."""
        return [hit.unread for hit in self.hits if hit.unread is not None]


# -- questions ------------------------------------------------------------------------------


def begun(text: str) -> str:
    """Return the question that a text asks while it is typed: its last word is a beginning.

    Whoever goes on with what was shown for it asks this question, so that both find the same.
    """
    *_, last = (None, *_PIECE.finditer(text))
    word = last["word"] if last is not None and last.end() == len(text) else None
    is_word = word is not None and (word[-1].isalnum() or word[-1] == "_")
    if last is None or not is_word or last["no"] or last["name"] in _FILTERS or word == "OR":
        return text
    return text if last[0].lower() in STOP_WORDS else f"{text}*"


def parse(text: str, *, exact: bool = False, zone: tzinfo | None = None) -> Query:
    """Read what a user typed; days are those of `zone`, None for the zone of this machine."""
    # Half characters, as an argument of a command may hold, are in no store.
    text = text.encode("utf-8", "replace").decode()
    typed = _Typed(zone)
    for piece in _PIECE.finditer(text):
        typed.add(piece)
    groups = typed.counted_groups()
    wanted = tuple(group.terms for group in groups)
    return Query(
        _match(wanted, typed.without, typed.meta),
        tuple(mark for group in groups for mark in group.marks),
        wanted,
        tuple(typed.without),
        tuple(typed.meta),
        typed.words_of(groups),
        typed.phrase(),
        exact=exact,
        hints=tuple(typed.hints),
        text=" ".join(value for group in typed.groups for value in group.values),
        **typed.values,
    )


class _Group(msgspec.Struct):
    """Terms of which an answer has one at least, and how they were typed."""

    terms: tuple[str, ...]
    values: tuple[str, ...]
    is_loose: bool

    @property
    def marks(self) -> list[str]:
        """What was typed, with a star where the beginning of a word is meant."""
        typed = zip(self.terms, self.values, strict=True)
        return [value.rstrip("*") + "*" * term.endswith("*") for term, value in typed]

    @property
    def counts(self) -> bool:
        word = self.values[0].lower().strip("?!.,;:()").replace("\u2019", "'")
        return not self.is_loose or not STOP_WORDS.issuperset(word.split("'"))


class _Typed:
    """What was typed, piece by piece."""

    def __init__(self, zone: tzinfo | None) -> None:
        self.groups: list[_Group] = []
        self.without: list[str] = []
        self.meta: list[str] = []
        self.values: dict[str, Any] = {}
        self.hints: list[str] = []
        self.has_file = False
        self._either = False
        self._zone = zone

    def add(self, piece: re.Match[str]) -> None:
        """Read one more piece."""
        name, sign = piece["name"], piece["sign"]
        value = piece["phrase"] if piece["phrase"] is not None else piece["word"]
        if name is not None and (name not in _FILTERS or (sign != ":" and name != "cost")):
            self._hint(name, sign, value)
            value, name = piece[0].removeprefix("-"), None
        if name is not None:
            self._filter(name, sign, value)
            return
        if piece["phrase"] is None and value[-1:] == ":" and value[:-1] in _FILTERS:
            self.hints.append(f"{value} needs a value; it was searched as text")
        is_phrase = piece["phrase"] is not None
        if value == "OR" and self.groups and not is_phrase and not piece["no"]:
            self._either = True
            return
        term = _term(value, phrase=is_phrase)
        if term is None:
            return
        if piece["no"]:
            self.without.append(term)
            return
        if self._either:
            last = self.groups[-1]
            last.terms, last.values = (*last.terms, term), (*last.values, value)
            self._either = False
        else:
            self.groups.append(_Group((term,), (value,), is_loose=not is_phrase))

    def counted_groups(self) -> list[_Group]:
        """Return the groups that count: all, where none of them is more than a stop word."""
        return [group for group in self.groups if group.counts] or self.groups

    def words_of(self, groups: Sequence[_Group]) -> tuple[str, ...]:
        """Return how groups were typed; nothing for what answers must have.

        A phrase among other words is one of them: messages of errors have quoted parts.
        """
        is_mixed = any(group.is_loose for group in groups) and not self.has_file
        return tuple(
            " OR ".join(group.values)
            if group.is_loose
            else f'"{group.values[0]}"'
            if is_mixed
            else ""
            for group in groups
        )

    def phrase(self) -> str:
        """Return what was typed as one term, where it is several plain words.

        Question words at its ends are no part of it.
        """
        groups = self.groups
        if not all(group.is_loose and len(group.terms) == 1 for group in groups):
            return ""
        counted = [at for at, group in enumerate(groups) if group.counts]
        groups = groups[counted[0] : counted[-1] + 1] if counted else groups
        if not 1 < len(groups) <= MAX_PHRASE_WORDS:
            return ""
        return _term(" ".join(group.values[0] for group in groups), phrase=True) or ""

    def _hint(self, name: str, sign: str, value: str) -> None:
        """Note a name that looks like that of a filter and is none."""
        if sign != ":" or not value[:1].isalnum() or name in _FILTERS:
            return
        meant = nearest(name, _FILTERS)
        known = f"did you mean {meant}:?" if meant else f"filters are {', '.join(_FILTER_NAMES)}"
        if meant is not None or not _SCHEME.fullmatch(name):
            self.hints.append(f"{name}: is not a filter, so it was searched as text; {known}")

    def _filter(self, name: str, sign: str, value: str) -> None:
        if name == "file":
            if (term := _term(value, phrase=False)) is not None:
                self.has_file = True
                self.groups.append(_Group((term,), (value,), is_loose=False))
                self.meta.append("kindtoolcall")
        elif name in ("agent", "tool", "kind"):
            if name == "agent":
                value = stored_name(value).lower()
                self.values["agent"] = value
            self.meta.append(name + token(value))
            if name == "kind" and value in DERIVED:
                self.values["derived"] = value
            if name == "kind":
                named(name, value, EVENT_KINDS)
        elif name in ("before", "after"):
            self.values[name] = moment(value, self._zone)
        elif name == "outcome":
            self.values[name] = stored_outcome(value)
        elif name == "cost":
            self.values["ticks_under" if sign.startswith("<") else "ticks_over"] = _ticks(value)
        else:
            self.values[name] = value


def _term(text: str, *, phrase: bool) -> str | None:
    """Spell words for the index; all of them quoted, so that none is taken for an operator."""
    term = cjk_pairs.search_term(text, is_prefix=not phrase and text.endswith("*"))
    if not term.words:
        return None
    return '"' + " ".join(term.words) + '"' + ("*" if term.is_prefix else "")


def _match(wanted: Sequence[Sequence[str]], without: Sequence[str], meta: Sequence[str]) -> str:
    if without and not wanted and not meta:
        raise BadQuery("give at least one word to search for, not only exclusions")
    groups = [group[0] if len(group) == 1 else f"({' OR '.join(group)})" for group in wanted]
    every = " AND ".join(groups)
    if any(_is_like_meta(term) for group in wanted for term in group):
        every = f"body : ({every})"
    parts = [every] if groups else []
    parts += [f'meta : "{word}"' for word in meta]
    match = " AND ".join(parts)
    return match + "".join(f" NOT body : {term}" for term in without)


def _is_like_meta(term: str) -> bool:
    """Return whether a term may be a word of what events are; only then its column is named.

    Naming it takes a third of the time more: the index then reads all places of all words.
    """
    words = term.strip('*"').lower().split()
    is_prefix = term.endswith("*")
    return any(
        word.startswith(name) or (is_prefix and name.startswith(word))
        for word in words
        for name in _META_NAMES
    )


def narrow(query: Query, terms: Sequence[str]) -> Query:
    """Return the same question, filters and all, about one group of terms alone."""
    match = _match([terms], query.without, query.marks)
    return msgspec.structs.replace(query, match=match, wanted=(tuple(terms),))


def moment(text: str, zone: tzinfo | None = None) -> int:
    """Read a date, `today`, `yesterday` or a time ago such as 7d, as milliseconds.

    Days begin at midnight in `zone`, None for the zone of this machine.
    """
    from thence.memory.local_days import midnight, millis  # a sweep needs no calendar

    if text.lower() in ("today", "yesterday"):
        today = datetime.now(UTC).astimezone(zone).date()
        return millis(midnight(today - timedelta(days=text.lower() == "yesterday"), zone))
    ago = re.fullmatch(r"(\d{1,4})([hdw])", text)
    if ago:
        hours = int(ago[1]) * {"h": 1, "d": 24, "w": 168}[ago[2]]
        return millis(datetime.now(UTC) - timedelta(hours=hours))
    day = _DATE.fullmatch(text)
    try:
        if day is not None:
            return millis(midnight(date(*(int(part or 1) for part in day.groups())), zone))
        written = datetime.fromisoformat(text)
        return millis(written if written.tzinfo else written.replace(tzinfo=zone))
    except (ValueError, OverflowError, OSError):
        raise BadQuery(
            f"not a date: {text!r}",
            hint="write 2026-01-31, 2026-01, yesterday, or 7d for a week ago",
        ) from None


def _ticks(text: str) -> int:
    most = Decimal(_MAX_NUMBER)
    try:
        return int(min(max(Decimal(text.lstrip("$")) * TICKS, -most), most))
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


def as_asked(matches: Sequence[SearchMatch], query: Query) -> list[SearchMatch]:
    """Return what was found as the events that were asked for: those derived from what has words.

    Their number stays that of the event they are derived from: there they are shown.
    """
    kind = query.derived
    return [
        match
        if kind is None or match.event_id is None or match.kind == kind
        else msgspec.structs.replace(
            match,
            event_id=derived_id(match.session_uid, kind, match.event_id),
            kind=kind,
            derived_from=match.event_id,
        )
        for match in matches
    ]


def hits(answer: SearchAnswer, query: Query, blobs: BlobStore) -> Hits:
    """Look at the text of what was found."""
    terms = (*query.terms, *(word for _, words in answer.instead for word in words.split(" or ")))
    snippets: dict[str | None, str] = {}
    unread: dict[str | None, str] = {}
    refs = (match.ref for match in answer.matches if match.text is None and match.ref is not None)
    for ref, body in read_each(blobs, refs):
        if isinstance(body, ThenceError):
            unread[ref] = str(body)
        else:
            snippets[ref] = snippet(_words_in(body), terms)
    made = [
        _hit(match, snippets.get(match.ref, ""), unread.get(match.ref))
        if match.text is None
        else _hit(match, snippet(match.text, terms), None)
        for match in answer.matches
    ]
    return Hits(made, answer)


def _hit(match: SearchMatch, shown: str, unread: str | None) -> Hit:
    when = datetime.fromtimestamp(match.ts / 1000, UTC) if match.ts else None
    return Hit(
        match.session_uid,
        match.event_id,
        match.seq,
        when.isoformat(timespec="milliseconds").replace("+00:00", "Z") if when else None,
        match.kind,
        shown,
        round(match.score, 4),
        match.state,
        unread,
        match.derived_from,
    )


def payload_words(blobs: BlobStore, ref: str) -> str:
    """Return the text of a payload, as it is indexed and shown."""
    return _words_in(blobs.read(ref))


def _words_in(payload: bytes) -> str:
    return words_of(Block("lifecycle", "system", payload=load(payload)))


def snippet(text: str, terms: Iterable[str]) -> str:
    """Cut out the place where a text says what was asked for, and point at it."""
    marking = marking_of(tuple(terms))
    text = text.replace(OPEN, "").replace(CLOSE, "")
    if not marking:
        return " ".join(text[: 2 * SNIPPET_CONTEXT_CHARS].split())
    first = marking.first(text) or 0
    start = max(first - SNIPPET_CONTEXT_CHARS, 0)
    if start and (space := text.find(" ", start - 1, first)) >= 0:
        start = space + 1  # not within a word
    stop = start + 3 * SNIPPET_CONTEXT_CHARS
    shown = " ".join(_mark_matches(text[start:stop], marking.spans(text, start, stop)).split())
    return ("…" if start else "") + shown + ("…" if len(text) > stop else "")


def _mark_matches(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return a text with marks around some places."""
    out, end = "", 0
    for start, stop in spans:
        out += f"{text[end:start]}{OPEN}{text[start:stop]}{CLOSE}"
        end = stop
    return out + text[end:]
