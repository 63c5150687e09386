"""Permissions are never restored: no way into the ledger, none around it, none back from the audit.

The first part walks over the source and fails on any path from disk to the ledger; planted
loaders show that it sees one. The second part tries the ledger, the rules and the audit.
"""

from __future__ import annotations

import ast
import copy
import inspect
import json
import os
import pickle
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.errors import BadConfig, NotAppendable
from thence.format.records import JSON, Event
from thence.format.state import BUILT_IN, Domain, Domains
from thence.format.transcript import Transcript
from thence.journal.log import Disk
from thence.journal.permissions import (
    IRREVERSIBLE,
    Action,
    Audit,
    Ledger,
    PermissionDecision,
    Rules,
    decide,
    rules_from,
)
from thence.testing import Draft

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "src" / "thence"
HOME, SESSION, LAYOUT = "journal/permissions.py", "journal/session.py", "format/layout.py"

UNPICKLERS = {"pickle", "_pickle", "marshal", "shelve", "copyreg", "dill", "cloudpickle"}
HELD_IN = {"permissions", "_permissions", "ledger", "_ledger"}
"""Attributes that may hold a ledger, and then a new one only."""

IMPORTS: dict[str, set[str]] = {
    "json": {"dumps"},
    "msgspec": {"Struct", "structs"},
    "os": {
        *("O_WRONLY", "O_APPEND", "O_CREAT", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"),
        *("getpid", "fstat", "fchmod"),
    },
    "posixpath": {"normpath"},
    "re": {"compile", "sub", "match", "fullmatch", "escape", "DOTALL"},
    "stat": {"S_ISREG"},
    "threading": {"Lock"},
    "time": {"time"},
    "tomllib": {"loads"},
    "layout": {"AUDIT", "is_id"},
    "shell": {"steps", "programs", "program_name", "without_heredocs"},
    "disk": {"open", "write", "close"},
}
"""What permissions.py may use of the modules it imports, and of the disk. No row of it reads."""
FROM = {
    "__future__": {"annotations"},
    "collections.abc": {"Iterator"},
    "fnmatch": {"fnmatchcase"},
    "pathlib": {"Path"},
    "typing": {"Any", "ClassVar", "Literal", "NoReturn", "final"},
    "thence.errors": {"BadArgument", "BadConfig", "NotAppendable"},
    "thence.format": {"layout", "shell"},
    "thence.format.records": {"time_text"},
    "thence.journal.log": {"DISK", "Disk", "make_folder"},
}
FORBIDDEN = {"open", "eval", "exec", "compile", "getattr", "setattr", "globals", "vars"}


# -- no path from disk to the ledger --------------------------------------------------------


@lru_cache(maxsize=1)
def nodes(tree: ast.AST) -> list[ast.AST]:
    """Return all nodes of a tree; every check looks at all of them."""
    return list(ast.walk(tree))


def type_hints(tree: ast.AST) -> set[ast.AST]:
    """Nodes that only say of what type something is; parameters left out: they take something."""
    roots: list[ast.AST | None] = []
    for node in nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            roots.append(node.returns)
        elif isinstance(node, ast.AnnAssign):
            roots.append(node.annotation)
    return {below for root in roots if root for below in ast.walk(root)}


def prose(tree: ast.AST) -> set[ast.AST]:
    """Docstrings and `__all__`: words that do nothing."""
    bare = {n.value for n in nodes(tree) if isinstance(n, ast.Expr)}
    listed = (n for n in nodes(tree) if isinstance(n, ast.Assign))
    exported = (n.value for n in listed if getattr(n.targets[0], "id", None) == "__all__")
    return bare | {below for value in exported for below in ast.walk(value)}


def ledgers(tree: ast.Module, name: str) -> Iterator[str]:
    """Ways to make or take a ledger, but for `Ledger()` in a new session; ways to unpickle one."""
    made = {n.func for n in nodes(tree) if isinstance(n, ast.Call) and is_new_ledger(n)}
    fine = type_hints(tree) | (made if name == SESSION else set())
    if name == HOME:
        judge = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "decide")
        fine |= set(ast.walk(judge.args))
    for node in nodes(tree):
        match node:
            case ast.Name(id="Ledger") | ast.Attribute(attr="Ledger") if node not in fine:
                yield "makes or takes a Ledger"
            case ast.alias(name="Ledger", asname=str()):
                yield "gives Ledger another name"
            case ast.Import(names=names) if UNPICKLERS & {a.name.split(".")[0] for a in names}:
                yield "unpickles"
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in UNPICKLERS:
                yield "unpickles"
            case _:
                pass


