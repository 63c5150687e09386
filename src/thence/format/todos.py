"""Todos: what an agent still owes, read out of the conversation itself.

Three sources, in order of trust: the todo and task tools of the agents, check lists in the
assistant's prose, and intentions it stated ("I still need to ...") with whether a later statement
or a later successful call fulfilled them. An announcement ("I'll fix it") lives only as long as
its turn: a call of its kind, or an account given after the work, settles it.

`pending_todos` are open entries of lists, and intentions of the last answer alone, if it belongs
to the last turn of a session that did not end well or still runs: what was said before is old news,
and what a session that ended well says in closing is an outlook. An intention needs a verb and an
object.

Invariants: pure, and the answer depends on nothing but the steps; todos come in the order in which
they were opened, in `pending_todos` lists first; a failed call changes nothing; foreign data of
any shape is tolerated, never raised on; the work per text is bounded, so hostile prose costs linear
time.

It never reads side files (agents move and drop them), never takes the user's words, quotes or code
for intentions of the agent, and never closes a todo without naming the step, in `closed_by`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from thence.format.expressions import expression
from thence.format.intentions import (
    LINE,
    NEXT,
    NOW,
    TEXT,
    THEN,
    Terms,
    aim,
    boxes_of,
    call_terms,
    statements,
    terms,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from thence.format.tools import Effect


class Step(msgspec.Struct, frozen=True):
    """One thing said or done, in chain order."""

    id: str
    role: str
    text: str = ""
    tool: str = ""
    input: Any = None
    result: Any = None
    failed: bool = False


class Todo(msgspec.Struct, frozen=True):
    """One thing to do, and the steps that opened it and closed it (fulfilled or dropped)."""

    text: str
    status: str
    origin: str
    opened_by: str
    closed_by: str | None = None
    key: str = ""


def todos(steps: Iterable[Step]) -> list[Todo]:
    """Every todo of the chain, open and closed, in order of opening."""
    ledger = _Ledger()
    for step in steps:
        ledger.take(step)
    ledger.rest()
    return [
        Todo(item.text, item.status, item.origin, item.opened_by, item.closed_by, item.key)
        for item in ledger.items
        if item.status != _NO_TODO
    ]


def pending_todos(steps: Iterable[Step], *, ended_well: bool = False) -> list[Todo]:
    """Return what is still to be done: open entries of lists, then intentions of the last answer.

    `ended_well` says that the session is over and was a success: then lists alone count.
    """
    left = [
        todo for todo in todos(_statements_at_end(list(steps), ended_well)) if todo.status in _OPEN
    ]
    return sorted(left, key=lambda todo: todo.origin == "intention")


def todo_steps(steps: Iterable[Step]) -> list[Step]:
    """Return the calls that the lists of todos are made of, for whoever lets go of the rest.

    Of a list that is written whole each time that is its last one.
    """
    out: list[Step] = []
    for step in steps:
        tool = _string(step.tool)
        if step.failed or (tool not in _LISTS and tool not in _TASKS):
            continue
        if tool in _LISTS:
            _, family, merges = _LISTS[tool]
            if _fields(step.input).get("merge", merges) is not True:
                out = [s for s in out if s.tool in _TASKS or _LISTS[s.tool][1] != family]
            step = msgspec.structs.replace(step, result=None)  # noqa: PLW2901 - the list is input
        out.append(step)
    return out


class ListEntries(msgspec.Struct, frozen=True):
    """What a call writes on a list."""

    family: str
    texts: tuple[str, ...]
    replaces: bool
    """What is not among them is no longer on the list."""


def known_list(tool: str, arguments: Any, effect: Effect) -> tuple[str, Any]:
    """Return a call; of a list that only its agent knows by name as one that is known here."""
    if effect.kind != "plan" or not effect.argument or tool in _LISTS:
        return tool, arguments
    name, field = _ANY_LIST
    return name, {field: _fields(arguments).get(effect.argument)}


def is_list_tool(tool: str) -> bool:
    """Return whether a tool keeps a list of todos."""
    return tool in _LISTS or tool in _TASKS


def entries_of(step: Step) -> ListEntries | None:
    """Return what a call writes on its list; None if it writes none."""
    if step.failed or step.tool not in _LISTS:
        return None
    field, family, merges = _LISTS[step.tool]
    fields = _fields(step.input)
    rows = _decode_json(fields.get(field))
    texts = tuple(filter(None, map(_row_text, rows))) if isinstance(rows, list) else ()
    return ListEntries(family, texts, fields.get("merge", merges) is not True)


def evidence_of(step: Step) -> Step:
    """Return a call with no more of its input than what may show that it fulfils something."""
    value = _decode_json(step.input)
    text = _flat(value, _EVIDENCE)
    if len(text) < _EVIDENCE or not isinstance(value, dict):
        return msgspec.structs.replace(step, result=None)
    paths = {name: value[name] for name in _PATHS if isinstance(value.get(name), str)}
    return msgspec.structs.replace(step, input={**paths, "": text}, result=None)


def _statements_at_end(steps: list[Step], ended_well: bool) -> Iterator[Step]:  # noqa: FBT001
    """Yield the steps without sentences that cannot be pending; check lists stay."""
    last = None
    for at, step in enumerate(steps):
        if not step.tool and (text := _string(step.text).strip()) and not text.startswith(_STOPPED):
            last = at if step.role == "assistant" and not ended_well else None
    for at, step in enumerate(steps):
        if at != last and step.role == "assistant" and step.text:
            yield msgspec.structs.replace(step, text=boxes_of(_string(step.text)))
        else:
            yield step


_STOPPED: Final = "[Request interrupted"  # what a harness writes in the user's name
_OPEN: Final = frozenset({"pending", "in_progress"})
_NO_TODO: Final = ""  # status of an announcement that its own turn settled

# Bounds: what lies beyond them is not read, so time stays linear in the input.
_SHOWN: Final = 300  # of an intention
_EVIDENCE: Final = 8_192  # of a call: in a longer one any word occurs, so it proves nothing
_RECENT: Final = 128  # todos that a statement or a call is compared with
_ALIKE: Final = 0.6  # share of their terms that two open todos have in common when they are one


# --- what the tools hold ---
# Tool -> field with the list, the tool whose list it is, does it merge unless told otherwise.
# One client fills in merge=true where the model left it out, and repeats the list as a plan.
_LISTS: Final = {
    "TodoWrite": ("todos", "TodoWrite", False),
    "todo_write": ("todos", "todo_write", True),
    "plan": ("entries", "todo_write", False),
    "update_plan": ("plan", "update_plan", False),
    "write_todos": ("todos", "write_todos", False),
    "TodoList": ("todos", "TodoList", False),
    "todowrite": ("todos", "todowrite", False),
    "todo": ("todos", "todo", False),
}
_TASKS: Final = frozenset({"TaskCreate", "TaskUpdate", "TaskList", "TaskGet"})
_PLANS: Final = frozenset(name.lower() for name in (*_LISTS, *_TASKS))
_ANY_LIST: Final = "todo", "todos"  # what stands for a list that only its agent knows by name
_PATHS: Final = ("file_path", "path", "notebook_path")
_TASK_MADE: Final = expression(r"Task #(\w{1,64}) created")
_TASK_LINE: Final = expression(r"#(?P<id>\w{1,64}) \[(?P<status>\w{1,32})\] (?P<subject>\S.*)")
# An unknown status counts as pending: to show one too many is better than to lose one.
_STATUS: Final = {
    **dict.fromkeys(("in_progress", "inprogress", "active", "doing", "started"), "in_progress"),
    **dict.fromkeys(("completed", "complete", "done", "finished", "resolved"), "done"),
    **dict.fromkeys(("cancelled", "canceled", "deleted", "dropped", "skipped"), "dropped"),
}


def _string(value: Any) -> str:
    if type(value) is int and abs(value) < 1 << 63:  # longer ones Python may refuse to write
        return str(value)
    return value if isinstance(value, str) else ""


def _decode_json(value: Any) -> Any:
    """A JSON string as what it holds; anything else, and text that is no JSON, as it is."""
    try:
        return msgspec.json.decode(value) if isinstance(value, str) else value
    except (msgspec.DecodeError, ValueError, RecursionError):
        # Some clients send lists as text, some as values.
        return value


def _fields(value: Any) -> dict[Any, Any]:
    decoded = _decode_json(value)
    return decoded if isinstance(decoded, dict) else {}


def _flat(value: Any, limit: int) -> str:
    """The strings inside a value, as many as fit into the limit."""
    texts, queue = [""], [value]
    for node in queue:
        if isinstance(node, str):
            texts.append(node[:limit])
            limit -= len(texts[-1])
        elif isinstance(node, dict | list) and len(queue) < _EVIDENCE:
            queue.extend((list(node.values()) if isinstance(node, dict) else node)[:_EVIDENCE])
    return "\n".join(texts)


def _normal(text: str) -> str:
    """Text as an identity: case, emphasis, spacing and closing punctuation do not matter."""
    return " ".join(re.sub(r"[`*~]", "", text[:LINE]).casefold().split()).rstrip(".,;:! ")


def _row_text(row: Any) -> str:
    fields = {"content": row} if isinstance(row, str) else _fields(row)
    names = ("content", "step", "subject", "text", "title", "description")
    return next((text for n in names if (text := _string(fields.get(n)).strip())), "")


# --- the ledger ---


class _Item(msgspec.Struct, eq=False):
    """A todo while the steps are read. `turn` and `since` (calls before it) place an intention."""

    text: str
    origin: str
    opened_by: str
    key: str
    first: str
    """Its text when it was opened."""
    due: str = ""
    turn: int = 0
    since: int = 0
    status: str = "pending"
    closed_by: str | None = None
    about: Terms | None = None

    @property
    def terms(self) -> Terms:
        """What it is about; of most nobody asks."""
        if self.about is None:
            self.about = aim(self.first)
        return self.about


class _Ledger:
    """The todos so far, and what is needed to recognise them again."""

    def __init__(self) -> None:
        self.items: list[_Item] = []
        self.known: dict[tuple[str, str], _Item] = {}  # by (family, id) and by (origin, text)
        self.lists: dict[str, list[_Item]] = {}  # by family, what its list holds now
        self.turn = self.calls = self.tasks = 0
        self.fresh: _Item | None = None  # the last intention said, before any call
        self.account = ""  # the step that spoke last, if no call came after it

    def take(self, step: Step) -> None:
        """Read one step: first what it says, then what it does."""
        text, tool, where = _string(step.text), _string(step.tool), _string(step.id)
        if step.role == "assistant" and text.strip():
            self._hear(text, where)
        elif step.role == "user" and not tool and text.strip():
            self.rest()
            self.turn += 1
        if tool and not step.failed:
            self._see(tool, step.input, where)
            if tool in _LISTS:
                self._list(step, where)
            elif tool in _TASKS:
                self._tasks(step, where)

    def rest(self) -> None:
        """The turn is over. Words after deeds are its account, and settle what it announced."""
        announced = self.fresh and self.fresh.due in (NOW, THEN)
        for item in self._due() if self.account and not announced else ():
            if item.turn == self.turn and item.since < self.calls:
                if item.due == NOW:
                    item.status = _NO_TODO
                elif item.due == THEN and not item.terms.runs:  # commands leave a trace
                    self._set(item, "done", self.account)

    def _add(self, text: str, origin: str, where: str, key: str) -> _Item:
        self.items.append(_Item(text, origin, where, key, text, "", self.turn, self.calls))
        return self.items[-1]

    def _set(self, item: _Item, status: str, where: str) -> None:
        if status != item.status:
            item.status, item.closed_by = status, None if status in _OPEN else where
            if status == "done" and item.origin != "intention":
                self._close(item.text[:LINE], "done", where)

    def _due(self) -> Iterator[_Item]:
        """The open intentions among the recent todos."""
        recent = self.items[-_RECENT:]
        return (item for item in recent if item.origin == "intention" and item.status in _OPEN)

    def _close(self, text: str, status: str, where: str) -> None:
        due = list(self._due())
        evidence = terms(text, evidence=True) if due else None
        for item in due:
            if evidence is not None and item.terms.met(evidence):
                self._set(item, status, where)

    def _hear(self, text: str, where: str) -> None:
        self.fresh, self.account = None, where
        seen: dict[str, int] = {}
        for statement in statements(text):
            if statement.boxed:
                item = self._item_named(statement.text, "checklist", where, seen)
                self._set(item, statement.status, where)
            elif statement.due:
                self._intend(statement.due, statement.text, where)
            else:
                self._close(statement.text, statement.status, where)

    def _item_named(self, text: str, origin: str, where: str, seen: dict[str, int]) -> _Item:
        """The todo of this text, told apart from its namesakes in one list by a number."""
        normal = _normal(text)
        seen[normal] = seen.get(normal, 0) + 1
        key = normal if seen[normal] == 1 else f"{normal}#{seen[normal]}"
        item = self.known.get((origin, key)) or self._add(text.strip(), origin, where, key)
        self.known[origin, key] = item
        return item

    def _intend(self, due: str, text: str, where: str) -> None:
        about = aim(text)
        mine = about.named | about.words
        for other in self.items[-_RECENT:]:
            if other.status not in _OPEN:
                continue
            theirs = other.terms.named | other.terms.words
            same = len(mine & theirs) >= _ALIKE * len(mine | theirs)
            same = same or (other.origin != "intention" and mine <= theirs)
            if same:
                return  # said before, or on a list: the earlier one stands
        if about.verb and (about.named or about.words - {about.verb}):
            self.fresh = self._add(text[:_SHOWN], "intention", where, _normal(text))
            self.fresh.due = due

    def _see(self, tool: str, arguments: Any, where: str) -> None:
        """Close what the call fulfils."""
        due = list(self._due())
        if due:
            value = _decode_json(arguments)
            fields = value if isinstance(value, dict) else {}
            paths = (_string(fields.get(key)) for key in _PATHS)
            text = _flat(value, _EVIDENCE)
            call = call_terms(tool, text, paths, plans=tool.lower() in _PLANS)
            for item in due:
                fits = item.turn == self.turn and call.fits(item.terms)
                near = item.due == NEXT and (item is self.fresh or item.terms.looks)
                if fits and item.due == NOW:
                    item.status = _NO_TODO
                elif (fits and near) or call.fulfils(item.terms):
                    self._set(item, "done", where)
        self.fresh, self.account, self.calls = None, "", self.calls + 1

    def _list(self, step: Step, where: str) -> None:
        field, family, merges = _LISTS[step.tool]
        fields = _fields(step.input)
        rows = _decode_json(fields.get(field))
        if not isinstance(rows, list):
            return
        seen: dict[str, int] = {}
        items = [item for row in rows if (item := self._row(row, family, where, seen))]
        listed = {id(item) for item in items}
        rest = [item for item in self.lists.get(family, []) if id(item) not in listed]
        if fields.get("merge", merges) is not True:
            for item in rest:
                if item.status in _OPEN:  # a whole list replaces: what is not on it was given up
                    self._set(item, "dropped", where)
            rest = []
        self.lists[family] = rest + items

    def _row(
        self, row: Any, family: str, where: str, seen: dict[str, int] | None = None
    ) -> _Item | None:
        """The todo of one row, updated. Without `seen` it is a task: known by its id alone."""
        fields = {"content": row} if isinstance(row, str) else _fields(row)
        text = _row_text(row)
        ident = _string(fields.get("id"))
        item = self.known.get((family, ident)) if ident else None
        if item and text and seen is not None:
            item = self._match_reworded(item, text, where)
        if not item and not text:
            return None  # created before the chain begins: there is nothing to show
        if not item and seen is not None:
            item = self._item_named(text, "tool", where, seen)
        item = item or self._add(text, "tool", where, ident)
        item.text = text or item.text
        if ident:
            self.known[family, ident], item.key = item, ident
        if "status" in fields:
            word = _string(fields["status"]).strip().casefold().replace("-", "_").replace(" ", "_")
            self._set(item, _STATUS.get(word, "pending"), where)
        return item

    def _match_reworded(self, item: _Item, text: str, where: str) -> _Item | None:
        """The todo under its new text; None if its id now stands for something else."""
        if _normal(text) != _normal(item.text):
            if item.status not in _OPEN:
                return None
            if not item.terms.covered_share(terms(text[:LINE])):
                self._set(item, "dropped", where)
                return None
            self.known["tool", _normal(text)] = item
        return item

    def _tasks(self, step: Step, where: str) -> None:
        arguments, result = _fields(step.input), _fields(step.result)
        text, task = _flat(step.result, TEXT), _fields(result.get("task"))
        rows = result.get("tasks", [task])
        if step.tool == "TaskCreate":
            made = _TASK_MADE.search(text)
            self.tasks += 1  # ids are handed out from 1 upwards: a lost one can be made good
            ident = _string(task.get("id")) or (made[1] if made else str(self.tasks))
            self.known.pop(("task", ident), None)
            rows = [{**arguments, "id": ident}]
        elif step.tool == "TaskUpdate":
            done = result.get("success") is not False
            rows = [{**arguments, "id": arguments.get("taskId")}] if done else []
        elif not result:
            rows = [line.groupdict() for line in _TASK_LINE.finditer(text)]
        for row in rows if isinstance(rows, list) else ():
            self._row(row, "task", where)
