"""What a session knows beyond its messages: domains, each folded over the events of a chain.

A domain has a name, a version, a start value and a fold. Built in: messages, files, todos, cost,
model, cwd, worktree, attribution; a harness registers its own. Invariants: a domain that fails
loses itself only: it is *absent* from the values and from snapshots, and who asks for it by name
gets its empty value; no event about permissions reaches any fold, registered ones included; a
snapshot is a cache, so that one of an unknown version, or of a failed domain, sends that domain
back to the root of the chain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Generic, TypeVar

import msgspec

from thence.format import tools
from thence.format.records import (
    JSON,
    MESSAGES,
    Event,
    Worktree,
    blocks,
    is_permission,
    usage_of,
    word,
)

V = TypeVar("V")

SNAPSHOT_VERSION = 1
_WORKTREE = frozenset(Worktree.__struct_fields__)
_OVERRIDES = frozenset(
    {
        "effort",
        "max_tokens",
        "reasoning",
        "reasoning_effort",
        "seed",
        "service_tier",
        "speed",
        "stop_sequences",
        "temperature",
        "thinking",
        "top_k",
        "top_p",
        "verbosity",
    }
)
_EDIT_HOW = ("add", "edit", "delete", "move")
_TOUCH_HOW = (*_EDIT_HOW, "read")


class Domain(msgspec.Struct, Generic[V], frozen=True):
    """One kind of state: how it starts and how an event changes it.

    The value is handed over: `fold` may change it in place, and returns what holds from then
    on. Values are JSON, so that a boundary can carry them. A domain `seen_by_model` is folded
    over the chain with its compactions applied and is never part of a snapshot; the others are
    folded over the whole line, compacted events included.
    """

    name: str
    start: Callable[[], V]
    fold: Callable[[V, Event], V]
    version: int = 1
    seen_by_model: bool = False
    show: Callable[[V], JSON] | None = None
    """What a reader gets, when the fold itself must remember more."""
    clean: Callable[[V], V] | None = None
    """What of a snapshot's value may come back."""


class SessionState(msgspec.Struct):
    """The values of all domains after a chain, and why the failed ones are missing."""

    values: dict[str, JSON]
    failed: dict[str, str]
    folded: dict[str, JSON]
    """What the folds go on from; a snapshot keeps this."""
    empty: dict[str, JSON] = msgspec.field(default_factory=dict)
    """What the failed domains start with."""

    def __getattr__(self, name: str) -> JSON:
        """Return a domain's value as an attribute: `state.todos`. A failed one has its empty value.

        `failed` says which those are and why.
        """
        for values in ("values", "empty"):
            known: dict[str, JSON] = object.__getattribute__(self, values)
            if name in known:
                return known[name]
        message = f"no such domain: {name}"
        raise AttributeError(message)


class Domains:
    """The domains of one harness: the built-in ones and its own."""

    def __init__(self, domains: Iterable[Domain[JSON]] | None = None) -> None:
        chosen = BUILT_IN if domains is None else domains
        self._all: dict[str, Domain[JSON]] = {domain.name: domain for domain in chosen}

    def register(self, domain: Domain[JSON]) -> None:
        """Add a domain; one of the same name is replaced."""
        self._all[domain.name] = domain

    def fold(
        self,
        line: Sequence[Event],
        seen: Sequence[Event] | None = None,
        *,
        snapshot: JSON = None,
        since: int = 0,
    ) -> SessionState:
        """Fold a line, and over `seen` what the model sees of it (all of it when not given).

        Domains that a snapshot holds go on from it at event `since` of the line.
        """
        state = SessionState({}, {}, {})
        stored = _entries_of(snapshot)
        for name, domain in self._all.items():
            events = line if seen is None or not domain.seen_by_model else seen
            for start, at in _starts(domain, stored.get(name), since):
                try:
                    value = start()
                    for event in events[at:]:
                        if not is_permission(event.type):
                            value = domain.fold(value, event)
                    shown = domain.show(value) if domain.show else value
                except Exception as error:  # noqa: BLE001 - a harness's own code: costs its domain only
                    state.failed[name] = f"{type(error).__name__}: {error}"
                    state.empty[name] = _empty(domain)
                else:
                    state.folded[name], state.values[name] = value, shown
                    state.failed.pop(name, None)
                    state.empty.pop(name, None)
                    break
        return state

    def snapshot(self, state: SessionState) -> dict[str, JSON]:
        """Return what a boundary carries. A failed domain is absent, never empty."""
        entries = {
            name: {"version": domain.version, "value": state.folded[name]}
            for name, domain in self._all.items()
            if not domain.seen_by_model and name in state.folded
        }
        return {"version": SNAPSHOT_VERSION, "domains": entries}

    def covers(self, snapshot: JSON) -> bool:
        """Whether a snapshot holds every domain of ours, in the version we fold."""
        stored = _entries_of(snapshot)
        return all(
            _is_known(domain, stored.get(name))
            for name, domain in self._all.items()
            if not domain.seen_by_model
        )


