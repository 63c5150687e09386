"""The rows of Hermes Agent's database that belong to one session, as facts.

A row of `messages` is a prompt, an answer with its calls, or a result. Rows are taken back
(`active` 0) or compacted (`compacted` 1) in place: a row goes on from the last one before it that
was not taken back. After edits the harness refuses an answer and asks again: only the last answer
of a turn is one, the others are kept beside it. Tokens are told per session and model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from zlib import crc32

from thence.agents import File, Mark, Source
from thence.agents.files import clean_carry
from thence.agents.message_rows import TOTALS, MessageRows, Totals
from thence.agents.records import (
    Record,
    answer,
    call,
    fields,
    injected_text,
    integer_of,
    line_of,
    moment,
    note,
    objects,
    parse_arguments,
    prompt,
    result,
    text,
    thought,
)
from thence.agents.sqlite_rows import Database, RowLog
from thence.format import derived_events
from thence.format.codec import RawRecord
from thence.format.facts import Block, CallStatus, Edge, Fact, answers_of, calls_of
from thence.format.nodes import Is, Node
from thence.format.normal import one_line
from thence.format.records import JSON, Place, Usage, count, parse_json, word

SOURCES: Final = frozenset({"cli", "tui", "acp", "cron", "desktop"})
"""Where sessions come from that are read; all others are talk of a chat."""

_DELEGATED: Final = "subagent"
_SUMMARY: Final = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY")
_INJECTED: Final = (
    "[System:",
    "[Note:",
    "[ASYNC DELEGATION",
    "[IMPORTANT: Background process",
    "[PRIOR CONTEXT",
    "[Your active task list was preserved",
    "[Continuing toward your standing goal]",
)
_INTERRUPTED: Final = "Operation interrupted."
_REFUSED: Final = "verification_required"
_ESTIMATED_ROW_BYTES: Final = 1024  # a guess: rows are not measured
_MAX_DEPTH: Final = 32  # sessions above one that are looked at
_MAX_WAITING_CALLS: Final = 64  # calls whose session is not there yet
_SESSION_COLUMNS: Final = (
    "id",
    "source",
    "parent_session_id",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "title",
    "started_at",
    "ended_at",
    "end_reason",
    "cwd",
    "git_branch",
    "model",
    "model_config",
)
_TOKEN_COLUMNS: Final = _SESSION_COLUMNS[3:7]


# -- finding --------------------------------------------------------------------------------


def versions(database: Database) -> list[tuple[str, str, float, int]]:
    """Return id, version, time and size of all sessions that are read."""
    database.require("sessions", "id")
    records = [
        dict(zip(_SESSION_COLUMNS, values, strict=True))
        for values in database.select_once("sessions", _SESSION_COLUMNS)
    ]
    sessions = {session["id"]: session for session in records if text(session["id"])}
    rows = _rows_of(database)
    tokens = _tokens_of(database)
    children: dict[JSON, int] = {}
    for session in sessions.values():
        if session["source"] == _DELEGATED:
            parent = session["parent_session_id"]
            children[parent] = children.get(parent, 0) + 1
    out: list[tuple[str, str, float, int]] = []
    for name, session in sessions.items():
        if not _is_read(name, sessions):
            continue
        number, last, active, when = rows.get(name, (0, 0, 0, 0.0))
        counts = (number, last, active, tokens.get(name, 0), children.get(name, 0))
        if not any(counts):
            continue  # opened, and nothing was asked
        details = (
            session["title"],
            session["cwd"],
            session["model"],
            *(session[key] for key in _TOKEN_COLUMNS),
        )
        version = ".".join(map(str, (*counts, crc32(repr(details).encode("utf-8", "replace")))))
        out.append(
            (name, version, when or _seconds(session["started_at"]), number * _ESTIMATED_ROW_BYTES)
        )
    return out


def _rows_of(database: Database) -> dict[JSON, tuple[int, int, int, float]]:
    """Return per session how many rows it has, the last, how many stand, and when it was made."""
    if not database.has_columns("messages", ("id", "session_id", "timestamp")):
        return {}
    standing = "sum(active)" if database.has_columns("messages", ("active",)) else "count(*)"
    query = (
        f"SELECT session_id, count(*), max(id), {standing}, max(timestamp)"  # noqa: S608 - ours
        " FROM messages GROUP BY session_id"
    )
    return {
        name: (count(rows), count(last), count(active), _seconds(when))
        for name, rows, last, active, when in database.ask(query)
    }


def _tokens_of(database: Database) -> dict[JSON, int]:
    if not database.has_columns("session_model_usage", ("session_id", *_TOKEN_COLUMNS)):
        return {}
    query = (
        "SELECT session_id, sum(input_tokens + output_tokens + cache_read_tokens"
        " + cache_write_tokens) FROM session_model_usage GROUP BY session_id"
    )
    return {name: count(tokens) for name, tokens in database.ask(query)}


def _is_read(name: JSON, sessions: Mapping[JSON, Record]) -> bool:
    """Return whether a session is none of a chat: what was delegated goes by who delegated it."""
    for _ in range(_MAX_DEPTH):
        session = sessions.get(name)
        if session is None:
            return True  # who delegated it was deleted
        if session["source"] != _DELEGATED:
            return session["source"] in SOURCES
        name = session["parent_session_id"]
    return False


def _seconds(value: JSON) -> float:
    return float(value) if isinstance(value, (int, float)) and 0 < value < 1 << 40 else 0.0


# -- rows -----------------------------------------------------------------------------------


def open_log(database: Database, source: Source, file: File, mark: Mark) -> RowLog:
    """Return the rows of a session, or its totals."""
    make = HermesTotals if file.key == TOTALS else HermesMessages
    return make(database, source, file, mark)


class HermesTotals(Totals):
    """What was billed, per model and task."""

    def totals(self) -> Mapping[str, tuple[str | None, Usage]]:
        """Return the totals per model and task; those of the session if that is not told."""
        where, columns = "WHERE session_id = ?", ("model", "task", *_TOKEN_COLUMNS)
        rows = list(
            self._database.select("session_model_usage", columns, where, self._session)
            if self._database.has_columns("session_model_usage", ("session_id",))
            else ()
        )
        if not rows:
            named = ("model", "id", *_TOKEN_COLUMNS)
            rows = list(self._database.select("sessions", named, "WHERE id = ?", self._session))
            rows = [(model, "", *counts) for model, _, *counts in rows]
        out: dict[str, tuple[str | None, Usage]] = {}
        for model, task, input_tokens, output, read, written in rows:
            name = " ".join(filter(None, (word(model), word(task)))) or "requests"
            usage = Usage(count(input_tokens), count(output), count(written), count(read))
            if name in out:  # of several providers
                usage = derived_events.add_usage(out[name][1], usage)
            out[name] = text(model), usage
        return out


class HermesMessages(MessageRows):
    """The rows of one session."""

    columns = (
        "role",
        "content",
        "tool_calls",
        "tool_call_id",
        "tool_name",
        "timestamp",
        "finish_reason",
        "reasoning",
        "reasoning_content",
        "observed",
        "active",
        "compacted",
    )

    carries = ("about", "waiting", "children", "tip")
    """Which calls wait for the session they started, and what the next row goes on from."""

    def __init__(self, database: Database, source: Source, file: File, mark: Mark) -> None:
        super().__init__(database, source, file, mark)
        self._about = text(self._carried.get("about"))
        waiting = self._carried.get("waiting")
        self._waiting: Record = dict(waiting) if isinstance(waiting, dict) else {}
        children = self._carried.get("children")
        self._children: list[JSON] = list(children) if isinstance(children, list) else []
        self._live = self._last_standing_row(self._at)
        self._tip = text(self._carried.get("tip"))
        rows = list(database.select("sessions", _SESSION_COLUMNS, "WHERE id = ?", source.session))
        self._row: Record = dict(zip(_SESSION_COLUMNS, rows[0], strict=True)) if rows else {}
        self._is_side = self._row.get("source") == _DELEGATED

    def _last_standing_row(self, before: int) -> str | None:
        """Return the last of the rows up to one that was not taken back."""
        if not before or not self._database.has_columns("messages", ("active", "compacted")):
            return f"m{before}" if before else None
        query = (
            "SELECT max(id) FROM messages WHERE session_id = ? AND id <= ?"
            " AND (active IS NOT 0 OR compacted IS 1)"
        )
        ((last,),) = self._database.ask(query, self._session, before)
        return f"m{last}" if isinstance(last, int) else None

    # -- facts --------------------------------------------------------------------------

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return the fact of one row."""
        row = entry.value
        role, content = row["role"], row["content"]
        blocks, flags, statuses = self._blocks(row)
        name = f"m{row['id']}"
        is_summary = isinstance(content, str) and content.startswith(_SUMMARY)
        if is_summary:
            node = Node(name, None, Is.SUMMARY, logical=self._live)
            blocks = [
                Block("lifecycle", "user", one_line(content), {"type": "text", "text": content})
            ]
        else:
            node = Node(name, self._live, flags, calls=calls_of(blocks), answers=answers_of(blocks))
        if self._is_copy(row):
            blocks, statuses = [_again(block) for block in blocks], ()
            node = Node(name, self._live)
        is_taken_back = row["active"] == 0 and row["compacted"] != 1
        if is_taken_back:
            node = Node(name, self._tip, flags, calls=node.calls, answers=node.answers)
        else:
            self._live = name
        self._tip = name
        for block in blocks:
            if block.kind == "tool_call" and block.tool == "delegate_task" and block.call:
                self._waiting[block.call] = [row["id"], _goals(block.payload)]
        return [
            self._fact(
                entry,
                node,
                word(role),
                ts=moment(row["timestamp"]),
                blocks=tuple(blocks),
                told=statuses,
                model=text(self._row.get("model")) if role == "assistant" else None,
                copy_key=f"{row['timestamp']}:{word(role)}:{_digest(row)}",
            )
        ]

    def _is_copy(self, row: Record) -> bool:
        """Return whether a compaction wrote a row once more, behind its summary."""
        if not self._database.has_columns("messages", ("compacted", "tool_call_id")):
            return False
        query = (
            "SELECT 1 FROM messages WHERE session_id = ? AND timestamp = ? AND id < ?"
            " AND compacted = 1 AND role = ? AND tool_call_id IS ? AND content IS ? LIMIT 1"
        )
        key = (row["timestamp"], row["id"], row["role"], row["tool_call_id"], row["content"])
        return any(self._database.ask(query, self._session, *key))

    def _blocks(self, row: Record) -> tuple[list[Block], int, tuple[CallStatus, ...]]:
        role, content = row["role"], _text_of(row["content"])
        if role == "assistant":
            return (*self._answer(row, content), ())
        if role == "tool":
            return self._result(row)
        if role != "user" or row["observed"] == 1:
            return [note(content or word(role), row["content"])], Is.INTERNAL, ()
        if self._is_side or content.startswith(_INJECTED):
            return [injected_text(content)], 0, ()
        return [prompt(content)], Is.PROMPT, ()

    def _answer(self, row: Record, content: str) -> tuple[list[Block], int]:
        blocks: list[Block] = []
        if thinking := text(row["reasoning"]) or text(row["reasoning_content"]):
            blocks.append(thought(thinking))
        calls = list(_calls(row["tool_calls"]))
        reason = row["finish_reason"]
        if content and reason == _REFUSED:
            shown = {"type": "text", "text": content}
            blocks.append(Block("lifecycle", "assistant", one_line(content), shown))
        elif content:
            blocks.append(answer(content))
        blocks += calls
        if content == _INTERRUPTED and reason is None:
            return [note(content, content)], Is.INTERRUPTS
        ends = content and not calls and reason != _REFUSED
        return blocks or [note("empty answer", None)], Is.REPLY | (Is.ENDS if ends else 0)

    def _result(self, row: Record) -> tuple[list[Block], int, tuple[CallStatus, ...]]:
        name, tool = text(row["tool_call_id"]), text(row["tool_name"])
        inner = fields(parse_json(row["content"]))
        code = integer_of(inner.get("exit_code"))
        failed: bool | None = bool(inner.get("error")) or inner.get("success") is False
        if code is not None:
            failed = None
        statuses = (CallStatus(name, failed, code),) if name else ()
        return [result(word(row["content"]), name, tool, failed=failed)], 0, statuses

    # -- the session --------------------------------------------------------------------

    def final_facts(self) -> Iterator[Fact]:
        """Yield where the session stands after rows were taken back, and what its row says."""
        entry = RawRecord({}, Place(self._at, self._at, 0), b"")
        if self._live != self._tip and self._tip is not None:
            node = Node(f"{self._tip} left", self._live)
            yield self._fact(entry, node, "rewind", blocks=(note("taken back up to here", None),))
        yield from self._about_facts(entry)
        yield from self._child_facts()

    def _about_facts(self, entry: RawRecord) -> Iterator[Fact]:
        row = self._row
        about: Record = {}
        if title := text(row.get("title")):
            about["title:ai"] = title
        for name in ("cwd", "git_branch", "model"):
            if value := text(row.get(name)):
                about[name] = value
        if self._is_side and not title:
            about |= (
                {"title:summary": one_line(goal)} if (goal := self._goal(self._session)) else {}
            )
        if self._is_side and "cwd" not in about:  # it works where it was asked to
            parent = word(row.get("parent_session_id"))
            for (cwd,) in self._database.select("sessions", ("cwd",), "WHERE id = ?", parent):
                about |= {"cwd": cwd} if text(cwd) else {}
        edges = tuple(self._above())
        known = f"{crc32(clean_carry(repr((about, edges))).encode('utf-8', 'replace')):08x}"
        if (about or edges) and known != self._about:
            self._about = known
            node = Node(f"{self._session} session {known}", flags=Is.INTERNAL)
            when = moment(row.get("started_at"))
            yield self._fact(entry, node, "session", ts=when, about=about, edges=edges)

    def _above(self) -> Iterator[Edge]:
        """Yield the tie to the session above: it delegated, was branched, or was compacted."""
        parent = text(self._row.get("parent_session_id"))
        if parent is None:
            return
        settings = fields(parse_json(self._row.get("model_config")))
        ended = self._database.select("sessions", ("end_reason",), "WHERE id = ?", parent)
        if self._is_side or settings.get("_delegate_from"):
            yield Edge("subagent", parent, "parent_session_id")
        elif settings.get("_branched_from"):
            yield Edge("fork", parent, "_branched_from")
        elif any(reason == "compression" for (reason,) in ended):
            yield Edge("resume", parent, "it was compacted")
        else:
            yield Edge("resume", parent, "parent_session_id")

    def _goal(self, session: str) -> str:
        """Return the first prompt of a session."""
        where = "WHERE session_id = ? AND role = 'user' ORDER BY id LIMIT 1"
        first = self._database.select("messages", ("content",), where, session)
        return next((_text_of(content) for (content,) in first), "")

    def _child_facts(self) -> Iterator[Fact]:
        """Yield the sessions that calls started: the first prompt of each is the goal of a call."""
        if not self._waiting:
            return
        where = "WHERE parent_session_id = ? AND source = 'subagent' ORDER BY started_at, id"
        known = self._children
        for (child,) in list(self._database.select("sessions", ("id",), where, self._session)):
            goal = self._goal(word(child))
            for name, (number, goals) in list(self._waiting.items()):
                if goal and child not in known and any(g and g in goal for g in goals):
                    known.append(child)
                    edge = Edge("subagent", word(child), "goal of the call", call=name, child=True)
                    node = Node(f"{child} child", flags=Is.INTERNAL)
                    place = RawRecord({}, Place(number, number, 0), b"")
                    yield self._fact(place, node, "child", edges=(edge,))
                    left = [g for g in goals if g not in goal]
                    self._waiting[name] = [number, left]
                    if not left:
                        del self._waiting[name]
                    break
        while len(self._waiting) > _MAX_WAITING_CALLS:
            del self._waiting[next(iter(self._waiting))]


