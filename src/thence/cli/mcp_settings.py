"""Our MCP server in the agents' own settings: put in, found again, taken out.

An agent's profile names its file (`ServerFile`): JSON, TOML or YAML. These files hold more than
settings: so only our own lines are ever shown, no copy is left lying about, and the text around our
entry stays byte for byte. A change is made of the text, read back, and must then say
what it should and nothing else; a file in which that cannot be done is refused, not mended.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from thence.cli import hook_settings, json_text, launcher, options, toml_text, wiring, yaml_text
from thence.cli.file_changes import Edit, EditRefused, body_of

if TYPE_CHECKING:
    from thence.agents.profiles import ServerFile

NAME: Final = "thence"
NAMES: Final = options.AgentName("servers")


class ServerPlace(NamedTuple):
    """Where an agent is told of servers."""

    agent: str
    path: Path
    file: ServerFile

    @property
    def key(self) -> str:
        """The name under which servers stand there."""
        return self.file.key

    @property
    def is_json(self) -> bool:
        """Whether it is written in JSON."""
        return self.file.form == "json"


def server_entry(home: Path, usual: Path) -> dict[str, Any]:
    """Return how the server of a home is started."""
    command, *args = launcher.command(home, "mcp")
    out: dict[str, Any] = {"command": command, "args": args}
    return out if home == usual else {**out, "env": {"THENCE_HOME": str(home)}}


def own_entry() -> dict[str, Any]:
    """Return how the server of this home is started."""
    return server_entry(wiring.home(), Path.home() / ".thence")


def place_of(name: str) -> ServerPlace:
    """Return where an agent of this machine is told of servers."""
    profile = wiring.agents()[name].profile
    file = profile.servers
    assert file is not None  # noqa: S101 - only such agents are named
    if file.is_beside:
        named = os.environ.get(profile.home_variable, "").partition(",")[0].strip()
        folder = Path(named).expanduser() if named else Path.home()
    else:
        folder = wiring.settings_folder(wiring.agents()[name], file)
    return ServerPlace(name, folder / file.path, file)


def present() -> list[str]:
    """Return the agents that are on this machine."""
    here = wiring.agents_here("servers")
    return [name for name in NAMES.names() if name in here or place_of(name).path.exists()]


def removals(agents: Sequence[str]) -> list[tuple[str, Edit]]:
    """Plan to take the server out, wherever it is."""
    return [(agent, uninstall(place_of(agent))) for agent in agents]


def state(place: ServerPlace, wanted: dict[str, Any]) -> str:
    """Say how it stands: `none`, `installed`, or `elsewhere` for one of another place."""
    entry = _read_entry(place)
    if entry is None:
        return "none"
    return "installed" if _server_of(place, entry) == _wanted_server(wanted) else "elsewhere"


def _read_entry(place: ServerPlace) -> Any:
    return _servers(place, _read(place, body_of(place.path))).get(NAME)


def _wanted_server(wanted: dict[str, Any]) -> tuple[Any, ...]:
    return wanted["command"], wanted["args"], wanted.get("env", {}).get("THENCE_HOME")


def _server_of(place: ServerPlace, entry: Any) -> tuple[Any, ...]:
    """Return what of an entry says which server it starts; anybody may add to the rest."""
    if not isinstance(entry, dict):
        return ()
    names = place.file.renamed
    env = entry.get(names.get("env", "env"), entry.get("environment"))
    home = env.get("THENCE_HOME") if isinstance(env, dict) else None
    command = entry.get(names.get("command", "command"))
    if isinstance(command, list):
        return command[0] if command else None, command[1:], home
    return command, entry.get(names.get("args", "args")), home


def _entry_of(place: ServerPlace, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return an entry the way a file has it."""
    if not place.file.is_command_list:
        name = {"name": NAME} if place.file.is_list else {}
        renamed = {place.file.renamed.get(key, key): value for key, value in wanted.items()}
        return {**name, **renamed, **place.file.more}
    out: dict[str, Any] = {"command": [wanted["command"], *wanted["args"]]}
    return out | ({"environment": wanted["env"]} if "env" in wanted else {}) | place.file.more


