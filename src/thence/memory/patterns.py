"""Patterns: what several sessions have in common, with the evidence of each.

Pure over digests and signals, which outlive the sessions themselves: the same error in several
sessions with the fix that followed it, the detours that cost most, files that keep breaking,
tests that are now red and now green. What one session has is no pattern. A pattern names sessions,
events and quotes, so that nobody has to believe it, and says what all its cases share. The answer
does not depend on the order of the sessions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

import msgspec

from thence.format.figures import several
from thence.format.normal import Outcome
from thence.format.records import JSON
from thence.memory import derivation
from thence.memory.account import ErrorSeen, FileTouched, OpenItem, Snippets, TestsSeen
from thence.memory.signals import Signal

Kind = Literal["recurring_error", "costly_detour", "breaking_file", "flaky_test"]

MIN_SESSIONS: Final = 2
"""Sessions in which something must occur to be a pattern."""

MIN_BREAKS: Final = 3
"""Red test runs after edits of one file, all sessions together, from which it keeps breaking."""

MAX_EVIDENCE: Final = 5
"""Sessions that are quoted for one pattern."""

MAX_PATTERNS: Final = 20
"""Patterns of one kind that are told: the weightiest."""

MIN_LETTERS: Final = 5
"""Different letters that an error has at least; others are noise of a terminal."""

MAX_MASKS: Final = 3
"""Masked parts of an error that are looked up, at most: the work grows with each."""

MAX_QUOTE_CHARS: Final = 300

_MASK: Final = re.compile(r"<[a-z]+>")


class RememberedDigest(msgspec.Struct, frozen=True, gc=False):
    """The fields of a `Digest` that patterns and briefs read; most sessions have few of them."""

    agent: str = ""
    outcome: Outcome = "unknown"
    title: str | None = None
    repo: str | None = None
    cwd: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    errors: tuple[ErrorSeen, ...] = ()
    subagent_errors: tuple[ErrorSeen, ...] = ()
    tests: tuple[TestsSeen, ...] = ()
    files: tuple[FileTouched, ...] = ()
    snippets: Snippets = Snippets()
    todos: tuple[OpenItem, ...] = ()


class Memory(msgspec.Struct, frozen=True, gc=False):
    """What is kept of one session."""

    uid: str
    digest: RememberedDigest
    signals: tuple[Signal, ...] = ()


class PatternEvidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where it was seen: a session, events of it, and what was said there."""

    uid: str
    events: tuple[int, ...] = ()
    quote: str = ""


class Cure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that was done before an error did not come back."""

    what: str
    sessions: int
    evidence: tuple[PatternEvidence, ...] = ()


class Pattern(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that occurs again and again."""

    kind: Kind
    name: str
    """What it is about: a fingerprint, a command, a file."""
    text: str
    sessions: int
    count: int
    """How often, all sessions together."""
    evidence: tuple[PatternEvidence, ...]
    cures: tuple[Cure, ...] = ()
    """What helped, the most frequent first."""
    shared: str = ""
    """What all cases have in common; of an error also the masked parts that are the same in all."""
    data: dict[str, JSON] = {}


def memories(
    digests: Iterable[dict[str, JSON]], signals: Iterable[dict[str, JSON]] = ()
) -> list[Memory]:
    """Read back what a store keeps, as `Store.kept` gives it; other versions are left out."""
    by_session: dict[str, list[Signal]] = {}
    for signal in signals:
        by_session.setdefault(signal["uid"], []).append(msgspec.convert(signal, Signal))
    return [
        Memory(
            digest["uid"],
            msgspec.convert(digest, RememberedDigest),
            tuple(by_session.get(digest["uid"], ())),
        )
        for digest in digests
        if digest.get("version") == derivation.DIGEST_VERSION
    ]


def patterns(memories: Iterable[Memory]) -> list[Pattern]:
    """Return what several sessions have in common, kind by kind, the weightiest of each first."""
    known = sorted(memories, key=lambda memory: (memory.digest.started_at or "", memory.uid))
    return [pattern for find in FINDERS for pattern in find(known)[:MAX_PATTERNS]]


# -- errors ---------------------------------------------------------------------------------


def recurring_errors(memories: Sequence[Memory]) -> list[Pattern]:
    """The same fingerprint in several sessions; one that nothing names is left out."""
    seen: dict[str, list[tuple[str, ErrorSeen]]] = {}
    for memory in memories:
        for error in (*memory.digest.errors, *memory.digest.subagent_errors):
            if ": " in error.fingerprint:
                seen.setdefault(error.fingerprint, []).append((memory.uid, error))
    again = [
        _recurring_error(name, errors)
        for name, errors in seen.items()
        if _has_words(name) and len({uid for uid, _ in errors}) >= MIN_SESSIONS
    ]
    return sorted(again, key=lambda pattern: (-pattern.sessions, -pattern.count, pattern.name))


