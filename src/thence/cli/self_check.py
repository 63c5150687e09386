"""`thence self-check`: whether this version works here, and opens a home of an earlier one.

Everything runs in a scratch folder, by the commands that a user types. A home that is named is
copied there first: nothing in it is opened for writing, whatever this version does to the copy.
"""

from __future__ import annotations

import json as json_module
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from thence import __version__, config, system
from thence.cli import options, processes
from thence.cli.columns import TextCell, table
from thence.cli.terminal import answer, clean, several, width
from thence.errors import NotReadable, ThenceError

FAILED_EXIT_CODE: Final = 1
COMMAND_SECONDS: Final = 600.0
MAX_SHOWN: Final = 5
"""Sessions of a home that are read whole, from each end of the list."""
_MODULES: Final = {"google-re2": "re2", "markdown-it-py": "markdown_it", "pyyaml": "yaml"}
"""Modules of packages that have another name."""
_LEFT: Final = (
    *("config.toml", "*.lock", "serve.log", "*.tmp"),
    *("*-shm", "*-wal", "*-journal", "*.db"),
)
"""Not copied as they are: settings, which may name a store elsewhere that must not be touched;
what belongs to a running process; and databases."""


class CheckResult(NamedTuple):
    """One thing that was tried."""

    name: str
    problem: str = ""
    details: str = ""


class CheckFailed(ThenceError):
    """A step of a check did not do what it must."""

    exit_code = FAILED_EXIT_CODE


@click.command(
    "self-check",
    epilog="Everything runs in a temporary folder. Exit codes: 0 no problems, 1 something failed.",
)
@click.option(
    "--home",
    "homes",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Open a copy of this home (such as ~/.thence) and read its sessions.",
)
@options.as_json
def command(homes: tuple[Path, ...], *, json: bool) -> int:
    """Run the checks; print what was checked."""
    checks: list[CheckResult] = []
    for number, home in enumerate(homes):
        checks += _all(_opens_home(home), f"home {number + 1}" if len(homes) > 1 else "home")
    if not homes:
        checks += _all(_has_packages(), "packages")
        checks += _all(_works(), "commands")
    failed = [check for check in checks if check.problem]
    report = [check._asdict() for check in checks]
    return answer(
        {"version": __version__, "ok": not failed, "checks": report},
        _lines(checks, len(failed)),
        json=json,
        code=FAILED_EXIT_CODE if failed else 0,
    )


def _all(steps: Iterator[CheckResult], name: str) -> list[CheckResult]:
    """Return the checks up to the first that failed."""
    checks: list[CheckResult] = []
    try:
        checks += steps
    except (ThenceError, OSError, subprocess.TimeoutExpired) as error:
        checks.append(CheckResult(name, problem=str(error)))
    return checks


def _lines(checks: list[CheckResult], failed: int) -> Iterator[str]:
    head = several(failed, "problem") if failed else "no problems"
    yield f"thence {__version__}: {head}"
    yield ""
    rows = [
        [
            TextCell("✗" if check.problem else "✓", "red" if check.problem else "green"),
            TextCell(clean(check.name)),
            TextCell(clean(check.problem or check.details)),
        ]
        for check in checks
    ]
    yield from table("<<~", rows, width())


# -- this installation ----------------------------------------------------------------------


def _has_packages() -> Iterator[CheckResult]:
    """Import every package that the base install needs."""
    names = [
        need.partition(";")[0].partition(">")[0].strip()
        for need in metadata.requires("thence") or ()
        if "extra ==" not in need and (system.IS_WINDOWS or "win32" not in need)
    ]
    for name in names:
        try:
            import_module(_MODULES.get(name, name.replace("-", "_")))
        except ImportError as error:
            yield CheckResult(name, problem=f"cannot be imported: {error}")
    yield CheckResult("packages", details=f"{several(len(names), 'package')} imported")


def _works() -> Iterator[CheckResult]:
    """Import, list, search, read and check sample sessions of a machine that is not there."""
    with tempfile.TemporaryDirectory(prefix="thence-check-") as folder:
        made = _run(_environment(Path(folder)), "demo", "--dir", f"{folder}/demo")
        env = _environment(Path(folder)) | made["env"]
        yield CheckResult("import", details=several(int(made["sweep"]["sessions_new"]), "session"))
        yield from _reads(env)


