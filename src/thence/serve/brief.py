"""What the next session of a repository should know, on one short page.

How the last session ended, open to-dos, decisions, errors that were seen here and what helped,
files that were changed. Everything comes from digests and notes, so that it costs the same on a
large store as on a small one, and works for sessions whose transcripts were removed. What is
quoted is data in a frame (`serve.untrusted_text`), redacted, never an instruction.

What the user did not write says who did. A page for a hook leaves out what the user has not
confirmed: decisions of agents, and sessions that a file brought.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from pathlib import Path
from typing import Final

import msgspec

from thence.format.records import JSON
from thence.memory import patterns
from thence.memory.notes import Note, read_confirmations
from thence.memory.origins import Confirmations, in_brackets
from thence.memory.patterns import Memory, Pattern
from thence.memory.projects import repository_of
from thence.memory.search import OUTCOME_NAMES
from thence.memory.store import Filter, SessionRow, Store
from thence.serve.ready_briefs import FOLDER, MAX_SESSIONS, BriefOrigin, frame_lines, save_lines
from thence.serve.untrusted_text import flatten

DEFAULT_TOKENS: Final = 800
MAX_REFRESHED_SESSIONS: Final = 50
"""Of so many of the sessions that a sweep digested the repositories get their briefs anew."""
MAX_TODO_AGE_DAYS: Final = 14
MAX_TODOS, MAX_DECISIONS, MAX_ERRORS, MAX_FILES = 6, 5, 3, 8
QUOTE_CHARS: Final = 160

SessionMarks = Mapping[str, dict[str, JSON]]
"""Of each session where it comes from, in words, and whether hooks leave it out."""


class Brief(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of one repository."""

    project: str
    sessions: int = 0
    last: dict[str, JSON] | None = None
    """The last session that ended: uid, title, agent, when, how, what it said last, its origin."""
    todos: tuple[dict[str, JSON], ...] = ()
    decisions: tuple[dict[str, JSON], ...] = ()
    errors: tuple[dict[str, JSON], ...] = ()
    """Errors that were seen here and went away: fingerprint, sessions, what helped."""
    files: tuple[str, ...] = ()
    """Files that the last session changed."""
    budgets: tuple[str, ...] = ()
    """Warnings: budgets of today that are used up or nearly so."""


def make_brief(
    store: Store,
    notes: Iterable[Note],
    project: str,
    *,
    now: datetime | None = None,
    without: str | None = None,
    budgets: Sequence[str] = (),
    confirmed: Confirmations = frozenset(),
    for_hook: bool = False,
    rules: int | None = None,
) -> Brief:
    """Return what is known of a repository; `without` is a session that is just starting.

    With `for_hook` without what somebody else wrote and the user has not confirmed. `rules` is the
    version of the redaction rules: sessions that passed other ones wait for the next sweep.
    """
    sessions = _sessions(store, project, without)
    if rules is not None:
        sessions = (row for row in sessions if row.redactor == rules)
    if for_hook:
        sessions = (row for row in sessions if not row.is_withheld(confirmed))
        notes = (note for note in notes if not note.is_withheld)
    rows = list(islice(sessions, MAX_SESSIONS))
    uids = tuple(row.session.session_uid for row in rows)
    marks = {
        row.session.session_uid: {
            "origin": row.origin_and_state(confirmed),
            "is_withheld": row.is_withheld(confirmed),
        }
        for row in rows
    }
    known = patterns.memories(store.read_table("digests", Filter(uids=uids))) if uids else []
    known.sort(key=lambda memory: (memory.digest.ended_at or "", memory.uid), reverse=True)
    oldest = (now or datetime.now(UTC)) - timedelta(days=MAX_TODO_AGE_DAYS)
    return Brief(
        project,
        len(rows),
        _last_session(known[0], marks) if known else None,
        tuple(_open_todos(known, oldest.isoformat(), marks))[:MAX_TODOS],
        tuple(_decisions(notes, project, frozenset(uids)))[:MAX_DECISIONS],
        tuple(_solved_errors(known, marks))[:MAX_ERRORS],
        _changed_files(known[0]) if known else (),
        tuple(budgets),
    )


