"""Our lines in the agents' own settings: put in, found again, taken out.

An agent's profile names its files (`HookFile`). Most have lists of commands by event; one form is
`notify`, a program in a TOML file; a program that stands there already is run after ours. Others
are no JSON: each has three functions (`_FORMS`). There are two commands of ours: `capture` leaves a
nudge when a session went on, `brief` prints what the next session should know. Both name the
launcher of a home (`thence.cli.launcher`).

Invariants: a change is an `Edit`, made before anything is written, so that it can be shown; what
others put there stays; a file that says something we do not understand is refused, not mended.
The file as it was lies beside it until our lines are taken out, and comes back byte for byte
unless somebody else changed it meanwhile; then only our lines go.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from thence.cli import json_text, launcher, toml_text, yaml_text
from thence.cli.file_changes import Edit, EditRefused, backup_of, body_of

if TYPE_CHECKING:
    from thence.agents.profiles import HookFile

Role = Literal["capture", "brief"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
CAPTURE: Final[frozenset[Role]] = frozenset({"capture"})
BRIEF: Final[frozenset[Role]] = frozenset({"brief"})

_MARKS: Final[Mapping[Role, re.Pattern[str]]] = {
    # The first is how a command was written before there was a launcher.
    "capture": re.compile(rf"thence/cli/nudge\.py|bin/thence(?:'? |\", \"){launcher.NUDGE}\b"),
    "brief": re.compile(r"bin/thence'? brief --hook "),
}
"""What our commands are known by."""


class HookPlace(NamedTuple):
    """Where an agent is told whom to call."""

    agent: str
    path: Path
    file: HookFile
    roles: frozenset[Role] = CAPTURE
    """Which of our commands are meant; the other one stays as it is."""

    @property
    def events(self) -> tuple[str, ...]:
        """The events at which it is to call us."""
        return tuple(dict.fromkeys(event for _, event, _ in self.entries(Path("/"))))

    def entries(self, home: Path) -> Iterator[tuple[Role, str, dict[str, Any]]]:
        """Yield which command is to be run at which event, as it stands in the settings."""
        file = self.file
        if "capture" in self.roles:
            for event in file.events:
                command = command_of(self, home, "capture")
                yield "capture", event, _entry(file, command, file.timeout)
        if "brief" in self.roles and file.brief is not None:
            entry = _entry(file, command_of(self, home, "brief"), file.brief.timeout)
            matcher = file.brief.matcher
            yield "brief", file.brief.event, {"matcher": matcher, **entry} if matcher else entry

    def is_ours(self, command: object) -> bool:
        """Return whether a command is the one that leaves a nudge."""
        return is_ours(command, CAPTURE)

    @property
    def is_notify(self) -> bool:
        """Whether it is told of one program, whatever happens."""
        return self.file.form == "notify"

    @property
    def is_text(self) -> bool:
        """Whether it is no JSON and tells of commands by event."""
        return self.file.form in ("tables", "script", "yaml")


def place_in(
    root: Path, agent: str, file: HookFile, roles: Collection[Role] = CAPTURE
) -> HookPlace:
    """Return where an agent whose folder this is reads what to call."""
    return HookPlace(agent, root / file.path, file, frozenset(roles))


def program(agent: str, home: Path, role: Role = "capture") -> list[str]:
    """Return the command that leaves a nudge, or that prints the brief."""
    if role == "brief":
        return launcher.command(home, "brief", "--hook", agent)
    return launcher.command(home, launcher.NUDGE, agent, str(home))


def _entry(file: HookFile, command: str, timeout: int) -> dict[str, Any]:
    if file.command_name:
        return {"type": "command", file.command_name: command, "timeoutSec": timeout}
    return {"hooks": [{"type": "command", "command": command, "timeout": timeout}]}


# -- what is there --------------------------------------------------------------------------


class HookState(NamedTuple):
    """How our lines stand in an agent's settings."""

    installed: bool
    missing: tuple[str, ...] = ()
    """Events without us, though others have us."""
    elsewhere: bool = False
    """Some command of ours is of another Python, another home, or no longer there."""
    off: bool = False
    """The agent is told to run no hooks at all."""
    gone: str = ""
    """The program of a command of ours that is no longer there."""


