"""`thence config`: every setting, its value and where that comes from."""

from __future__ import annotations

import json as text
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from thence import config
from thence.cli import options, wiring
from thence.cli.columns import DIM, Cell, Column, table, tell, tilde
from thence.cli.hooking import Edit, Refused, carry_out
from thence.cli.terminal import as_json, clean, say, several, size, width
from thence.errors import BadConfig

if TYPE_CHECKING:
    from thence.format.records import JSON

NAME = "session_memory.exclude"


@click.command(
    "config",
    help="Show every setting, its value and its origin.",
    epilog="Settings are in config.toml in the data folder. An excluded project is no longer"
    " imported; its stored sessions stay until you delete them with thence store forget. Task"
    " names and digest plug-ins: docs/digesters.md.",
)
@click.argument("name", required=False)
@click.option("--exclude", metavar="PATTERN", help="Never import projects in these folders.")
@click.option("--include", metavar="PATTERN", help="Remove an exclude pattern.")
@options.as_json
def command(name: str | None, exclude: str | None, include: str | None, *, json: bool) -> int:
    """Print settings, or change which projects are captured."""
    if exclude or include:
        _exclude(exclude, include)
    values = _values()
    if name is not None:
        if name not in values:
            fits = [one for one in values if one.endswith(f".{name}")]
            if len(fits) != 1:
                raise BadConfig(f"unknown setting {name!r}", hint=f"one of {', '.join(values)}")
            name = fits[0]
        values = {name: values[name]}
    if json:
        told = {one: {"value": v.value, "origin": v.origin} for one, v in values.items()}
        say(as_json(told))
        return 0
    tell(lines(values, width()))
    if exclude:
        tell(_kept_of(exclude))
    return 0


def _values() -> dict[str, config.SettingValue]:
    """Give all settings, those of the environment included."""
    home = config.home()
    told = os.environ.get(config.HOME, "").strip()
    values = {"home": config.SettingValue(str(home), config.HOME if told else "default")}
    values |= wiring.settings().values
    named: dict[str, tuple[str, Any]] = {
        "persistence": (config.OFF, config.persistence()),
        "history_retain_days": (config.RETAIN_DAYS, config.history_retain_days()),
        "idle_timeout": (config.IDLE, config.idle_timeout()),
        "approval_timeout": (config.APPROVAL, config.approval_timeout()),
    }
    for name, (variable, value) in named.items():
        origin = variable if os.environ.get(variable, "").strip() else "default"
        values[name] = config.SettingValue(value, origin)
    return values


def lines(values: dict[str, config.SettingValue], room: int) -> Iterator[str]:
    """Give settings as rows; what is not the default stands out."""
    rows = []
    for name, (value, origin) in values.items():
        told = origin != "default"
        rows.append(
            [
                Cell("●" if told else "○", "cyan" if told else None),
                Cell(name),
                Cell(clean(_shown(name, value)), bold=told),
                Cell(clean(origin.rpartition("/")[2]), DIM),
            ]
        )
    yield from table((Column(), Column(), Column(slack=True), Column()), rows, room)


def _shown(name: str, value: object) -> str:
    if name.endswith("_bytes") and isinstance(value, int):
        return size(value)
    if isinstance(value, str):
        return tilde(value)
    return "-" if value is None or value in ([], {}) else text.dumps(value, ensure_ascii=False)


# -- projects that are not captured ---------------------------------------------------------


def _exclude(exclude: str | None, include: str | None) -> None:
    path = wiring.home() / config.FILE
    before = path.read_bytes() if path.exists() else None
    patterns: list[str] = list(wiring.settings()[NAME])
    if include:
        if include not in patterns:
            raise BadConfig(f"{include!r} is not excluded", hint=f"excluded: {patterns or 'none'}")
        patterns.remove(include)
    if exclude and exclude not in patterns:
        patterns.append(exclude)
    after = excluding(path, before or b"", patterns)
    config.make_private(path.parent)
    carry_out(Edit(path, before, after), keep=False)


_ASSIGNED = re.compile(r"^[ \t]*exclude[ \t]*=", re.MULTILINE)
_TABLE = re.compile(r"^[ \t]*\[[ \t]*session_memory[ \t]*\][^\n]*\n?", re.MULTILINE)


