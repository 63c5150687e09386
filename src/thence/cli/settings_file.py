"""Changes of the user's config.toml that leave all other text as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thence.cli import toml_text
from thence.cli.file_changes import Edit, EditRefused

EXCLUDE = "session_memory.exclude"
CADENCE = "session_memory.retention.cadence"
OURS = "set by thence hook install"
"""The comment behind lines that we write for somebody, so that they can be taken out again."""


def with_exclude(path: Path, body: bytes, patterns: list[str]) -> bytes:
    """Return the settings with these patterns; all other text stays as it is."""
    return _with(path, body, EXCLUDE, patterns).encode()


def with_sweeps_on_hook(path: Path, before: bytes | None) -> Edit:
    """Plan the line that lets hooks start sweeps, in settings that name no cadence."""
    return Edit(path, before, _with(path, before or b"", CADENCE, "on-hook", OURS).encode())


def _with(path: Path, body: bytes, setting: str, value: Any, comment: str = "") -> str:
    try:
        return toml_text.with_value(body.decode(), setting.split("."), value, comment)
    except ValueError as error:
        table, _, name = setting.rpartition(".")
        raise EditRefused(
            f"{path}: {error}", hint=f"add it yourself below [{table}]: {name} = {value!r}"
        ) from error


def without_sweeps_on_hook(path: Path, before: bytes | None) -> Edit:
    """Plan to take out the lines that we wrote; those that somebody else wrote stay."""
    text, place = (before or b"").decode("utf-8", "replace"), CADENCE.split(".")
    try:
        for going in (place, place[:-1]):
            if toml_text.comment_of(text, going) == OURS:
                # The table only if it is empty: somebody may have set more in it.
                text = toml_text.without(text, going, _is_no_table, keep_comment=False)
    except ValueError:  # not TOML: nothing of it is ours to judge
        return Edit(path, before, before)
    return Edit(path, before, text.encode() or None)


def _is_no_table(value: object) -> bool:
    """Return whether a value is a plain one, or a table without any."""
    return not isinstance(value, dict) or not value