def state(place: HookPlace, home: Path) -> HookState:
    """Look how our lines stand."""
    body = body_of(place.path)
    if body is None:
        return HookState(installed=False)
    if place.is_notify:
        return _notify_state(place, body, home)
    if place.is_text:
        return _text_state(place, body, home)
    return _json_state(place, body, home)


def _notify_state(place: HookPlace, body: bytes, home: Path) -> HookState:
    """Look how our program stands in `notify`."""
    notify = toml_of(place.path, body).get("notify") or []
    if not is_ours(notify, CAPTURE):
        return HookState(installed=False)
    then = _previous_program(notify)
    is_same = notify == [*_notify(place, home, then), *then]
    return HookState(installed=True, elsewhere=not is_same, gone=_gone(notify))


def _json_state(place: HookPlace, body: bytes, home: Path) -> HookState:
    """Look how our commands stand in lists by event."""
    data = json_of(place.path, body)
    ours_by_event = {
        event: [entry for entry in entries if _is_our_entry(entry, place.roles)]
        for event, entries in _events(place.path, data)
    }
    commands = [c for entries in ours_by_event.values() for c in _commands(entries)]
    mine = [c for c in commands if isinstance(c, str) and is_ours(c, place.roles)]
    wanted = {role: command_of(place, home, role) for role in place.roles}
    missing = tuple(
        event
        for role, event, _ in place.entries(home)
        if not any(is_ours(c, {role}) for c in _commands(ours_by_event.get(event, [])))
    )
    return HookState(
        installed=bool(mine),
        missing=missing if mine else (),
        elsewhere=any(c not in wanted.values() for c in mine),
        off=data.get("disableAllHooks") is True,
        gone=next(filter(None, map(_gone, mine)), ""),
    )


def _text_state(place: HookPlace, body: bytes, home: Path) -> HookState:
    """Look how our lines stand in a file that is no JSON."""
    commands = [
        (event, command)
        for event, command in _FORMS[place.file.form].commands(
            place, body.decode("utf-8", "replace")
        )
        if is_ours(command, place.roles)
    ]
    there = {event for event, _ in commands}
    return HookState(
        installed=bool(commands),
        missing=tuple(event for event in place.events if event not in there) if there else (),
        elsewhere=any(c != command_of(place, home, "capture") for _, c in commands),
        gone=next(filter(None, (_gone(command) for _, command in commands)), ""),
    )


def _gone(command: str | list[str]) -> str:
    """Return the program of a command of ours if it is no longer there."""
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command)
    except ValueError:
        return ""
    if words[:2] == ["/bin/sh", "-c"]:
        return _gone(words[2].removeprefix(_SHELL_START))
    return words[0] if words and not os.access(words[0], os.X_OK) else ""


# -- putting in and taking out --------------------------------------------------------------


def install(place: HookPlace, home: Path) -> Edit:
    """Plan how our lines come in; no change where they are there already."""
    body = body_of(place.path)
    now = state(place, home)
    if now.installed and not now.missing and not now.elsewhere:
        return Edit(place.path, body, body)
    if place.is_notify:
        return Edit(place.path, body, _with_notify(place, body or b"", home))
    if place.is_text:
        command = command_of(place, home, "capture")
        return Edit(place.path, body, _install_text(place, body, command))
    data = json_of(place.path, body) if body and body.strip() else {**place.file.more}
    _without(place, data)
    cleared = _json_text(data, body) if body and now.installed else body
    hooks = data.setdefault("hooks", {})
    for _, event, entry in place.entries(home):
        hooks.setdefault(event, []).append(entry)
    return Edit(place.path, body, _json_text(data, cleared))


def uninstall(place: HookPlace, home: Path) -> Edit:
    """Plan how our lines go: the file as it was, if nobody else changed it since."""
    body = body_of(place.path)
    if body is None or not state(place, home).installed:
        return Edit(place.path, body, body)
    before = body_of(backup_of(place.path))
    if place.is_notify:
        return Edit(place.path, body, _without_notify(place, body, before))
    if place.is_text:
        after = _FORMS[place.file.form].drop(place, body.decode()).encode()
        is_new = before is None and not after.strip()
        return Edit(place.path, body, None if is_new else after)
    data = json_of(place.path, body)
    _without(place, data)
    # Nobody else changed it since: the very bytes that were there come back.
    if before is not None and _same_json(data, before):
        return Edit(place.path, body, before)
    # Nothing else in it and no copy beside it: the file was made by us.
    if before is None and data in ({}, place.file.more):
        return Edit(place.path, body, None)
    return Edit(place.path, body, _json_text(data, body))


