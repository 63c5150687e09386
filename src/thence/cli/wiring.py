"""Putting the parts together for the commands: settings, store, adapters, roots, the gate.

The only place that knows where things lie. A command asks for what it needs and gets it ready, or
an error that says what to do.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from thence import config, system
from thence.errors import BadConfig, NotReadable, SessionNotFound

if TYPE_CHECKING:
    from datetime import datetime

    from thence.agents import Adapter
    from thence.agents.profiles import Agent, HookFile, Part, ServerFile
    from thence.bridge.folders import FolderBook
    from thence.format.readout import Readout
    from thence.journal.cleanup import CleanupStep
    from thence.memory.budgets import BudgetUse
    from thence.memory.derivation import Fingerprint
    from thence.memory.digest import Digester
    from thence.memory.gate import Gate
    from thence.memory.labels import Label
    from thence.memory.notes import Note
    from thence.memory.outcome import TaskPattern
    from thence.memory.retention import Policy
    from thence.memory.rulebook import Rulebook
    from thence.memory.rules import Rule
    from thence.memory.session_status import Now, Standing
    from thence.memory.store import SessionRow, Store
    from thence.memory.sweep import Progress, Sweep

KEY = "redact.key"

SWEEP_WAIT_S = 30.0
"""Seconds that a change of the store waits for a running sweep to end."""


def home() -> Path:
    """Return the folder everything is kept in."""
    return config.home()


def settings() -> config.Settings:
    """Read the settings of this home."""
    return config.settings(home())


def has_store() -> bool:
    """Whether anything was ever swept into the default store."""
    file = store_file()
    return file is None or file.exists()


def is_read_only() -> bool:
    """Whether the home, or the file of the store, exists and cannot be written to."""
    file = store_file()
    paths = [home()] if file is None else [home(), file, file.parent]
    return any(path.exists() and not os.access(path, os.W_OK) for path in paths)


def address() -> str:
    """Return where the store is."""
    url: str = settings()["session_memory.store"]
    return f"sqlite:{_path(url)}" if url.startswith("sqlite:") else url


def store_file() -> Path | None:
    """Return the file of the store; None if the store is no file."""
    url = address()
    return Path(_path(url)) if url.startswith("sqlite:") else None


def _full_address() -> str:
    """Return where the store is, and where its payloads are if not with it."""
    objects: str | None = settings()["session_memory.objects"]
    return f"{address()}#objects={objects}" if objects else address()


def _path(address: str) -> str:
    return os.path.expanduser(address.removeprefix("sqlite:"))  # noqa: PTH111 - text, maybe of no file


@contextlib.contextmanager
def store(*, must_exist: bool = True) -> Iterator[Store]:
    """Open the store for one command."""
    if must_exist and not has_store():
        raise SessionNotFound(
            "no sessions stored yet", hint="run thence sweep to import your agents' logs"
        )
    if not must_exist:
        config.make_private(home())
    opened = _open(_full_address())
    _use_encoder(opened)
    try:
        with _translate_errors(opened):
            yield opened
    finally:
        opened.close()


def _use_encoder(opened: Store) -> None:
    """Let a store search by meaning where the settings say so."""
    if settings()["session_memory.semantic"]:
        from thence.memory.encoder import MiniLM, SemanticStore

        # In the background of other work: one thread, and no library may look for a network.
        for name, value in (("OPENBLAS_NUM_THREADS", "1"), ("HF_HUB_OFFLINE", "1")):
            os.environ.setdefault(name, value)
        if isinstance(opened, SemanticStore):
            opened.use_encoder(MiniLM())


def _translate_errors(opened: Store) -> contextlib.AbstractContextManager[None]:
    """Let what a damaged file makes SQLite say be an error like any other."""
    path = getattr(opened, "path", None)
    if not isinstance(path, Path):
        return contextlib.nullcontext()
    from thence.memory.sqlite_file import translate_errors

    return translate_errors(path)


def refresh_briefs(opened: Store, uids: Sequence[str]) -> None:
    """Keep briefs ready of the repositories that sessions were digested of, where hooks ask."""
    from thence.serve import ready_briefs

    if not (home() / ready_briefs.FOLDER).is_dir():
        return
    from thence.memory.labels import texts_of
    from thence.serve.brief import refresh_briefs

    refresh_briefs(opened, texts_of(clean_notes()), home(), uids)


@contextlib.contextmanager
def team(url: str) -> Iterator[Store]:
    """Open the store of a team to read what all machines wrote."""
    from thence.memory.store import OBJECTS, open_store

    where, mark, objects = url.partition(OBJECTS)
    if where.startswith(("postgresql:", "postgres:")):
        where += f"{'&' if '?' in where else '?'}machine=*"
    opened = open_store(f"{where}{mark}{objects}")
    try:
        yield opened
    finally:
        opened.close()


def _open(url: str) -> Store:
    if url.startswith("sqlite:") and "#objects=" not in url:
        # Nearly everybody's; asking all packages who answers takes longer than opening it.
        from thence.memory.sqlite import Sqlite

        return Sqlite(_path(url))
    from thence.memory.store import open_store

    return open_store(url)


def analytics() -> Path:
    """Return the folder of the home's own export, which `thence sql` asks."""
    return home() / "memory" / "analytics"


