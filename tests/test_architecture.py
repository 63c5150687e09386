"""The shape of the code, held by tests.

Layers import downwards only, files and functions stay readable, only the command line prints,
`format` is pure, no command is a library of another one, and importing thence stays light. Each
check is also tried on a planted offence, so that a check which no longer sees anything fails.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from thence.cli import COMMANDS, module_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "thence"

FILE_CAP = 700
FUNCTION_CAP = 100

SMALL_FILE = 60
LONELY_FILES = {
    "journal/known_events.py": "journal/session.py would be longer than the cap",
    "serve/cursors.py": "serve/api.py would be longer than the cap",
    "team/postgres_listening.py": "team/postgres.py would be longer than the cap",
    "memory/folder_lookup.py": "its SQL belongs to memory; who uses it, to serve",
}
"""Small modules with one user, with the reason."""

OWN_IMPORT = re.compile(r"^[ \t]*(from thence\.[\w.]+ import (?:\([^)]*\)|[^(\n]*))", re.MULTILINE)
"""An import from this package: to parse all modules for these takes seconds."""

HEAVY = "apsw asyncio click litestar psycopg re2 rich sqlite3 starlette uvicorn zstandard"
"""What `import thence` must not load."""

CLOCK = {"now", "today", "utcnow"}
"""Methods of `datetime` that ask the clock; the rest of the module is plain arithmetic."""

CHANCE = {"getnode", "uuid1", "uuid4", "uuid6", "uuid7", "uuid8"}
"""What `uuid` makes of clock, machine or chance; `UUID` and `uuid5` are pure."""

ALLOWED = {
    "testing": "agents analytics bridge cli config errors format journal memory serve system team",
    "cli": "agents analytics bridge config errors format journal memory serve system team",
    "serve": "agents analytics config errors format journal memory system team",
    "bridge": "agents analytics config errors format journal memory system team",
    "analytics": "agents errors format memory system team",
    "team": "agents errors format memory system",
    "memory": "agents errors format system",
    "journal": "errors format system",
    "agents": "errors format system",
    "config": "errors format system",
    "system": "errors format",
    "format": "errors",
    "errors": "",
}
"""Who may import whom; what is not here is forbidden."""


def modules(folder: Path) -> Iterator[tuple[str, str]]:
    """Every module below a folder: its name relative to the package, and its source."""
    for path in sorted(folder.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")


LOOKED_AT = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.Name, ast.Call, ast.Attribute),
    *(ast.Import, ast.ImportFrom),
)
"""Kinds of nodes that some check looks at; the others are most of them."""


@cache
def nodes(source: str) -> list[ast.AST]:
    """All nodes of a module that are looked at; several checks look at the same."""
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, LOOKED_AT)]


def long_file(source: str) -> Iterator[str]:
    """A file over the cap."""
    lines = len(source.splitlines())
    if lines > FILE_CAP:
        yield f"{lines} lines"


def long_functions(source: str) -> Iterator[str]:
    """Functions over the cap."""
    for node in nodes(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_CAP:
                yield f"{node.name}: {lines} lines"


def prints(source: str) -> Iterator[str]:
    """Uses of `print`."""
    if "print" not in source:
        return
    for node in nodes(source):
        if isinstance(node, ast.Name) and node.id == "print":
            yield f"line {node.lineno}: print"


def impure(source: str) -> Iterator[str]:
    """Ways out of a pure module that an import contract cannot see."""
    for node in nodes(source):
        match node:
            case ast.Call(func=ast.Name(id="open" | "input" | "__import__" as name)):
                yield f"line {node.lineno}: {name}"
            case ast.Attribute(attr=name) if name in CLOCK | CHANCE:
                yield f"line {node.lineno}: .{name}"
            case ast.ImportFrom(module="uuid", names=names):
                for name in sorted({alias.name for alias in names} & (CHANCE | {"*"})):
                    yield f"line {node.lineno}: uuid.{name}"
            case _:
                pass


def imported_commands(source: str) -> Iterator[str]:
    """Imports of a module of a command: what commands share lies in modules that are none."""
    if "thence.cli" not in source and "from ." not in source:
        return
    commands = {f"thence.cli.{module_of(name)}" for name in COMMANDS}
    for node in nodes(source):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = f"thence.cli.{node.module or ''}".rstrip(".") if node.level else node.module
            names = [f"{base}", *(f"{base}.{alias.name}" for alias in node.names)]
        for name in sorted(commands & set(names)):
            yield f"line {node.lineno}: {name}"  # type: ignore[attr-defined]


def offences(check: Callable[[str], Iterator[str]], folder: Path, *, but: str = "") -> list[str]:
    """What a check finds in the modules of a folder, leaving out those below `but`."""
    return [
        f"{name}: {offence}"
        for name, source in modules(folder)
        if not (but and name.startswith(but))
        for offence in check(source)
    ]


def lint_imports(src: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts of pyproject.toml on the package found in a folder."""
    command = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [command, "--no-cache", "--no-logo", "--config", ROOT / "pyproject.toml"],
        check=False,
        capture_output=True,
        text=True,
        cwd=src,
        # Wide enough that no line of the report is broken.
        env=os.environ | {"PYTHONPATH": str(src), "COLUMNS": "200"},
    )