def has_ours(body: bytes | None) -> bool:
    """Return whether a command of ours is in a file of settings."""
    text = (body or b"").decode("utf-8", "replace")
    return any(mark.search(text) for mark in _MARKS.values())


# -- lists of commands by event -------------------------------------------------------------


def command_of(place: HookPlace, home: Path, role: Role) -> str:
    """Return our command as the agent is told of it."""
    line = shlex.join(program(place.agent, home, role))
    # Where a shell runs it: should the launcher be gone some day, no session is disturbed.
    return f"{line} 2>/dev/null || :" if place.file.has_shell else line


def is_ours(command: object, roles: Collection[Role]) -> bool:
    """Return whether a command is one of ours, with one of these roles."""
    if isinstance(command, list):
        words = [part for part in command[:6] if isinstance(part, str)]
        return any(is_ours(part, roles) for part in (*words, shlex.join(words)))
    return isinstance(command, str) and any(_MARKS[role].search(command) for role in roles)


def _is_our_entry(entry: Any, roles: Collection[Role]) -> bool:
    return any(is_ours(command, roles) for command in _commands([entry]))


def json_of(path: Path, body: bytes) -> dict[str, Any]:
    """Read settings in JSON, or refuse them; in an empty file nothing is set."""
    if not body.strip():
        return {}
    try:
        data = json.loads(body, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise EditRefused(
            f"{path}: not valid JSON: {error}", hint="fix it, then try again"
        ) from error
    if not isinstance(data, dict):
        raise EditRefused(f"{path}: not an object", hint="it should start with {")
    return data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a name that stands twice: one of the two would be lost."""
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return out


def _events(path: Path, data: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    hooks = data.get("hooks", {})
    if not isinstance(hooks, dict) or not all(
        isinstance(entries, list) for entries in hooks.values()
    ):
        raise EditRefused(
            f"{path}: hooks: not lists by event", hint="see the agent's own documentation"
        )
    yield from hooks.items()


def _commands(entries: list[Any]) -> Iterator[object]:
    for entry in entries:
        hooks = entry.get("hooks", [entry]) if isinstance(entry, dict) else None
        for hook in hooks if isinstance(hooks, list) else ():
            yield hook.get("command", hook.get("bash")) if isinstance(hook, dict) else None


def _without(place: HookPlace, data: dict[str, Any]) -> None:
    """Take our commands out, and what is empty only because of that."""
    for event, entries in list(_events(place.path, data)):
        left = []
        for entry in entries:
            if _is_our_entry(entry, place.roles):
                # Somebody may have put a command of theirs into our entry: it stays.
                rest = [
                    hook
                    for hook in entry.get("hooks", ())
                    if not _is_our_entry({"hooks": [hook]}, place.roles)
                ]
                if rest:
                    left.append({**entry, "hooks": rest})
            else:
                left.append(entry)
        if left == entries:
            continue
        data["hooks"][event] = left
        if not left:
            del data["hooks"][event]
        if not data["hooks"]:
            del data["hooks"]


def _json_text(data: dict[str, Any], body: bytes | None) -> bytes:
    """Return the file changed in place so that it says this, or made anew where that cannot be."""
    if not (body or b"").strip():
        return _format_json(data, body)
    after = json_text.edit((body or b"").decode(), data).encode()
    return after if json.loads(after) == data else _format_json(data, body)


def _same_json(data: dict[str, Any], body: bytes) -> bool:
    try:
        before = json.loads(body) if body.strip() else {}
    except ValueError:
        return False
    # An empty list of hooks that was there before went with ours.
    return bool(data == before or data == _prune(before))


def _prune(data: Any) -> Any:
    if not isinstance(data, dict) or not isinstance(data.get("hooks"), dict):
        return data
    hooks = {event: entries for event, entries in data["hooks"].items() if entries}
    rest = {name: value for name, value in data.items() if name != "hooks"}
    return {**rest, "hooks": hooks} if hooks else rest


def _format_json(data: dict[str, Any], like: bytes | None) -> bytes:
    """Write JSON the way the file was written."""
    text = (like or b"").decode("utf-8", "replace")
    indent = re.search(r"\{\r?\n([ \t]+)\"", text)
    step: str | int = indent[1] if indent else 2
    out = json.dumps(data, indent=step, ensure_ascii=False)
    return (out + ("\n" if like is None or text.endswith("\n") else "")).encode()


# -- notify ---------------------------------------------------------------------------------

BOM: Final = toml_text.BOM
_SHELL_START: Final = "for said; do :; done; "
THEN: Final = "--then"
"""What stands between our part of `notify` and the program that was there before."""


def toml_of(path: Path, body: bytes) -> dict[str, Any]:
    """Read settings in TOML, or refuse them."""
    try:
        return toml_text.parse(body.decode())
    except (ValueError, RecursionError) as error:
        raise EditRefused(f"{path}: not TOML: {error}", hint="fix it, then try again") from error


def _notify(place: HookPlace, home: Path, then: list[str]) -> list[str]:
    """Return our part of `notify`: the whole of it, or what stands before the user's own program.

    The agent gives what it says as the last argument. A shell runs our program and then becomes the
    user's own, which so does not depend on whether this Python is still there.
    """
    ours = program(place.agent, home)
    if not then:
        return ours
    script = _SHELL_START + '{} "$said" </dev/null >/dev/null 2>&1; exec "$@"'
    return ["/bin/sh", "-c", script.format(shlex.join(ours)), THEN]


def _with_notify(place: HookPlace, body: bytes, home: Path) -> bytes:
    """Return the file with our program as `notify`, before one that is there already."""
    notify = toml_of(place.path, body).get("notify")
    if notify is not None and not _is_texts(notify):
        raise EditRefused(
            f"{place.path}: notify: not a list of strings", hint="fix it, then try again"
        )
    if notify and is_ours(notify, CAPTURE):
        body = _clear_notify(place, body)
        notify = _previous_program(notify)
    then = notify or []
    ours, text = _notify(place, home, then), body.decode()
    with _editing_notify(place, [*ours, *then]):
        if then:
            return toml_text.with_first(text, ["notify"], ours).encode()
        return toml_text.with_value(text, ["notify"], ours).encode()


def _without_notify(place: HookPlace, body: bytes, before: bytes | None) -> bytes | None:
    after = _clear_notify(place, body)
    if before is not None and toml_of(place.path, after) == toml_of(place.path, before):
        return before
    return None if before is None and not after.strip() else after


def _clear_notify(place: HookPlace, body: bytes) -> bytes:
    """Return the file without our part of `notify`."""
    then = _previous_program(toml_of(place.path, body).get("notify"))
    text = body.decode()
    with _editing_notify(place, then):
        if then:
            return toml_text.without_first(text, ["notify"], THEN).encode()
        return toml_text.without(text, ["notify"]).encode()


def _previous_program(notify: Any) -> list[str]:
    """Return the program that was there before ours."""
    return notify[notify.index(THEN) + 1 :] if THEN in notify else []


@contextlib.contextmanager
def _editing_notify(place: HookPlace, value: list[str]) -> Iterator[None]:
    """Raise EditRefused with what to write by hand where the settings cannot be edited."""
    try:
        yield
    except toml_text.NotEditable as error:
        line = f"notify = {json.dumps(value, ensure_ascii=False)}" if value else "no notify"
        raise EditRefused(
            f"{place.path}: notify: {error}",
            hint=f"add it yourself, above the first [table]: {line}",
        ) from error


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


# -- settings that are no JSON ----------------------------------------------------------------

HookCommands = Iterator[tuple[str, str]]
"""Events, and what is run at each."""


class _TextForm(NamedTuple):
    """How commands stand in one kind of file."""

    commands: Callable[[HookPlace, str], HookCommands]
    add: Callable[[HookPlace, str, str], str]
    """The text with a command at every event."""
    drop: Callable[[HookPlace, str], str]
    """The text without our commands."""


def _install_text(place: HookPlace, body: bytes | None, command: str) -> bytes:
    """Return the file with our command at every event; those of another place are replaced."""
    form = _FORMS[place.file.form]
    text = form.drop(place, (body or b"").decode())
    after = form.add(place, text, command)
    wanted = [*form.commands(place, text), *((event, command) for event in place.file.events)]
    if sorted(form.commands(place, after)) != sorted(wanted):
        raise _refused(place, "our commands cannot be read back")
    return after.encode()


def _refused(place: HookPlace, why: str) -> EditRefused:
    events = ", ".join(place.file.events)
    return EditRefused(f"{place.path}: {why}", hint=f"add the command yourself, at {events}")


# -- tables in TOML -------------------------------------------------------------------------


def _table_commands(place: HookPlace, text: str) -> HookCommands:
    try:
        tables = toml_text.parse(text).get("hooks", [])
    except (ValueError, RecursionError) as error:
        raise _refused(place, f"not TOML: {error}") from error
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise _refused(place, "hooks: not a list of tables")
    for table in tables:
        yield f"{table.get(place.file.event_name, '')}", f"{table.get('command', '')}"


def _add_tables(place: HookPlace, text: str, command: str) -> str:
    file = place.file
    for event in file.events:
        table = {file.event_name: event, "command": command, "timeout": file.timeout, **file.more}
        text = toml_text.with_table(text, ["hooks"], table, is_list=True)
    return text


def _drop_tables(place: HookPlace, text: str) -> str:
    def is_our_table(table: object) -> bool:
        return isinstance(table, dict) and place.is_ours(table.get("command"))

    try:
        return toml_text.without(text, ["hooks"], is_our_table)
    except toml_text.NotEditable as error:
        raise _refused(place, str(error)) from error


# -- a script per event ---------------------------------------------------------------------


def _script_commands(place: HookPlace, text: str) -> HookCommands:
    lines = text.splitlines()
    if lines:
        yield place.path.stem, lines[-1] if place.is_ours(lines[-1]) else text


def _add_script(place: HookPlace, text: str, command: str) -> str:
    if text.strip():
        raise EditRefused(
            f"{place.path} is a hook of yours", hint="give it another extension, then try again"
        )
    return (
        "#!/bin/sh\n# Tells thence that a session went on."
        f" `thence hook uninstall {place.agent}` removes it.\n{command}\n"
    )


def _drop_script(place: HookPlace, text: str) -> str:
    return "" if place.is_ours(text) else text


# -- lists in YAML --------------------------------------------------------------------------


def _yaml_commands(place: HookPlace, text: str) -> HookCommands:
    try:
        for event, entries in yaml_text.items(text, ["hooks"]):
            for entry in entries if isinstance(entries, list) else []:
                if isinstance(entry, dict):
                    yield event, f"{entry.get('command', '')}"
    except yaml_text.NotUnderstood as error:
        raise _refused(place, f"not understood: {error}") from error


def _add_yaml(place: HookPlace, text: str, command: str) -> str:
    entry = {"command": command, "timeout": place.file.timeout}
    try:
        for event in place.file.events:
            text = yaml_text.insert(text, ["hooks", event], entry)
    except yaml_text.NotUnderstood as error:
        raise _refused(place, f"not understood: {error}") from error
    return text


def _drop_yaml(place: HookPlace, text: str) -> str:
    try:
        for event, _ in yaml_text.items(text, ["hooks"]):
            text = yaml_text.remove(text, ["hooks", event], place.is_ours)
        text = yaml_text.remove(text, ["hooks"], lambda item: _is_our_list(place, item))
    except yaml_text.NotUnderstood as error:
        raise _refused(place, f"not understood: {error}") from error
    return text


def _is_our_list(place: HookPlace, item: str) -> bool:
    """Return whether an event and its list, in one line, hold our commands only."""
    try:
        entries = json.loads(item.partition(": ")[2])
    except ValueError:
        return False
    return bool(entries) and all(place.is_ours(json.dumps(entry)) for entry in entries)


_FORMS: Final = {
    "tables": _TextForm(_table_commands, _add_tables, _drop_tables),
    "script": _TextForm(_script_commands, _add_script, _drop_script),
    "yaml": _TextForm(_yaml_commands, _add_yaml, _drop_yaml),
}