def _again(block: Block) -> Block:
    """Return a block that was told before: the model sees its text, and nobody said it anew."""
    if block.kind in ("user_msg", "assistant_msg"):
        return Block("lifecycle", block.role, block.summary, block.payload)
    return note(line_of(block) or block.kind, None)


def _digest(row: Record) -> str:
    content = f"{row['content']}\n{row['tool_calls']}"
    return f"{crc32(content.encode('utf-8', 'replace')):08x}"


def _text_of(content: JSON) -> str:
    """Return the text of a message: as it is, or that of the parts in a list."""
    raw = word(content)
    parts = parse_json(raw) if raw.startswith("[{") else None
    if not isinstance(parts, list):
        return raw
    return "\n".join(word(part.get("text")) for part in objects(parts)) or raw


def _calls(raw_calls: JSON) -> Iterator[Block]:
    for item in objects(parse_json(raw_calls)):
        function = fields(item.get("function"))
        name = text(item.get("call_id")) or text(item.get("id"))
        yield call(word(function.get("name")), parse_arguments(function.get("arguments")), name)


def _goals(payload: JSON) -> list[str]:
    """Return what was delegated by a call: one goal, or a list of tasks."""
    arguments = fields(payload)
    goals = [word(arguments.get("goal"))]
    goals += [word(task.get("goal")) for task in objects(arguments.get("tasks"))]
    return [goal for goal in goals if goal]