def is_new_ledger(node: ast.AST) -> bool:
    """Whether an expression is a ledger nobody has filled."""
    match node:
        case ast.Call(func=ast.Name(id="Ledger"), args=[], keywords=[]):
            return True
        case _:
            return False


def fillers(tree: ast.Module, _name: str) -> Iterator[str]:
    """Ways to fill a ledger or to hand one on, whoever has it."""
    words = prose(tree)
    for node in nodes(tree):
        match node:
            case ast.Attribute(attr="grant" | "deny" as verb):
                yield f"calls {verb}"
            case ast.Constant(value="Ledger" | "grant") if node not in words:
                yield f"spells {node.value!s}"
            case ast.Attribute(attr=attr) | ast.Constant(value=str(attr)) if "_Ledger__" in attr:
                yield "reaches into a ledger"
            case ast.Assign(targets=[ast.Attribute(attr=attr)], value=value) if attr in HELD_IN:
                if not is_new_ledger(value):
                    yield f"sets {attr} to something else than a new Ledger()"
            case ast.keyword(arg=attr) if attr in HELD_IN:
                yield f"hands on {attr}"
            case _:
                pass


def audits(tree: ast.Module, name: str) -> Iterator[str]:
    """Ways to find the audit, for anybody but its writer."""
    words = prose(tree)
    for node in nodes(tree) if name not in (HOME, LAYOUT) else ():
        match node:
            case ast.Name(id="AUDIT") | ast.Attribute(attr="AUDIT") | ast.alias(name="AUDIT"):
                yield "names the audit folder"
            case ast.Constant(value=str(text)) if node not in words:
                if re.search(r"(^|/)audit(/|$)", text, re.IGNORECASE):
                    yield "spells the audit folder"
            case _:
                pass


def domains(tree: ast.Module, _name: str) -> Iterator[str]:
    """State that would hold permissions."""
    for node in nodes(tree):
        match node:
            case ast.Call(func=ast.Name(id="Domain"), args=[ast.Constant(value=str(domain)), *_]):
                if domain.startswith("permission"):
                    yield f"a domain called {domain}"
            case _:
                pass


def readers(tree: ast.Module, name: str) -> Iterator[str]:
    """Ways to read anything, in the module of the ledger itself."""
    toml = [n for n in nodes(tree) if isinstance(n, ast.FunctionDef) and n.name == "rules_from"]
    inside = {below for function in toml for below in ast.walk(function)}
    for node in nodes(tree) if name == HOME else ():
        match node:
            case ast.Import(names=names):
                unknown = {alias.name for alias in names} - IMPORTS.keys()
                yield from (f"imports {module}" for module in unknown)
            case ast.ImportFrom(module=str(module), names=names):
                unknown = {alias.name for alias in names} - FROM.get(module, set())
                yield from (f"imports {module}.{what}" for what in unknown)
            case ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner), attr=what):
                owner = owner.removeprefix("_")
                if what not in IMPORTS.get(owner, {what}):
                    yield f"uses {owner}.{what}"
                if owner == "tomllib" and node not in inside:
                    yield "reads TOML outside of rules_from"
            case ast.Name(id=word) if word in FORBIDDEN:
                yield f"uses {word}"
            case _:
                pass


TELLTALES = "|".join(("ledger", "grant", r"\.deny", "audit", "permission", *UNPICKLERS))
"""One of these stands in every module with an offence; parsing the others takes seconds."""


def offences(package: Path) -> list[str]:
    """Every path from disk to the ledger that the source of a package shows."""
    out = []
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        source = path.read_text(encoding="utf-8")
        if name != HOME and not re.search(TELLTALES, source, re.IGNORECASE):
            continue
        tree = ast.parse(source)
        for check in (ledgers, fillers, audits, domains, readers):
            out += [f"{name}: {what}" for what in check(tree, name)]
    return out


