"""A recorder between an editor and its agent, for any agent of the Agent Client Protocol.

Bytes pass in both directions as they are. What they say is recorded through our journal before it
is passed on, so that a kill at any time costs nothing that either side has seen, but the last
pieces of a text that was still being written (half a second of them). Prompts, answers, thoughts,
calls, results and plans are recorded; permissions, files and terminals that the agent asks the
editor for are not.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from thence.agents.records import fields, objects
from thence.errors import NotReadable, ThenceError
from thence.format.records import JSON, parse_json, text_of, word

if TYPE_CHECKING:
    from thence.journal import Journal, Session

IDLE_S: Final = 0.5
"""After so long without a byte, what is held back of a message is recorded."""
PIECE: Final = 1 << 16  # what a pipe of Linux holds
EARLY: Final = 64
"""Prompts that are kept for sessions whose beginning the agent has not answered yet."""
# Held in memory until its end: an agent that never ends a line must not take all of it.
MAX_LINE: Final = 64 << 20
"""A longer line passes, and is not recorded."""

Object = dict[str, Any]


# -- bytes ----------------------------------------------------------------------------------


class _Way:
    """Bytes on their way from one descriptor to another."""

    def __init__(self, source: int, target: int, on_line: Callable[[bytes], None]) -> None:
        self.source = source
        self.target = target
        self.waiting = bytearray()
        self.is_open = True
        self._on_line = on_line
        self._line = bytearray()
        self._is_too_long = False

    def read(self) -> None:
        """Take what is there: what it says is noted before it goes on."""
        try:
            data = os.read(self.source, PIECE)
        except OSError:
            data = b""
        if not data:
            self.is_open = False
            return
        *complete, rest = data.split(b"\n")
        for part in complete:
            self._line += part
            if not self._is_too_long:
                self._on_line(bytes(self._line))
            self._line.clear()
            self._is_too_long = False
        self._line += rest
        if len(self._line) > MAX_LINE:
            self._line.clear()
            self._is_too_long = True
        self.waiting += data

    def write(self) -> None:
        """Pass on what waits, as much as the other side takes."""
        try:
            sent = os.write(self.target, self.waiting[:PIECE])
        except BlockingIOError:  # the other side reads slowly; the rest goes when it can
            return
        except OSError:  # nobody reads any more
            self.is_open = False
            self.waiting.clear()
            return
        del self.waiting[:sent]


def run(command: Sequence[str], recorder: Recorder) -> int:
    """Run an agent between our own streams and record it; return its exit code."""
    try:
        process = subprocess.Popen(  # noqa: S603 - what was asked for
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    except OSError as error:
        raise NotReadable(
            f"cannot run {command[0]}: {error.strerror}", hint="is it on your PATH?"
        ) from error
    assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - pipes
    stdin, stdout = process.stdin.fileno(), process.stdout.fileno()
    asked = _Way(0, stdin, recorder.from_client)
    answered = _Way(stdout, 1, recorder.from_agent)
    os.set_blocking(stdin, False)
    with _passing_signals(process), recorder:
        while answered.is_open or answered.waiting:
            _pass(asked, answered, recorder)
            if not asked.is_open and not asked.waiting and not process.stdin.closed:
                process.stdin.close()
        code = process.wait()
    return 128 - code if code < 0 else code


def _pass(asked: _Way, answered: _Way, recorder: Recorder) -> None:
    """Move what can be moved now, in both directions."""
    ways = (asked, answered)
    # Who does not take what waits for it is not sent more.
    readable = [way.source for way in ways if way.is_open and len(way.waiting) < 16 * PIECE]
    writable = [way.target for way in ways if way.waiting]
    timeout = IDLE_S if recorder.holds else None
    ready, free, _ = select.select(readable, writable, [], timeout)
    if not ready and not free:
        recorder.settle()
    for way in ways:
        if way.source in ready:
            way.read()
        if way.waiting and (way.target in free or way.source in ready):
            way.write()


@contextlib.contextmanager
def _passing_signals(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Pass the signals that end programs on to the agent; its end is ours."""

    def pass_on(number: int, _frame: object) -> None:
        with contextlib.suppress(OSError):  # it ended by itself
            process.send_signal(number)

    names = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [(number, signal.signal(number, pass_on)) for number in names]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


# -- what they say --------------------------------------------------------------------------


