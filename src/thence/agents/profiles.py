"""What an agent is to the rest of the program: one `Agent` object per agent.

Each agent has a folder here, or a package by somebody else, with a `Profile`: plain data, and the
places of its larger parts. An `Agent` has the profile and loads a part when somebody asks for it.
A part that an agent does not have is None, and `Agent.require` says so in words.

Nothing outside this package knows an agent by name.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property, lru_cache, reduce
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from thence.agents import GROUP, OLD_GROUP, Adapter
from thence.agents.packages import (
    ForeignFailure,
    entry_points,
    foreign,
    is_ours,
    note_problem,
    others_offer,
    silence_of,
)
from thence.errors import BadConfig
from thence.format.records import JSON
from thence.format.tools import BUILT_IN, Toolbox

if TYPE_CHECKING:
    from datetime import datetime
    from importlib.metadata import EntryPoint

    from thence.agents import Machine, Source
    from thence.agents.guard import GuardedAdapter
    from thence.agents.handoffs import HandoffWriter
    from thence.format.facts import Block, Fact
    from thence.format.readout import Record

    SideFile = Callable[[Source, Block, Block], str | None]
    """Returns the path of the file with the whole output of a call, of the call and its result."""
    Sample = Callable[[Machine, datetime], None]
    """Writes made-up sessions, as of a time."""

Part = Literal["resume", "prompt", "hooks", "servers", "handoff", "status", "side_file", "sample"]

PARTS: Mapping[Part, str] = {
    "resume": "has no command to resume a session",
    "prompt": "takes no prompt on its command line",
    "hooks": "has no hooks that thence can use; thence sweep imports its sessions",
    "servers": "has no settings for MCP servers that thence can change",
    "handoff": "cannot continue sessions of other agents",
    "status": "does not say which of its sessions are running",
    "side_file": "has no output files beside its logs",
    "sample": "has no sample sessions",
}
"""The parts that an agent may lack, and what is said when it does."""


class BriefHook(msgspec.Struct, frozen=True):
    """How an agent is told to ask for the brief of a repository when a session begins.

    The answer is `hookSpecificOutput.additionalContext`, as Claude Code has it.
    """

    event: str = "SessionStart"
    matcher: str = ""
    """In which cases; empty for all of them."""
    timeout: int = 10
    """How long the agent waits at most, in the agent's own unit."""
    after_compaction: bool = True
    """The event comes after a compaction too."""


USUAL_EVENTS = (
    *("SessionStart", "UserPromptSubmit", "SubagentStop", "PreCompact", "Notification", "Stop"),
    "SessionEnd",
)
"""Of the nine events that every version of Claude Code knows, and others after it. An older client
that meets one it does not know drops the whole file. The two around each tool call are left out:
the log is written without them, and they would cost a process per call."""
SILENT_EVENTS = tuple(event for event in USUAL_EVENTS if event != "Notification")
"""Those of clients that know no notification."""


class HookFile(msgspec.Struct, frozen=True):
    """A file of settings in which an agent is told which command to run when a session goes on."""

    path: str
    """Below the agent's folder."""
    events: tuple[str, ...] = ()
    form: Literal["hooks", "notify", "tables", "script", "yaml"] = "hooks"
    """Lists of commands by event in JSON; one program named `notify` in TOML; tables `hooks` in
    TOML, each with its event; a script whose name is the event, one file each; lists of commands by
    event in YAML. All files of the usual form are used together."""
    timeout: int = 3
    """How long the agent waits for the command at most, in the agent's own unit. Codex takes no
    more than 3 seconds at the end of a session: it would say so, as an error, in every one."""
    is_own_file: bool = False
    """It holds nothing but our lines, and so may the folder that it is in."""
    command_name: str = ""
    """The name of the command in an entry of JSON, where that is no list of `hooks`; its time limit
    is `timeoutSec` then."""
    event_name: str = "event"
    """The name of the event in a table of TOML."""
    more: dict[str, JSON] = {}
    """What a file that we make says besides; of tables in TOML, what each says."""
    has_shell: bool = True
    """A shell runs the command."""
    needs_consent: str = ""
    """What the user has to do before the agent runs our command."""
    config_variable: str = ""
    """The variable that names the folder that it lies in, where that is not the one of sessions."""
    config_folder: str = ".config"
    """That folder below the home, while the variable has no value."""
    brief: BriefHook | None = None
    """How the brief is asked for; None where what a hook prints does not reach the model."""