def purge_exports(opened: Store, redacted: Collection[str] = ()) -> None:
    """Take what the store has let go out of the home's own export as well.

    So are the sessions in `redacted`: the next export writes them as they are in the store now.
    Briefs that were ready may quote any of them.
    """
    from thence.serve import ready_briefs

    ready_briefs.remove_all(home())
    if analytics().is_dir():
        from thence.analytics.exports import FolderTarget

        known = opened.known().sessions
        left = {uid: stored for uid, stored in known.items() if uid not in redacted}
        FolderTarget(analytics()).let_go(left)


def adapters() -> dict[str, Adapter]:
    """Return the readers of all agents that are installed."""
    from thence.agents import adapters as installed

    return installed()


def lazy_adapters() -> Mapping[str, Adapter]:
    """Return the same readers, each imported when it is asked for: for a sweep, and for a look."""
    from thence.agents.profiles import LazyReaders

    return LazyReaders()


def agents() -> dict[str, Agent]:
    """Return the agents that are installed."""
    from thence.agents.profiles import agents as installed

    return installed()


def tellers() -> dict[str, Adapter]:
    """Return the readers of agents that list running sessions, or that delete old ones.

    The others, and those of agents that were never used here, need not be imported.
    """
    return {
        name: agent.reader
        for name, agent in agents().items()
        if agent.profile.has_status and agent.is_used(Path.home(), os.environ)
    }


def status() -> Now:
    """Return what the agents of this machine say of their open sessions."""
    from thence.memory import session_status

    known = tellers()
    return session_status.now(known, roots(known), clean_text)


def standing(session: Readout) -> Standing | None:
    """Return how a session stands that was opened; None when nobody is at it."""
    return status().standing(session.head.session, session.turn().state)


def agents_here(part: Part) -> list[str]:
    """Return the agents that have a part and were used on this machine."""
    known = agents().values()
    return [a.name for a in known if a.offers(part) and root_of(a).is_dir()]


def root_of(agent: Agent) -> Path:
    """Return the folder of an agent of this machine."""
    return agent.root(Path.home(), os.environ)


def settings_folder(agent: Agent, file: HookFile | ServerFile) -> Path:
    """Return the folder that a file of an agent's settings is named from."""
    if not file.config_variable:
        return root_of(agent)
    named = os.environ.get(file.config_variable, "")
    return Path(named).expanduser() if named else Path.home() / file.config_folder


def roots(
    known: Mapping[str, Adapter],
    *,
    only: Sequence[str] = (),
    options: Sequence[str] = (),
    later: bool = False,
) -> dict[str, list[Path]]:
    """Return the folders of agents that are there: given, set, named by variables, usual.

    With `later` those too that may come to be there: an agent makes its folder when it is used.
    """
    named = dict(_parse_roots(known, options))
    for name in only:
        if name not in known:
            raise BadConfig(f"unknown agent {name!r}", hint=f"one of {', '.join(sorted(known))}")
    if named:
        return {name: paths for name, paths in named.items() if not only or name in only}
    sources: dict[str, list[str]] = settings()["session_memory.sources"]
    out: dict[str, list[Path]] = {}
    installed = agents()
    for name in known:
        if only and name not in only:
            continue
        agent = installed.get(name)
        is_used = later or agent is None or agent.is_used(Path.home(), os.environ)
        usual = known[name].roots(Path.home(), os.environ) if is_used else []
        extra = [Path(path).expanduser() for path in sources.get(name, ())]
        old = agent.old_folders(Path.home(), os.environ) if agent is not None else []
        folders = [path for path in dict.fromkeys([*usual, *extra, *old]) if later or path.is_dir()]
        if folders:
            out[name] = folders
    return out