def plant(src: Path, imports: dict[str, list[str]]) -> None:
    """Write a package thence of one-module layers with the given import statements."""
    package = src / "thence"
    package.mkdir()
    (package / "__init__.py").touch()
    for layer in ALLOWED:
        (package / f"{layer}.py").write_text("\n".join(imports.get(layer, [])), encoding="utf-8")


@pytest.mark.slow
def test_every_import_points_down() -> None:
    """The contracts of pyproject.toml hold for the package."""
    result = lint_imports(ROOT / "src")

    assert (0, "") == (result.returncode, result.stderr), result.stdout


@pytest.mark.slow
def test_contracts_allow_every_arrow_of_the_design(tmp_path: Path) -> None:
    """A package with all allowed imports at once keeps the contracts."""
    plant(tmp_path, {a: [f"import thence.{b}" for b in bs.split()] for a, bs in ALLOWED.items()})

    result = lint_imports(tmp_path)

    assert (0, "") == (result.returncode, result.stderr), result.stdout


@pytest.mark.slow
def test_contracts_forbid_every_other_arrow(tmp_path: Path) -> None:
    """In a package with all other imports at once each of them is called forbidden."""
    others = {a: [b for b in ALLOWED if b not in {a, *bs.split()}] for a, bs in ALLOWED.items()}
    plant(tmp_path, {a: [f"import thence.{b}" for b in bs] for a, bs in others.items()})

    report = lint_imports(tmp_path).stdout
    forbidden = {line.strip() for line in report.splitlines() if "is not allowed to import" in line}

    assert {
        f"thence.{a} is not allowed to import thence.{b}:" for a in others for b in others[a]
    } == forbidden


@pytest.mark.slow
def test_contracts_forbid_the_outside_world_to_format(tmp_path: Path) -> None:
    """A pure layer cannot import files, clock, chance or threads, not even through errors."""
    modules = ("asyncio", "io", "os.path", "pathlib", "random", "time")
    errors = [f"import {module}" for module in modules]
    plant(tmp_path, {"format": ["import thence.errors"], "errors": errors})

    result = lint_imports(tmp_path)

    assert 1 == result.returncode
    for module in modules:
        name = module.partition(".")[0]
        assert f"thence.format is not allowed to import {name}:" in result.stdout


@pytest.mark.slow
def test_contracts_forbid_an_sdk_to_all_but_the_bridges(tmp_path: Path) -> None:
    """The command line may use a bridge; it may not use what that leads to."""
    modules = ("agents", "claude_agent_sdk", "langgraph", "pydantic_ai")
    imports = [f"import {module}" for module in modules]
    plant(tmp_path, {"cli": ["import thence.bridge"], "bridge": imports})
    allowed = lint_imports(tmp_path)
    (tmp_path / "thence" / "journal.py").write_text("\n".join(imports))
    forbidden = lint_imports(tmp_path)

    assert (0, "") == (allowed.returncode, allowed.stderr), allowed.stdout
    assert 1 == forbidden.returncode
    for module in modules:
        assert f"thence.journal is not allowed to import {module}:" in forbidden.stdout