def brief_text(brief: Brief, *, max_tokens: int = DEFAULT_TOKENS) -> str:
    """Return the brief as framed text of at most so many tokens; empty if nothing is known."""
    return frame_lines(brief.project, list(brief_lines(brief)), max_tokens)


def save_brief(
    store: Store,
    notes: Iterable[Note],
    origin: BriefOrigin,
    without: str | None = None,
    *,
    rules: int | None = None,
) -> list[str]:
    """Make the brief of a repository, keep its lines for hooks, and return them."""
    stamp = origin.stamp()
    confirmed = read_confirmations(origin.home)
    brief = make_brief(
        store,
        notes,
        origin.project,
        without=without,
        confirmed=confirmed,
        for_hook=True,
        rules=rules,
    )
    lines = list(brief_lines(brief))
    save_lines(origin, stamp, without, lines, _valid_until(brief))
    return lines


def refresh_briefs(
    store: Store,
    notes: Sequence[Note],
    home: Path,
    uids: Sequence[str],
) -> None:
    """Keep the briefs ready of the repositories that sessions were digested of.

    One is for a session that begins, one for the newest session when it goes on. Nothing is done
    before a hook has asked for the first one.
    """
    if not (home / FOLDER).is_dir():
        return
    newest = uids[-MAX_REFRESHED_SESSIONS:]
    folders = {row.folder for row in store.sessions(Filter(uids=tuple(newest)))}
    for project in sorted({str(repository_of(Path(folder))) for folder in folders if folder}):
        origin = BriefOrigin(home, project)
        is_other = origin.store is None or origin.store != getattr(store, "path", None)
        if is_other or origin.has_budgets or origin.is_excluded:
            continue
        for without in (None, *origin.stamp()[1][:1]):
            save_brief(store, notes, origin, without)


def _valid_until(brief: Brief) -> float:
    """Return when the first of the to-dos is too old, in seconds since 1970."""
    ends = [todo["ended_at"] for todo in brief.todos]
    if not ends:
        return float("inf")
    return datetime.fromisoformat(min(ends)).timestamp() + MAX_TODO_AGE_DAYS * 86_400


def _sessions(store: Store, project: str, without: str | None) -> Iterator[SessionRow]:
    """Yield the sessions of a repository, newest first; stores of others may know no folders."""
    for start in count(step=MAX_SESSIONS):
        page = list(store.sessions(Filter(folder=project, limit=MAX_SESSIONS, offset=start)))
        for row in page:
            if _is_below(row.folder, project) and row.session.session_uid != without:
                yield row
        if len(page) < MAX_SESSIONS:
            return


def _is_below(cwd: str | None, project: str) -> bool:
    return cwd is not None and (cwd == project or cwd.startswith(project.rstrip("/") + "/"))


def _last_session(memory: Memory, marks: SessionMarks) -> dict[str, JSON]:
    digest = memory.digest
    return {
        "session_uid": memory.uid,
        "title": digest.title,
        "agent": digest.agent,
        "ended_at": digest.ended_at,
        "outcome": digest.outcome,
        "last_reply": digest.snippets.last_reply,
        **marks[memory.uid],
    }


def _open_todos(
    known: Sequence[Memory], oldest: str, marks: SessionMarks
) -> Iterator[dict[str, JSON]]:
    """Yield to-dos of the last days, those of the newest session first, each text once."""
    texts: set[str] = set()
    for memory in known:
        if (memory.digest.ended_at or "") < oldest:
            return
        for todo in memory.digest.todos:
            key = " ".join(todo.text.casefold().split())
            if key not in texts:
                texts.add(key)
                yield {
                    "text": todo.text,
                    "status": todo.status,
                    "session_uid": memory.uid,
                    "ended_at": memory.digest.ended_at,
                    **marks[memory.uid],
                }


