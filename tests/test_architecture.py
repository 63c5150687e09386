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
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

from thence.cli import COMMANDS, module_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "thence"

FILE_CAP = 1000
FUNCTION_CAP = 100

SMALL_FILE = 60
LONELY_FILES = {
    "journal/known_events.py": "journal/session.py would be longer than the cap",
    "team/postgres_listening.py": "team/postgres.py would be longer than the cap",
    "memory/folder_lookup.py": "its SQL belongs to memory; who uses it, to serve",
}
"""Small modules with one user, with the reason."""

MEMOS_OF_FORMAT = {
    "facts._typed_fields": "the fields of a type",
    "intentions._stem": "the stem of a word",
    "normal.event_ids": "the names of a session's events, from its uid",
    "testruns._short_runner": "the runner that a script starts",
    "tools._short_name": "the name of a tool as tables have it",
    "tools._short_touches": "the files that a script touches",
}
"""The functions of `format` that remember answers: each depends on its arguments alone."""

STATE = {
    # Answers that depend on the arguments, or on files that come with the program.
    "agents/continue_/history._listed_times": "the times in a list of sessions, by its bytes",
    "agents/packages._entry_points_of_others": "what packages on a path declare",
    "agents/profiles._folders": "the folders of our agents",
    "agents/profiles._own": "an agent of ours, from its profile",
    "agents/profiles.toolbox_of": "the names of tools of agents",
    "analytics/tables._on": "the day of a time",
    "memory/highlighting._compiled": "an expression of words that are marked",
    "memory/highlighting.marking_of": "how words are marked",
    "memory/index._minute_text": "a minute as text",
    "memory/packs.pack_name": "the name of a session's pack",
    "memory/prices.find_listing": "a model in a list of prices",
    "memory/prices.tariff": "the price of a model on a day",
    "memory/redact._finder": "the expressions of rules",
    "memory/search.meta": "what an event is, in words of the index",
    "serve/agents.agent_class": "the style of an agent",
    "serve/agents.agent_label": "the label of an agent",
    "serve/agents.stylesheet": "the colours of all agents",
    "serve/markdown._class": "the style of a piece of code",
    "serve/markdown._coloured_text": "code, coloured",
    "serve/markdown._lexer": "who colours a language",
    "serve/markdown.render": "a text as HTML",
    "serve/untrusted_text._is_seen": "whether a character is seen",
    "team/postgres_search._short": "the hash of a tenant",
    # What an installed package does to a process is done once.
    "agents/packages._PROBLEMS": "what of packages is left out in this process, for reports",
    "agents/packages._SILENT": "packages that gave no answer in this process, to be remembered",
    "agents/packages._REMEMBERED": "packages that gave no answer to an earlier command",
    "agents/profiles._others": "agents of other packages: each is loaded once, in its own process",
    "memory/digest.digesters": "digesters of other packages: each is loaded once",
    # What is one for a process: handles, threads, limits of a library, chance.
    "agents/sqlite_rows._bounded": "SQLite has one limit of memory for a process",
    "agents/sqlite_rows._lock": "SQLite's layer is made and used by one thread at a time",
    "agents/sqlite_rows._numbers": "names of open databases in that layer: each is used once",
    "agents/sqlite_rows._last": "the database that a thread has open",
    "agents/sqlite_rows._layer": "SQLite knows its layers by name, once for a process",
    "cli/__init__.screen_options": "what was asked for on the command line: set once",
    "journal/history._MUTEX": "one thread of a process at a time adds a prompt",
    "journal/ids._random": "a pool of chance, drawn in batches",
    "journal/ids._second": "the text of the second that it is",
    "journal/log._LOGS": "open logs, which a forked process must let go of",
    "memory/disk._LOCKS": "locks that a forked process must give back",
    "memory/packs._LOCAL": "compressors: one for a thread",
    "team/postgres_search._OWN": "the tokenizer of a thread",
    # What holds while something goes on, in its thread alone, and is taken back at its end.
    "agents/files._carry_cleaner": "what a carry is cleaned with while a log is read",
    "agents/unread._notes": "where readers note what they cannot read while somebody looks",
    # What may be dropped at any time, and goes with what it is about.
    "cli/wiring._gate_of": "the gate of a home while its settings stay as they are",
    "serve/session_search._INDEXES": "texts of the charts that are searched, dropped with them",
    "serve/session_search._MUTEX": "one thread at a time changes these two",
    "serve/session_search._USED": "which of these were used last: all of them share a bound",
}
"""Everything outside `format` that outlives a call, with the reason."""

MUTATORS = (
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem"),
    *("popleft", "remove", "reverse", "setdefault", "sort", "update"),
)
"""Methods that change a container."""

STATEFUL = (
    *("ContextVar", "Condition", "Event", "Lock", "Queue", "RLock", "Semaphore", "count", "cycle"),
    *("WeakKeyDictionary", "WeakSet", "WeakValueDictionary", "deque", "local"),
)
"""What makes something whose only use is to be changed."""

CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
"""How a table is called that nobody changes."""