class Recorder:
    """Turns the messages of one connection into events of the journal, a session each."""

    def __init__(self, journal: Journal, command: Sequence[str]) -> None:
        """Get ready to record what a command says."""
        self._journal = journal
        self._command = " ".join(command)
        self._asked: dict[JSON, Object] = {}
        self._agent: JSON = None
        self._open: dict[str, _Recording] = {}
        self._early: list[tuple[str, JSON]] = []
        self._has_failed = False

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all sessions: what is held back is recorded first."""
        for recording in self._open.values():
            self._guard(recording.close)

    @property
    def holds(self) -> bool:
        """Whether something was said that is not recorded yet."""
        return any(recording.holds for recording in self._open.values())

    def settle(self) -> None:
        """Record what is held back."""
        for recording in self._open.values():
            self._guard(recording.settle)

    def from_client(self, line: bytes) -> None:
        """Note what the editor says."""
        message = _decode(line)
        method = message.get("method")
        if method == "session/prompt":
            name = _session_of(message)
            prompt = message["params"].get("prompt") if name else None
            if (recording := self._open.get(name)) is not None:
                self._guard(partial(recording.prompt, prompt))
            elif name and len(self._early) < EARLY:
                self._early.append((name, prompt))
        elif method == "session/cancel":
            recording = self._open.get(_session_of(message))
            if recording is not None:
                self._guard(recording.cancel)
        if isinstance(method, str) and message.get("id") is not None:
            self._asked[_key(message["id"])] = message

    def from_agent(self, line: bytes) -> None:
        """Note what the agent says."""
        message = _decode(line)
        if message.get("method") == "session/update":
            if update := fields(fields(message.get("params")).get("update")):
                name = _session_of(message)
                recording = self._open.get(name) or self._begin_replay(name)
                if recording is not None:
                    self._guard(partial(recording.update, update))
        elif "method" not in message and message.get("id") is not None:
            self._answer(message)

    def _answer(self, message: Object) -> None:
        asked = self._asked.pop(_key(message["id"]), None)
        result = message.get("result")
        if asked is None or not isinstance(result, dict):
            return
        method = asked["method"]
        if method == "initialize":
            self._agent = result.get("agentInfo")
        elif method == "session/new":
            self._begin(word(result.get("sessionId")), asked, result)
        elif method in ("session/load", "session/resume"):
            self._begin(_session_of(asked), asked, result)
        elif method == "session/prompt":
            recording = self._open.get(_session_of(asked))
            if recording is not None:
                self._guard(partial(recording.end_turn, result))

    def _begin_replay(self, name: str) -> _Recording | None:
        """Begin a session that is being loaded: its past comes before the answer."""
        for asked in self._asked.values():
            if asked.get("method") == "session/load" and _session_of(asked) == name:
                return self._begin(name, asked, {})
        return None

    def _begin(self, name: str, asked: Object, result: Object) -> _Recording | None:
        if not name or name in self._open:
            return self._open.get(name)
        cwd = word(fields(asked.get("params")).get("cwd"))
        model = word(fields(result.get("models")).get("currentModelId"))

        def begin() -> None:
            session = self._journal.create(cwd=cwd or None, model=model or None)
            about = {"agent": self._agent, "command": self._command, "session_id": name}
            session.record("acp", about)
            self._open[name] = _Recording(session)
            for _, prompt in [early for early in self._early if early[0] == name]:
                self._open[name].prompt(prompt)
            self._early = [early for early in self._early if early[0] != name]

        self._guard(begin)
        return self._open.get(name)

    def _guard(self, act: Callable[[], None]) -> None:
        """Record; what cannot be recorded is said once, and passes all the same."""
        try:
            act()
        except (ThenceError, OSError) as error:
            if not self._has_failed:
                self._has_failed = True
                sys.stderr.write(f"thence: not recorded: {error}\n")


class _Recording:
    """One session: pieces of a message are joined, calls wait until their input is known."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._kind = ""
        self._message: str | None = None
        self._text: list[str] = []
        self._calls: dict[str, Object] = {}
        self._recorded: set[str] = set()
        self._answered: set[str] = set()

    @property
    def holds(self) -> bool:
        """Whether something was said that is not recorded yet."""
        return bool(self._text) or any(map(_is_known, self._calls.values()))

    def prompt(self, blocks: JSON) -> None:
        """Record what the user asks."""
        self._finish()
        content = [made for block in objects(blocks) if (made := _content(block)) is not None]
        self._session.record("user", {"role": "user", "content": content})

    def cancel(self) -> None:
        """Record that the user stopped the turn."""
        self._finish()
        self._session.record("interrupted", {"by": "user"})

    def update(self, update: Object) -> None:
        """Record what the agent tells."""
        kind = update.get("sessionUpdate")
        if kind in _CHUNKS:
            self._chunk(_CHUNKS[kind], update)
        elif kind in ("tool_call", "tool_call_update"):
            self._flush_text()
            self._tool(update)
        elif kind == "plan":
            self.settle()
            entries = objects(update.get("entries"))
            todos = [
                {"content": word(entry.get("content")), "status": word(entry.get("status"))}
                for entry in entries
            ]
            self._session.record("todos", {"todos": todos})

    def end_turn(self, result: Object) -> None:
        """Record the end of a turn and what it took, as far as the agent tells."""
        self._finish()
        if isinstance(usage := result.get("usage"), dict):
            # As it is told, and not counted: some agents tell the last request, others all.
            self._session.record("usage", usage)
        self._session.flush()

    def settle(self) -> None:
        """Record what is held back, but for calls whose input may still come."""
        self._flush_text()
        for name in [name for name, call in self._calls.items() if _is_known(call)]:
            self._record_call(name)

    def _finish(self) -> None:
        self._flush_text()
        for name in list(self._calls):
            self._record_call(name)

    def close(self) -> None:
        """End the session."""
        self._finish()
        self._session.close()

    # -- texts --------------------------------------------------------------------------------

    def _chunk(self, kind: str, update: Object) -> None:
        content = update.get("content")
        message = update.get("messageId")
        if not isinstance(content, dict):
            return
        is_other = isinstance(message, str) and self._message not in (None, message)
        if kind != self._kind or is_other:
            self.settle()
        self._kind = kind
        self._message = message if isinstance(message, str) else None
        if content.get("type") == "text":
            self._text.append(word(content.get("text")))
            return
        self._flush_text()
        made = _content(content)
        if made is not None:
            self._say(kind, [made])

    def _flush_text(self) -> None:
        text, self._text = "".join(self._text), []
        if text and self._kind == "thought":
            self._say("agent", [{"type": "thinking", "thinking": text}])
        elif text:
            self._say(self._kind, [{"type": "text", "text": text}])

    def _say(self, kind: str, content: list[JSON]) -> None:
        role = "user" if kind == "user" else "assistant"
        self._session.record(role, {"role": role, "content": content})

    # -- calls --------------------------------------------------------------------------------

    def _tool(self, update: Object) -> None:
        name = word(update.get("toolCallId"))
        if not name:
            return
        if name in self._recorded:
            call = {**update}
        else:
            update_so_far = self._calls.setdefault(name, {})
            update_so_far |= {key: value for key, value in update.items() if value is not None}
            call = update_so_far
            if update_so_far.get("status") in ("completed", "failed"):
                self._record_call(name)
        status = call.get("status")
        if status in ("completed", "failed") and name not in self._answered:
            self._record_result(name, call, is_error=status == "failed")

    def _record_call(self, name: str) -> None:
        call = self._calls.pop(name)
        arguments = call.get("rawInput")
        title = word(call.get("title"))
        block = {
            "type": "tool_use",
            "id": name,
            "name": _tool_name(call),
            "input": arguments if isinstance(arguments, dict) else {"title": title},
        }
        self._recorded.add(name)
        self._say("agent", [block])

    def _record_result(self, name: str, call: Object, *, is_error: bool) -> None:
        self._answered.add(name)
        content = _result_content(call)
        block = {"type": "tool_result", "tool_use_id": name, "content": content}
        if is_error:
            block["is_error"] = True
        self._session.record("user", {"role": "user", "content": [block]})