def test_no_file_is_longer_than_the_cap() -> None:
    """Every source file can be read in one sitting."""
    assert [] == offences(long_file, PACKAGE)


@pytest.mark.slow
def test_a_small_module_has_several_users() -> None:
    """One of under 60 lines that a single module uses is a part of that one."""
    users: dict[str, set[str]] = {}
    sizes: dict[str, int] = {}
    for name, source in modules(PACKAGE):
        sizes[name] = len(source.splitlines())
        for statement in OWN_IMPORT.findall(source):
            node = ast.parse(statement).body[0]
            assert isinstance(node, ast.ImportFrom)
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            for module in (f"{node.module}", *below):
                path = f"{module.removeprefix('thence.').replace('.', '/')}.py"
                users.setdefault(path, set()).add(name)
    small = {name for name, lines in sizes.items() if lines < SMALL_FILE}
    lonely = {name for name in small if len(users.get(name, ())) == 1}

    assert LONELY_FILES.keys() == {name for name in lonely if not _is_of_an_agent(name)}


def _is_of_an_agent(name: str) -> bool:
    """Whether a module is one of the parts that every agent's folder has."""
    return name.startswith("agents/") and name.count("/") == 2


@pytest.mark.slow
def test_no_function_is_longer_than_the_cap() -> None:
    """Every function can be seen as a whole."""
    assert [] == offences(long_functions, PACKAGE)


@pytest.mark.slow
def test_only_the_command_line_prints() -> None:
    """A library says nothing on its own."""
    assert [] == offences(prints, PACKAGE, but="cli/")


@pytest.mark.slow
def test_format_is_pure() -> None:
    """What a session is depends on its bytes alone."""
    assert [] == offences(impure, PACKAGE / "format")


@pytest.mark.slow
def test_no_module_imports_a_command() -> None:
    """A command is run by `load_command`; it is no library of another one."""
    assert [] == offences(imported_commands, PACKAGE)


@pytest.mark.parametrize(
    ("check", "source"),
    [
        (long_file, "\n" * (FILE_CAP + 1)),
        (long_functions, "def f():\n" + "    pass\n" * FUNCTION_CAP),
        (prints, "print('x')"),
        (prints, "show = print"),
        (impure, "open('x')"),
        (impure, "from datetime import datetime\ndatetime.now()"),
        (impure, "import datetime\ndatetime.date.today()"),
        (impure, "import datetime\nclock = datetime.datetime.utcnow"),
        (impure, "import uuid\nuuid.uuid4()"),
        (impure, "import uuid as u\nu.uuid1()"),
        (impure, "from uuid import UUID, uuid4"),
        (impure, "from uuid import *"),
        (imported_commands, "import thence.cli.sweep"),
        (imported_commands, "from thence.cli import sweep as other, wiring"),
        (imported_commands, "def f():\n    from thence.cli.import_ import WAIT_S"),
        (imported_commands, "from .keep import command"),
        (imported_commands, "from . import wiring, self_check"),
    ],
)
def test_checks_see_a_planted_offence(check: Callable[[str], Iterator[str]], source: str) -> None:
    """None of the checks above passes because it looks at nothing."""
    assert 1 == len(list(check(source)))


def test_pure_uses_of_datetime_and_uuid_are_allowed() -> None:
    """Arithmetic on times and names made from names are no offence."""
    source = "from uuid import NAMESPACE_URL, UUID, uuid5\nfrom datetime import UTC, datetime\n"

    assert [] == list(impure(source + "datetime.fromisoformat(x)\nevent.uuid\nuuid5(UUID(x), y)"))


def test_import_stays_light() -> None:
    """`import thence` loads no database, no event loop, no web framework and no terminal kit."""
    code = f"import sys, thence; print([m for m in {HEAVY.split()!r} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT
    )

    assert "[]" == result.stdout.strip()
