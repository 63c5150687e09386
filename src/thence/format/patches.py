"""What a patch or an edit does to files: the apply_patch format, read without applying it. Pure.

Invariants: nothing raises; time is linear; outside `*** Begin Patch` and `*** End Patch` nothing
counts.
"""

from __future__ import annotations

import re

import msgspec

from thence.format.expressions import expression


class Touch(msgspec.Struct, frozen=True):
    """One file a call changes or reads.

    `add` gives the whole content (a new file, or one replaced); a move is two touches, `move` of
    the old path and `add` of the new one. Lines are None where the input does not tell.
    """

    path: str
    how: str
    added: int | None = None
    removed: int | None = None


class Change(msgspec.Struct, frozen=True):
    """What a call does to one file: a text and the one in its place, or the lines of a patch."""

    path: str
    how: str
    before: str = ""
    after: str = ""
    patch: tuple[str, ...] = ()


_HOWS = {"Add": "add", "Update": "edit", "Delete": "delete"}
_PATCH_FILE = expression(r"\*\*\* (Add|Update|Delete) File: (.+)")
_PATCH_LITERAL = expression(r'"(\*\*\* Begin Patch(?:[^"\\]|\\.)*+)"', re.DOTALL)


def unquote_patch(text: str) -> str:
    """Return the text of a patch: the text itself, or the one quoted in a code-mode script."""
    literal = None if text.lstrip().startswith("***") else _PATCH_LITERAL.search(text)
    return literal[1].replace("\\n", "\n") if literal else text


def changes_in(text: str) -> list[Change]:
    """Part apply_patch texts into their files, each with its lines."""
    patches: list[tuple[str, str, list[str]]] = []
    inside = False
    for line in text[max(0, text.find("*** Begin Patch")) :].split("\n"):
        if head := _PATCH_FILE.match(line):
            patches.append((head[2].strip(), _HOWS[head[1]], []))
            inside = True
        elif line.startswith("*** End Patch"):
            inside = False
        elif inside and not line.startswith("*** "):
            patches[-1][2].append(line)
    return [Change(path, how, patch=tuple(lines)) for path, how, lines in patches]


def touches_in(text: str) -> list[Touch]:
    """Read the files of one or more apply_patch texts; outside Begin and End nothing counts."""
    touches: list[Touch] = []
    path, how, target, added, removed = "", "", "", 0, 0
    for line in [*text[max(0, text.find("*** Begin Patch")) :].split("\n"), "*** End Patch"]:
        head = _PATCH_FILE.match(line)
        if path and (head or line.startswith("*** End Patch")):
            if target:
                touches += [Touch(path, "move"), Touch(target, "add", added, removed)]
            else:
                counts = () if how == "delete" else (added, removed if how == "edit" else 0)
                touches.append(Touch(path, how, *counts))
            path = ""
        if head:
            path, how, target = head[2].strip(), _HOWS[head[1]], ""
            added = removed = 0
        elif line.startswith("*** Move to: "):
            target = line[13:].strip()
        else:
            added, removed = added + line.startswith("+"), removed + line.startswith("-")
    return touches