class ServerFile(msgspec.Struct, frozen=True):
    """A file of settings in which an agent is told of MCP servers."""

    path: str
    """Below the agent's folder."""
    form: Literal["json", "toml", "yaml"] = "json"
    key: str = "mcpServers"
    is_list: bool = False
    """Servers stand in a list, each with its `name`; in TOML or YAML only."""
    renamed: dict[str, str] = {}
    """How `command`, `args` and `env` are called there, where not so."""
    is_beside: bool = False
    """While no variable names the agent's folder, it lies beside that folder, not in it."""
    config_variable: str = ""
    """The variable that names the folder that it lies in, where that is not the one of sessions."""
    config_folder: str = ".config"
    """That folder below the home, while the variable has no value."""
    is_command_list: bool = False
    """An entry has its program and arguments in one list, and variables under `environment`."""
    more: dict[str, JSON] = {}
    """What an entry says besides the command: how long to wait for the server, say. On a busy
    machine the package that speaks MCP takes longer to load than the ten seconds that are usual."""


class ToolForm(msgspec.Struct, frozen=True):
    """A tool by its name, and the names of its arguments by what they hold."""

    tool: str
    arguments: dict[str, str]
    more: dict[str, JSON] = {}
    """Arguments that a call must have besides."""


class OldSessions(msgspec.Struct, frozen=True):
    """Where other versions of a client, or its successor, leave sessions that are not read."""

    pattern: str
    """Names of folders and of a file below a root of the agent; each may have stars."""
    versions: str
    """Who wrote them: "versions before 0.40"."""
    folders: tuple[str, ...] = ()
    """Further folders below the user's home that the pattern stands in; they may have stars."""
    variable: str = ""
    """The variable that names such a folder."""
    names: Literal["file", "folder"] = "file"
    """What is named after the session."""