def _has_words(fingerprint: str) -> bool:
    """Return whether an error says anything: bars and rulers of a terminal do not."""
    return len({sign for sign in _message(fingerprint).lower() if sign.isalpha()}) >= MIN_LETTERS


def _message(fingerprint: str) -> str:
    """Return what an error says, without where it comes from."""
    return fingerprint.partition(": ")[2] or fingerprint


def unmask(name: str, quotes: Sequence[str]) -> str:
    """Return what an error says, with the masked parts that are the same in all quotes of it."""
    texts = _MASK.split(name)
    if not quotes or not 1 < len(texts) <= MAX_MASKS + 1:
        return name
    form = re.compile("(.{1,80}?)".join(re.escape(text) for text in texts) + r"(?=\s|$)")
    values = []
    for quote in dict.fromkeys(quotes):
        match = form.search(" ".join(quote.split())[:MAX_QUOTE_CHARS])
        if match is None:
            return name  # of this case it is not known what stood there
        values.append(match.groups())
    masks = iter(range(len(texts) - 1))

    def value(mask: re.Match[str]) -> str:
        number = next(masks)
        alike = {groups[number] for groups in values}
        return alike.pop() if len(alike) == 1 else mask[0]

    return _MASK.sub(value, name)


def seen_before(memories: Iterable[Memory], fingerprint: str) -> Pattern | None:
    """Return what is known of one error, in however few sessions it was seen."""
    known = sorted(memories, key=lambda memory: (memory.digest.started_at or "", memory.uid))
    errors = [
        (memory.uid, e)
        for memory in known
        for e in (*memory.digest.errors, *memory.digest.subagent_errors)
        if e.fingerprint == fingerprint
    ]
    return _recurring_error(fingerprint, errors) if errors else None


def _recurring_error(name: str, errors: Sequence[tuple[str, ErrorSeen]]) -> Pattern:
    sessions = len({uid for uid, _ in errors})
    count = sum(error.count for _, error in errors)
    shared = unmask(_message(name), [error.quote for _, error in errors])
    return Pattern(
        "recurring_error",
        name,
        f"{several(count, 'time')} in {several(sessions, 'session')}: {shared}",
        sessions,
        count,
        _evidence((uid, (e.first, e.last), e.quote) for uid, e in errors[::-1]),
        _cures(errors),
        shared,
        {"settled": len({uid for uid, e in errors if e.settled_by is not None})},
    )


def _cures(errors: Iterable[tuple[str, ErrorSeen]]) -> tuple[Cure, ...]:
    """What was changed last before the same thing went well, by how many sessions did it."""
    did: dict[str, list[PatternEvidence]] = {}
    for uid, error in errors:
        if error.settled_by is not None and error.fix:
            best = error.fix[0]
            proof = PatternEvidence(uid, (best.event, error.settled_by), best.what)
            did.setdefault(_verb(best.what), []).append(proof)
    cures = [Cure(what, len({e.uid for e in some}), tuple(some[-3:])) for what, some in did.items()]
    return tuple(sorted(cures, key=lambda cure: (-cure.sessions, cure.what))[:3])


_PLUMBING = re.compile(r"\s*2>&1|\s*\|\s*(?:head|tail|grep)\b.*")
"""What is done with the output of a command; it helped nobody."""


def _verb(what: str) -> str:
    """What was done, so that the same deed on another file counts as the same.

    A command is what it is; of a file only what became of it is told, for the file that helped
    in one project is not there in the next.
    """
    verb, _, rest = what.partition(" ")
    if verb == "ran":
        return _PLUMBING.sub("", what)
    return f"{verb} {rest.rpartition('/')[2]}" if "/" not in rest else f"{verb} the file"


# -- money ----------------------------------------------------------------------------------


def costly_detours(memories: Sequence[Memory]) -> list[Pattern]:
    """Return what led nowhere in several sessions: branches in a folder, a call that kept failing.

    The costliest is first, in the list and in the evidence of each.
    """
    seen: dict[tuple[str, str], list[tuple[Memory, Signal]]] = {}
    for memory in memories:
        for signal in memory.signals:
            if signal.kind in _DETOURS and signal.data.get("tokens", 0):
                seen.setdefault((signal.kind, _detour(memory, signal)), []).append((memory, signal))
    out = []
    for (kind, name), cases in seen.items():
        sessions = len({memory.uid for memory, _ in cases})
        if sessions < MIN_SESSIONS or not name:
            continue
        noun, shared = _DETOURS[kind]
        cases.sort(key=lambda case: (-_ticks(case[1]), -case[1].data["tokens"], case[0].uid))
        tokens = sum(signal.data["tokens"] for _, signal in cases)
        shared = shared.format(name)
        out.append(
            Pattern(
                "costly_detour",
                name,
                f"{several(len(cases), noun)} in {sessions} sessions, {tokens:,} tokens: {shared}",
                sessions,
                len(cases),
                _evidence((memory.uid, signal.events, signal.quote) for memory, signal in cases),
                shared=shared,
                data={
                    "signal": kind,
                    "tokens": tokens,
                    "ticks": sum(_ticks(signal) for _, signal in cases),
                },
            )
        )
    return sorted(out, key=lambda p: (-p.data["ticks"], -p.data["tokens"], p.name))


