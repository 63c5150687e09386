"""The text of a tool's result, freed of what a client puts around the output of a program.

Results come as text, as lists of blocks and as structures; clients clip them, prefix them with an
exit code or wrap them in JSON. Here every shape becomes text, an envelope becomes its exit code and
the output within, and an output becomes its lines. The known envelopes are rows of a table.

Invariants: pure; nothing raises, whatever the shape of a result; time is linear, at most the first
and last 16 KiB of a result and as many of its lines as `LINES` says are looked at.

Never here: what an output means, be it a failure (see errors) or a test run (see testruns).
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import NamedTuple

from thence.format.expressions import expression

CLIP = 16 << 10
"""Characters looked at from each end of a result; more is never read."""

LINES = 500
"""Lines looked at from each end of a result."""

CONTROL = expression(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")
"""White space and characters that no line for people holds."""

_DEPTH = 4  # blocks nest no deeper in earnest


class Row(NamedTuple):
    """One row of a table: `yes` must match `pattern`, `no` must not."""

    name: str
    pattern: str
    yes: str
    no: str


class Table(tuple[Row, ...]):  # noqa: SLOT001 - it keeps its compiled patterns
    """Rows in order. Most texts match none of them: one pattern of all says so at once."""

    @cached_property
    def any(self) -> re.Pattern[str]:
        """Matches what any row does."""
        return expression("|".join(f"(?:{row.pattern})" for row in self))

    @cached_property
    def each(self) -> list[tuple[Row, re.Pattern[str]]]:
        """The rows with their patterns."""
        return [(row, expression(row.pattern)) for row in self]


# The table keeps a row to a line or two; the formatter would give every cell its own.
# fmt: off
ENVELOPES = Table(Row(*row) for row in (
    ("chunk", (r"(?:(?:Command|Chunk ID|Wall time)\b[^\n]*\n){0,4}(?:Process exited with code |"
               r"Exit code: )(-?\d{1,9})\b[^\n]*(?:\n(?:Wall time|Original token count|Total output"
               r" lines)\b[^\n]*)*(?:\nOutput:)?(?:\n(?:Total output lines|Warning: truncated "
               r"output)[^\n]*)*\n?"),
     "Chunk ID: 4e7e75\nWall time: 0.0 seconds\nProcess exited with code 1\nOutput:\nx",
     "It said: Process exited with code 1"),
    ("sandbox", (r"failed in sandbox \w+ with execution error: sandbox denied exec error, "
                 r"exit code: (-?\d{1,9}), stdout: (?:, stderr: )?"),
     ("failed in sandbox LinuxSeccomp with execution error: sandbox denied exec error, "
      "exit code: 1, stdout: , stderr: x"),
     "failed in sandbox None with execution error: command timed out"),
    ("code", r"(?:Error: )?Exit code (-?\d{1,9})(?:\n|$)", "Exit code 2\nuse", "Exit code 2 is"),
    ("exit", r"exit: (-?\d{1,9})(?: \[truncated[^\n]*)?(?:\n|$)", "exit: 1\nTrace", "exit: 1st"),
))
"""Texts clients put before an output; the first group is the exit code."""
# fmt: on

MARKS = ("Err", "Error", "NoMatchesFound", "FileNotFound")
"""Variants whose mere presence in a structured result is a failure."""

_TEXTS = ("text", "output_for_prompt", "output", "content", "stdout", "stderr", "message", *MARKS)
_TEXT_KEYS = {"type", "text"}
_PREFACE = expression(
    r"(?:(?:Chunk ID|Wall time|Process running|Original token count)\b[^\n]*\n)+(?:Output:\n)?"
)
_ANSI = expression(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_EXIT_CODE = expression(r'"metadata"\s*:\s*\{[^{}]{0,200}"exit_code"\s*:\s*(-?\d{1,9})\b')


def first(rows: Table, text: str) -> Row | None:
    """Return the first row whose pattern a text begins with."""
    if rows.any.match(text) is None:
        return None
    return next((row for row, pattern in rows.each if pattern.match(text)), None)


def text(value: object) -> str:
    """Return the text of a result of any shape, its middle left out when it is long."""
    if type(value) is dict and value.keys() == _TEXT_KEYS and type(value["text"]) is str:
        value = value["text"]  # as most are
    return _text(value, 0)


def open_envelope(text: str) -> tuple[int | None, str]:
    """Take the client's envelope off an output: its exit code, if any, and the output."""
    if text[:1] == "{" and (match := _EXIT_CODE.search(text)):
        return int(match[1]), _unescape(text)
    for _, pattern in ENVELOPES.each if ENVELOPES.any.match(text) else ():
        if match := pattern.match(text):
            return int(match[1]), text[match.end() :]
    match = _PREFACE.match(text)
    return None, text[match.end() :] if match else text


def decode_output(text: str) -> str:
    """Return a text, if it is Codex's early JSON envelope with the text envelope of later versions.

    So the output is text as a program printed it, its lines apart, and no exit code is lost.
    """
    if text[:1] != "{" or '"metadata"' not in text[-CLIP:]:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # an output that only looks like JSON
        return text
    if not isinstance(value, dict) or value.keys() != {"output", "metadata"}:
        return text
    body, about = value["output"], value["metadata"]
    code = about.get("exit_code") if isinstance(about, dict) else None
    if not isinstance(body, str) or not isinstance(code, int):
        return text
    seconds = about.get("duration_seconds")
    took = f"Wall time: {seconds} seconds\n" if isinstance(seconds, (int, float)) else ""
    return f"Exit code: {int(code)}\n{took}Output:\n{body}"


def plain(text: str) -> str:
    """Take the colours off a text."""
    return _ANSI.sub("", text)


def lines(text: str) -> list[str]:
    """Return the lines that hold something; of a great many short ones the first and last."""
    lines = [line[:1000].rstrip() for line in plain(text).split("\n") if line.strip()]
    return lines if len(lines) <= 2 * LINES else [*lines[:LINES], *lines[-LINES:]]


def _text(value: object, depth: int) -> str:
    if isinstance(value, str):
        return value if len(value) <= 2 * CLIP else f"{value[:CLIP]}\n{value[-CLIP:]}"
    parts: list[object] = []
    if isinstance(value, dict) and depth < _DEPTH:
        parts = [part for name in _TEXTS if (part := value.get(name))]
    elif isinstance(value, list) and depth < _DEPTH:
        parts = [*value[:32], *value[max(32, len(value) - 32) :]]
    return _text("\n".join(filter(None, (_text(part, depth + 1) for part in parts))), depth)


def _unescape(text: str) -> str:
    """Return the output in Codex's early JSON envelope, also when its middle was left out."""
    try:
        output = json.loads(text)["output"]
    except (ValueError, RecursionError, LookupError, TypeError):
        output = text.replace("\\n", "\n")
    return output if isinstance(output, str) else ""
