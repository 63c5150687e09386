r"""Settings: the only reader of the environment and of `config.toml`. Plain values come out.

    THENCE_HOME                     the folder everything is kept in; ~/.thence when unset
    THENCE_NO_PERSISTENCE           1, true, yes or on: nothing is written
    CLAUDE_NO_SESSION_PERSISTENCE   the same, under the name other tools use
    HISTORY_RETAIN_DAYS             how far back the history is read; all of it when unset
    IDLE_TIMEOUT, APPROVAL_TIMEOUT  seconds; 300 when unset, 0 for never
    THENCE_STORE                    the store, in place of what the file says

The file `config.toml` in the home; every knob has a default:

    [session_memory]
    store = "sqlite:~/.thence/memory/thence.db"   # or postgresql://…; THENCE_STORE wins
    exclude = ["~/private/*"]                     # projects that are never captured
    hub = "https://hub.example/notes"             # decisions and notes are also posted there
    hub_digests = false                           # true: digests as well, when they are written
    objects = "s3://bucket/prefix"                # payloads lie there; or gs://…, az://…, file:///…
    digesters = ["burndown", "my.package:Mine"]   # asked besides ours; unset: all installed ones
    semantic = false                              # true: search by meaning too; docs/search.md

    [session_memory.push]
    url = "postgresql://team.example/agents"      # where `thence store push` sends to
    private = ["~/diary/*"]                       # projects that are kept here and never sent

    [session_memory.retention]
    raw_soft_cap_bytes = "4GiB"
    raw_hard_cap_bytes = "6GiB"
    raw_max_age_days = 45                         # 0: never by age
    distilled_cap_bytes = "1GiB"
    cadence = "daily"                             # daily, weekly, on-hook

    [session_memory.brief]
    tokens = 800                                  # how long the text for a new session may be
    skip = ["~/diary/*"]                          # projects whose sessions get none

    [session_memory.budget]
    daily_usd = 20.0                              # warn when a day costs more; unset: no warning

    [session_memory.budget.projects]
    "~/work/tidepool" = 5.0                       # the same for one folder and those below it

    [journal]                                     # what `thence store gc` keeps of our own sessions
    max_sessions = 100                            # of a project, with all that they go on from
    max_bytes = "50MiB"                           # of a file of a session before it is sealed

    [session_memory.domains]
    tidepool = "apps"                             # repository -> domain

    [session_memory.sources]
    claude = ["~/.claude", "/mnt/old/.claude"]    # besides what the agents' variables name

    [[session_memory.tasks]]                      # how tasks are named, in place of the usual ways
    name = "story"
    pattern = "story ([0-9]+)"
    ref = 'S\1'                                   # how it is written down; unset: as it is found

    [[session_memory.redact]]
    name = "ticket"
    pattern = "TICKET-[0-9]{6}"
    keywords = ["ticket-"]

    [permissions]                                 # docs/permissions.md; read by Journal.rules()
    allow = ["Read", "Bash(git log:*)"]
    ask = ["Bash(git push:*)"]
    deny = ["Read(secrets/**)"]

Invariants: nothing is read before it is asked for, so that a bad value hurts only who needs it;
an empty value counts as unset; a value that makes no sense is a `BadConfig` that names the
variable, or file and key, and the reason, never a silent default. Values of the file carry
where they came from. Read by the command line and, when a journal is
made, by `thence` itself; no lower layer knows this module.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from thence import system
from thence.errors import BadConfig

HOME = "THENCE_HOME"
OFF = "THENCE_NO_PERSISTENCE"
OFF_ELSEWHERE = "CLAUDE_NO_SESSION_PERSISTENCE"
RETAIN_DAYS = "HISTORY_RETAIN_DAYS"
IDLE = "IDLE_TIMEOUT"
APPROVAL = "APPROVAL_TIMEOUT"

TIMEOUT_S = 300.0
"""Seconds that a session may rest and a question may wait, unless a variable says otherwise."""

KEY_BYTES = 32  # as long as the output of the hash that it keys

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"", "0", "false", "no", "off"})
_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,9})?"


def home(env: Mapping[str, str] | None = None) -> Path:
    """Return the folder everything is kept in."""
    value = _environment_value(HOME, env)
    try:
        return Path(value).expanduser().absolute() if value else Path.home() / ".thence"
    except RuntimeError as error:
        raise BadConfig(
            f"{HOME}: {'this folder' if value else 'your home folder'} cannot be found: {error}",
            hint=f"set {HOME} to the full path of a folder",
        ) from error


def make_private(folder: Path) -> None:
    """Make a folder and those above it that are missing; none lets other users in."""
    for part in (*reversed(folder.parents), folder):
        if not part.is_dir():  # the mode that mkdir is given is that of the last part only
            part.mkdir(mode=0o700, exist_ok=True)


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = 0o600, sync: bool = True) -> Iterator[BinaryIO]:
    """Open a file that takes the place of one: who reads sees the old or the new, never a part.

    With `sync` it is on the disk first, and its name after it: without that order a power cut
    could leave a name that leads to an empty file.
    """
    import secrets

    passing = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        handle = system.open_file(passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        passing.chmod(mode)
        passing.replace(path)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk does not say what for
        raise
    finally:
        passing.unlink(missing_ok=True)
    if sync:
        system.sync_folder(path.parent)


def key(path: Path, *, hint: str) -> bytes:
    """Return a key of this home, drawing it the first time; only its user can read it.

    It appears whole or not at all: a kill leaves no half of one, of two who draw one wins.
    """
    if not path.exists():
        _draw(path)
    drawn = path.read_bytes()
    if len(drawn) != KEY_BYTES:
        raise BadConfig(f"{path}: not a key of {KEY_BYTES} bytes", hint=hint)
    return drawn


def _draw(path: Path) -> None:
    import secrets

    make_private(path.parent)
    passing = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        handle = system.open_file(passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(passing, path)  # unlike a rename, it takes nobody's place
        except FileExistsError:
            return
        except OSError:  # a disk that knows no links
            passing.replace(path)
    finally:
        passing.unlink(missing_ok=True)


def persistence(env: Mapping[str, str] | None = None) -> bool:
    """Tell whether sessions are written; either switch is enough to say no."""
    value = _environment_value(OFF, env)
    if value.lower() not in _YES | _NO:
        raise BadConfig(
            f"{OFF}: not a yes/no value: {value[:80]!r}",
            hint="1, true, yes or on disable recording; 0, false, no, off or unset enable it",
        )
    # The second name belongs to others: what they do not take for a yes is none here either.
    return value.lower() not in _YES and _environment_value(OFF_ELSEWHERE, env).lower() not in _YES


def history_retain_days(env: Mapping[str, str] | None = None) -> float | None:
    """Return the number of days the history is read back; None for all of it."""
    value = _environment_value(RETAIN_DAYS, env)
    if not value:
        return None
    days = _number(RETAIN_DAYS, value, "days", hint="days, such as 30; unset it to see all prompts")
    if not days:
        raise BadConfig(
            f"{RETAIN_DAYS}: 0 days would hide every prompt",
            hint=f"unset it to see all prompts; {OFF}=1 records none",
        )
    return days


def idle_timeout(env: Mapping[str, str] | None = None) -> float:
    """Return the seconds a session may rest; 0 means for ever."""
    return _seconds(IDLE, env)


def approval_timeout(env: Mapping[str, str] | None = None) -> float:
    """Return the seconds a question for approval may wait; 0 means for ever."""
    return _seconds(APPROVAL, env)


def _seconds(name: str, env: Mapping[str, str] | None) -> float:
    value = _environment_value(name, env)
    hint = "seconds, such as 300 or 0.5; 0 means never; unset it for the default"
    return _number(name, value, "seconds", hint=hint) if value else TIMEOUT_S


def _number(name: str, text: str, unit: str, *, hint: str) -> float:
    if re.fullmatch(_NUMBER, text) is None:
        raise BadConfig(f"{name}: not a number of {unit}: {text[:80]!r}", hint=hint)
    return float(text)


def _environment_value(name: str, env: Mapping[str, str] | None) -> str:
    return (os.environ if env is None else env).get(name, "").strip()


# -- the file -------------------------------------------------------------------------------

FILE: Final = "config.toml"
STORE: Final = "THENCE_STORE"
CADENCES: Final = ("daily", "weekly", "on-hook")

_UNITS = {"": 1, "b": 1, "k": 10**3, "kb": 10**3, "kib": 1 << 10, "m": 10**6, "mb": 10**6}
_UNITS |= {"mib": 1 << 20, "g": 10**9, "gb": 10**9, "gib": 1 << 30, "tb": 10**12, "tib": 1 << 40}
_SIZE = r"\s*([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([a-zA-Z]*)\s*"


class SettingValue(NamedTuple):
    """A setting and where it came from."""

    value: Any
    origin: str


class Settings:
    """All settings, by their full names."""

    def __init__(self, values: dict[str, SettingValue]) -> None:
        self.values = values

    def __getitem__(self, name: str) -> Any:
        """Return the value of a setting."""
        return self.values[name].value


def settings(home: Path, env: Mapping[str, str] | None = None) -> Settings:
    """Read the settings of a home; defaults where nothing is said."""
    path = home / FILE
    values = _Reader(path, _toml(path)).run()
    out = {name: SettingValue(default(home), "default") for name, (_, default) in _KNOWN.items()}
    out |= {name: SettingValue(value, f"{path}") for name, value in values.items()}
    if store := _environment_value(STORE, env):
        out["session_memory.store"] = SettingValue(store, STORE)
    _check_caps(path, out)
    return Settings(out)


def _check_caps(path: Path, values: Mapping[str, SettingValue]) -> None:
    """Refuse a soft cap above the hard one: nothing would go before something is lost."""
    prefix = "session_memory.retention.raw_"
    soft, hard = (values[f"{prefix}{name}_cap_bytes"].value for name in ("soft", "hard"))
    if soft > hard:
        raise BadConfig(
            f"{path}: {prefix}soft_cap_bytes is {soft}, above {prefix}hard_cap_bytes, {hard}",
            hint="lower the soft limit, or raise the hard limit",
        )


def _toml(path: Path) -> dict[str, Any]:
    try:
        body = path.read_bytes()
    except FileNotFoundError:  # no settings are settings: all defaults
        return {}
    except OSError as error:
        raise BadConfig(f"{path}: cannot be read: {error}", hint="fix or remove it") from error
    import tomllib  # here: most homes have no such file, and every command asks

    try:
        return tomllib.loads(body.decode())
    except UnicodeDecodeError as error:
        raise BadConfig(f"{path}: cannot be read: {error}", hint="fix or remove it") from error
    except tomllib.TOMLDecodeError as error:
        raise BadConfig(f"{path}: not TOML: {error}", hint="strings need quotes") from error


class _Reader:
    """Reads one file against the table of what is known."""

    def __init__(self, path: Path, content: dict[str, Any]) -> None:
        self._path = path
        self._content = content

    def run(self) -> dict[str, Any]:
        """Return what the file says, checked."""
        out: dict[str, Any] = {}
        for name, value in _flat("", self._content):
            if name not in _KNOWN:
                import difflib  # here: only who mistypes needs it

                near = difflib.get_close_matches(name, _KNOWN, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(_KNOWN)}"
                raise BadConfig(f"{self._path}: {name}: unknown setting", hint=hint)
            check, _ = _KNOWN[name]
            try:
                out[name] = check(value)
            except ValueError as error:
                message = f"{self._path}: {name}: {error.args[0]}"
                raise BadConfig(message, hint=error.args[1]) from None
        return out


def _flat(prefix: str, table: dict[str, Any]) -> list[tuple[str, Any]]:
    """Name the settings of nested tables in full; tables that are values stay whole."""
    out: list[tuple[str, Any]] = []
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and name not in _KNOWN:
            out += _flat(f"{name}.", value)
        else:
            out.append((name, value))
    return out


# -- checks: a value, or ValueError(reason, hint) -------------------------------------------


def size(value: object) -> int:
    """Read a number of bytes, such as 1048576 or "4GiB"."""
    hint = 'write bytes, or text such as "500MB" (thousands) or "4GiB" (of 1,024)'
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = re.fullmatch(_SIZE, value) if isinstance(value, str) else None
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError(f"not a size: {value!r}", hint)
    return int(float(match[1]) * _UNITS[match[2].lower()])


def _days(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 36500:
        return value
    raise ValueError(f"not a number of days: {value!r}", "write 45; 0 means never")


def _tokens(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 10_000:
        return value
    raise ValueError(f"not a number of tokens: {value!r}", "write a number from 100 to 10000")


def _dollars(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1_000_000:
        return float(value)
    raise ValueError(f"not an amount in dollars: {value!r}", "write a number above 0, such as 20.0")


def _budgets(value: object) -> dict[str, float]:
    if isinstance(value, dict):
        return {name: _dollars(usd) for name, usd in value.items()}
    raise ValueError(f"not a table of amounts: {value!r}", 'write "~/folder" = 5.0 below it')


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"neither true nor false: {value!r}", "write true or false")


def _count(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1_000_000:
        return value
    raise ValueError(f"not a number of sessions: {value!r}", "write 100")


def _cadence(value: object) -> str:
    if isinstance(value, str) and value in CADENCES:
        return value
    raise ValueError(f"no such cadence: {value!r}", f"one of {', '.join(CADENCES)}")


def _text(value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value
    raise ValueError(f"not a string: {value!r}", "write it in quotes")


def _address(value: object) -> str:
    if isinstance(value, str) and value.startswith(("http://", "https://")):
        return value
    raise ValueError(f"not an address: {value!r}", 'write "https://…"; leave it out for none')


def _objects(value: object) -> str:
    if isinstance(value, str) and re.match(r"[a-z][a-z0-9+]*:", value):
        return value
    hint = 'write "s3://bucket/prefix", "gs://…", "az://…" or "file:///a/folder"'
    raise ValueError(f"not an address of an object store: {value!r}", hint)


def _texts(value: object) -> list[str]:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    raise ValueError(f"not a list of strings: {value!r}", 'write ["one", "two"]')


def _names(value: object) -> dict[str, str]:
    if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
        return value
    raise ValueError(f"not a table of names: {value!r}", 'write name = "value" below it')


def _paths(value: object) -> dict[str, list[str]]:
    if isinstance(value, dict):
        return {name: _texts(entry) for name, entry in value.items()}
    raise ValueError(f"not a table of paths: {value!r}", 'write AGENT = ["~/folder"] below it')


def _tasks(value: object) -> list[dict[str, str]]:
    hint = "each [[session_memory.tasks]] needs name and pattern; ref says how it is written down"
    if not isinstance(value, list):
        raise ValueError(f"not a list of patterns: {value!r}", hint)  # noqa: TRY004 - a bad setting
    for task in value:
        if not isinstance(task, dict) or not {"name", "pattern"} <= task.keys():
            raise ValueError(f"not a pattern: {task!r}", hint)
        if odd := task.keys() - {"name", "pattern", "ref"}:
            raise ValueError(f"a pattern has no {', '.join(sorted(odd))}", hint)
        for key, text in task.items():
            if not isinstance(text, str):
                raise ValueError(f"{key} of {task!r} is not a string", hint)  # noqa: TRY004
        try:
            re.compile(task["pattern"]).sub(task.get("ref", ""), "")
        except re.error as error:
            hint = "patterns are those of Python's re; write them in single quotes"
            raise ValueError(f"no pattern or ref: {task['name']!r}: {error}", hint) from None
    return value


def _rules(value: object) -> list[dict[str, Any]]:
    hint = "each [[session_memory.redact]] needs name and pattern; keywords = […] makes it quick"
    if not isinstance(value, list):
        raise ValueError(f"not a list of rules: {value!r}", hint)  # noqa: TRY004 - a bad setting
    for rule in value:
        if not isinstance(rule, dict) or not {"name", "pattern"} <= rule.keys():
            raise ValueError(f"not a rule: {rule!r}", hint)
        if odd := rule.keys() - {"name", "pattern", "keywords"}:
            raise ValueError(f"a rule has no {', '.join(sorted(odd))}", hint)
    return value


_KNOWN: dict[str, tuple[Callable[[object], Any], Callable[[Path], Any]]] = {
    "session_memory.store": (_text, lambda home: f"sqlite:{home / 'memory' / 'thence.db'}"),
    "session_memory.objects": (_objects, lambda _: None),
    "session_memory.exclude": (_texts, lambda _: []),
    "session_memory.push.url": (_text, lambda _: None),
    "session_memory.push.private": (_texts, lambda _: []),
    "session_memory.hub": (_address, lambda _: None),
    "session_memory.hub_digests": (_flag, lambda _: False),
    "session_memory.digesters": (_texts, lambda _: None),
    "session_memory.semantic": (_flag, lambda _: False),
    "session_memory.retention.raw_soft_cap_bytes": (size, lambda _: 4 << 30),
    "session_memory.retention.raw_hard_cap_bytes": (size, lambda _: 6 << 30),
    "session_memory.retention.raw_max_age_days": (_days, lambda _: 45),
    "session_memory.retention.distilled_cap_bytes": (size, lambda _: 1 << 30),
    "session_memory.retention.cadence": (_cadence, lambda _: "daily"),
    "session_memory.brief.tokens": (_tokens, lambda _: 800),
    "session_memory.brief.skip": (_texts, lambda _: []),
    "session_memory.budget.daily_usd": (_dollars, lambda _: None),
    "session_memory.budget.projects": (_budgets, lambda _: {}),
    "journal.max_sessions": (_count, lambda _: 100),
    "journal.max_bytes": (size, lambda _: 50 << 20),
    "session_memory.domains": (_names, lambda _: {}),
    "session_memory.sources": (_paths, lambda _: {}),
    "session_memory.tasks": (_tasks, lambda _: []),
    "session_memory.redact": (_rules, lambda _: []),
    # What they say is read by `Journal.rules`, which a harness asks; see docs/permissions.md.
    "permissions.allow": (_texts, lambda _: []),
    "permissions.ask": (_texts, lambda _: []),
    "permissions.deny": (_texts, lambda _: []),
}
