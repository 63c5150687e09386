"""Completion in the user's shell: the script, and the line that loads it.

The script lies in the home, so that a shell starts no program of ours to get it. The line is known
by its mark; the file of the shell comes back byte for byte when the line goes.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path, PurePath
from typing import Final

from thence.cli.file_changes import Edit, backup_of, body_of

MARK: Final = "# thence completion"
SHELLS: Final = ("bash", "fish", "zsh")


def script(shell: str) -> str:
    """Return what a shell needs to complete our commands."""
    from click.shell_completion import get_completion_class

    from thence.cli import thence

    made = get_completion_class(shell)
    assert made is not None, shell  # noqa: S101 - SHELLS names those that click knows
    return made(thence, {}, "thence", "_THENCE_COMPLETE").source()


def own_shell() -> str | None:
    """Return the shell of this user, if completion is known for it."""
    name = PurePath(os.environ.get("SHELL", "")).name
    return name if name in SHELLS else None


def install(shell: str, home: Path) -> list[Edit]:
    """Plan how completion comes into a shell."""
    path, body = _script_path(shell, home), script(shell).encode()
    edits = [Edit(path, body_of(path), body)]
    if (settings := _settings(shell)) is not None:
        before = body_of(settings)
        after = _without_line(before or b"", path)
        edits.append(Edit(settings, before, _with_line(after, path)))
    return edits


def uninstall(shell: str, home: Path) -> list[Edit]:
    """Plan how it goes."""
    path = _script_path(shell, home)
    edits = [Edit(path, body_of(path), None)]
    if (settings := _settings(shell)) is not None:
        before = body_of(settings)
        after = _without_line(before, path) if before is not None else None
        is_ours = not after and body_of(backup_of(settings)) is None
        edits.append(Edit(settings, before, None if is_ours else after))
    return [edit for edit in edits if edit.changes]


def _script_path(shell: str, home: Path) -> Path:
    if shell == "fish":
        base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        return Path(base) / "fish" / "completions" / "thence.fish"
    return home / f"completion.{shell}"


def _settings(shell: str) -> Path | None:
    """Return the file in which a shell is told what to load; fish looks by itself."""
    if shell == "fish":
        return None
    folder = os.environ.get("ZDOTDIR") if shell == "zsh" else None
    return (Path(folder) if folder else Path.home()) / f".{shell}rc"


def _line(path: Path) -> bytes:
    name = shlex.quote(str(path))
    return f"[ -f {name} ] && . {name} {MARK}".encode()


def _with_line(body: bytes, path: Path) -> bytes:
    """Return the text with our line; one that ends without a newline still does."""
    if body and not body.endswith(b"\n"):
        return body + b"\n" + _line(path)
    return body + _line(path) + b"\n"


def _without_line(body: bytes, path: Path) -> bytes:
    line = _line(path)
    if body.endswith(b"\n" + line):
        return body.removesuffix(b"\n" + line)
    return body.replace(line + b"\n", b"")