@pytest.mark.slow
def test_no_code_leads_from_disk_to_the_ledger() -> None:
    """Nothing fills a ledger, nothing reads the audit, no domain holds permissions."""
    assert [] == offences(PACKAGE)


PLANTED = [
    ("journal/loader.py", """
def load(log, ledger):
    for line in log.read_text().splitlines():
        ledger.grant(Action(**json.loads(line)), scope="session")
""", ["calls grant"]),
    ("memory/session_status.py", """
def copy(rules, session):
    for rule in rules.allowed:
        add = session.permissions.grant
        add(Action(rule.tool))
""", ["calls grant"]),
    ("bridge/thaw.py", "import pickle\nledger = pickle.load(log)", ["unpickles"]),
    ("bridge/thaw2.py", "from marshal import load", ["unpickles"]),
    ("cli/again.py", "call = operator.methodcaller('grant', action)", ["spells grant"]),
    ("serve/other.py", "held = ledger._Ledger__session", ["reaches into a ledger"]),
    ("agents/make.py", "held = Ledger()", ["makes or takes a Ledger"]),
    ("agents/no.py", "held.deny(x)", ["calls deny"]),
    ("agents/name.py", "from x import Ledger as L\nheld = L()", ["gives Ledger another name"]),
    ("format/found.py", "getattr(permissions, 'Ledger')()", ["spells Ledger"]),
    ("memory/sub.py", "class Open(permissions.Ledger): pass", ["makes or takes a Ledger"]),
    ("format/domain.py", "Domain('permissions', dict, fold)", ["a domain called permissions"]),
    ("memory/look.py", "from thence.format.layout import AUDIT", ["names the audit folder"]),
    ("serve/look.py", "open(f'{home}/audit/{session}.jsonl')", ["spells the audit folder"]),
    (SESSION, "held = Ledger(grants)", ["makes or takes a Ledger"]),
    (SESSION, "def go_on(old: Ledger): pass", ["makes or takes a Ledger"]),
    (SESSION, "new = Session(permissions=old.permissions)", ["hands on permissions"]),
    (SESSION, "new.permissions = old.permissions",
     ["sets permissions to something else than a new Ledger()"]),
    (HOME, "def load(p, ledger):\n    return open(p)", ["uses open"]),
    (HOME, "json.loads(x)", ["uses json.loads"]),
    (HOME, "os.read(x, 9)", ["uses os.read"]),
    (HOME, "def load(disk):\n    return disk.pread(9)", ["uses disk.pread"]),
    (HOME, "import tomllib\ntomllib.loads(x)", ["reads TOML outside of rules_from"]),
    (HOME, "from thence.journal.log import Log", ["imports thence.journal.log.Log"]),
    (HOME, "msgspec.convert(x, Rules)\nimport io", ["imports io", "uses msgspec.convert"]),
]  # fmt: skip


@pytest.mark.slow
def test_the_check_sees_every_planted_path(tmp_path: Path) -> None:
    """In a tree with loaders planted, some in copies of our modules, each of them is found."""
    tree = tmp_path / "thence"
    for name in {name for name, *_ in PLANTED}:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        if (PACKAGE / name).exists():
            shutil.copy(PACKAGE / name, tree / name)
    for name, source, _ in PLANTED:
        with (tree / name).open("a", encoding="utf-8") as module:
            module.write(f"\n{source}\n")

    expected = [f"{name}: {what}" for name, _, problems in PLANTED for what in problems]

    assert sorted(expected) == sorted(offences(tree))