def local_journals(opened: Store) -> list[Path]:
    """Return the known projects that keep sessions of the journal with themselves.

    Logs name projects, and a log may name any folder: only those of this user are looked into.
    """
    from thence.memory.exclusion import Exclusion

    excluded = Exclusion(settings()["session_memory.exclude"])
    named = (total.key[0] for total in opened.totals(["project"]))
    projects = (Path(project) for project in named if project and not excluded.means(project))
    return [project for project in projects if project.is_absolute() and _has_journal(project)]


def left_in_projects(opened: Store) -> list[CleanupStep]:
    """Return what would remove the files that killed processes left in journals of projects."""
    from thence import Journal

    plans = (Journal(local=each).cleanup(dry_run=True) for each in local_journals(opened))
    return [step for plan in plans for step in plan if step.what == "clear"]


def _has_journal(project: Path) -> bool:
    """Whether a folder holds the sessions of a journal, in a folder of this user."""
    from thence.format.layout import LOCAL_SESSIONS

    try:
        status = (project / LOCAL_SESSIONS).lstat()
    except (OSError, ValueError):
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == system.owner_id()


def _parse_roots(
    known: Mapping[str, Adapter], options: Sequence[str]
) -> Iterator[tuple[str, list[Path]]]:
    from thence.agents.profiles import stored_name

    paths: dict[str, list[Path]] = {}
    for option in options:
        named, equals, path = option.partition("=")
        name = stored_name(named)
        if not equals or name not in known:
            why = f"unknown agent {named!r}" if equals else "no agent given"
            hint = f"write agent=PATH, the agent one of {', '.join(sorted(known))}"
            raise BadConfig(f"--root {option}: {why}", hint=hint)
        if not Path(path).expanduser().is_dir():
            raise NotReadable(
                f"--root {option}: no such folder", hint="give the agent's own folder"
            )
        paths.setdefault(name, []).append(Path(path).expanduser())
    yield from paths.items()


def _user_rules() -> list[Rule]:
    """Return the redaction rules of the user."""
    from thence.memory.rules import rule_of

    return [
        rule_of(rule["name"], rule["pattern"], keywords=tuple(rule.get("keywords", ())))
        for rule in settings()["session_memory.redact"]
    ]


def fingerprint() -> Fingerprint:
    """Return the versions by which sessions are derived in this home today."""
    from thence.memory import derivation

    known = rules()
    return derivation.fingerprint(_redaction(), known.toolbox, known.prices)


def _redaction() -> int:
    """Return the version of the redaction rules, those of the user among them."""
    from thence.memory.redact import RULES, rules_version

    return rules_version((*RULES, *_user_rules()))


def rules() -> Rulebook:
    """Return the rules by which sessions are derived in this home, besides those of redaction."""
    from thence.agents.profiles import toolbox
    from thence.memory.pricelist import SHIPPED
    from thence.memory.rulebook import Rulebook

    current = settings()
    return Rulebook(
        toolbox=toolbox(),
        prices=SHIPPED,
        domains=current["session_memory.domains"],
        tasks=_tasks(current["session_memory.tasks"]),
        digesters=_digesters(current["session_memory.digesters"]),
    )


def labels() -> dict[str, Label]:
    """Return the names and tags that the user gave to sessions, by their uids."""
    from thence.memory.labels import read_labels

    return read_labels(home())


def has_budgets() -> bool:
    """Whether the settings say what a day may cost."""
    values = settings()
    prefix = "session_memory.budget."
    return bool(values[f"{prefix}daily_usd"] or values[f"{prefix}projects"])


def budget_uses(store: Store, now: datetime) -> list[BudgetUse]:
    """Return the budgets of the settings with what was spent of them today."""
    from thence.memory import budgets

    values = settings()
    prefix = "session_memory.budget."
    limits = budgets.Budgets(values[f"{prefix}daily_usd"], values[f"{prefix}projects"])
    return budgets.budget_uses(store, limits, now)