def _wanted_of(place: ServerPlace, entry: Any) -> dict[str, Any] | None:
    """Return what an entry was made of; None for one that we did not make."""
    command, args, home = _server_of(place, entry) or (None, None, None)
    if not isinstance(command, str) or not isinstance(args, list):
        return None
    return {"command": command, "args": args} | ({"env": {"THENCE_HOME": home}} if home else {})


def install(place: ServerPlace, wanted: dict[str, Any]) -> Edit:
    """Plan how our entry comes in; no change where it is there already."""
    before = body_of(place.path)
    now = state(place, wanted)
    if now == "installed":
        return Edit(place.path, before, before)
    cleared = _without(place, before) if now == "elsewhere" else before
    after, shown = _with(place, cleared, wanted)
    return Edit(place.path, before, after, tuple(f"+{line}" for line in shown))


def uninstall(place: ServerPlace) -> Edit:
    """Plan how our entry goes, whichever place it is of."""
    before = body_of(place.path)
    entry = _read_entry(place)
    if entry is None:
        return Edit(place.path, before, before)
    command, args, _ = _server_of(place, entry) or (None, None, None)
    shown = f"-{place.key}: {NAME}: {json.dumps(command)} {json.dumps(args)}"
    return Edit(place.path, before, _without(place, before), (shown,))


# -- reading --------------------------------------------------------------------------------


def _read(place: ServerPlace, body: bytes | None) -> dict[str, Any]:
    if not (body or b"").strip():
        return {}
    if place.file.form == "yaml":
        return _read_yaml(place, (body or b"").decode("utf-8", "replace"))
    return (hook_settings.json_of if place.is_json else hook_settings.toml_of)(
        place.path, body or b""
    )


def _read_yaml(place: ServerPlace, text: str) -> dict[str, Any]:
    """Read the servers of a file in YAML, and the names of all else that it sets."""
    text = text.removeprefix(hook_settings.BOM)
    try:
        data: dict[str, Any] = dict.fromkeys(yaml_text.keys(text))
        pairs = yaml_text.items(text, [place.key])
    except yaml_text.NotUnderstood as error:
        raise _not_found(place) from error
    if place.key in data:
        data[place.key] = [entry for _, entry in pairs] if place.file.is_list else dict(pairs)
    return data


def _servers(place: ServerPlace, data: dict[str, Any]) -> dict[str, Any]:
    """Return the servers that are set, by name."""
    servers = data.get(place.key, [] if place.file.is_list else {})
    if place.file.is_list and isinstance(servers, list):
        named = (server for server in servers if isinstance(server, dict))
        return {f"{server.get('name', '')}": server for server in named}
    if not isinstance(servers, dict):
        raise EditRefused(f"{place.path}: {place.key}: not a table", hint="fix it, then try again")
    return servers


def _replaced(place: ServerPlace, data: dict[str, Any], entry: dict[str, Any] | None) -> Any:
    """Return the servers with this entry as ours, or without ours."""
    if place.file.is_list:
        rest = [server for server in data.get(place.key, []) if server.get("name") != NAME]
        ours = [entry] if entry else []
        # One of YAML is put before the others, one of TOML behind them.
        return ours + rest if place.file.form == "yaml" else rest + ours
    others = {name: value for name, value in _servers(place, data).items() if name != NAME}
    return {**others, NAME: entry} if entry else others


# -- putting in -----------------------------------------------------------------------------


def _with(place: ServerPlace, body: bytes | None, entry: dict[str, Any]) -> tuple[bytes, list[str]]:
    """Return the text with our entry, and the entry's own lines.

    A file that ends without a newline still does, and one that was empty: so that it can be told
    from one that was not there.
    """
    entry = _entry_of(place, entry)
    data = _read(place, body)
    _servers(place, data)  # or refuse it
    wanted = {**data, place.key: _replaced(place, data, entry)}
    text = (body or b"").decode()
    end = "\n" if body is None or text.endswith("\n") else ""
    if place.is_json:
        shown = json.dumps({NAME: entry}, indent=2).splitlines()[1:-1]
        tries = _into_json(place.key, text, entry, end)
    elif place.file.form == "yaml":
        shown = [f"{place.key}:", f"  {NAME}: {json.dumps(entry)}"]
        tries = _into_yaml(place, text, entry, end)
    else:
        path = [place.key] if place.file.is_list else [place.key, NAME]
        shown = toml_text.render(path, entry, is_list=place.file.is_list).splitlines()
        after = toml_text.with_table(text, path, entry, is_list=place.file.is_list)
        tries = iter([after.removesuffix("\n") + end])
    return _first_valid(place, tries, wanted), shown