OWN_IMPORT = re.compile(r"^[ \t]*(from thence\.[\w.]+ import (?:\([^)]*\)|[^(\n]*))", re.MULTILINE)
"""An import from this package: to parse all modules for these takes seconds."""

HEAVY = "apsw asyncio click litestar psycopg re2 rich sqlite3 starlette uvicorn zstandard"
"""What `import thence` must not load."""

CLOCK = {"now", "today", "utcnow"}
"""Methods of `datetime` that ask the clock; the rest of the module is plain arithmetic."""

CHANCE = {"getnode", "uuid1", "uuid4", "uuid6", "uuid7", "uuid8"}
"""What `uuid` makes of clock, machine or chance; `UUID` and `uuid5` are pure."""

RULE_MODULES = {"redact", "rules", "vendor_rules", "context_rules", "plausibility"}
"""The modules of `memory` that find and replace secrets."""

RULE_USES = {"Redactor", "_redactor", "redact", "redact_all", "redact_json"}
"""How they are used."""

RULE_READERS = {
    "memory/gate.py": "the gate",
    "memory/redact.py": "finds and replaces, for the gate",
    "memory/vendor_rules.py": "a table of rules",
    "memory/context_rules.py": "a table of rules",
    "memory/plausibility.py": "judges what the rules find",
    "cli/wiring.py": "hashes all rules and reads those of the user's settings",
}
"""Who knows the rules, with the reason: nobody else does."""

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


