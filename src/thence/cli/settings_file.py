"""Changes of the user's config.toml that leave all other text as it is."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thence.cli.hooking import Edit, EditRefused

if TYPE_CHECKING:
    from thence.format.records import JSON

EXCLUDE = "session_memory.exclude"
_ASSIGNED = re.compile(r"^[ \t]*exclude[ \t]*=", re.MULTILINE)
_TABLE = re.compile(r"^[ \t]*\[[ \t]*session_memory[ \t]*\][^\n]*\n?", re.MULTILINE)


def with_exclude(path: Path, body: bytes, patterns: list[str]) -> bytes:
    """Return the settings with these patterns; all other text stays as it is."""
    text = body.decode()
    wanted: dict[str, JSON] = tomllib.loads(text)
    wanted = {**wanted, "session_memory": {**wanted.get("session_memory", {}), "exclude": patterns}}
    line = f"exclude = {json.dumps(patterns, ensure_ascii=False)}\n"
    for new in _tries(text, line):
        try:
            if tomllib.loads(new) == wanted:
                return new.encode()
        except tomllib.TOMLDecodeError:
            continue
    raise EditRefused(
        f"{path}: no safe place to write to", hint=f"add it yourself below [session_memory]: {line}"
    )


def _tries(text: str, line: str) -> Iterator[str]:
    """Yield texts that may say it: the line replaced, put into its table, or a table at the end."""
    for match in _ASSIGNED.finditer(text):
        end = match.end()
        while end < len(text):
            end = text.find("\n", end) + 1 or len(text)
            yield text[: match.start()] + line + text[end:]
    for match in _TABLE.finditer(text):
        gap = "" if match[0].endswith("\n") else "\n"
        yield text[: match.end()] + gap + line + text[match.end() :]
    gap = "" if not text or text.endswith("\n") else "\n"
    yield f"{text}{gap}[session_memory]\n{line}"


CADENCE = "session_memory.retention.cadence"
OURS = "  # set by thence hook install"
"""What stands behind the lines that we write for somebody, so that they can be taken out again."""
_HEADER = "[session_memory.retention]"
_RETENTION = re.compile(
    r"^[ \t]*\[[ \t]*session_memory[ \t]*\.[ \t]*retention[ \t]*\][^\n]*", re.MULTILINE
)


def with_sweeps_on_hook(path: Path, before: bytes | None) -> Edit:
    """Plan the line that lets hooks start sweeps, in settings that name no cadence."""
    text = (before or b"").decode()
    wanted = tomllib.loads(text)
    memory = wanted.get("session_memory", {})
    retention = {**memory.get("retention", {}), "cadence": "on-hook"}
    wanted = {**wanted, "session_memory": {**memory, "retention": retention}}
    line = f'cadence = "on-hook"{OURS}'
    tries = [
        f"{text[: match.end()]}\n{line}{text[match.end() :]}" for match in _RETENTION.finditer(text)
    ]
    gap, end = ("", "\n") if not text or text.endswith("\n") else ("\n", "")
    tries.append(f"{text}{gap}{_HEADER}{OURS}\n{line}{end}")
    for text_ in tries:
        if _parses_to(text_, wanted):
            return Edit(path, before, text_.encode())
    raise EditRefused(
        f"{path}: no safe place to write to",
        hint=f'add it yourself below {_HEADER}: cadence = "on-hook"',
    )


def without_sweeps_on_hook(path: Path, before: bytes | None) -> Edit:
    """Plan to take out the line that we wrote; one that somebody else wrote stays."""
    text = (before or b"").decode("utf-8", "replace")
    lines = text.splitlines(keepends=True)
    ours = [at for at, line in enumerate(lines) if line.rstrip().endswith(OURS.strip())]
    cadence = [at for at in ours if lines[at].lstrip().startswith("cadence")]
    if not cadence or not _parses_to(text):
        return Edit(path, before, before)
    wanted = tomllib.loads(text)
    del wanted["session_memory"]["retention"]["cadence"]
    for going in (ours, cadence):
        left = "".join(line for at, line in enumerate(lines) if at not in going)
        if not text.endswith("\n"):
            left = left.removesuffix("\n")
        if _parses_to(left) and _drop_empty_tables(tomllib.loads(left)) == _drop_empty_tables(
            wanted
        ):
            return Edit(path, before, left.encode() or None)
    return Edit(path, before, before)


def _parses_to(text: str, wanted: dict[str, JSON] | None = None) -> bool:
    """Whether a text is TOML, and says this if it is given."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return wanted is None or data == wanted


def _drop_empty_tables(data: dict[str, Any]) -> dict[str, Any]:
    """Return settings without the tables that hold nothing."""
    filled = {n: _drop_empty_tables(v) if isinstance(v, dict) else v for n, v in data.items()}
    return {name: value for name, value in filled.items() if value != {}}
