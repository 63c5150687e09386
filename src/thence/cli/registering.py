"""Our MCP server in the agents' own settings: put in, found again, taken out.

Claude Code has servers in its `.claude.json`, Codex and Grok in `config.toml`. These files hold
more than settings: so only our own lines are ever shown, no copy is left lying about, and the text
around our entry stays byte for byte. A change is made of the text, read back, and must then say
what it should and nothing else; a file in which that cannot be done is refused, not mended.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from thence.cli import hooking, processes
from thence.cli.hooking import Refused

NAME: Final = "thence"
PATIENCE: Final = 60
"""Seconds that an agent waits for the server, where it lets itself be told: on a busy machine the
package that speaks MCP takes longer to load than the ten that are usual."""
_TABLE: Final = re.compile(rf"^[ \t]*\[mcp_servers\.{NAME}\][ \t]*$", re.MULTILINE)
_ENTRY: Final = re.compile(rf'"{NAME}"[ \t\r\n]*:[ \t\r\n]*(?=\{{)')
_SERVERS: Final = re.compile(r'"mcpServers"[ \t\r\n]*:[ \t\r\n]*\{')


class Place(NamedTuple):
    """Where an agent is told of servers."""

    agent: str
    path: Path

    @property
    def key(self) -> str:
        """The name under which servers stand there."""
        return "mcpServers" if self.agent == "claude" else "mcp_servers"


class Change(NamedTuple):
    """A file before and after, and the lines of ours that come or go."""

    path: Path
    before: bytes | None
    after: bytes | None
    shown: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether anything would be written."""
        return self.before != self.after

    def diff(self) -> Iterator[str]:
        """Show our lines, and nobody else's."""
        if self.changes:
            yield f"--- {self.path}"
            yield f"+++ {self.path}"
            yield from self.shown


def entry(home: Path, usual: Path) -> dict[str, Any]:
    """Give how the server of a home is started."""
    command, *args = processes.thence("mcp")
    told: dict[str, Any] = {"command": command, "args": args}
    return told if home == usual else {**told, "env": {"THENCE_HOME": str(home)}}


def state(place: Place, wanted: dict[str, Any]) -> str:
    """Say how it stands: `none`, `installed`, or `elsewhere` for one of another place."""
    found = _found(place)
    if found is None:
        return "none"
    return "installed" if _meant(found) == _meant(wanted) else "elsewhere"


def _found(place: Place) -> Any:
    return _servers(place, _read(place, hooking.body_of(place.path))).get(NAME)


def _meant(told: Any) -> tuple[Any, ...]:
    """What of an entry says which server it starts; agents and users may add to the rest."""
    if not isinstance(told, dict):
        return ()
    env = told.get("env")
    home = env.get("THENCE_HOME") if isinstance(env, dict) else None
    return told.get("command"), told.get("args"), home


def install(place: Place, wanted: dict[str, Any]) -> Change:
    """Plan how our entry comes in; no change where it is there already."""
    before = hooking.body_of(place.path)
    now = state(place, wanted)
    if now == "installed":
        return Change(place.path, before, before)
    cleared = _without(place, before) if now == "elsewhere" else before
    after, shown = _with(place, cleared, wanted)
    return Change(place.path, before, after, tuple(f"+{line}" for line in shown))


def uninstall(place: Place) -> Change:
    """Plan how our entry goes, whichever place it is of."""
    before = hooking.body_of(place.path)
    found = _found(place)
    if found is None:
        return Change(place.path, before, before)
    command, args, _ = _meant(found) or (None, None, None)
    shown = f"-{place.key}: {NAME}: {json.dumps(command)} {json.dumps(args)}"
    return Change(place.path, before, _without(place, before), (shown,))


def carry_out(change: Change) -> None:
    """Write a change whole or not at all."""
    path = change.path.resolve()
    if hooking.body_of(change.path) != change.before:
        raise Refused(f"{change.path} was changed meanwhile", hint="do it again")
    if not change.changes:
        return
    if change.after is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    mode = path.stat().st_mode & 0o7777 if change.before is not None else 0o600
    hooking.write(path, change.after, mode)


# -- reading --------------------------------------------------------------------------------


def _read(place: Place, body: bytes | None) -> dict[str, Any]:
    if not (body or b"").strip():
        return {}
    return (hooking.json_of if place.agent == "claude" else hooking.toml_of)(
        place.path, body or b""
    )


def _servers(place: Place, data: dict[str, Any]) -> dict[str, Any]:
    found = data.get(place.key, {})
    if not isinstance(found, dict):
        raise Refused(f"{place.path}: {place.key}: no table", hint="mend it, then try again")
    return found


# -- putting in -----------------------------------------------------------------------------


