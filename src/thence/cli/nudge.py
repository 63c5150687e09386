"""What agents call: leaves a nudge in `queue/` that a session went on, and is gone.

Run as a file, `python -I -S nudge.py AGENT HOME`, so that nothing but Python's own modules is
loaded. It reads what the agent says (JSON on stdin; Codex's `notify` gives it as the last
argument) and writes one small file: `{agent, event, session, transcript_path, ts}` and no word of
what was said. One file per session: a later nudge takes the place of an earlier one.

Invariants: it always ends with 0, prints nothing and raises nothing, whatever stdin, disk or home
are like; no agent is ever disturbed by it. It makes no home: where there is none, nobody reads
nudges. With `cadence = "on-hook"` it starts one sweep in the background, soon and once for many
nudges.
"""

from __future__ import annotations

import os
import sys
import time

MAX_INPUT_BYTES = 1 << 20
"""Bytes of stdin that are looked at; agents put whole tool results into what they say."""
STALE_AFTER_S = 120.0
"""Seconds after which a sweep that was announced and never began is not waited for."""

_SESSION = ("session_id", "sessionId", "thread-id", "thread_id", "rootSessionId")
_EVENT = ("hook_event_name", "hookEventName", "hookName", "type")
_PATH = ("transcript_path", "transcriptPath", "agent_transcript_path")


def main(arguments: list[str]) -> None:
    """Leave a nudge."""
    try:  # noqa: SIM105 - contextlib would have to be loaded for it
        leave(arguments[0], arguments[1], arguments[2] if len(arguments) > 2 else None)
    except BaseException:  # noqa: BLE001, S110 - the agent comes first, whatever this is
        pass


def leave(agent: str, home: str, message: str | None) -> None:
    """Write one nudge."""
    fields = _read_message(message)
    # Grok runs Claude Code's hooks too, and says who it is.
    agent = "grok" if "GROK_HOOK_EVENT" in os.environ else agent
    inner = fields.get("sessionContext")
    session = _first(fields, _SESSION) or os.environ.get("GROK_SESSION_ID", "")
    session = session or _first(inner if isinstance(inner, dict) else {}, _SESSION)
    folder = os.path.join(home, "queue")  # noqa: PTH118 - pathlib alone takes longer than all of this
    if not os.path.isdir(folder):  # noqa: PTH112
        os.mkdir(folder, 0o700)  # noqa: PTH102
    nudge: dict[str, object] = {
        "agent": agent,
        "event": _first(fields, _EVENT),
        "session": session,
        "transcript_path": _first(fields, _PATH) or None,
        "ts": time.time(),
    }
    _write(folder, _name(agent, session), nudge)
    if _on_hook(home):
        _sweep_soon(home)


def _read_message(message: str | None) -> dict[str, object]:
    if message is None:
        if os.isatty(0):
            return {}
        parts: list[bytes] = []
        while part := os.read(0, 1 << 16):  # to its end: a pipe that breaks would be noticed
            if len(parts) < MAX_INPUT_BYTES >> 12:
                parts.append(part)
        message = b"".join(parts)[:MAX_INPUT_BYTES].decode("utf-8", "replace")
    try:
        fields = _parse(message.strip())
    except (ValueError, StopIteration, RecursionError, SystemError):  # the core's own words for it
        fields = _start_of(message)
    return fields if isinstance(fields, dict) else {}


def _parse(text: str) -> object:
    """Read JSON; by the bare core of Python's reader, which loads in no time, where there is it."""
    try:
        from _json import make_scanner

        value, end = make_scanner(_Plain())(text, 0)  # type: ignore[arg-type]
    except (ImportError, TypeError, AttributeError):
        import json

        return json.loads(text)
    if end != len(text):
        raise ValueError(text[end : end + 20])
    return value


class _Plain:
    """What the core asks about how to read."""

    strict = False
    object_hook = object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def _start_of(text: str) -> dict[str, object]:
    """Find what is needed in something that was cut: agents say it first."""
    import re

    wanted = "|".join((*_SESSION, *_EVENT, *_PATH))
    pairs = re.findall(rf'"({wanted})"\s*:\s*"([^"\\]{{1,4096}})"', text[:65_536])
    return dict(reversed(pairs))


def _first(fields: dict[str, object], names: tuple[str, ...]) -> str:
    """Return the first of these that is a text."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and value:
            return value[:4096]
    return ""


def _name(agent: str, session: str) -> str:
    """Name a nudge by its session; what is no plain id is spelt out in hex, cut to fit."""
    plain = all(c.isascii() and (c.isalnum() or c == "-") for c in session)
    if plain and len(session) <= 80:
        return f"{agent}-{session or 'unknown'}"
    return f"{agent}-x{session.encode('utf-8', 'backslashreplace').hex()[:160]}"


def _write(folder: str, name: str, nudge: dict[str, object]) -> None:
    """One write to a name that nobody reads, then the real name; no waiting for the disk."""
    path = f"{folder}/{name}.json"
    passing = f"{path}.{os.getpid()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    handle = os.open(passing, flags, 0o600)
    body = _json(nudge).encode()
    try:
        is_complete = os.write(handle, body) == len(body)
    except OSError:
        is_complete = False
    os.close(handle)
    if is_complete:
        os.replace(passing, path)  # noqa: PTH105
    else:
        os.unlink(passing)  # noqa: PTH108


def _json(nudge: dict[str, object]) -> str:
    """Write JSON, likewise."""
    try:
        from _json import encode_basestring_ascii as quoted
    except ImportError:
        import json

        return json.dumps(nudge)
    parts = {n: quoted(v) if isinstance(v, str) else v for n, v in nudge.items()}
    return f"{{{', '.join(f'{quoted(n)}: {_bare(v)}' for n, v in parts.items())}}}"


def _bare(value: object) -> str:
    return "null" if value is None else f"{value}"


# -- a sweep in the background --------------------------------------------------------------


def _on_hook(home: str) -> bool:
    """Whether the settings ask for a sweep; a look at the line, for a parser takes too long."""
    try:
        with open(f"{home}/config.toml", "rb") as file:  # noqa: PTH123
            lines = file.read(MAX_INPUT_BYTES).split(b"\n")
    except OSError:
        return False
    settings = (line.split(b"#")[0] for line in lines)
    return any(b"cadence" in line and b"on-hook" in line for line in settings)


def _sweep_soon(home: str) -> None:
    """Start one sweep that waits a little, unless one is waiting already."""
    due = f"{home}/sweep.due"
    try:
        if time.time() - os.stat(due).st_mtime < STALE_AFTER_S:  # noqa: PTH116
            return
        os.unlink(due)  # noqa: PTH108
    except FileNotFoundError:
        pass
    os.close(os.open(due, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    if os.fork():
        return
    try:
        _become_sweep(home)
    finally:
        os._exit(0)


def _become_sweep(home: str) -> None:
    """Let go of the agent altogether, and turn into the sweep.

    The agent works in a project, and a project is hostile: the sweep does not begin in its folder
    and looks for modules only where packages are installed (`thence.cli.processes`).
    """
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.closerange(3, 1024)
    run = "from thence.cli.hook import sweep_soon; sweep_soon()"
    env = {**os.environ, "THENCE_HOME": home}
    os.execve(sys.executable, [sys.executable, "-E", "-P", "-c", run], env)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