class Profile(msgspec.Struct, frozen=True):
    """What is particular to an agent, beyond the format of its logs. All but the label is optional.

    Larger parts are named by their place, `package.module:object`, and loaded when needed.
    """

    label: str
    """What people call it."""
    resume_option: tuple[str, ...] = ()
    """The program and the option that takes a session id."""
    home_variable: str = ""
    """The variable that names its folder."""
    rewind_hint: str = ""
    """How a person goes back in a session, in the agent itself."""
    home_is_parent: bool = False
    """The variable names the folder above the agent's own."""
    home_file: str = ""
    """The file in the agent's folder that the variable names, where it does not name a folder."""
    takes_equals: bool = True
    """The option and its value may be one word, with an equals sign between them."""

    more_variables: tuple[str, ...] = ()
    """Further variables that say where sessions lie."""
    id_prefix: str = ""
    """What stands before the id of a session on a command line."""
    lost_on_resume: str = ""
    """What a resumed session does not get back, where that is not its permissions."""
    needs_equals: bool = False
    """The value of the option may be left out, so it must stand in the same word."""
    is_positional: bool = False
    """The id stands by itself, after the words of `resume_option`."""
    resumes_by_folder: bool = False
    """`resume_option` takes no id: the folder that the agent runs in has one session."""
    long_option: str = ""
    """The option for an id that begins with a dash, where `resume_option` has a short one."""

    start_command: tuple[str, ...] = ()
    """What begins a new session; where that is not the program of `resume_option` alone."""
    prompt_words: tuple[str, ...] = ()
    """The words behind the command that ask for an answer without the agent's interface; `{}` is
    the prompt."""
    prompt_command: tuple[str, ...] = ()
    """What stands for `start_command` then, where only another command takes a prompt."""
    prompt_resume_option: tuple[str, ...] | None = None
    """What stands for `resume_option` then, where that is not the same option behind
    `prompt_command`; empty for an agent that takes no prompt when it resumes a session."""
    reader: str = ""
    """The class that reads its logs, by its place."""
    file_endings: tuple[str, ...] = ()
    """How names of files with sessions end, beside `.jsonl`, `.json`, `.zst` and `.db`: a change of
    such a file is seen while it is watched."""
    usual_folders: tuple[str, ...] = ()
    """Where the agent may keep its things, below the user's home."""
    lists_running: bool = False
    """The reader knows which sessions run: the agent leaves word of its processes."""
    has_status: bool = True
    """The reader knows which sessions run, or after how many days the agent deletes old ones."""
    colours: tuple[str, str] | None = None
    """Its colour on light and on dark pages, as `#rrggbb`."""
    newest_version: str = ""
    """The newest version whose sessions were compared with what was billed."""

    records: tuple[str, ...] = ()
    """Types of records that are known, beside those with words, calls and results; `*` stands for
    the rest of a type. Of any other it is said that it was not understood."""

    tools: dict[str, tuple[str, ...]] = {}
    """Names of its tools by kind, where `thence.format.tools` does not know them already."""
    forms: dict[str, ToolForm] = {}
    """How it calls tools that other agents have too: `shell` (command), `read` (path), `write`
    (path, content), `edit` (path, old, new), `search` (pattern), `todos` (items, text, status)
    and `server` (name, input) for tools of MCP servers."""
    hooks: tuple[HookFile, ...] = ()
    """Where it is told of commands to run; the first is the usual one."""
    servers: ServerFile | None = None
    handoff: str = ""
    """The `Writer` of sessions that come from other agents, by its place."""
    side_file: str = ""
    """The function that finds an output kept beside the log, by its place."""
    sample: str = ""
    """The function that writes made-up sessions, by its place."""
    older: tuple[OldSessions, ...] = ()
    """Where versions that are not read left sessions: these are counted and named."""

    def resume_command(self, session: str) -> list[str]:
        """Return the command line that resumes a session.

        An id is the name of a file that anybody may have written. One that begins with a dash is
        passed so that it cannot be taken for an option, such as one that grants all permissions.
        """
        if self.resumes_by_folder:
            return list(self.resume_option)
        session = f"{self.id_prefix}{session}"
        is_option = session.startswith("-")
        if self.is_positional:
            return [*self.resume_option, *(["--"] if is_option else []), session]
        *before, option = self.resume_option
        if self.needs_equals or (is_option and self.takes_equals):
            return [*before, f"{self.long_option or option}={session}"]
        return [*before, option, session]

    def prompt_argv(self, prompt: str, *more: str, session: str = "") -> list[str]:
        """Return the command line that asks something without the agent's interface.

        With a session it is resumed; `more` are further words of the user's.
        """
        begin = self.start_command or self.resume_option[:1]
        argv = list(self.prompt_command or begin)
        if session and self.prompt_resume_option is None:
            argv += self.resume_command(session)[len(begin) :]
        elif session:
            other = msgspec.structs.replace(self, resume_option=self.prompt_resume_option or ())
            argv = other.resume_command(session)
        # No parser takes a word that begins with a space for an option.
        words = f" {prompt}" if prompt.startswith("-") else prompt
        return [*argv, *more, *(word.replace("{}", words) for word in self.prompt_words)]

    @property
    def resumes_with_prompt(self) -> bool:
        """Whether a session can be resumed without the agent's interface."""
        has_option = self.resume_option and self.prompt_resume_option != ()
        return bool(has_option and self.prompt_words)

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Return the folder that its variable names, and the usual ones."""
        out = [home / place for place in self.usual_folders]
        if named := env.get(self.home_variable):
            own = Path(named).expanduser()
            out.insert(0, own / out[0].name if self.home_is_parent else own)
        return list(dict.fromkeys(out))

    def home_of(self, root: Path) -> str:
        """Return the value that the variable must have for this folder."""
        return str(root.parent if self.home_is_parent else root / self.home_file)

    @property
    def program(self) -> str:
        """The program that runs the agent; empty for one that we cannot start."""
        return (self.start_command or self.resume_option or ("",))[0]

    @property
    def variables(self) -> tuple[str, ...]:
        """All variables that say where its sessions lie."""
        return tuple(filter(None, (self.home_variable, *self.more_variables)))

    @property
    def not_restored(self) -> str:
        """What a resumed session does not get back."""
        usual = f"Permissions are not restored; {self.label} will ask."
        return self.lost_on_resume or usual


class Agent:
    """One agent: its profile, and its parts, each loaded when it is first asked for."""

    def __init__(
        self,
        name: str,
        profile: Profile,
        *,
        reader: Adapter | None = None,
        package: GuardedAdapter | None = None,
    ) -> None:
        self.name = name
        self.profile = profile
        self._package = package
        """What it comes from, if that is another package: its parts are called there."""
        if reader is not None or package is not None:
            self.__dict__["reader"] = reader or package

    @property
    def label(self) -> str:
        """What people call it."""
        return self.profile.label

    @cached_property
    def reader(self) -> Adapter:
        """What finds and reads its sessions."""
        made: Adapter = self._load(self.profile.reader)()
        return made

    @property
    def writer(self) -> HandoffWriter | None:
        """What writes a session that comes from another agent."""
        place = self.profile.handoff
        if self._package is not None and place:
            return self._package.writer(place)
        made: HandoffWriter | None = self._load(place)
        return made

    @property
    def side_file(self) -> SideFile | None:
        """What finds an output that lies beside the log."""
        find: SideFile | None = self._load(self.profile.side_file, str | None)
        return find

    @property
    def sample(self) -> Sample | None:
        """What writes made-up sessions."""
        write: Sample | None = self._load(self.profile.sample)
        return write

    def offers(self, part: Part) -> bool:
        """Return whether it has a part, without loading it."""
        names = {"resume": "resume_option", "prompt": "prompt_words", "status": "lists_running"}
        return bool(getattr(self.profile, names.get(part, part)))

    def require(self, part: Part) -> None:
        """Raise what a person is told when the agent lacks a part that was asked for."""
        if not self.offers(part):
            others = ", ".join(agent.name for agent in agents().values() if agent.offers(part))
            raise BadConfig(f"{self.label} {PARTS[part]}", hint=f"these can: {others or 'none'}")

    def root(self, home: Path, env: Mapping[str, str]) -> Path:
        """Return the folder of the agent: the first that is there, else the first of all."""
        roots = self.reader.roots(home, env)
        return next((path for path in roots if path.is_dir()), roots[0])

    def is_used(self, home: Path, env: Mapping[str, str]) -> bool:
        """Return whether the agent has a folder here, without loading its reader."""
        if not self.profile.usual_folders:
            return True  # only its reader knows
        named = any(name in env for name in self.profile.variables)
        return named or any((home / place).is_dir() for place in self.profile.usual_folders)

    def old_folders(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Return the folders beside its own in which old sessions of it lie."""
        named = [env.get(old.variable, "") for old in self.profile.older]
        out = [Path(folder).expanduser() for folder in named if folder]
        for place in (place for old in self.profile.older for place in old.folders):
            out += sorted(home.glob(place)) if "*" in place else [home / place]
        return [path for path in out if path.is_dir()]

    def unknown_records(self, facts: Iterable[Fact | Record]) -> Counter[str]:
        """Count the records that are kept and were not understood, by type."""
        unknown: Counter[str] = Counter()
        if self.profile.records:
            for fact in facts:
                if not self._known.fullmatch(fact.type) and _is_kept_only(fact):
                    unknown[fact.type] += 1
        return unknown

    @cached_property
    def _known(self) -> re.Pattern[str]:
        parts = (re.escape(name).replace(r"\*", ".*") for name in self.profile.records)
        return re.compile("|".join(parts))

    def _load(self, place: str, gives: Any = Any) -> Any:
        """Return a part by its place; what one of another package gives is checked."""
        if not place or self._package is None:
            return object_at(place) if place else None
        return self._package.part(place, gives)