def _into_json(key: str, text: str, server: dict[str, Any], end: str) -> Iterator[str]:
    entry = f'"{NAME}": {json.dumps(server)}'
    bare = text.removeprefix(hook_settings.BOM)
    ours = f'{{\n  "{key}": {{\n    {entry}\n  }}\n}}'
    if not bare.strip():
        yield ours + end
        return
    data = json.loads(bare)
    after = json_text.edit(text, {**data, key: {**data.get(key, {}), NAME: server}})
    # A file of our own form goes with our entry; this one was there before.
    is_ours = key in data and after.strip() == ours
    yield f'{{"{key}": {{{entry}}}}}{end}' if is_ours else after


def _into_yaml(place: ServerPlace, text: str, entry: dict[str, Any], end: str) -> Iterator[str]:
    try:
        after = yaml_text.insert(text, [place.key], entry, "" if place.file.is_list else NAME)
    except yaml_text.NotUnderstood:
        return
    yield after.removesuffix("\n") + end


# -- taking out -----------------------------------------------------------------------------


def _without(place: ServerPlace, body: bytes | None) -> bytes | None:
    """Return the text without our entry; None for a file in which nothing else ever was."""
    entry = _read_entry(place)
    if (ours := _wanted_of(place, entry)) is not None:
        # Just what we would write into no file, or into an empty one: that is what was there.
        for was in (None, b""):
            if body == _with(place, was, ours)[0]:
                return was
    data = _read(place, body)
    rest = _replaced(place, data, None)
    wanted = {**data, place.key: rest}
    bare = {name: value for name, value in data.items() if name != place.key}
    text = (body or b"").decode()
    out_of = {"json": _out_of_json, "toml": _out_of_toml, "yaml": _out_of_yaml}[place.file.form]
    tries = list(out_of(place, text))
    return _first_valid(place, iter(tries), *([wanted, bare] if not rest else [wanted]))


_OUR_YAML: Final = re.compile(
    rf"""\s*["']?{NAME}["']?:|(?:^|[\s,{{-])["']?name["']?: *["']?{NAME}["']?\s*(?:[,}}]|$)""",
    re.MULTILINE,
)


def _out_of_yaml(place: ServerPlace, text: str) -> Iterator[str]:
    is_ours = _OUR_YAML.search if place.file.is_list else _OUR_YAML.match
    with contextlib.suppress(yaml_text.NotUnderstood):
        yield yaml_text.remove(text, [place.key], lambda item: bool(is_ours(item)))


def _out_of_json(place: ServerPlace, text: str) -> Iterator[str]:
    """Yield the text without an entry of our name, and without what is empty because of that."""
    data = json.loads(text.removeprefix(hook_settings.BOM))
    del data[place.key][NAME]
    if not data[place.key]:
        del data[place.key]
    yield json_text.edit(text, data)


def _out_of_toml(place: ServerPlace, text: str) -> Iterator[str]:
    with contextlib.suppress(toml_text.NotEditable):
        if place.file.is_list:
            yield toml_text.without(text, [place.key], lambda server: server.get("name") == NAME)
        else:
            yield toml_text.without(text, [place.key, NAME])


def _first_valid(place: ServerPlace, tries: Iterator[str], *wanted: dict[str, Any]) -> bytes:
    """Return the first text that says what it should and nothing else."""
    for text in tries:
        try:
            bare = text.removeprefix(hook_settings.BOM)
            if place.file.form == "yaml":
                data = _read(place, bare.encode())
            else:
                data = json.loads(bare or "{}") if place.is_json else toml_text.parse(bare)
        except (ValueError, EditRefused):  # not a text that says anything: the next try
            continue
        if any(data == accepted for accepted in wanted):
            return text.encode()
    raise _not_found(place)


def _not_found(place: ServerPlace) -> EditRefused:
    return EditRefused(
        f"{place.path}: cannot find where {place.key} is set",
        hint=f"add or remove the entry {NAME!r} yourself",
    )