_DETOURS: Final = {
    "abandoned_branch": ("branch", "work was discarded in {}"),
    "retry_loop": ("loop", "kept failing: {}"),
}
"""Signals of work that led nowhere: what several are called, and what they share."""


def _detour(memory: Memory, signal: Signal) -> str:
    """Return what a detour has in common with others of its kind: the folder, or the call."""
    if signal.kind == "retry_loop":
        return signal.text.partition(": ")[2].removeprefix("ran ")
    return memory.digest.cwd or memory.digest.repo or ""  # many repositories have one name


def _ticks(signal: Signal) -> int:
    return int(signal.data.get("ticks", 0))


# -- files and tests ------------------------------------------------------------------------


def breaking_files(memories: Sequence[Memory]) -> list[Pattern]:
    """Files after whose edits tests were red, in several sessions of one project."""
    seen: dict[tuple[str, str], list[tuple[Memory, int, int]]] = {}
    for memory in memories:
        for file in memory.digest.files:
            if file.broke:
                where = memory.digest.repo or memory.digest.cwd or ""
                seen.setdefault((where, file.path), []).append((memory, file.broke, file.edits))
    out = []
    for (where, path), cases in seen.items():
        breaks = sum(broke for _, broke, _ in cases)
        if len(cases) < MIN_SESSIONS or breaks < MIN_BREAKS:
            continue
        runs = (
            (memory.uid, _last_runs(memory), _rework_quote(memory, path))
            for memory, _, _ in cases[::-1]
        )
        out.append(
            Pattern(
                "breaking_file",
                path,
                f"{breaks} failed test runs after edits in {len(cases)} sessions: {path}",
                len(cases),
                breaks,
                _evidence(runs),
                shared=f"tests fail after edits of {path}",
                data={"project": where, "edits": sum(edits for _, _, edits in cases)},
            )
        )
    return sorted(out, key=lambda pattern: (-pattern.count, -pattern.sessions, pattern.name))


def _last_runs(memory: Memory) -> tuple[int, ...]:
    return tuple(tests.last for tests in memory.digest.tests if tests.red)


def _rework_quote(memory: Memory, path: str) -> str:
    """What is said of the file where it was worked on again and again, else of the tests."""
    for signal in memory.signals:
        if signal.kind == "rework" and str(signal.data.get("path", "")).endswith(path):
            return signal.text
    reds = (
        f"{tests.red} of {tests.runs} runs of {tests.runner} failed"
        for tests in memory.digest.tests
    )
    return next(reds, "")


def flaky_tests(memories: Sequence[Memory]) -> list[Pattern]:
    """Return tests that changed their result without an edit, by the test or else the command."""
    seen: dict[str, list[tuple[Memory, Signal]]] = {}
    for memory in memories:
        for signal in memory.signals:
            if signal.kind == "flaky_test":
                named = signal.data.get("tests") or [signal.data.get("command", "")]
                for name in dict.fromkeys(named):
                    seen.setdefault(f"{name}", []).append((memory, signal))
    out = []
    for name, cases in seen.items():
        sessions = len({memory.uid for memory, _ in cases})
        if sessions < MIN_SESSIONS:
            continue
        flips = sum(int(signal.data.get("flips", 1)) for _, signal in cases)
        out.append(
            Pattern(
                "flaky_test",
                name,
                f"flaky, {flips} times in {sessions} sessions: {name}",
                sessions,
                flips,
                _evidence(
                    (memory.uid, signal.events, signal.quote) for memory, signal in cases[::-1]
                ),
                shared=f"both results without an edit: {name}",
                data={"runner": cases[-1][1].data.get("runner", "")},
            )
        )
    return sorted(out, key=lambda pattern: (-pattern.sessions, -pattern.count, pattern.name))


def _evidence(cases: Iterable[tuple[str, tuple[int, ...], str]]) -> tuple[PatternEvidence, ...]:
    """The youngest sessions first, each once."""
    out: dict[str, PatternEvidence] = {}
    for uid, events, quote in cases:
        out.setdefault(uid, PatternEvidence(uid, events, quote))
    return tuple(out.values())[:MAX_EVIDENCE]


Finder = Callable[[Sequence[Memory]], list[Pattern]]
FINDERS: Final[Sequence[Finder]] = (recurring_errors, costly_detours, breaking_files, flaky_tests)
"""One for each kind, in the order of `Kind`."""
