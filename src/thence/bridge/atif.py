"""Sessions as ATIF, the Agent Trajectory Interchange Format of Harbor, version 1.8.

The root trajectory is the live line of a session. Each discarded branch, each subagent and each
session that this one continues is a trajectory of its own in `subagent_trajectories`. Steps have
texts, calls, results and metrics where ATIF wants them. What ATIF has no place for stands in
`extra.thence`: a frame for every record, with the places of its texts in the step. So a session
that comes back (`trajectories`) is equal to the one that went out, and no text is written twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from thence.bridge.record_json import Parcel, block_of, frame_of, head_of, parcel_of
from thence.format.derived_events import sum_usages
from thence.format.facts import Block, Fact, text_in
from thence.format.graph import State
from thence.format.records import JSON, Usage, text_of
from thence.format.session_graph import add_about
from thence.format.stored import StoredEvent

if TYPE_CHECKING:
    from thence.agents.sessions import LoadedSession
    from thence.format.nodes import Node
    from thence.format.normal import SessionEvent
    from thence.format.readout import Readout, Record

SCHEMA: Final = "ATIF-v1.8"
OURS: Final = "thence"
"""The key of what is ours in `extra`."""
MAIN: Final = "main"
_JOINT: Final = "\n\n"
_TICKS: Final = 10**10  # to a dollar, as in format/figures

Object = dict[str, Any]


# -- out ------------------------------------------------------------------------------------


def trajectory_of(loaded: LoadedSession, *, agent: str, by: str) -> Object:
    """Return a session, with those it continues, as one ATIF document.

    `agent` is what the agent is called there, `by` names the program that writes.
    """
    from thence.memory.readouts import readout_of

    session = readout_of(loaded.graph)
    root = _Document(session, parcel_of(loaded.generations[0]), agent).root()
    root["extra"][OURS]["by"] = by
    copied = list(_copied_steps(session))
    root["steps"][:0] = copied
    subagents = root.get("subagent_trajectories", [])
    known = {part.session.uid: part.session for part in session.inherited(boundaries=False)}
    for generation in loaded.generations[1:]:
        above = known.get(generation.uid)
        if above is not None:
            ancestor = _Document(above, parcel_of(generation), agent).root()
            ancestor["extra"][OURS]["role"] = "ancestor"
            subagents.append(ancestor)
    if subagents:
        root["subagent_trajectories"] = subagents
    _number(root)
    return root


def _number(trajectory: Object) -> None:
    """Number the steps of a trajectory and of those in it; ids in a list differ."""
    for number, step in enumerate(trajectory["steps"], start=1):
        step["step_id"] = number
    for below in trajectory.get("subagent_trajectories", ()):
        _number(below)


class _Step:
    """One step that is being put together."""

    def __init__(self, source: str, ts: str | None) -> None:
        self.source = source
        self.ts = ts
        self.response: str | None = None
        self.model: str | None = None
        self.texts = ""
        self.thoughts = ""
        self.calls: list[Object] = []
        self.results: list[Object] = []
        self.usages: list[Usage] = []
        self.ticks: list[int] = []
        self.frames: list[Object] = []
        self.is_copied = False

    def made(self, number: int) -> Object:
        """Return the step as ATIF has it; its number among the steps is the place of frames."""
        step: Object = {"step_id": number, "source": self.source, "message": self.texts}
        if self.ts is not None and is_time(self.ts):
            step["timestamp"] = self.ts
        if self.source == "agent":
            if self.model:
                step["model_name"] = self.model
            if self.thoughts:
                step["reasoning_content"] = self.thoughts
            if self.calls:
                step["tool_calls"] = self.calls
            if metrics := self.metrics():
                step["metrics"] = metrics
        if self.results:
            step["observation"] = {"results": self.results}
        if self.is_copied:
            step["is_copied_context"] = True
        if self.frames:
            step["extra"] = {OURS: {"records": self.frames}}
        return step

    def metrics(self) -> Object:
        """Return what the step took; nothing where no bill hangs on it."""
        return metrics_of(sum_usages(self.usages), self.ticks) if self.usages else {}


def metrics_of(usage: Usage, ticks: Sequence[int]) -> Object:
    """Return a usage as ATIF has it: cached tokens are part of the prompt."""
    out: Object = {
        "prompt_tokens": usage.input_tokens
        + usage.cache_creation_input_tokens
        + usage.cache_read_input_tokens,
        "completion_tokens": usage.output_tokens,
        "cached_tokens": usage.cache_read_input_tokens,
    }
    if ticks:
        out["cost_usd"] = sum(ticks) / _TICKS
    if usage.cache_creation_input_tokens:
        written = usage.cache_creation_input_tokens
        out["extra"] = {"cache_creation_input_tokens": written}
    return out


class _Line:
    """The steps of one trajectory."""

    def __init__(self, name: str, channel: str, start: str | None = None) -> None:
        self.name = name
        self.channel = channel
        self.start = start
        self.states: dict[str, None] = {}
        self.steps: list[_Step] = []
        self.calls: dict[str, int] = {}
        self.owed: list[tuple[Usage, int | None]] = []

    def open_step(self, source: str, fact: Fact | Record) -> int:
        """Begin a step for a record, or continue that of the same response."""
        response = fact.node.response
        if source == "agent" and response is not None and self.steps:
            last = self.steps[-1]
            if last.source == "agent" and last.response == response:
                return len(self.steps) - 1
        step = _Step(source, fact.ts)
        step.response = response
        self.steps.append(step)
        if source == "agent":
            self._pay(step)
        return len(self.steps) - 1

    def bill(self, usage: Usage, ticks: int | None, at: int | None) -> None:
        """Hang a bill on a step of the agent: its own, or else the last one, or the next one."""
        steps = self.steps if at is None else self.steps[: at + 1]
        step = next(
            (candidate for candidate in reversed(steps) if candidate.source == "agent"), None
        )
        self.owed.append((usage, ticks))
        if step is not None:
            self._pay(step)

    def _pay(self, step: _Step) -> None:
        for usage, ticks in self.owed:
            step.usages.append(usage)
            if ticks is not None:
                step.ticks.append(ticks)
        self.owed = []

    def settle(self) -> None:
        """Put bills that no step of the agent took into a step of their own."""
        if self.owed:
            step = _Step("agent", None)
            self.steps.append(step)
            self._pay(step)


class _Document:
    """A session as a trajectory with those of its branches and subagents."""

    def __init__(self, session: Readout, parcel: Parcel, agent: str) -> None:
        self._session = session
        self._parcel = parcel
        self._agent = agent
        self._nodes = {record.id: record.node for record in session.records}
        self._rows: dict[str, list[StoredEvent]] = {}
        for row in session.rows:
            self._rows.setdefault(row.event.native_id, []).append(row)
        chain = session.graph.chain(boundaries=False)
        self._on_line = {session.records[at].id for at in chain}
        self._lines: dict[str, _Line] = {MAIN: _Line(MAIN, MAIN)}
        self._line_of: dict[str, _Line] = {}
        self._continued: set[str] = set()
        self._above: dict[str, str | None] = {}
        self._numbers: dict[str, int] = {}
        self._loose: list[Object] = []

    def root(self) -> Object:
        """Return the trajectory of the live line, the others in it."""
        for number, fact in enumerate(self._parcel.facts):
            self._add(number, fact)
        self._settle_subagents()
        main, *others = self._lines.values()
        session = self._session.head.session
        root = self._trajectory(main)
        root["session_id"] = session.native_session_id
        root["trajectory_id"] = self._parcel.uid
        about = {
            "title": self._session.title,
            "cwd": session.cwd,
            "git_branch": session.git_branch,
            "started_at": session.started_at,
            "ended_at": session.ended_at,
        }
        ours = {**head_of(self._parcel), "session": {k: v for k, v in about.items() if v}}
        usages = [usage for line in self._lines.values() for usage in _usages(line)]
        ours["totals"] = msgspec.to_builtins(sum_usages(usages))
        if self._loose:
            ours["records"] = self._loose
        root["extra"] = {OURS: ours}
        if below := [self._below(line) for line in others if line.steps]:
            root["subagent_trajectories"] = below
        return root

    # -- which trajectory -----------------------------------------------------------------

    def _add(self, number: int, fact: Fact) -> None:
        name = fact.node.id
        rows = self._rows.get(name, [])
        node = self._nodes.get(name, fact.node)
        self._above[name] = node.parent or node.logical
        is_said = any(block.role != "system" for block in fact.blocks)
        if not rows or not is_said or all(row.event.state is State.INTERNAL for row in rows):
            self._loose.append({**frame_of(fact), "n": number})
            line = self._lines.get(fact.channel, self._lines[MAIN])
            self._bill(line, rows, None)
            return
        line = self._line_for(name, fact, node)
        self._line_of[name] = line
        for row in rows:
            if row.event.state is not None:
                line.states[row.event.state.value] = None
        self._place(number, fact, line, rows)

    def _line_for(self, name: str, fact: Fact, node: Node) -> _Line:
        if name in self._on_line:
            return self._lines[MAIN]
        answers = node.answers
        is_result = all(block.kind == "tool_result" for block in fact.blocks)
        if is_result:
            for line in self._lines.values():
                if line.channel == fact.channel and any(call in line.calls for call in answers):
                    return line
        above = self._placed_above(name)
        line_above = self._line_of.get(above) if above is not None else None
        is_free = above is not None and above not in self._continued
        if (
            line_above is not None
            and is_free
            and line_above is not self._lines[MAIN]
            and line_above.channel == fact.channel
        ):
            self._continued.add(above or "")
            return line_above
        return self._new_line(fact.channel, above)

    def _placed_above(self, name: str) -> str | None:
        """Return the nearest record before one that stands in a trajectory."""
        seen: list[str] = []
        above = self._above.get(name)
        while above is not None and above not in self._line_of:
            seen.append(above)
            above = self._above.get(above)
            if len(seen) > len(self._above):
                return None
        for passed in seen:
            self._above[passed] = above
        return above

    def _new_line(self, channel: str, above: str | None) -> _Line:
        number = self._numbers.get(channel, 0) + 1
        self._numbers[channel] = number
        is_first = number == 1 and channel != MAIN
        name = channel if is_first else f"{channel}/branch-{number}"
        while name in self._lines:
            name += "'"
        line = self._lines[name] = _Line(name, channel, above)
        return line

    # -- which step -----------------------------------------------------------------------

    def _place(self, number: int, fact: Fact, line: _Line, rows: list[StoredEvent]) -> None:
        stubs: list[Object] = []
        first: int | None = None
        spoken: int | None = None
        for block in fact.blocks:
            stub = block_of(block)
            at = self._step_for(block, fact, line, spoken)
            if at is None:
                stubs.append(stub)
                continue
            if block.kind != "tool_result":
                spoken = at
            first = at if first is None else first
            stubs.append(_fill_step(stub, block, line, at))
        if first is None:
            first = line.open_step("user", fact)
        step = line.steps[first]
        step.model = step.model or fact.model
        step.is_copied |= any(row.event.state is State.REPLAYED for row in rows)
        step.frames.append({**frame_of(fact, stubs), "n": number})
        self._bill(line, rows, first)

    def _step_for(self, block: Block, fact: Fact, line: _Line, spoken: int | None) -> int | None:
        if block.role == "system":
            return None
        if block.kind == "tool_result":
            at = line.calls.get(block.call or "")
            return line.open_step("system", fact) if at is None else at
        if spoken is not None:
            return spoken
        return line.open_step("agent" if block.role == "assistant" else "user", fact)

    def _bill(self, line: _Line, rows: list[StoredEvent], at: int | None) -> None:
        for row in rows:
            if row.usage is not None:
                line.bill(row.usage, row.ticks, at)

    def _settle_subagents(self) -> None:
        """Refer from results to the subagents that their calls started."""
        calls = self._session.started_by()
        for line in self._lines.values():
            line.settle()
            if line.channel == MAIN or line.name != line.channel:
                continue
            call = calls.get(line.channel)
            for above in self._lines.values():
                at = above.calls.get(call or "")
                if at is not None and above is not line:
                    for result in above.steps[at].results:
                        if result.get("source_call_id") == call:
                            ref = {"trajectory_id": self._name_of(line)}
                            result.setdefault("subagent_trajectory_ref", []).append(ref)

    # -- documents ------------------------------------------------------------------------

    def _name_of(self, line: _Line) -> str:
        return self._parcel.uid if line.name == MAIN else f"{self._parcel.uid}/{line.name}"

    def _below(self, line: _Line) -> Object:
        out = self._trajectory(line)
        is_branch = line.channel == MAIN or line.name != line.channel
        ours: Object = {
            "role": "discarded branch" if is_branch else "subagent",
            "channel": line.channel,
            "states": list(line.states),
        }
        if line.start is not None:
            ours["continues"] = line.start
        out["extra"] = {OURS: ours}
        return out

    def _trajectory(self, line: _Line) -> Object:
        session = self._session.head.session
        version = add_about({}, self._parcel.facts).get("version")
        agent: Object = {
            "name": self._agent,
            "version": version if isinstance(version, str) and version else "unknown",
        }
        if session.model:
            agent["model_name"] = session.model
        steps = [step.made(number) for number, step in enumerate(line.steps, start=1)]
        total = metrics_of(sum_usages(_usages(line)), [t for s in line.steps for t in s.ticks])
        final = {
            "total_prompt_tokens": total["prompt_tokens"],
            "total_completion_tokens": total["completion_tokens"],
            "total_cached_tokens": total["cached_tokens"],
            "total_steps": len(steps),
        }
        if "cost_usd" in total:
            final["total_cost_usd"] = total["cost_usd"]
        return {
            "schema_version": SCHEMA,
            "session_id": session.native_session_id,
            "trajectory_id": self._name_of(line),
            "agent": agent,
            "steps": steps,
            "final_metrics": final,
        }


def _usages(line: _Line) -> list[Usage]:
    return [usage for step in line.steps for usage in step.usages]


def _copied_steps(session: Readout) -> Iterator[Object]:
    """Yield what stands on the line in the sessions that this one continues."""
    for part in session.inherited(boundaries=False):
        line = _Line(MAIN, MAIN)
        for record in (part.session.records[at] for at in part.places):
            spoken: int | None = None
            for row, event in zip(record.rows, record.blocks, strict=True):
                if event.role == "system" or event.state is State.INTERNAL:
                    continue
                if event.kind == "tool_result":
                    place = line.calls.get(event.call or "")
                    place = line.open_step("system", record) if place is None else place
                else:
                    source = "agent" if event.role == "assistant" else "user"
                    place = spoken = line.open_step(source, record) if spoken is None else spoken
                line.steps[place].is_copied = True
                line.steps[place].model = line.steps[place].model or record.model
                failed = None if row.has_borrowed_status else event.failed
                _fill_step({}, msgspec.structs.replace(event, failed=failed), line, place)
        for step in line.steps:
            yield {**step.made(0), "extra": {OURS: {"copied_from": part.session.uid}}}


def is_time(text: str) -> bool:
    """Whether a text is a time that readers of ATIF accept."""
    from datetime import datetime

    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


# -- blocks in steps ------------------------------------------------------------------------


def _fill_step(stub: Object, block: Block | SessionEvent, line: _Line, at: int) -> Object:
    """Put the text of a block into its step; return the stub with its place there.

    Where the step cannot hold all of the payload exactly, the stub keeps the payload.
    """
    step = line.steps[at]
    if block.kind == "tool_call":
        return _filled_call(stub, block, line, at)
    if block.kind == "tool_result":
        return _filled_result(stub, block, step, at)
    key = "thinking" if block.kind == "thinking" and step.source == "agent" else "text"
    payload = block.payload
    bare = isinstance(payload, str)
    text = payload if bare else payload.get(key) if isinstance(payload, dict) else None
    shown = text if isinstance(text, str) else text_in(block)
    so_far = step.thoughts if key == "thinking" else step.texts
    start = len(so_far) + len(_JOINT) if so_far else 0
    if shown:
        so_far = f"{so_far}{_JOINT}{shown}" if so_far else shown
        if key == "thinking":
            step.thoughts = so_far
        else:
            step.texts = so_far
    if not isinstance(text, str) or not text:
        return stub
    stub.pop("payload", None)
    stub["at"] = [at, "reasoning_content" if key == "thinking" else "message", start, len(text)]
    if isinstance(payload, dict):
        stub["rest"] = {name: value for name, value in payload.items() if name != key}
        stub["key"] = key
    return stub


def _filled_call(stub: Object, block: Block | SessionEvent, line: _Line, at: int) -> Object:
    step = line.steps[at]
    if step.source != "agent":
        return stub
    is_object = isinstance(block.payload, dict)
    name = block.call or f"{line.name}/{at}/{len(step.calls)}"
    step.calls.append(
        {
            "tool_call_id": name,
            "function_name": block.tool or "unknown",
            "arguments": block.payload if is_object else {"input": block.payload},
        }
    )
    line.calls.setdefault(name, at)
    stub.pop("payload", None)
    stub["at"] = [at, "tool_calls", len(step.calls) - 1, int(is_object)]
    return stub


def _filled_result(stub: Object, block: Block | SessionEvent, step: _Step, at: int) -> Object:
    payload = block.payload
    is_plain = isinstance(payload, str) or (
        isinstance(payload, list) and bool(payload) and all(map(_is_text_part, payload))
    )
    content = payload if is_plain else text_of(payload)
    result: Object = {"content": content}
    known = {call["tool_call_id"] for call in step.calls}
    if block.call is not None and (not step.calls or block.call in known):
        result["source_call_id"] = block.call
    if block.failed is not None:
        result["extra"] = {"is_error": block.failed}
    step.results.append(result)
    if is_plain:
        stub.pop("payload", None)
        stub["at"] = [at, "observation", len(step.results) - 1]
    return stub


def _is_text_part(part: JSON) -> bool:
    is_text = isinstance(part, dict) and part.keys() == {"type", "text"}
    return is_text and part["type"] == "text" and isinstance(part["text"], str)