def refresh_folders(opened: Store, here: str = "") -> FolderBook:
    """Look where folders of sessions are now; the caller holds the lock of sweeps."""
    from thence.bridge.folders import refresh
    from thence.bridge.sync_state import SyncFiles

    elsewhere = SyncFiles(home()).state().folders
    return refresh(home(), opened, gate().text, here=here, elsewhere=elsewhere)


def clean_notes() -> list[Note]:
    """Return all that was written down, without secrets, for a search or for others."""
    from thence.memory.labels import searchable_notes

    notes = searchable_notes(home())
    return gate().notes(notes) if notes else notes


def session_notes() -> list[Note]:
    """Return all that was written down about sessions, without secrets."""
    return [note for note in clean_notes() if note.session_uid is not None]


def gate() -> Gate:
    """Return the gate of this home, with the user's own rules."""
    from thence.memory.gate import Gate

    # Never copied anywhere: equal secrets have equal marks in this home alone.
    hint = "remove it to create a new one; the same secret then gets another placeholder"
    return Gate(key=config.key(home() / "memory" / KEY, hint=hint), extra=_user_rules())


def own_rules(opened: Store) -> int | None:
    """Return the version of the redaction rules, where all in a store passed those of this home."""
    return _redaction() if isinstance(getattr(opened, "path", None), Path) else None


def printing_gate() -> Gate:
    """Return a gate for what is printed and not stored: where there is no key it keeps none."""
    import secrets

    from thence.memory.gate import Gate

    key = b""
    with contextlib.suppress(OSError):  # no store, or one that cannot be read
        key = (home() / "memory" / KEY).read_bytes()
    return Gate(key=key or secrets.token_bytes(config.KEY_BYTES), extra=_user_rules())


def clean_text(text: str) -> str:
    """Return a text of an agent that is printed and not stored without secrets."""
    return printing_gate().text(text)


def latest_gate() -> Gate:
    """Return the gate of this home; made again only when the settings have changed."""
    try:
        file = (home() / config.FILE).stat()
    except OSError:  # no settings: the rules that ship with us
        return _gate_of(home(), 0, 0)
    return _gate_of(home(), file.st_mtime_ns, file.st_size)


@lru_cache(maxsize=1)
def _gate_of(_home: Path, _modified_ns: int, _size: int) -> Gate:
    return gate()


def policy() -> Policy:
    """Return the retention policy of this home."""
    from thence.memory.retention import Policy

    current = settings()
    prefix = "session_memory.retention."
    knobs = {
        name.removeprefix(prefix): current[name]
        for name in current.values
        if name.startswith(prefix)
    }
    return Policy(**knobs)


def sweep_of(
    opened: Store,
    known: Mapping[str, Adapter] | None = None,
    *,
    evicts: Policy | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
    digests: bool = True,
    anew: Collection[str] = (),
) -> Sweep:
    """Make a sweep of this home; one that `evicts` by a policy, or nothing."""
    from thence.memory.notes import announce_age_removal
    from thence.memory.retention_run import running_sessions
    from thence.memory.sweep import Sweep
    from thence.memory.unread import read_unread

    current, everybody = settings(), lazy_adapters()
    return Sweep(
        opened,
        everybody if known is None else known,
        gate(),
        rules(),
        exclude=current["session_memory.exclude"],
        policy=evicts,
        progress=progress,
        address=_full_address(),
        digests=digests,
        anew=anew,
        announce=partial(announce_age_removal, home()),
        running=lambda: running_sessions(everybody, roots(everybody)),
        unread=read_unread(home()),
    )


def _tasks(patterns: Sequence[dict[str, str]]) -> tuple[TaskPattern, ...] | None:
    if not patterns:
        return None
    from thence.memory.outcome import TaskPattern

    return tuple(TaskPattern(**pattern) for pattern in patterns)


def _digesters(wanted: Sequence[str] | None) -> Mapping[str, Digester] | None:
    if wanted is None:
        return None
    from thence.memory.digest import digesters

    return digesters(tuple(wanted))


def session(opened: Store, wanted: str) -> SessionRow:
    """Find the one session that an id, or the beginning of one, means."""
    from thence.memory.recall import session as meant

    return meant(opened, wanted)