def cost_of(events: Iterable[Event], start: JSON = None) -> dict[str, JSON]:
    """Add up the bills of events, whatever line they are on, going on from an earlier sum."""
    value = _no_cost() if start is None else start
    for event in events:
        value = _cost(value, event)
    return value


def _entries_of(snapshot: JSON) -> Mapping[str, JSON]:
    """Read the domains of a snapshot; none when it is of another version or shape."""
    if not isinstance(snapshot, Mapping) or snapshot.get("version") != SNAPSHOT_VERSION:
        return {}
    domains = snapshot.get("domains")
    return domains if isinstance(domains, Mapping) else {}


def _is_known(domain: Domain[JSON], entry: JSON) -> bool:
    """Whether a snapshot's entry is of our version and of the shape the domain starts with."""
    if not isinstance(entry, Mapping) or entry.get("version") != domain.version:
        return False
    start, value = domain.start(), entry.get("value")
    if isinstance(start, dict):
        return isinstance(value, dict) and start.keys() <= value.keys()
    return isinstance(value, list) if isinstance(start, list) else "value" in entry


def _starts(
    domain: Domain[JSON], entry: JSON, since: int
) -> Iterator[tuple[Callable[[], JSON], int]]:
    """Where a domain's fold may start: at its snapshot, and when that fails at the root."""
    if _is_known(domain, entry) and not domain.seen_by_model:
        yield lambda: _entry_of(domain, entry["value"]), since
    yield domain.start, 0


def _empty(domain: Domain[JSON]) -> JSON:
    """Return what a reader gets of a domain before any event; None when not even that works."""
    try:
        value = domain.start()
        return domain.show(value) if domain.show else value
    except Exception:  # noqa: BLE001 - a harness's own code: costs its domain only
        return None


def _entry_of(domain: Domain[JSON], value: JSON) -> JSON:
    """Take a value out of a snapshot, and of it what may come back."""
    return domain.clean(deepcopy(value)) if domain.clean else deepcopy(value)


# -- built-in folds -------------------------------------------------------------------------


def _messages(value: list[JSON], event: Event) -> list[JSON]:
    if event.type not in MESSAGES:
        return value
    value.append({"role": event.fields["role"], "content": event.fields["content"]})
    return value


def _files(value: dict[str, JSON], event: Event) -> dict[str, JSON]:
    """Which files were changed or read, how last, and by which event.

    A change is not hidden by reading the file afterwards.
    """
    for path, how, by in _note_file(value["open"], event, _TOUCH_HOW):
        if how != "read" or value["files"].get(path, {}).get("how") in (None, "read"):
            value["files"][path] = {"how": how, "by": by}
    return value


def _todos(value: list[JSON], event: Event) -> list[JSON]:
    if event.type == "todos":
        return list(event.fields["todos"])
    for call in _calls(event):
        arguments = call.get("input")
        if call.get("name") == "TodoWrite" and isinstance(arguments, dict):
            stated = arguments.get("todos")
            value = list(stated) if isinstance(stated, list) else value
    return value


def _cost(value: dict[str, JSON], event: Event) -> dict[str, JSON]:
    if event.type != "assistant":
        return value
    fields = event.fields
    usage = usage_of(fields.get("usage"))
    spent = fields.get("cost_usd")
    if usage is None and spent is None:
        return value
    key = fields.get("id") or event.uuid
    last = value.get("last") or {}
    now = {
        "input": usage.input_tokens if usage else 0,
        "output": usage.output_tokens if usage else 0,
        "cache_write": usage.cache_creation_input_tokens if usage else 0,
        "cache_read": usage.cache_read_input_tokens if usage else 0,
        "usd": float(spent) if isinstance(spent, (int, float)) else 0.0,
    }
    # The blocks of one response repeat its bill: the one with the highest output counts, whole.
    same = last.get("key") == key
    before = last["bill"] if same else dict.fromkeys(now, 0)
    if same and before["output"] > now["output"]:
        return value
    totals = {name: value[name] + now[name] - before[name] for name in now}
    responses = value["responses"] + (not same)
    return {**totals, "responses": responses, "last": {"key": key, "bill": now}}


