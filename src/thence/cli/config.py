"""`thence config`: every setting, its value and where that comes from."""

from __future__ import annotations

import json as text
import os
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import Any

import click

from thence import config
from thence.cli import options, settings_file, wiring
from thence.cli.columns import DIM, TextCell, table, tilde
from thence.cli.file_changes import Edit, carry_out
from thence.cli.terminal import answer, clean, several, size_limit, width
from thence.errors import BadConfig


@click.command(
    "config",
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
            fits = [setting for setting in values if setting.endswith(f".{name}")]
            if len(fits) != 1:
                raise BadConfig(f"unknown setting {name!r}", hint=_settings_like(name, values))
            name = fits[0]
        values = {name: values[name]}
    report = {setting: {"value": v.value, "origin": v.origin} for setting, v in values.items()}
    shown = [*lines(values, width()), *(_kept_of(exclude) if exclude and not json else ())]
    return answer(report, shown, json=json)


def _settings_like(name: str, known: Collection[str]) -> str:
    """Return a hint with the settings that a name may mean."""
    ends = {setting.rpartition(".")[2]: setting for setting in known}
    near = [setting for setting in known if name in setting]
    near = near or [ends[end] for end in get_close_matches(name, ends)]
    return f"did you mean {', '.join(near)}?" if near else "thence config lists all settings"


def _values() -> dict[str, config.SettingValue]:
    """Return all settings, those of the environment included."""
    home = config.home()
    home_variable = os.environ.get(config.HOME, "").strip()
    values = {"home": config.SettingValue(str(home), config.HOME if home_variable else "default")}
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
    """Yield settings as rows; what is not the default stands out."""
    rows = []
    for name, (value, origin) in values.items():
        is_set = origin != "default"
        rows.append(
            [
                TextCell("●" if is_set else "○", "cyan" if is_set else None),
                TextCell(name),
                TextCell(clean(_shown(name, value)), bold=is_set),
                TextCell(clean(origin.rpartition("/")[2]), DIM),
            ]
        )
    yield from table("<<~<", rows, room)


def _shown(name: str, value: object) -> str:
    if name.endswith("_bytes") and isinstance(value, int):
        return size_limit(value)
    if isinstance(value, str):
        return tilde(value)
    return "-" if value is None or value in ([], {}) else text.dumps(value, ensure_ascii=False)


# -- projects that are not captured ---------------------------------------------------------


def _exclude(exclude: str | None, include: str | None) -> None:
    path = wiring.home() / config.FILE
    before = path.read_bytes() if path.exists() else None
    patterns: list[str] = list(wiring.settings()[settings_file.EXCLUDE])
    if include:
        if include not in patterns:
            raise BadConfig(f"{include!r} is not excluded", hint=f"excluded: {patterns or 'none'}")
        patterns.remove(include)
    if exclude and exclude not in patterns:
        patterns.append(exclude)
    after = settings_file.with_exclude(path, before or b"", patterns)
    config.make_private(path.parent)
    carry_out(Edit(path, before, after))


# -- sweeps that hooks start ----------------------------------------------------------------


def _kept_of(pattern: str) -> Iterator[str]:
    """Say what is kept already of what will not be captured any more."""
    if not wiring.has_store():
        return
    from thence.memory.exclusion import Exclusion

    rule = Exclusion([pattern])
    with wiring.store() as store:
        rows = [row for row in store.sessions() if rule.means(row.session.cwd)]
    if rows:
        first = rows[0].session.native_session_id[:13]
        many = several(len(rows), "session")
        yield f"{many} already stored; to delete them: thence store forget {clean(first)} …"
