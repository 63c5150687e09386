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

SESSIONS: Final = 2
"""Sessions in which something must occur to be a pattern."""

BREAKS: Final = 3
"""Red test runs after edits of one file, all sessions together, from which it keeps breaking."""

EVIDENCE: Final = 5
"""Sessions that are quoted for one pattern."""

MOST: Final = 20
"""Patterns of one kind that are told: the weightiest."""


class Memory(msgspec.Struct, frozen=True):
    """What is kept of one session."""

    uid: str
    digest: Digest
    signals: tuple[Signal, ...] = ()


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where it was seen: a session, events of it, and what was said there."""

    uid: str
    events: tuple[int, ...] = ()
    quote: str = ""


class Cure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that was done before an error did not come back."""

    what: str
    sessions: int
    evidence: tuple[Evidence, ...] = ()


class Pattern(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that occurs again and again."""

    kind: Kind
    name: str
    """What it is about: a fingerprint, a command, a file."""
    text: str
    sessions: int
    count: int
    """How often, all sessions together."""
    evidence: tuple[Evidence, ...]
    cures: tuple[Cure, ...] = ()
    """What helped, the most frequent first."""
    data: dict[str, JSON] = {}


def memories(
    digests: Iterable[dict[str, JSON]], signals: Iterable[dict[str, JSON]] = ()
) -> list[Memory]:
    """Read back what a store keeps, as `Store.kept` gives it; other versions are left out."""
    found: dict[str, list[Signal]] = {}
    for one in signals:
        found.setdefault(one["uid"], []).append(msgspec.convert(one, Signal))
    return [
        Memory(told["uid"], msgspec.convert(told, Digest), tuple(found.get(told["uid"], ())))
        for told in digests
        if told.get("version") == derivation.DIGEST
    ]


def patterns(memories: Iterable[Memory]) -> list[Pattern]:
    """Give what several sessions have in common, kind by kind, the weightiest of each first."""
    known = sorted(memories, key=lambda one: (one.digest.started_at or "", one.uid))
    return [pattern for find in FINDERS for pattern in find(known)[:MOST]]


# -- errors ---------------------------------------------------------------------------------


def recurring_errors(memories: Sequence[Memory]) -> list[Pattern]:
    """The same fingerprint in several sessions; one that nothing names is left out."""
    seen: dict[str, list[tuple[str, ErrorSeen]]] = {}
    for one in memories:
        for error in (*one.digest.errors, *one.digest.subagent_errors):
            if ": " in error.fingerprint:
                seen.setdefault(error.fingerprint, []).append((one.uid, error))
    out = [_recurring(name, found) for name, found in seen.items()]
    again = [one for one in out if one.sessions >= SESSIONS]
    return sorted(again, key=lambda one: (-one.sessions, -one.count, one.name))


def seen_before(memories: Iterable[Memory], fingerprint: str) -> Pattern | None:
    """Give what is known of one error, in however few sessions it was seen."""
    known = sorted(memories, key=lambda one: (one.digest.started_at or "", one.uid))
    found = [
        (one.uid, e)
        for one in known
        for e in (*one.digest.errors, *one.digest.subagent_errors)
        if e.fingerprint == fingerprint
    ]
    return _recurring(fingerprint, found) if found else None


def _recurring(name: str, found: Sequence[tuple[str, ErrorSeen]]) -> Pattern:
    sessions = len({uid for uid, _ in found})
    count = sum(error.count for _, error in found)
    return Pattern(
        "recurring_error",
        name,
        f"{count} times in {sessions} sessions: {name}",
        sessions,
        count,
        _evidence((uid, (e.first, e.last), e.quote) for uid, e in found[::-1]),
        _cures(found),
        {"settled": len({uid for uid, e in found if e.settled_by is not None})},
    )


def _cures(found: Iterable[tuple[str, ErrorSeen]]) -> tuple[Cure, ...]:
    """What was changed last before the same thing went well, by how many sessions did it."""
    did: dict[str, list[Evidence]] = {}
    for uid, error in found:
        if error.settled_by is not None and error.fix:
            best = error.fix[0]
            proof = Evidence(uid, (best.event, error.settled_by), best.what)
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
    for one in memories:
        for signal in one.signals:
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
                    (Evidence(one.uid, signal.events, signal.quote),),
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
    for one in memories:
        for file in one.digest.files:
            if file.broke:
                where = one.digest.repo or one.digest.cwd or ""
                seen.setdefault((where, file.path), []).append((one, file.broke, file.edits))
    out = []
    for (where, path), found in seen.items():
        breaks = sum(broke for _, broke, _ in found)
        if len(found) < SESSIONS or breaks < BREAKS:
            continue
        runs = ((one.uid, _last_runs(one), _rework_quote(one, path)) for one, _, _ in found[::-1])
        out.append(
            Pattern(
                "breaking_file",
                path,
                f"{breaks} failed test runs after edits in {len(found)} sessions: {path}",
                len(found),
                breaks,
                _evidence(runs),
                data={"project": where, "edits": sum(edits for _, _, edits in found)},
            )
        )
    return sorted(out, key=lambda one: (-one.count, -one.sessions, one.name))


def _last_runs(one: Memory) -> tuple[int, ...]:
    return tuple(tests.last for tests in one.digest.tests if tests.red)


def _rework_quote(one: Memory, path: str) -> str:
    """What is said of the file where it was worked on again and again, else of the tests."""
    for signal in one.signals:
        if signal.kind == "rework" and str(signal.data.get("path", "")).endswith(path):
            return signal.text
    reds = (
        f"{tests.red} of {tests.runs} runs of {tests.runner} failed" for tests in one.digest.tests
    )
    return next(reds, "")


def flaky_tests(memories: Sequence[Memory]) -> list[Pattern]:
    """Tests that gave another result without a change, by the test or else by the command.

    One session is enough: the same code was red and green, which is all that flaky means.
    """
    seen: dict[str, list[tuple[Memory, Signal]]] = {}
    for one in memories:
        for signal in one.signals:
            if signal.kind == "flaky_test":
                named = signal.data.get("tests") or [signal.data.get("command", "")]
                for name in dict.fromkeys(named):
                    seen.setdefault(f"{name}", []).append((one, signal))
    out = []
    for name, found in seen.items():
        sessions = len({one.uid for one, _ in found})
        flips = sum(int(signal.data.get("flips", 1)) for _, signal in found)
        out.append(
            Pattern(
                "flaky_test",
                name,
                f"flaky, {flips} times in {sessions} sessions: {name}",
                sessions,
                flips,
                _evidence((one.uid, signal.events, signal.quote) for one, signal in found[::-1]),
                data={"runner": found[-1][1].data.get("runner", "")},
            )
        )
    return sorted(out, key=lambda one: (-one.sessions, -one.count, one.name))


def _evidence(found: Iterable[tuple[str, tuple[int, ...], str]]) -> tuple[Evidence, ...]:
    """The youngest sessions first, each once."""
    out: dict[str, Evidence] = {}
    for uid, events, quote in found:
        out.setdefault(uid, Evidence(uid, events, quote))
    return tuple(out.values())[:EVIDENCE]


Finder = Callable[[Sequence[Memory]], list[Pattern]]
FINDERS: Final[Sequence[Finder]] = (recurring_errors, costly_detours, breaking_files, flaky_tests)
"""One for each kind, in the order of `Kind`."""