def excluding(path: Path, body: bytes, patterns: list[str]) -> bytes:
    """Give the settings with these patterns; all other text stays as it is."""
    told = body.decode()
    wanted: dict[str, JSON] = tomllib.loads(told)
    wanted = {**wanted, "session_memory": {**wanted.get("session_memory", {}), "exclude": patterns}}
    line = f"exclude = {text.dumps(patterns, ensure_ascii=False)}\n"
    for new in _tries(told, line):
        try:
            if tomllib.loads(new) == wanted:
                return new.encode()
        except tomllib.TOMLDecodeError:
            continue
    raise Refused(
        f"{path}: no safe place to write to", hint=f"add it yourself below [session_memory]: {line}"
    )


def _tries(told: str, line: str) -> Iterator[str]:
    """Give texts that may say it: the line replaced, put into its table, or a table at the end."""
    for found in _ASSIGNED.finditer(told):
        end = found.end()
        while end < len(told):
            end = told.find("\n", end) + 1 or len(told)
            yield told[: found.start()] + line + told[end:]
    for found in _TABLE.finditer(told):
        gap = "" if found[0].endswith("\n") else "\n"
        yield told[: found.end()] + gap + line + told[found.end() :]
    gap = "" if not told or told.endswith("\n") else "\n"
    yield f"{told}{gap}[session_memory]\n{line}"


# -- sweeps that hooks start ----------------------------------------------------------------

CADENCE = "session_memory.retention.cadence"
OURS = "  # set by thence hook install"
"""What stands behind the lines that we write for somebody, so that they can be taken out again."""
_HEADER = "[session_memory.retention]"
_RETENTION = re.compile(
    r"^[ \t]*\[[ \t]*session_memory[ \t]*\.[ \t]*retention[ \t]*\][^\n]*", re.MULTILINE
)


def with_sweeps_on_hook(path: Path, before: bytes | None) -> Edit:
    """Plan the line that lets hooks start sweeps, in settings that name no cadence."""
    told = (before or b"").decode()
    wanted = tomllib.loads(told)
    memory = wanted.get("session_memory", {})
    retention = {**memory.get("retention", {}), "cadence": "on-hook"}
    wanted = {**wanted, "session_memory": {**memory, "retention": retention}}
    line = f'cadence = "on-hook"{OURS}'
    tries = [
        f"{told[: match.end()]}\n{line}{told[match.end() :]}" for match in _RETENTION.finditer(told)
    ]
    gap, end = ("", "\n") if not told or told.endswith("\n") else ("\n", "")
    tries.append(f"{told}{gap}{_HEADER}{OURS}\n{line}{end}")
    for text_ in tries:
        if _says(text_, wanted):
            return Edit(path, before, text_.encode())
    raise Refused(
        f"{path}: no safe place to write to",
        hint=f'add it yourself below {_HEADER}: cadence = "on-hook"',
    )


def without_sweeps_on_hook(path: Path, before: bytes | None) -> Edit:
    """Plan to take out the line that we wrote; one that somebody else wrote stays."""
    told = (before or b"").decode("utf-8", "replace")
    lines = told.splitlines(keepends=True)
    ours = [at for at, line in enumerate(lines) if line.rstrip().endswith(OURS.strip())]
    cadence = [at for at in ours if lines[at].lstrip().startswith("cadence")]
    if not cadence or not _says(told):
        return Edit(path, before, before)
    wanted = tomllib.loads(told)
    del wanted["session_memory"]["retention"]["cadence"]
    for going in (ours, cadence):
        left = "".join(line for at, line in enumerate(lines) if at not in going)
        if not told.endswith("\n"):
            left = left.removesuffix("\n")
        if _says(left) and _filled(tomllib.loads(left)) == _filled(wanted):
            return Edit(path, before, left.encode() or None)
    return Edit(path, before, before)


def _says(told: str, wanted: dict[str, JSON] | None = None) -> bool:
    """Whether a text is TOML, and says this if it is given."""
    try:
        data = tomllib.loads(told)
    except tomllib.TOMLDecodeError:
        return False
    return wanted is None or data == wanted


def _filled(data: dict[str, Any]) -> dict[str, Any]:
    """Return settings without the tables that hold nothing."""
    filled = {n: _filled(v) if isinstance(v, dict) else v for n, v in data.items()}
    return {name: value for name, value in filled.items() if value != {}}


def _kept_of(pattern: str) -> Iterator[str]:
    """Say what is kept already of what will not be captured any more."""
    if not wiring.has_store():
        return
    from thence.memory.exclusion import Exclusion

    rule = Exclusion([pattern])
    with wiring.store() as store:
        kept = [row for row in store.sessions() if rule.means(row.session.cwd)]
    if kept:
        first = kept[0].session.native_session_id[:13]
        many = several(len(kept), "session")
        yield f"{many} already stored; to delete them: thence store forget {clean(first)} …"