def _reads(env: dict[str, str]) -> Iterator[CheckResult]:
    listed = [row["session_uid"] for row in _run(env, "ls", "-n", "100000")]
    if not listed:
        raise CheckFailed("no session is listed")
    yield CheckResult("list", details=several(len(listed), "session"))
    some = dict.fromkeys([*listed[:MAX_SHOWN], *listed[-MAX_SHOWN:]])
    for uid in some:
        _run(env, "show", uid)
    yield CheckResult("show", details=several(len(some), "session"))
    _run(env, "search", "the")
    _run(env, "cost")
    yield CheckResult("search and cost")
    report = _run(env, "doctor")
    bad = [finding["words"] for finding in report["findings"] if finding["level"] == "bad"]
    yield CheckResult("doctor", problem="; ".join(bad))


# -- the home of an earlier version ---------------------------------------------------------


def _opens_home(home: Path) -> Iterator[CheckResult]:
    """Open a copy of a home: no session and no digest is missing, before and after an import."""
    with tempfile.TemporaryDirectory(prefix="thence-check-") as folder:
        copy = Path(folder, "home")
        _copy(home, copy)
        env = _environment(Path(folder)) | {config.HOME: str(copy)}
        store = copy / "memory" / "thence.db"
        before = _read_counts(store)
        yield CheckResult(
            "copy", details=f"{before.sessions} sessions, store schema {before.schema}"
        )
        yield from _reads(env)
        _run(env, "sweep")
        after = _read_counts(store)
        missing = before.uids - after.uids
        undigested = before.digested - after.digested
        problem = f"{len(missing)} sessions are gone; " if missing else ""
        problem += f"{len(undigested)} digests are gone" if undigested else ""
        yield CheckResult("upgrade", problem, f"store schema {before.schema} to {after.schema}")
        yield from _reads(env)


class StoreCounts(NamedTuple):
    """What a store has, read without this version's own schema."""

    schema: int
    uids: frozenset[str]
    digested: frozenset[str]

    @property
    def sessions(self) -> int:
        """The number of sessions."""
        return len(self.uids)


def _read_counts(store: Path) -> StoreCounts:
    import apsw

    db = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        schema = int(str(db.execute("PRAGMA user_version").fetchall()[0][0]))
        uids = frozenset(str(uid) for (uid,) in db.execute("SELECT uid FROM sessions"))
        joined = "SELECT uid FROM sessions JOIN digests ON digests.session = sessions.id"
        return StoreCounts(schema, uids, frozenset(str(uid) for (uid,) in db.execute(joined)))
    except apsw.Error as error:
        raise CheckFailed(f"the store cannot be read: {error}") from error
    finally:
        db.close()


def _copy(home: Path, to: Path) -> None:
    """Copy a home; databases as of one moment, whoever writes to them meanwhile."""
    import apsw

    store = home / "memory" / "thence.db"
    if not store.is_file():
        raise NotReadable(
            f"{home} has no store", hint="name a home that has one, such as ~/.thence"
        )
    shutil.copytree(home, to, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT))
    # Without a log beside it nobody writes, and nothing must be created there to read it.
    is_quiet = not store.with_name("thence.db-wal").exists()
    address = f"{store.absolute().as_uri()}?{'immutable=1' if is_quiet else 'mode=ro'}"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    source = apsw.Connection(address, flags=flags)
    copied = apsw.Connection(str(to / "memory" / "thence.db"))
    try:
        with copied.backup("main", source, "main") as going:
            while not going.done:
                going.step()
    except apsw.Error as error:
        raise CheckFailed(f"{store} cannot be copied: {error}") from error
    finally:
        copied.close()
        source.close()


# -- commands -------------------------------------------------------------------------------


def _environment(folder: Path) -> dict[str, str]:
    """Return variables under which nothing of this user's home is read or written."""
    env = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    return env | {"HOME": str(folder), config.HOME: str(folder / ".thence"), "NO_COLOR": "1"}


def _run(env: dict[str, str], *arguments: str) -> Any:
    """Run a thence command and return its JSON; doctor may have something to warn of."""
    done = subprocess.run(  # noqa: S603 - our own program
        processes.thence(*arguments, "--json"),
        env=env,
        cwd=env["HOME"],
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_SECONDS,
    )
    if done.returncode and arguments[0] != "doctor":
        last = (done.stderr.strip() or "no output").splitlines()
        message = next((line for line in last if line.startswith("error:")), last[-1])
        raise CheckFailed(f"thence {arguments[0]} ended with {done.returncode}: {message}")
    try:
        return json_module.loads(done.stdout)
    except ValueError:
        raise CheckFailed(f"thence {arguments[0]} printed no JSON") from None