def _with(place: Place, body: bytes | None, told: dict[str, Any]) -> tuple[bytes, list[str]]:
    """Return the text with our entry, and the entry's own lines.

    A file that ends without a newline still does, and one that was empty: so that it can be told
    from one that was not there.
    """
    if place.agent != "claude":
        told = {**told, "startup_timeout_sec": PATIENCE}
    data = _read(place, body)
    wanted = {**data, place.key: {**_servers(place, data), NAME: told}}
    text = (body or b"").decode()
    end = "\n" if body is None or text.endswith("\n") else ""
    if place.agent == "claude":
        shown = json.dumps({NAME: told}, indent=2).splitlines()[1:-1]
        tries = _into_json(text, told, end)
    else:
        shown = _table(told)
        gap = "" if not text.strip() else "\n" if end else "\n\n"
        tries = iter([text + gap + "\n".join(shown) + end])
    return _checked(place, tries, wanted), shown


def _into_json(text: str, told: dict[str, Any], end: str) -> Iterator[str]:
    entry_ = f'"{NAME}": {json.dumps(told)}'
    if not text.strip():
        yield f'{{\n  "mcpServers": {{\n    {entry_}\n  }}\n}}{end}'
        return
    for found in _SERVERS.finditer(text):
        rest = text[found.end() :]
        comma = "" if rest.lstrip().startswith("}") else ","
        yield f"{text[: found.end()]}\n    {entry_}{comma}{rest}"
    first = text.index("{") + 1
    comma = "" if text[first:].lstrip().startswith("}") else ","
    yield f'{text[:first]}\n  "mcpServers": {{\n    {entry_}\n  }}{comma}{text[first:]}'


def _table(told: dict[str, Any]) -> list[str]:
    out = [f"[mcp_servers.{NAME}]"]
    out += [
        f"{name} = {json.dumps(told[name])}" for name in ("command", "args", "startup_timeout_sec")
    ]
    if env := told.get("env"):
        pairs = ", ".join(f"{name} = {json.dumps(value)}" for name, value in env.items())
        out.append(f"env = {{ {pairs} }}")
    return out


# -- taking out -----------------------------------------------------------------------------


def _without(place: Place, body: bytes | None) -> bytes | None:
    """Return the text without our entry; None for a file in which nothing else ever was."""
    entry_ = _found(place)
    if isinstance(entry_, dict) and {"command", "args"} <= entry_.keys():
        ours = {name: told for name, told in entry_.items() if name != "startup_timeout_sec"}
        for was in (None, b""):
            if body == _with(place, was, ours)[0]:
                return was
    data = _read(place, body)
    rest = {name: told for name, told in _servers(place, data).items() if name != NAME}
    wanted = {**data, place.key: rest}
    bare = {name: told for name, told in data.items() if name != place.key}
    text = (body or b"").decode()
    tries = list(_out_of_json(text) if place.agent == "claude" else _out_of_toml(text))
    return _checked(place, iter(tries), *([wanted, bare] if not rest else [wanted]))


def _out_of_json(text: str) -> Iterator[str]:
    """Give the text without an entry of our name: with what was made for it, or only itself."""
    for found in _ENTRY.finditer(text):
        _, end = json.JSONDecoder().raw_decode(text, found.end())
        before, after = text[: found.start()], text[end:]
        alone = _SERVERS.search(before)
        if alone and not before[alone.end() :].strip() and after.lstrip().startswith("}"):
            head, tail = before[: alone.start()].rstrip(), after.lstrip()[1:]
            tail = tail.removeprefix(",")
            yield head + tail
            yield head.removesuffix(",") + tail
        if after.lstrip().startswith(","):
            yield before.rstrip(" \t\r\n") + after.lstrip()[1:]
        yield before.rstrip().removesuffix(",") + after


def _out_of_toml(text: str) -> Iterator[str]:
    for found in _TABLE.finditer(text):
        end = len(text)
        for line in re.finditer(r"^[ \t]*\[", text[found.end() :], re.MULTILINE):
            start = found.end() + line.start()
            if not re.match(rf"[ \t]*\[mcp_servers\.{NAME}\.", text[start:]):
                end = start
                break
        before = text[: found.start()]
        if end == len(text) and not text.endswith("\n"):
            yield before.removesuffix("\n\n")
        yield (before[:-1] if before.endswith("\n\n") else before) + text[end:]
        yield before.removesuffix("\n\n") + text[end:]


def _checked(place: Place, tries: Iterator[str], *wanted: dict[str, Any]) -> bytes:
    """Give the first text that says what it should and nothing else."""
    for text in tries:
        try:
            bare = text.removeprefix(hooking.BOM)
            data = json.loads(bare or "{}") if place.agent == "claude" else tomllib.loads(bare)
        except ValueError:
            continue
        if any(data == one for one in wanted):
            return text.encode()
    raise Refused(
        f"{place.path}: cannot tell where {place.key} stands",
        hint=f"write or remove the entry {NAME!r} yourself",
    )
