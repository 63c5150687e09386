"""Who may do what in this session: grants that die with it, rules the user wrote, an audit.

A grant lives in a `Ledger`: in memory, in one process, for one session. It cannot be written,
copied or filled from anything, so a session that is resumed, adopted or forked starts with none.
Standing rules are `Rules`: a frozen value made by `rules_from` out of the text of a settings file
that the user edits; they never enter the ledger. `decide` takes both, and asks when in doubt.

Invariants: a rule that allows is read narrowly (no text makes it cover a longer command), one
that denies or asks broadly; what cannot be undone is asked for in every session, whatever the
rules allow. `Audit` notes decisions in a file of their own and has no way to read them.

Never here: a way from disk to the ledger; tests/journal/test_permissions.py fails on any. Commands
are judged by their text, which is a help and no sandbox.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import stat
import threading
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn, final

import msgspec

from thence.errors import BadArgument, BadConfig, NotAppendable
from thence.format import layout, shell
from thence.format.records import time_text
from thence.journal.log import DISK, Disk, make_folder

Scope = Literal["once", "session"]

_LISTS = ("allow", "deny", "ask")
_PATTERN = re.compile(r"([A-Za-z0-9_.-]{1,128})(?:\((.*)\))?", re.DOTALL)
_OPERATOR = re.compile(r"[\x00-\x08\x0a-\x1f\x7f;&|<>()$`]")
_QUOTE = re.compile(r"<<|['\"`]")
_EXPANDS = re.compile(r"<<|[$`{]")
_FLAT = str.maketrans({"`": "\n", "#": " ", "{": " ", "}": " ", ",": " "} | dict.fromkeys("'\"\\$"))
_MAX_SCRIPT_CHARS = 16 << 10  # what `shell` looks at; a longer script could hide its end
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Action(msgspec.Struct, frozen=True):
    """What the agent wants to do: a tool, and the command it runs or the path it touches."""

    tool: str
    command: str | None = None
    path: str | None = None
    irreversible: bool = False


class PermissionDecision(msgspec.Struct, frozen=True):
    """What was decided, why, and how long it holds; no scope when it is still to be asked."""

    verdict: Literal["allow", "deny", "ask"]
    reason: str
    scope: Scope | Literal["settings"] | None = None


class _InProcessOnly:
    """Refuses every way that Python offers to write an object out or to make a second one."""

    __slots__ = ()
    _why: ClassVar[str]

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(f"{type(self).__name__}: {self._why}")

    __reduce__ = __reduce_ex__ = __getstate__ = __setstate__ = _refuse
    __copy__ = __deepcopy__ = __replace__ = _refuse
    __dict__ = property(_refuse)

    def __dir__(self) -> list[str]:
        return dir(type(self))


@final
class Ledger(_InProcessOnly):
    """What the user granted and denied since this session began. Empty at first, always."""

    __slots__ = ("__denied", "__once", "__process", "__session")
    _why = "a grant holds in the session it was given in; it cannot be written, copied or loaded"

    def __init__(self) -> None:
        self.__once: set[Action] = set()
        self.__session: set[Action] = set()
        self.__denied: set[Action] = set()
        self.__process = os.getpid()

    def grant(self, action: Action, *, scope: Scope = "once") -> None:
        """Note that the user said yes to exactly this: for the next time, or for the session."""
        if scope not in ("once", "session"):
            raise BadArgument(
                f"`{scope}` is no scope: once or session", hint='grant(action, scope="session")'
            )
        self.__only(action)
        self.__denied.discard(action)
        (self.__once if scope == "once" else self.__session).add(action)

    def deny(self, action: Action) -> None:
        """Note that the user said no to exactly this, for the session."""
        self.__only(action)
        self.__denied.add(action)
        self.__once.discard(action)
        self.__session.discard(action)

    def decision(self, action: Action) -> PermissionDecision | None:
        """Tell what the user said to this very action. A yes for once is used up by asking."""
        self.__only(action)
        if action in self.__denied:
            return PermissionDecision("deny", "denied in this session", "session")
        if action in self.__session:
            return PermissionDecision("allow", "granted for this session", "session")
        try:
            self.__once.remove(action)  # one step, so that no two threads use one grant
        except KeyError:
            return None
        return PermissionDecision("allow", "granted once in this session", "once")

    def clear(self) -> None:
        """Forget everything."""
        for actions in (self.__once, self.__session, self.__denied):
            actions.clear()

    def __len__(self) -> int:
        return len(self.__once | self.__session | self.__denied)

    def __only(self, action: Action) -> None:
        """Take single actions, in the process that was asked: a forked child starts empty."""
        if not isinstance(action, Action):
            raise TypeError("a ledger holds single actions; rules belong in the settings file")
        if os.getpid() != self.__process:
            self.clear()
            self.__process = os.getpid()


class RulePattern(msgspec.Struct, frozen=True):
    """One rule: `Tool`, `Tool(exact)`, `Tool(prefix:*)` or, for paths, `Tool(glob)`."""

    text: str
    tool: str
    argument: str | None = None
    prefix: bool = False


@final
class Rules(_InProcessOnly):
    """The standing rules of one settings file, as they were when it was read. Frozen."""

    __slots__ = ("allowed", "asked", "denied", "source")
    _why = "rules are made by rules_from alone, from a settings file that the user edits"

    allowed: tuple[RulePattern, ...]
    denied: tuple[RulePattern, ...]
    asked: tuple[RulePattern, ...]
    source: str

    def __init__(self, *_: object) -> None:
        self._refuse()

    __setattr__ = __delattr__ = __init__


def rules_from(text: str, *, source: str) -> Rules:
    """Read the table `[permissions]` of a settings file; `source` names it in messages."""
    import tomllib

    try:
        table = tomllib.loads(text).get("permissions", {})
    except (ValueError, RecursionError) as error:
        raise BadConfig(f"{source}: not TOML: {error}") from error
    if not isinstance(table, dict):
        raise BadConfig(f"{source}: permissions: must be a table")
    for key in table.keys() - set(_LISTS):
        raise BadConfig(f"{source}: permissions.{key}: no such key", hint=", ".join(_LISTS))
    lists = [tuple(_patterns(table.get(key, []), source, key)) for key in _LISTS]
    rules = object.__new__(Rules)
    for name, value in zip(("allowed", "denied", "asked", "source"), (*lists, source), strict=True):
        object.__setattr__(rules, name, value)
    return rules


def _patterns(entries: Any, source: str, key: str) -> Iterator[RulePattern]:
    where = f"{source}: permissions.{key}"
    if not isinstance(entries, list):
        raise BadConfig(f"{where}: must be a list of texts", hint=f'{key} = ["Bash(git status)"]')
    for number, text in enumerate(entries, 1):
        match = _PATTERN.fullmatch(text) if isinstance(text, str) else None
        tool, argument = match.groups() if match else ("", "")
        prefix = argument is not None and argument.endswith(":*")
        argument = argument.removesuffix(":*") if prefix else argument
        if argument is not None and (not argument or argument != argument.strip()):
            hint = "Tool, Tool(exact), Tool(prefix:*) or, for paths, Tool(src/**)"
            raise BadConfig(f"{where}: entry {number} is no rule: {text!r}", hint=hint)
        yield RulePattern(text, tool, argument, prefix)


def decide(action: Action, rules: Rules, ledger: Ledger) -> PermissionDecision:
    """Decide on one action. A grant for once is used up by this."""
    programs = _programs(action.command or "")
    for rule in rules.denied:
        if _touches(rule, action, programs or []):
            return PermissionDecision(
                "deny", f"{rule.text} is denied in {rules.source}", "settings"
            )
    if (decision := ledger.decision(action)) is not None:
        return decision
    if why := _irreversible(action, programs):
        return PermissionDecision("ask", f"{why}: asked for in every session")
    for rule in rules.asked:
        if _touches(rule, action, programs or []):
            return PermissionDecision("ask", f"{rule.text} is to be asked for in {rules.source}")
    for rule in rules.allowed:
        if _covers(rule, action):
            return PermissionDecision(
                "allow", f"{rule.text} is allowed in {rules.source}", "settings"
            )
    return PermissionDecision("ask", "no rule and no grant of this session covers it")


def _covers(rule: RulePattern, action: Action) -> bool:
    """Whether a rule that allows means this action: in the narrowest reading."""
    if rule.tool != action.tool or rule.argument is None:
        return rule.tool == action.tool
    if action.path is None and action.command is not None:
        size = len(rule.argument)
        begun, rest = action.command[:size], action.command[size:]
        more = rule.prefix and rest[:1] in (" ", "\t") and not _OPERATOR.search(rest)
        return begun == rule.argument and (not rest or more)
    if action.path is None or action.command is not None or rule.prefix:
        return False
    parts = action.path.split("/")
    plain = action.path == posixpath.normpath(action.path) and ".." not in parts
    return plain and action.path.isprintable() and _fits(parts, rule.argument.split("/"))


def _touches(rule: RulePattern, action: Action, programs: list[list[str]]) -> bool:
    """Whether a rule that denies or asks may mean this action: in the broadest reading."""
    argument = rule.argument
    if rule.tool != action.tool or argument is None:
        return rule.tool == action.tool
    if action.path is not None:
        path = re.sub("^/+", "/", posixpath.normpath(action.path))
        globs = (argument if argument.startswith("/") else f"**/{argument}").split("/")
        if _fits(path.split("/"), globs) or (rule.prefix and path.startswith(argument)):
            return True
    if not rule.prefix and action.command is not None:
        texts = [action.command, *(" ".join(words) for words in programs)]
        return any(text == argument or fnmatchcase(text, argument) for text in texts)
    names = _bare(argument.split())
    return re.match(rf"{re.escape(argument)}(?![\w-])", action.command or "") is not None or any(
        _after(words, names) for words in map(_bare, programs) if words[0] == names[0]
    )


def _fits(parts: list[str], globs: list[str]) -> bool:
    """Match the parts of a path: `**` is any number of them, `*` and `?` stay within one."""
    globs = [*globs, "*"] if globs[-1] == "**" else globs
    places = {0}  # all places the globs may have got to, so that no path makes this slow
    for part in parts:
        here, places = places, set()
        for at, glob in enumerate(globs):
            if at in here and glob == "**":
                here.add(at + 1)
                places.add(at)
            elif at in here and fnmatchcase(part, glob):
                places.add(at + 1)
    return len(globs) in places


# Rows stand together by subject; the formatter would give every row its own line.
# fmt: off
IRREVERSIBLE = (
    ("rm", "-r -R -f --recursive --force"), ("find", "-delete"), ("shred|wipefs|blkdiscard", ""),
    ("dd", "of="), ("mkfs|mke2fs|mkfs.ext4|mkfs.xfs|mkfs.btrfs|mkfs.vfat", ""), ("crontab", "-r"),
    ("git push", "-f -d + : --force --force-with-lease --mirror --delete --prune"),
    ("git reset", "--hard"), ("git clean|checkout", "-f --force"), ("git branch", "-D"),
    ("git stash drop|clear", ""), ("git reflog expire", ""), ("git filter-branch|filter-repo", ""),
    ("gh repo|release delete", ""), ("drop table|database|schema", ""), ("truncate table", ""),
    ("delete from", ""), ("dropdb", ""), ("redis-cli", "flushall flushdb"),
    ("kubectl|helm delete", ""), ("helm uninstall", ""), ("terraform|tofu|pulumi destroy", ""),
    ("terraform|tofu apply", "-destroy -auto-approve"), ("docker system|volume prune|rm", ""),
    ("aws", "delete- terminate- rm rb"), ("gcloud|az", "delete"), ("gsutil rm", ""),
    ("npm|pnpm|yarn|cargo|uv|poetry|hatch publish|unpublish", ""), ("yarn npm publish", ""),
    ("twine upload", ""), ("gem push", ""),
)
"""Evidently irreversible commands: the words they begin with, and which of these must follow."""

_READERS = {
    "sh", "bash", "zsh", "dash", "ksh", "fish", "eval", "su", "ssh", "watch", "parallel", "awk",
    "psql", "mysql", "mariadb", "sqlite3", "duckdb", "sqlcmd", "python", "perl", "ruby", "node",
}
"""Programs that run what they are handed in quotes or on their input."""
# fmt: on


def _irreversible(action: Action, programs: list[list[str]] | None) -> str | None:
    """Why an action cannot be undone; None when nothing shows that it cannot."""
    if action.irreversible:
        return "irreversible"
    if programs is None:
        return "too long to check"
    for words in programs:
        bare = _bare(words)
        for names, flags in IRREVERSIBLE:
            after, wanted = _after(bare, names.split()), flags.split()
            if after and (not wanted or any(_says(w, f) for w in words[after:] for f in wanted)):
                return f"irreversible ({names})"
    return None


def _programs(command: str) -> list[list[str]] | None:
    """Return the words of all that a command may run; None when it is too long to tell.

    Plain quotes hold data. Where the shell expands something, or a program runs what it is
    handed, quotes may end elsewhere than it seems: then all of the text counts as commands.
    """
    scripts = [command.replace("\\\n", "")]
    words = {shell.program_name(w) for step in shell.steps(scripts[0]) for w in step.words}
    if _EXPANDS.search(command) or words & _READERS:
        scripts += [scripts[0].replace("<<", "\n").translate(_FLAT), _QUOTE.sub("\n", command)]
    if any(len(shell.without_heredocs(script)) > _MAX_SCRIPT_CHARS for script in scripts):
        return None
    started = [words for script in scripts for words in shell.programs(script)]
    return started + [
        step.words for script in scripts for step in shell.steps(script) if step.words
    ]


def _after(words: list[str], names: list[str]) -> int:
    """Where the words go on after these names, options between them passed over; else 0."""
    taken, option = 0, False
    for at, word in enumerate(words, 1):
        if taken and word in names[taken].split("|"):
            taken += 1
        elif not (taken and (option or word.startswith("-"))):
            taken = int(word in names[0].split("|"))
        if taken == len(names):
            return at
        option = word.startswith("-")
    return 0


def _bare(words: list[str]) -> list[str]:
    """Spell words as the table does: no folders, no capitals; options as they are."""
    return [w if w.startswith("-") else shell.program_name(w).lower() for w in words]


def _says(word: str, flag: str) -> bool:
    """Whether a word is a flag, be it shortened (`--forc`) or one of several letters (`-xrf`)."""
    if flag.startswith("--"):
        long = word.partition("=")[0]
        return len(long) > 2 and flag.startswith(long)
    if flag.startswith("-") and len(flag) == 2:
        return re.fullmatch(r"-[A-Za-z]+", word) is not None and flag[1] in word
    return word == flag or (flag.endswith(("=", "-", "+", ":")) and word.startswith(flag))


class Audit:
    """Notes decisions in `audit/<session>.jsonl`: write-only, unsynced, for a human to read."""

    def __init__(self, folder: Path, *, disk: Disk = DISK) -> None:
        self._folder = folder / layout.AUDIT
        self._disk = disk
        self._mutex = threading.Lock()
        self._ends: dict[str, int] = {}

    def record(self, session_id: str, action: Action, decision: PermissionDecision) -> None:
        """Append one decision."""
        if not layout.is_id(session_id):
            raise NotAppendable(f"not an id: {session_id[:80]!r}")
        entry = {
            "ts": time_text(time.time()),
            "session_id": session_id,
            "action": msgspec.structs.asdict(action),
            "decision": decision.verdict,
            "reason": decision.reason,
            "scope": decision.scope,
        }
        try:
            with self._mutex:
                make_folder(self._folder, disk=self._disk)
                self._append(session_id, json.dumps(entry).encode() + b"\n")
        except OSError as error:
            raise NotAppendable(
                f"cannot write to the audit: {error.strerror}", hint="check its folder"
            ) from error

    def _append(self, session_id: str, line: bytes) -> None:
        handle = self._disk.open(self._folder / f"{session_id}.jsonl", _APPEND, 0o600)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise NotAppendable("cannot write to the audit: not a regular file")
            os.fchmod(handle, 0o600)
            if status.st_size not in (0, self._ends.get(session_id)):
                line = b"\n" + line  # others wrote, perhaps half a line; it cannot be looked at
            if self._disk.write(handle, line) != len(line):
                raise NotAppendable("cannot write to the audit: no room for a full line")
            self._ends[session_id] = status.st_size + len(line)
        finally:
            self._disk.close(handle)


def remove_notes(root: Path, session: str) -> None:
    """Delete what was noted of a session's decisions, unread, when the session is forgotten."""
    if layout.is_id(session):
        (root / layout.AUDIT / f"{session}.jsonl").unlink(missing_ok=True)


def noted_sessions(root: Path) -> Iterator[str]:
    """Yield the sessions that notes are left of, by the names of their files, unread."""
    for path in (root / layout.AUDIT).glob("*.jsonl"):
        yield path.name.removesuffix(".jsonl")