def remembering(source: str) -> Iterator[str]:
    """What a module keeps from one call to the next: memos, and names that functions change.

    Its own names, or those of another module of ours; and what is made to be changed.
    """
    tree = ast.parse(source)
    named = set(module_names(tree))
    names = {name for statement in tree.body if is_state(statement) for name in named_by(statement)}
    ours = set(imported_names(tree)) if "thence" in source else set()
    for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.Lambda)):
        inside = list(ast.walk(function))
        shared = {name for node in inside if isinstance(node, ast.Global) for name in node.names}
        own = {arg.arg for arg in inside if isinstance(arg, ast.arg)} | {
            node.id
            for node in inside
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        names |= shared | {name for node in inside if (name := changed_name(node))} & named - own
        names |= {name for node in inside if (name := changed_elsewhere(node, ours - own))}
        if isinstance(function, ast.FunctionDef) and any(map(is_memo, function.decorator_list)):
            names.add(function.name)
    yield from sorted(names)


def module_names(tree: ast.Module) -> Iterator[str]:
    """The names that a module gives to values."""
    for statement in tree.body:
        yield from named_by(statement)


def named_by(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement gives to a value."""
    if isinstance(statement, ast.Assign):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        yield statement.target.id


def is_state(statement: ast.stmt) -> bool:
    """Whether a statement makes something that is there to be changed."""
    made = getattr(getattr(statement, "value", None), "func", None)
    return (made.attr if isinstance(made, ast.Attribute) else getattr(made, "id", "")) in STATEFUL


def imported_names(tree: ast.Module) -> Iterator[str]:
    """What other modules of ours are called here, or what they hold."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("thence"):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            names = (a.asname or a.name for a in node.names if a.name.startswith("thence"))
            yield from (name.partition(".")[0] for name in names)


def changed_name(node: ast.AST) -> str:
    """The name of the value that a piece of code changes in place; empty for none."""
    return next(iter(changed_value(node)), "")


def changed_elsewhere(node: ast.AST, ours: Collection[str]) -> str:
    """The name of the value of another module that a piece of code changes; empty for none."""
    first, *inner = changed_value(node) or [""]
    if first not in ours:
        return ""
    if inner or not isinstance(node, ast.Call):
        return inner[-1] if inner else getattr(node, "attr", first)
    return (
        first if CONSTANT.fullmatch(first) else ""
    )  # else a function of a module: `yaml.insert()`


def changed_value(node: ast.AST) -> list[str]:
    """How the value is written that a piece of code changes in place: its names, in order."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name, value=value)) if name in MUTATORS:
            pass
        case ast.Subscript(ctx=ast.Store() | ast.Del(), value=value):
            pass
        case ast.Attribute(ctx=ast.Store() | ast.Del(), value=value):
            pass
        case _:
            return []
    names: list[str] = []
    while isinstance(value, ast.Subscript | ast.Attribute):
        names += [value.attr] if isinstance(value, ast.Attribute) else []
        value = value.value
    return [value.id, *reversed(names)] if isinstance(value, ast.Name) else []


def is_memo(decorator: ast.expr) -> bool:
    """Whether a decorator makes a function remember its answers."""
    made = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = made.attr if isinstance(made, ast.Attribute) else getattr(made, "id", "")
    return name in ("cache", "lru_cache")


def changeable(source: str) -> Iterator[str]:
    """Containers of a module that are not called as tables are."""
    made = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
    makers = ("dict", "list", "set", "defaultdict", "deque", "Counter", "OrderedDict")
    for statement in ast.parse(source).body:
        value = getattr(statement, "value", None)
        maker = getattr(getattr(value, "func", None), "id", "")
        if isinstance(statement, ast.Assign | ast.AnnAssign) and (
            isinstance(value, made) or maker in makers or maker.startswith("Weak")
        ):
            names = module_names(ast.Module([statement], []))
            yield from (name for name in names if not CONSTANT.fullmatch(name))


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


def past_the_gate(source: str) -> Iterator[str]:
    """Uses of what finds and replaces secrets, and imports of its rules, in whatever way."""
    if "edact" not in source and "rules" not in source and "plausibility" not in source:
        return
    for node in nodes(source):
        names: list[str] = []
        if isinstance(node, ast.Name | ast.Attribute):
            names = [node.id if isinstance(node, ast.Name) else node.attr]
        elif isinstance(node, ast.Import):
            names = [alias.name.removeprefix("thence.memory.") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = (node.module or "").removeprefix("thence.memory")
            names = [base[1:], *(alias.name for alias in node.names if not base)]
        known = RULE_USES if isinstance(node, ast.Name | ast.Attribute) else RULE_MODULES
        for name in known & {*names}:
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


def test_format_remembers_nothing_but_answers() -> None:
    """No function of it changes what another one reads; its tables are never changed."""
    folder = PACKAGE / "format"
    names = {f"{p.stem}.{name}" for p in folder.glob("*.py") for name in remembering(p.read_text())}

    assert [] == offences(changeable, folder)
    assert MEMOS_OF_FORMAT.keys() == names


@pytest.mark.slow
def test_what_outlives_a_call_has_a_reason() -> None:
    """The list is exact: what is new needs a reason, what is gone leaves it."""
    names = {
        f"{name.removesuffix('.py')}.{value}"
        for name, source in modules(PACKAGE)
        if not name.startswith("format/")
        for value in remembering(source)
    }

    assert STATE.keys() == names


def test_only_the_gate_applies_the_rules_of_redaction() -> None:
    """Who wants something without secrets gives all of it to the gate."""
    users = {offence.partition(":")[0] for offence in offences(past_the_gate, PACKAGE)}
    applied = [
        offence
        for offence in offences(past_the_gate, PACKAGE)
        if offence.rpartition(" ")[2] in RULE_USES - RULE_MODULES
    ]

    assert RULE_READERS.keys() == users
    assert {"memory/gate.py", "memory/redact.py"} == {made.partition(":")[0] for made in applied}


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
        (remembering, "_known = {}\ndef f(x):\n    _known[x] = 1"),
        (remembering, "_known = {}\ndef f(x):\n    _known.setdefault(x, []).append(1)"),
        (remembering, "import x\n_box = x.Box()\ndef f(x):\n    _box.last = x"),
        (remembering, "_n = 0\ndef f():\n    global _n\n    _n += 1"),
        (remembering, "from thence import x\ndef f():\n    x.options.colour = 1"),
        (remembering, "from thence import x\ndef f():\n    x.last = 1"),
        (remembering, "from thence.format.tools import TOOLS\ndef f():\n    TOOLS.update(a=1)"),
        (remembering, "import thence.x as y\ndef f():\n    y.TOOLS['a'] = 1"),
        (remembering, "_turn = threading.Lock()"),
        (remembering, "_of: ContextVar[int] = ContextVar('of')"),
        (remembering, "class A:\n    @functools.cache\n    def f(self): ..."),
        (remembering, "@lru_cache(maxsize=4)\ndef f(x): ..."),
        (changeable, "names = []"),
        (changeable, "_known: dict[str, int] = defaultdict(int)"),
        (imported_commands, "import thence.cli.sweep"),
        (imported_commands, "from thence.cli import sweep as other, wiring"),
        (imported_commands, "def f():\n    from thence.cli.import_ import WAIT_S"),
        (imported_commands, "from .keep import command"),
        (imported_commands, "from . import wiring, self_check"),
        (past_the_gate, "from thence.memory.redact import RULES"),
        (past_the_gate, "from thence.memory.vendor_rules import VENDORS"),
        (past_the_gate, "def f(key):\n    return Redactor(key=key)"),
        (past_the_gate, "from thence.memory import redact"),
        (past_the_gate, "import thence.memory.redact as r"),
        (past_the_gate, "def f(gate, text):\n    return gate._redactor"),
        (past_the_gate, "def f(context, text):\n    return context.redact(text)"),
        (past_the_gate, "def f(rules, value):\n    return rules.redact_json(value)"),
    ],
)
def test_checks_see_a_planted_offence(check: Callable[[str], Iterator[str]], source: str) -> None:
    """None of the checks above passes because it looks at nothing."""
    assert 1 == len(list(check(source)))


def test_tables_and_values_of_a_call_are_no_state() -> None:
    """What a function makes for itself it may change, whatever the module calls it."""
    source = "ROWS = [1]\ndef f(ROWS, x):\n    ROWS.append(x)\n    y = {}\n    y[x] = 1\n"
    source += "from thence import text\ndef g(x):\n    text.insert(x)\n"

    assert [] == [*remembering(source), *changeable(source)]


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