def _is_kept_only(fact: Fact | Record) -> bool:
    """Return whether a record says nothing that anybody asks for: it is shown as it is."""
    return bool(fact.blocks) and all(block.kind == "lifecycle" for block in fact.blocks)


def object_at(place: str) -> Any:
    """Return what a place names: `package.module:object`."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


# -- which there are ------------------------------------------------------------------------


def agents() -> dict[str, Agent]:
    """Return all agents that are installed and can be used, by name, sorted; ours come first.

    One of somebody else that cannot be loaded, lacks something or has the name of another is left
    out and noted (`packages.problems`).
    """
    return {name: _own(name) for name in _folders()} | _others()


class LazyReaders(Mapping[str, Adapter]):
    """The readers of all agents, each imported when it is asked for."""

    def __getitem__(self, name: str) -> Adapter:
        """Return the reader of an agent."""
        agent = agent_of(name)
        if agent is None:
            raise KeyError(name)
        return agent.reader

    def __contains__(self, name: object) -> bool:
        """Return whether there is such an agent."""
        return name in _folders() or name in _others()

    def __iter__(self) -> Iterator[str]:
        """Yield the names of all agents, sorted; ours come first."""
        yield from _folders()
        yield from _others()

    def __len__(self) -> int:
        """Return how many agents there are."""
        return len(_folders()) + len(_others())


def toolbox() -> Toolbox:
    """Return the names of tools by which calls are judged here: those of all that is installed."""
    return toolbox_of(tuple(agents().values()))


@lru_cache(maxsize=1)
def toolbox_of(known: tuple[Agent, ...]) -> Toolbox:
    """Return the names of tools of some agents, whichever readers are imported.

    Those of our agents count in the sessions of all, as they hand sessions to each other; those of
    another package in the sessions of its agent alone, so that it changes nobody else's.
    """
    ours = (agent.profile for agent in known if agent.name in _folders())
    everybody = reduce(_add_names, ours, BUILT_IN)
    own = {a.name: _add_names(everybody, a.profile) for a in known if a.name not in _folders()}
    names = frozenset(agent.name for agent in known)
    return msgspec.structs.replace(everybody, own=MappingProxyType(own), agents=names)


def label_of(name: str) -> str:
    """Return what people call an agent: its label, or the name where nobody knows it."""
    known = agent_of(name)
    return known.label if known is not None else name


def stored_name(text: str) -> str:
    """Return the stored name of an agent that is named by it or by its label, in any case.

    `Claude Code`, `claude-code` and `claude` are `claude`; a name that nobody knows stays.
    """
    wanted = text.lower()
    if agent_of(wanted) is not None:
        return wanted
    spelled = wanted.replace("-", " ")
    matches = (name for name, agent in agents().items() if agent.label.lower() == spelled)
    return next(matches, text)


def agent_of(name: str) -> Agent | None:
    """Return an agent by its name; None if there is none."""
    return _own(name) if name in _folders() else _others().get(name)


def file_endings() -> tuple[str, ...]:
    """Return how names of files with sessions end, beside the usual ones."""
    return tuple(end for agent in agents().values() for end in agent.profile.file_endings)


def folder_variables() -> tuple[str, ...]:
    """Return all variables that name folders of agents."""
    return tuple(name for agent in agents().values() for name in agent.profile.variables)


@cache
def _folders() -> tuple[str, ...]:
    """Return the names of our own agents: each is a folder with a profile."""
    here = Path(__file__).parent
    names = (name for name in os.listdir(here) if (here / name / "profile.py").is_file())  # noqa: PTH208
    return tuple(sorted(name.removesuffix("_") for name in names))


@cache
def _own(name: str) -> Agent:
    folder = f"{name}_" if iskeyword(name) else name
    profile = import_module(f"thence.agents.{folder}.profile").PROFILE
    assert isinstance(profile, Profile)  # noqa: S101 - ours, and tested
    return Agent(name, profile)


@cache
def _others() -> dict[str, Agent]:
    """Return the agents of other packages."""
    known: dict[str, Agent] = {}
    if not others_offer(GROUP) and not others_offer(OLD_GROUP):
        return known
    for point in (*entry_points(GROUP), *entry_points(OLD_GROUP)):
        if is_ours(point):
            continue
        if (why := silence_of(point)) is not None:
            note_problem(point, why)
            continue
        try:
            with foreign():
                agent = _foreign(point)
                if agent.name in _folders() or agent.name in known:
                    raise TypeError(f"another agent is called {agent.name}")
        except ForeignFailure as error:
            note_problem(point, error)
            continue
        known[agent.name] = agent
    return known


def _foreign(point: EntryPoint) -> Agent:
    """Return the agent of another package; raises whatever is wrong with it."""
    from thence.agents.guard import GuardedAdapter

    package = GuardedAdapter(point)
    name = package.name
    known = package.profile
    profile = msgspec.convert(known, Profile) if known is not None else Profile(label=name)
    return Agent(name, profile, package=package)


def _add_names(toolbox: Toolbox, profile: Profile) -> Toolbox:
    """Return the names of tools with those of an agent."""
    arguments = [pair for form in profile.forms.values() for pair in form.arguments.items()]
    form = profile.forms.get("todos")
    return toolbox.with_names(
        profile.tools,
        commands=[name for what, name in arguments if what == "command"],
        paths=[name for what, name in arguments if what == "path"],
        lists={form.tool: form.arguments["items"]} if form is not None else {},
    )