_CHUNKS: Final = {
    "user_message_chunk": "user",
    "agent_message_chunk": "agent",
    "agent_thought_chunk": "thought",
}


def _decode(line: bytes) -> Object:
    # What is none is not ours to judge: it is passed on as it came.
    return fields(parse_json(line))


def _key(number: JSON) -> JSON:
    return number if isinstance(number, (int, str)) else repr(number)


def _session_of(message: Object) -> str:
    return word(fields(message.get("params")).get("sessionId"))


def _content(block: Object) -> JSON:
    """Return a block of the protocol as one of the Messages API; None where it says nothing."""
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": word(block.get("text"))}
    if kind == "image" and isinstance(block.get("data"), str):
        source = {"type": "base64", "media_type": block.get("mimeType"), "data": block["data"]}
        return {"type": "image", "source": source}
    if kind == "resource_link":
        return {"type": "text", "text": f"[{word(block.get('name'))}]({word(block.get('uri'))})"}
    resource = block.get("resource")
    if kind == "resource" and isinstance(resource, dict):
        text = word(resource.get("text"))
        return {"type": "text", "text": f"{word(resource.get('uri'))}\n{text}"}
    return {"type": "text", "text": f"[{word(kind)}]"} if kind else None


def _is_known(call: Object) -> bool:
    """Whether all that a call is given is known: agents tell an empty input first."""
    return bool(call.get("rawInput")) or call.get("status") == "in_progress"


def _tool_name(call: Object) -> str:
    """Return the name of a tool: the agent's own where it tells it, else what kind it is."""
    meta = call.get("_meta")
    for value in meta.values() if isinstance(meta, dict) else ():
        if isinstance(value, dict) and isinstance(value.get("toolName"), str):
            return str(value["toolName"])
    if isinstance(meta, dict) and isinstance(meta.get("toolName"), str):
        return str(meta["toolName"])
    return word(call.get("kind")) or "tool"


def _result_content(call: Object) -> JSON:
    """Return what a call gave: what the editor was shown, else what the tool itself said."""
    out: list[JSON] = []
    for part in objects(call.get("content")):
        inner = part.get("content")
        if part.get("type") == "content" and isinstance(inner, dict):
            out.append(_content(inner))
        elif part.get("type") == "diff":
            old, new = word(part.get("oldText")), word(part.get("newText"))
            text = f"{word(part.get('path'))}\n--- before\n{old}\n--- after\n{new}"
            out.append({"type": "text", "text": text})
    out = [part for part in out if part is not None]
    if out:
        return out
    raw = call.get("rawOutput")
    if raw is None:
        return ""
    return raw if isinstance(raw, str) else text_of(raw) or msgspec.json.encode(raw).decode()