def recorded() -> Draft:
    """A session whose log is full of grants, in every place that a state is folded from."""
    grants: dict[str, JSON] = {"permissionMode": "GRANTED", "allowedTools": ["GRANTED"]}
    draft = Draft()
    draft.header(**grants)
    draft.add("user", {"role": "user", "content": "go", **grants})
    for kind in ("permission-mode", "permission_granted", "permissions", "permissionMode"):
        draft.add(kind, {"role": "user", "content": "GRANTED", "model": "GRANTED", **grants})
    draft.add("turn_context", {"approval_policy": "GRANTED", "sandbox_policy": "GRANTED"})
    draft.add("worktree", {"branch": "main", **grants})
    draft.add("model", {"model": "m", "overrides": {"permissionMode": "GRANTED"}, **grants})
    draft.add("cwd", {"cwd": "/w", **grants})
    draft.reply("done", **grants)
    return draft


def test_recorded_grants_reach_no_state() -> None:
    """What a log says of permissions is in no domain, no message and no header field."""
    read = Transcript.read(recorded().bytes())
    seen = repr((read.state, read.header, read.messages(), read.pending, read.turn()))

    assert ({}, False) == (read.state.failed, "GRANTED" in seen)
    assert not [d.name for d in BUILT_IN if d.name.startswith("permission")]


def test_permission_events_reach_no_registered_fold() -> None:
    """A harness's own domain cannot hear of them either, whatever it is called."""
    heard: list[str] = []

    def fold(value: JSON, event: Event) -> JSON:
        heard.append(event.type)
        return value

    own = Domains()
    own.register(Domain("permissions", list, fold))
    folded = Transcript.read(recorded().bytes(), domains=own).state.values["permissions"]

    assert [] == folded
    assert {"header", "user", "turn_context", "worktree", "model", "cwd", "assistant"} == set(heard)


# -- the ledger -----------------------------------------------------------------------------

LIST = Action("Bash", "ls")
NO_RULES = rules_from("", source="none")


def filled() -> Ledger:
    """A ledger that holds something."""
    ledger = Ledger()
    ledger.grant(LIST, scope="session")
    return ledger


@pytest.mark.parametrize(
    ("way", "why"),
    [
        *((w, "cannot be written") for w in (
            pickle.dumps, copy.copy, copy.deepcopy, vars, lambda x: x.__reduce__(),
            lambda x: x.__getstate__(), lambda x: x.__setstate__({}), lambda x: x.__dict__,
            lambda x: json.dumps(x, default=vars), lambda x: msgspec.json.encode(x, enc_hook=vars),
        )),
        (json.dumps, "not JSON serializable"), (msgspec.json.encode, "unsupported"),
        (msgspec.msgpack.encode, "unsupported"), (msgspec.to_builtins, "unsupported"),
        (iter, "not iterable"), (Ledger, "argument"), (lambda x: x[LIST], "subscript"),
        (lambda x: x.grant("Bash"), "single actions"),
        (lambda _: msgspec.convert({}, Ledger), "Ledger"),
    ],
)  # fmt: skip
def test_a_ledger_cannot_leave_or_enter(way: Callable[[Any], object], why: str) -> None:
    """No writing, no copying, no making from data; the error says why."""
    with pytest.raises((TypeError, msgspec.ValidationError), match=why):
        way(filled())


def test_a_ledger_has_no_method_that_gives_its_content() -> None:
    """These verbs and no other, made without arguments, shown without content."""
    verbs = {name for name in dir(Ledger()) if not name.startswith("_")}

    assert {"grant", "deny", "decision", "clear"} == verbs
    assert not inspect.signature(Ledger).parameters
    assert "ls" not in repr(filled())


def test_a_grant_for_once_is_used_up() -> None:
    """The second time is asked again; a grant for the session holds until it is cleared."""
    ledger = Ledger()
    ledger.grant(LIST)
    once = [decide(LIST, NO_RULES, ledger).verdict for _ in range(2)]
    ledger.grant(LIST, scope="session")
    scopes = [decide(LIST, NO_RULES, ledger).scope for _ in range(2)]
    ledger.deny(LIST)
    denied = decide(LIST, NO_RULES, ledger).verdict, len(ledger)
    ledger.grant(LIST)
    regranted = decide(LIST, NO_RULES, ledger).verdict
    ledger.grant(LIST)
    ledger.clear()

    assert (["allow", "ask"], ["session", "session"]) == (once, scopes)
    assert (("deny", 1), "allow") == (denied, regranted)
    assert ("ask", 0) == (decide(LIST, NO_RULES, ledger).verdict, len(ledger))


