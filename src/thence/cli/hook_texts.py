"""Our commands in settings that are no JSON: tables in TOML, scripts, lists in YAML.

Each form has three functions: what commands are there, the text with ours, the text without. A
change leaves all other text as it is, and is refused where that cannot be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from thence.cli import toml_text, yaml_text
from thence.cli.file_changes import EditRefused

if TYPE_CHECKING:
    from pathlib import Path

    from thence.agents.profiles import HookFile

HookCommands = Iterator[tuple[str, str]]
"""Events, and what is run at each."""


class TextPlace(Protocol):
    """A file of settings that is no JSON."""

    @property
    def agent(self) -> str:
        """Return the name of the agent."""

    @property
    def path(self) -> Path:
        """Return where it lies."""

    @property
    def file(self) -> HookFile:
        """Return what the agent's profile says of it."""

    def is_ours(self, command: object) -> bool:
        """Return whether a command is ours."""


class TextForm(NamedTuple):
    """How commands stand in one kind of file."""

    commands: Callable[[TextPlace, str], HookCommands]
    add: Callable[[TextPlace, str, str], str]
    """The text with a command at every event."""
    drop: Callable[[TextPlace, str], str]
    """The text without our commands."""


def commands_in(place: TextPlace, body: bytes) -> HookCommands:
    """Yield the events of a file, with the command that is run at each."""
    yield from FORMS[place.file.form].commands(place, body.decode("utf-8", "replace"))


def install(place: TextPlace, body: bytes | None, command: str) -> bytes:
    """Return the file with our command at every event; those of another place are replaced."""
    form = FORMS[place.file.form]
    text = form.drop(place, (body or b"").decode())
    after = form.add(place, text, command)
    wanted = [*form.commands(place, text), *((event, command) for event in place.file.events)]
    if sorted(form.commands(place, after)) != sorted(wanted):
        raise _refused(place, "our commands cannot be read back")
    return after.encode()


def uninstall(place: TextPlace, body: bytes) -> bytes:
    """Return the file without our commands."""
    return FORMS[place.file.form].drop(place, body.decode()).encode()


def _refused(place: TextPlace, why: str) -> EditRefused:
    events = ", ".join(place.file.events)
    return EditRefused(f"{place.path}: {why}", hint=f"add the command yourself, at {events}")


# -- tables in TOML -------------------------------------------------------------------------


def _table_commands(place: TextPlace, text: str) -> HookCommands:
    try:
        tables = toml_text.parse(text).get("hooks", [])
    except (ValueError, RecursionError) as error:
        raise _refused(place, f"not TOML: {error}") from error
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise _refused(place, "hooks: not a list of tables")
    for table in tables:
        yield f"{table.get(place.file.event_name, '')}", f"{table.get('command', '')}"


def _add_tables(place: TextPlace, text: str, command: str) -> str:
    file = place.file
    for event in file.events:
        table = {file.event_name: event, "command": command, "timeout": file.timeout, **file.more}
        text = toml_text.with_table(text, ["hooks"], table, is_list=True)
    return text


def _drop_tables(place: TextPlace, text: str) -> str:
    def is_our_table(table: object) -> bool:
        return isinstance(table, dict) and place.is_ours(table.get("command"))

    try:
        return toml_text.without(text, ["hooks"], is_our_table)
    except toml_text.NotEditable as error:
        raise _refused(place, str(error)) from error


# -- a script per event ---------------------------------------------------------------------


def _script_commands(place: TextPlace, text: str) -> HookCommands:
    lines = text.splitlines()
    if lines:
        yield place.path.stem, lines[-1] if place.is_ours(lines[-1]) else text


def _add_script(place: TextPlace, text: str, command: str) -> str:
    if text.strip():
        raise EditRefused(
            f"{place.path} is a hook of yours", hint="give it another extension, then try again"
        )
    return (
        "#!/bin/sh\n# Tells thence that a session went on."
        f" `thence hook uninstall {place.agent}` removes it.\n{command}\n"
    )


def _drop_script(place: TextPlace, text: str) -> str:
    return "" if place.is_ours(text) else text


# -- lists in YAML --------------------------------------------------------------------------


def _yaml_commands(place: TextPlace, text: str) -> HookCommands:
    try:
        for event, entries in yaml_text.items(text, ["hooks"]):
            for entry in entries if isinstance(entries, list) else []:
                if isinstance(entry, dict):
                    yield event, f"{entry.get('command', '')}"
    except yaml_text.NotUnderstood as error:
        raise _refused(place, f"not understood: {error}") from error


def _add_yaml(place: TextPlace, text: str, command: str) -> str:
    entry = {"command": command, "timeout": place.file.timeout}
    try:
        for event in place.file.events:
            text = yaml_text.insert(text, ["hooks", event], entry)
    except yaml_text.NotUnderstood as error:
        raise _refused(place, f"not understood: {error}") from error
    return text


def _drop_yaml(place: TextPlace, text: str) -> str:
    try:
        for event, _ in yaml_text.items(text, ["hooks"]):
            text = yaml_text.remove(text, ["hooks", event], place.is_ours)
        text = yaml_text.remove(text, ["hooks"], lambda item: _is_our_list(place, item))
    except yaml_text.NotUnderstood as error:
        raise _refused(place, f"not understood: {error}") from error
    return text


def _is_our_list(place: TextPlace, item: str) -> bool:
    """Return whether an event and its list, in one line, hold our commands only."""
    try:
        entries = json.loads(item.partition(": ")[2])
    except ValueError:
        return False
    return bool(entries) and all(place.is_ours(json.dumps(entry)) for entry in entries)


FORMS: Final = {
    "tables": TextForm(_table_commands, _add_tables, _drop_tables),
    "script": TextForm(_script_commands, _add_script, _drop_script),
    "yaml": TextForm(_yaml_commands, _add_yaml, _drop_yaml),
}