def _decisions(
    notes: Iterable[Note], project: str, uids: frozenset[str]
) -> Iterator[dict[str, JSON]]:
    """Yield decisions that were written for a session or in a folder of this repository."""
    for note in sorted(notes, key=lambda note: note.ts, reverse=True):
        if note.kind == "decision" and (note.session_uid in uids or _is_below(note.cwd, project)):
            yield {
                "text": note.text,
                "ts": note.ts,
                "author": note.author,
                "origin": note.foreign_author,
                "is_withheld": note.is_withheld,
                "uuid": note.uuid,
            }


def _solved_errors(known: Sequence[Memory], marks: SessionMarks) -> Iterator[dict[str, JSON]]:
    """Yield errors that went away after something was done, the most frequent first."""
    for pattern in _errors(known):
        if pattern.cures:
            yield {
                "fingerprint": pattern.name,
                "sessions": pattern.sessions,
                "helped": [cure.what for cure in pattern.cures[:2]],
                "origin": _origins_of_error(known, pattern.name, marks),
            }


def _origins_of_error(known: Sequence[Memory], name: str, marks: SessionMarks) -> str:
    """Return from where sessions that met an error come, in words, each origin once."""
    met = (
        marks[memory.uid]["origin"]
        for memory in known
        for error in (*memory.digest.errors, *memory.digest.subagent_errors)
        if error.fingerprint == name
    )
    return "; ".join(filter(None, dict.fromkeys(met)))


def _errors(known: Sequence[Memory]) -> list[Pattern]:
    names = dict.fromkeys(
        error.fingerprint
        for memory in known
        for error in memory.digest.errors
        if error.settled_by is not None and ": " in error.fingerprint
    )
    cures = [patterns.seen_before(known, name) for name in names]
    solved = [pattern for pattern in cures if pattern is not None]
    return sorted(solved, key=lambda pattern: (-pattern.sessions, -pattern.count, pattern.name))


def _changed_files(memory: Memory) -> tuple[str, ...]:
    return tuple(file.path for file in memory.digest.files if file.edits)[:MAX_FILES]


def brief_lines(brief: Brief) -> Iterator[str]:
    """Yield the lines of the page, the most useful first; none if nothing is known."""
    yield from (flatten(warning, QUOTE_CHARS) for warning in brief.budgets)
    by = ""
    if brief.last is not None:
        last = brief.last
        by = _who(last)
        title = flatten(last["title"] or "untitled", 100)
        outcome = OUTCOME_NAMES.get(last["outcome"], last["outcome"])
        yield (
            f"Last session here{by}: {title} ({last['agent']}, ended"
            f" {(last['ended_at'] or '')[:16]}, outcome {outcome};"
            f" id {flatten(last['session_uid'], 60)})"
        )
        if last["last_reply"]:
            yield f"  It ended with{by}: {flatten(last['last_reply'], 2 * QUOTE_CHARS)}"
    if brief.todos:
        yield "Open to-dos:"
        for todo in brief.todos:
            mark = "in progress, " if todo["status"] == "in_progress" else ""
            yield f"  -{_who(todo)} {mark}{flatten(todo['text'], QUOTE_CHARS)}"
    if brief.decisions:
        yield "Decisions:"
        for decision in brief.decisions:
            day = flatten(decision["ts"][:10])
            yield f"  - {day}{_who(decision)}: {flatten(decision['text'], QUOTE_CHARS)}"
    if brief.errors:
        yield "Errors seen here before, and what came before they went away:"
        for error in brief.errors:
            helped = "; ".join(flatten(what, 80) for what in error["helped"])
            yield f"  -{_who(error)} {flatten(error['fingerprint'], QUOTE_CHARS)}: {helped}"
    if brief.files:
        files = ", ".join(flatten(path, 80) for path in brief.files)
        yield f"The last session{by} changed: {files}"


def _who(entry: Mapping[str, JSON]) -> str:
    return in_brackets(flatten(entry["origin"], QUOTE_CHARS))