def test_threads_share_no_grant_for_once() -> None:
    """However many ask at the same time, one of them may."""
    ledger, allowed = Ledger(), []
    ledger.grant(LIST)
    ask = [
        threading.Thread(target=lambda: allowed.append(ledger.decision(LIST))) for _ in "12345678"
    ]
    for thread in ask:
        thread.start()
    for thread in ask:
        thread.join()

    assert 1 == len([decision for decision in allowed if decision])


def test_another_process_has_an_empty_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forked child starts with nothing, so that no grant is used twice."""
    ledger = filled()
    monkeypatch.setattr(os, "getpid", lambda: -1)

    assert (None, 0) == (ledger.decision(LIST), len(ledger))


# -- rules ----------------------------------------------------------------------------------


def rules(*, allow: list[str] = [], deny: list[str] = [], ask: list[str] = []) -> Rules:  # noqa: B006
    """The rules of a settings file with these lists."""
    lists = {"allow": allow, "deny": deny, "ask": ask}
    lines = [f"{key} = {json.dumps(texts)}" for key, texts in lists.items()]
    return rules_from("\n".join(["[permissions]", *lines]), source="settings.toml")


def verdict(action: Action, standing: Rules) -> str:
    """What is decided in a session in which nobody granted anything."""
    return decide(action, standing, Ledger()).verdict


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("permissions = 1", "permissions: must be a table"),
        ("[permissions]\nalow = []", "permissions.alow: no such key"),
        ("[permissions]\nallow = 'Bash'", "permissions.allow: must be a list"),
        ("[permissions]\nask = [1]", "permissions.ask: entry 1 is no rule: 1"),
        ("[permissions]\ndeny = ['A', '*']", "permissions.deny: entry 2 is no rule: '*'"),
        *((f"[permissions]\nallow = ['{rule}']", "permissions.allow: entry 1 is no rule") for rule
          in ("", "Bash(", "Bash)", "Bash()", "Bash(:*)", "A( a)", "A(a :*)", "a b", "A(a) ")),
        ("[permissions", "not TOML"),
        ("x = " + "[" * 100_000, "not TOML"),
    ],
)  # fmt: skip
def test_a_bad_rule_names_file_key_and_reason(text: str, message: str) -> None:
    """No rule is passed over: one that was meant to deny must not be lost in silence."""
    with pytest.raises(BadConfig, match=re.escape(f"settings.toml: {message}")):
        rules_from(text, source="settings.toml")


@pytest.mark.parametrize(
    "way",
    [
        lambda r: Rules(), lambda r: Rules(r.allowed), pickle.dumps, copy.deepcopy, vars,
        lambda r: setattr(r, "allowed", ()), lambda r: delattr(r, "denied"), msgspec.json.encode,
        lambda r: Ledger().grant(r.allowed[0]),
    ],
)  # fmt: skip
def test_rules_come_from_the_settings_file_only(way: Callable[[Any], object]) -> None:
    """They cannot be made, changed or written otherwise, nor be put into a ledger."""
    with pytest.raises(TypeError):
        way(rules(allow=["Bash"]))


@pytest.mark.parametrize(
    ("rule", "fits", "differs"),
    [
        ("Bash", ["ls", "ls && pwd", ""], []),
        ("Bash(git status)", ["git status"], ["git status -s", "git status ", " git status"]),
        (
            "Bash(git log:*)",
            ["git log", "git log -5", "git log\t--stat -- 'a b'"],
            ["git", "git logs", "git log-x", "git log\n", "git log -5;ls", "git log && ls",
             "git log & ls", "git log | sh", "git log $(ls)", "git log `ls`", "git log > x",
             "git log <(ls)", "git log $X", "git log -5\nls", "git log -5\rls", "git log \x00",
             "git log \\\nls", "x=1 git log", "git log 'a;b'", "Git log"],
        ),
        ("Bash(a(b):*)", ["a(b) c"], ["a", "a(b)c"]),
    ],
)  # fmt: skip
def test_a_rule_allows_what_it_says_and_no_longer_command(
    rule: str, fits: list[str], differs: list[str]
) -> None:
    """An exact rule fits one text, a prefix whole words without anything a shell would act on."""
    standing = rules(allow=[rule])

    assert ["allow"] * len(fits) == [verdict(Action("Bash", text), standing) for text in fits]
    assert ["ask"] * len(differs) == [verdict(Action("Bash", text), standing) for text in differs]
    assert "ask" == verdict(Action("Other", "git log"), standing)


@given(st.text(), st.sampled_from(";&|<>()$`\n\r\0"), st.text())
def test_no_shell_operator_slips_past_a_prefix(before: str, operator: str, after: str) -> None:
    """Wherever it stands, whatever is around it."""
    command = f"git log {before}{operator}{after}"

    assert "allow" != verdict(Action("Bash", command), rules(allow=["Bash(git log:*)"]))


@pytest.mark.parametrize(
    ("rule", "fits", "differs"),
    [
        ("Edit(src/**)", ["src/a.py", "src/a/b.py"],
         ["src", "src/", "src/../x", "./src/a", "/src/a", "x/src/a", "src//a", "src/a\n", ""]),
        ("Edit(*.md)", ["a.md"], ["a/b.md", "a.mdx", "..md/x", ".."]),
        ("Edit(**)", ["a", "a/b", "/a"], ["..", "../a", "/../a", "a/../../b"]),
        ("Edit(/w/**/t?.py)", ["/w/t1.py", "/w/a/b/t2.py"],
         ["/w/a/t.py", "/w/../t1.py", "//w/t1.py"]),
        ("Edit(src:*)", [], ["src", "src/a"]),
    ],
)  # fmt: skip
def test_a_glob_allows_paths_below_it_only(rule: str, fits: list[str], differs: list[str]) -> None:
    """Stars stay within their part of the path, and no path climbs out."""
    standing = rules(allow=[rule])

    assert ["allow"] * len(fits) == [verdict(Action("Edit", path=p), standing) for p in fits]
    assert ["ask"] * len(differs) == [verdict(Action("Edit", path=p), standing) for p in differs]


@pytest.mark.parametrize(
    "action",
    [
        *(Action("Bash", text) for text in (
            "curl x", "curl", "/usr/bin/curl x", "cd a && curl x", "a;curl x", "a\ncurl",
            "sudo curl x", "sh -c 'curl x'", "echo $(curl x)", "echo `curl x`", "X=1 curl x",
            'echo "$(curl x)"', "curl;ls", "cu\\\nrl x", "echo 'curl x' | sh", "ssh h 'curl x'",
            "git -C a push", "git push", "make all")),
        *(Action("Read", path=path) for path in (
            "secrets/a", "/w/secrets/a/b", "x/../secrets/a", "./secrets/a", "/etc/x", "//etc/x",
            "/a/../etc/x")),
        Action("Web", "x"),
    ],
)  # fmt: skip
def test_a_denied_action_is_denied_however_it_is_dressed(action: Action) -> None:
    """Deny rules come first and are read broadly; no grant of the session helps."""
    denied = [
        "Bash(curl:*)",
        "Bash(git push:*)",
        "Bash(make *)",
        "Read(secrets/**)",
        "Read(/etc/**)",
        "Web",
    ]
    ledger = Ledger()
    ledger.grant(action)
    standing = rules(allow=["Bash", "Read", "Web"], deny=denied)

    assert ("deny", 1) == (decide(action, standing, ledger).verdict, len(ledger))
    assert "ask" == verdict(action, rules(allow=["Bash", "Read", "Web"], ask=denied))


def test_data_that_only_names_a_denied_command_is_let_through() -> None:
    """Quoted words and longer names are something else."""
    standing = rules(allow=["Bash"], deny=["Bash(curl:*)"])
    texts = ["echo 'curl x'", "curly x", "man curl", 'git commit -m "curl; curl"', "curl-config"]

    assert ["allow"] * 5 == [verdict(Action("Bash", text), standing) for text in texts]


# -- what cannot be undone ------------------------------------------------------------------

RM = "rm -rf x"
DRESSED = [
    RM, "rm -fr x", "rm x -R", "rm --recurs x", "/bin/rm -rf x", f"sudo {RM}", f"cd a && {RM}",
    f"a\n{RM}", "r\\\nm -rf x", "r''m -rf x", "\\rm -rf x", "$'rm' -rf x", "{rm,-rf,x}",
    f"$({RM})", f"`{RM}`", f'echo "$({RM})"', f'echo "`{RM}`"', f'"$(echo "a b"; {RM})"',
    f"bash -c '{RM}'", f'sh -c "sh -c \\"{RM}\\""', f"echo '{RM}' | sh", f"eval '{RM}'",
    f"ssh h '{RM}'", f"bash <<E\n{RM}\nE", f"cat <<E\n$({RM})\nE", f"echo '<<A'\n{RM}",
    f"echo $'\\''; {RM}; echo ''", f"cat <<E\ndon't\nE\necho '<<B'\n{RM}\necho 'hi'",
    f"find . -exec {RM} +", f"if a; then {RM}; fi", f"({RM})", f"true {'x' * 17_000}; {RM}",
    f"python3 -c \"import os; os.system('{RM}')\"", "git push --force", "git push origin +a/b",
    "git push origin :a", "git -C d push -fu", "git -c a=b reset --hard", "git push --forc",
    "git push --force-with-lease=a:b",
    "psql -c 'DROP TABLE x'", "psql <<E\ndrop table x;\nE", "mkfs.ext4 /dev/sda",
    "dd if=a of=/dev/sda", "kubectl -n p delete pod", "kubectl --kubeconfig=/a/b delete pod",
    "terraform -chdir=x destroy", "aws s3 rm x", "find . -delete",
]  # fmt: skip
ROWS = [
    f"{' '.join(part.split('|')[0] for part in names.split())} {flags.partition(' ')[0]}"
    for names, flags in IRREVERSIBLE
]
HARMLESS = [
    "rm x", f"echo '{RM}'", f'git commit -m "{RM}"', f"grep -rn '{RM}' .", "git push -u origin a",
    "git reset HEAD", "echo 'DROP TABLE x'", "cargo test publish", "dd if=a", "farm -rf x",
]  # fmt: skip


@pytest.mark.parametrize("command", DRESSED + ROWS)
def test_what_cannot_be_undone_is_asked_for_whatever_the_rules_allow(command: str) -> None:
    """Every row of the table, and every dress a shell knows."""
    assert "ask" == verdict(Action("Bash", command), rules(allow=["Bash"]))


@pytest.mark.parametrize("command", HARMLESS)
def test_words_in_quotes_are_no_commands(command: str) -> None:
    """Who merely speaks of deleting is not asked."""
    assert "allow" == verdict(Action("Bash", command), rules(allow=["Bash"]))


def test_a_grant_for_what_cannot_be_undone_holds_in_this_session_only() -> None:
    """Once is once, the session is the session, and the next ledger knows of neither."""
    standing, ledger = rules(allow=["Bash", "Drop"]), Ledger()
    drop = Action("Drop", path="x", irreversible=True)
    first = decide(drop, standing, ledger)
    ledger.grant(drop)
    once = [decide(drop, standing, ledger).verdict for _ in range(2)]
    ledger.grant(drop, scope="session")
    verdicts = [decide(drop, standing, ledger).verdict for _ in range(2)]

    assert PermissionDecision("ask", "irreversible: asked for in every session") == first
    assert (["allow", "ask"], ["allow"] * 2, "ask") == (once, verdicts, verdict(drop, standing))


@given(st.text(), st.text())
def test_no_text_makes_deciding_fail(tool: str, text: str) -> None:
    """Commands and paths are hostile; the answer is always one of three."""
    standing = rules(
        allow=["Bash(ls:*)", "E(a/**)"], deny=["E(**/b)", "Bash(x *)"], ask=["Bash(y:*)"]
    )
    actions = (
        Action(t, c, p) for t in (tool, "Bash", "E") for c, p in ((text, None), (None, text))
    )

    assert {verdict(action, standing) for action in actions} <= {"allow", "deny", "ask"}


# -- the audit ------------------------------------------------------------------------------


def test_decisions_are_noted_one_per_line(tmp_path: Path) -> None:
    """With time, session, action, decision, reason and scope; for the owner alone."""
    audit = Audit(tmp_path / "home")
    path = tmp_path / "home" / "audit" / "s-1.jsonl"
    for command in ("ls", "a\n\ud800\x1b[2J"):
        audit.record("s-1", Action("Bash", command), PermissionDecision("allow", "why", "once"))
        modes = (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777)
        path.chmod(0o644 if command == "ls" else 0o600)
    first, second = map(json.loads, path.read_bytes().splitlines())

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]{12}Z", first.pop("ts"))
    action = {"tool": "Bash", "command": "ls", "path": None, "irreversible": False}
    rest = {"decision": "allow", "reason": "why", "scope": "once"}
    assert {"session_id": "s-1", "action": action, **rest} == first
    assert "a\n\ud800\x1b[2J" == second["action"]["command"]
    assert (0o600, 0o700) == modes


def test_the_audit_cannot_read_what_it_wrote(tmp_path: Path) -> None:
    """Its handle is write-only, and it has one verb."""
    flags: list[int] = []

    class Watched(Disk):
        def open(self, path: Any, how: int, mode: int = 0o777) -> int:  # type: ignore[override]
            flags.append(how)
            return os.open(path, how, mode)

    (tmp_path / "audit").mkdir()
    Audit(tmp_path, disk=Watched()).record("s", LIST, PermissionDecision("ask", "why"))

    assert [os.O_WRONLY] == [how & os.O_ACCMODE for how in flags]
    assert ["record"] == [name for name in dir(Audit) if not name.startswith("_")]


def test_a_torn_line_costs_itself_only(tmp_path: Path) -> None:
    """What others left at the end of the file is never glued to a decision."""
    path = tmp_path / "audit" / "s.jsonl"
    for _ in range(2):
        Audit(tmp_path).record("s", LIST, PermissionDecision("ask", "why"))
        with path.open("ab") as file:
            file.write(b'{"torn')

    assert [0, 2] == [n for n, x in enumerate(path.read_bytes().split(b"\n")) if x[-1:] == b"}"]


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a" * 65, "x.jsonl"])
def test_no_session_id_becomes_another_path(tmp_path: Path, name: str) -> None:
    """An id that is no name is refused before anything is made."""
    with pytest.raises(NotAppendable, match="not an id"):
        Audit(tmp_path).record(name, LIST, PermissionDecision("ask", "why"))

    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("plant", ["symlink", "fifo", "pipe", "folder", "full", "short"])
def test_an_audit_that_cannot_be_written_says_so(
    tmp_path: Path, plant: str, request: pytest.FixtureRequest
) -> None:
    """Links are not followed, pipes not waited for, half a line is an error."""
    folder = tmp_path / "audit"
    folder.mkdir()
    target = folder / "s.jsonl"
    writes: dict[str, Callable[[int, bytes], int]] = {
        "short": lambda handle, line: os.write(handle, line[:5]),
        "full": lambda _, line: os.write(-1, line),
    }

    class Failing(Disk):
        write = staticmethod(writes.get(plant, os.write))  # type: ignore[assignment]

    match plant:
        case "symlink":
            target.symlink_to(tmp_path / "elsewhere")
        case "fifo":
            os.mkfifo(target)
        case "pipe":
            os.mkfifo(target)
            request.addfinalizer(partial(os.close, os.open(target, os.O_RDONLY | os.O_NONBLOCK)))
        case "folder":
            target.mkdir()

    with pytest.raises(NotAppendable, match="cannot write to the audit"):
        Audit(tmp_path, disk=Failing()).record("s", LIST, PermissionDecision("ask", "why"))

    assert not (tmp_path / "elsewhere").exists()


def test_the_page_about_permissions_runs() -> None:
    """Every sample of docs/permissions.md does what it says."""
    page = (ROOT / "docs" / "permissions.md").read_text(encoding="utf-8")
    samples = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    for sample in samples:
        exec(compile(sample, "docs/permissions.md", "exec"), {})

    assert samples