def _no_cost() -> dict[str, JSON]:
    counts = dict.fromkeys(("input", "output", "cache_write", "cache_read", "responses"), 0)
    return {**counts, "usd": 0.0, "last": None}


def _model(value: dict[str, JSON], event: Event) -> dict[str, JSON]:
    fields = event.fields
    if event.type == "model":
        return _known_model({"model": fields["model"], "overrides": fields.get("overrides")})
    if event.type in ("header", "assistant") and (model := word(fields.get("model"))):
        return {**value, "model": model}
    return value


def _cwd(value: str | None, event: Event) -> str | None:
    if event.type == "cwd":
        return str(event.fields["cwd"])
    return word(event.fields.get("cwd")) or value if event.type == "header" else value


def _worktree(value: dict[str, JSON], event: Event) -> dict[str, JSON]:
    return _known_worktree({**value, **event.fields}) if event.type == "worktree" else value


def _known_model(value: dict[str, JSON]) -> dict[str, JSON]:
    """Settings of a model that are known to be no more than that.

    A list of what may pass, not of what may not: a mode or a grant that was recorded as an
    override, or planted in a snapshot, must not come back under a name nobody thought of.
    """
    overrides = value["overrides"] if isinstance(value["overrides"], dict) else {}
    known = {name: how for name, how in overrides.items() if name in _OVERRIDES}
    return {"model": word(value["model"]) or None, "overrides": known}


def _known_worktree(value: dict[str, JSON]) -> dict[str, JSON]:
    return {name: field for name, field in value.items() if name in _WORKTREE}


def _attribution(value: dict[str, JSON], event: Event) -> dict[str, JSON]:
    """Which turn changed which file: path -> the prompts whose turns touched it, in order."""
    if event.type == "user" and not any(
        b.get("type") == "tool_result" for b in blocks(event.fields.get("content"))
    ):
        value["turn"] = event.uuid
    for path, _, _ in _note_file(value["open"], event, _EDIT_HOW):
        turns = value["files"].setdefault(path, [])
        if not turns or turns[-1] != value["turn"]:
            turns.append(value["turn"])
    return value


def _calls(event: Event) -> list[dict[str, JSON]]:
    if event.type != "assistant":
        return []
    return [b for b in blocks(event.fields.get("content")) if b.get("type") == "tool_use"]


def _note_file(
    waiting: dict[str, JSON], event: Event, ways: tuple[str, ...]
) -> list[tuple[str, str, str]]:
    """Files that an event touched in one of these ways: (path, how, by which event).

    A `file` event says so itself. A call of a file tool waits for its result in `waiting`: one
    that failed touched nothing.
    """
    if event.type == "file":
        path, how = str(event.fields["path"]), str(event.fields.get("how") or "edit")
        return [(path, how, event.uuid)] if how in ways else []
    for call in _calls(event):
        does, _ = tools.BUILT_IN.judge(word(call.get("name")), call.get("input"))
        paths = [[path, how, event.uuid] for path, how in does.touches if how in ways]
        if paths:
            waiting[word(call.get("id"))] = paths
    out: list[tuple[str, str, str]] = []
    for block in blocks(event.fields.get("content")) if event.type == "user" else ():
        if block.get("type") == "tool_result":
            done = waiting.pop(word(block.get("tool_use_id")), ())
            out += [] if block.get("is_error") is True else [tuple(change) for change in done]
    return out


def _only_files(value: dict[str, JSON]) -> JSON:
    return value["files"]


def _nobody() -> dict[str, JSON]:
    return {"turn": None, "files": {}, "open": {}}


BUILT_IN: tuple[Domain[JSON], ...] = (
    Domain("messages", list, _messages, seen_by_model=True),
    Domain("files", lambda: {"files": {}, "open": {}}, _files, version=2, show=_only_files),
    Domain("todos", list, _todos),
    Domain("cost", _no_cost, _cost),
    Domain("model", lambda: {"model": None, "overrides": {}}, _model, clean=_known_model),
    Domain("cwd", lambda: None, _cwd),
    Domain("worktree", dict, _worktree, clean=_known_worktree),
    Domain("attribution", _nobody, _attribution, show=_only_files),
)
