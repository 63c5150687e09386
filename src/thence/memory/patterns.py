"""Patterns: what several sessions have in common, with the evidence of each.

Pure over digests and signals, which outlive the sessions themselves: the same error in several
sessions with the fix that followed it, the detours that cost most, files that keep breaking,
tests that are now red and now green. A pattern names sessions, events and quotes, so that nobody
has to believe it. The answer does not depend on the order of the sessions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

import msgspec

from thence.format.records import JSON
from thence.memory import derivation
from thence.memory.account import Digest, ErrorSeen
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


class Memory(msgspec.Struct, frozen=True):
    """What is kept of one session."""

    uid: str
    digest: Digest
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
            digest["uid"], msgspec.convert(digest, Digest), tuple(by_session.get(digest["uid"], ()))
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
    out = [_recurring_error(name, errors) for name, errors in seen.items()]
    again = [pattern for pattern in out if pattern.sessions >= MIN_SESSIONS]
    return sorted(again, key=lambda pattern: (-pattern.sessions, -pattern.count, pattern.name))


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
    return Pattern(
        "recurring_error",
        name,
        f"{count} times in {sessions} sessions: {name}",
        sessions,
        count,
        _evidence((uid, (e.first, e.last), e.quote) for uid, e in errors[::-1]),
        _cures(errors),
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

_DETOURS: Final = ("abandoned_branch", "retry_loop")


def costly_detours(memories: Sequence[Memory]) -> list[Pattern]:
    """What cost most and led nowhere: branches that were given up, loops of failures."""
    out = []
    for memory in memories:
        for signal in memory.signals:
            tokens = signal.data.get("tokens", 0)
            if signal.kind not in _DETOURS or not tokens:
                continue
            out.append(
                Pattern(
                    "costly_detour",
                    signal.kind,
                    signal.text,
                    1,
                    1,
                    (PatternEvidence(memory.uid, signal.events, signal.quote),),
                    data={"tokens": tokens, "ticks": signal.data.get("ticks", 0)},
                )
            )
    return sorted(
        out, key=lambda p: (-p.data["ticks"], -p.data["tokens"], p.evidence[0].uid, p.text)
    )


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
    """Tests that gave another result without a change, by the test or else by the command.

    One session is enough: the same code was red and green, which is all that flaky means.
    """
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
