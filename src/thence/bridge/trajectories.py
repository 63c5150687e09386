"""ATIF documents read back into sessions: those that thence wrote, and those of other programs.

Ours come back exactly, by the frames in `extra.thence` (see `atif`). A trajectory of another
program is one line of records, each following the one before; its subagents are channels of the
session. Nothing in a document is a path or an instruction, and what has another shape than it
should is left out or refused with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

from thence.agents.records import (
    answer,
    call,
    fields,
    note,
    objects,
    prompt,
    thought,
    usage_with_cache,
)
from thence.bridge.atif import MAIN, OURS, Object
from thence.bridge.record_json import Parcel, fact_in, parcel_in
from thence.errors import NotReadable
from thence.format.facts import Block, Edge, Fact, answers_of, calls_of
from thence.format.nodes import Is, Node
from thence.format.normal import one_line
from thence.format.records import JSON, Usage, count, dollars, text_of, word

FLAVOR: Final = "atif"
"""The agent of sessions that other programs wrote as trajectories."""

_NAME_LENGTH: Final = 200
_DEPTH: Final = 8
"""How deep subagents of subagents are followed."""


_PLACE: Final = frozenset({"at", "rest", "key"})


def is_trajectory(document: JSON) -> bool:
    """Whether a JSON document is a trajectory."""
    if not isinstance(document, dict):
        return False
    version = document.get("schema_version")
    return isinstance(version, str) and version.startswith("ATIF-")


def parcels_in(document: JSON, *, name: str) -> Iterator[Parcel]:
    """Yield the sessions of an ATIF document, those first that others continue.

    `name` names the session of a document that does not name it.
    """
    if not is_trajectory(document):
        raise NotReadable("not an ATIF document", hint="schema_version must be ATIF-v1.x")
    if _ours(document).get("uid"):
        yield from _own_parcels(document)
    else:
        yield _foreign_parcel(document, name)


def written_by(document: Mapping[str, JSON]) -> str:
    """Return the program that wrote a document, as it says itself."""
    by = _ours(document).get("by")
    if isinstance(by, str):
        return by
    names = [fields(document.get("agent")).get(key) for key in ("name", "version")]
    return " ".join(part for part in names if isinstance(part, str))


def _ours(trajectory: JSON) -> Object:
    return fields(fields(fields(trajectory).get("extra")).get(OURS))


def _own_parcels(document: Object) -> Iterator[Parcel]:
    """Yield the sessions of a document that `trajectory_of` made."""
    frames = objects(_ours(document).get("records"))
    todo = [document]
    while todo:
        trajectory = todo.pop()
        steps = objects(trajectory.get("steps"))
        own = [step for step in steps if "copied_from" not in _ours(step)]
        for step in own:
            frames += [_whole_frame(frame, own) for frame in objects(_ours(step).get("records"))]
        for below in objects(trajectory.get("subagent_trajectories")):
            if _ours(below).get("uid"):
                yield from _own_parcels(below)
            else:
                todo.append(below)
    frames.sort(key=lambda frame: frame["n"] if isinstance(frame.get("n"), int) else 0)
    facts = [fact_in({k: v for k, v in frame.items() if k != "n"}) for frame in frames]
    yield parcel_in(_ours(document), facts)


def _whole_frame(frame: Object, steps: Sequence[Object]) -> Object:
    try:
        blocks = [
            {
                **{k: v for k, v in stub.items() if k not in _PLACE},
                "payload": _payload_at(stub, steps),
            }
            if "at" in stub
            else stub
            for stub in frame.get("blocks", ())
        ]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise NotReadable(
            f"a step was changed after thence wrote it: {error}",
            hint="remove extra.thence to import it as the trajectory of another program",
        ) from error
    return {**frame, "blocks": blocks}


def _payload_at(stub: Object, steps: Sequence[Object]) -> JSON:
    """Return the payload of a block whose text stands in a step."""
    at, field, *place = stub["at"]
    step = steps[at]
    if field == "tool_calls":
        arguments = step["tool_calls"][place[0]]["arguments"]
        return arguments if place[1] else arguments["input"]
    if field == "observation":
        return step["observation"]["results"][place[0]]["content"]
    start, length = place
    text = step[field][start : start + length]
    if len(text) != length:
        raise ValueError("its text was cut")
    key = stub.get("key")
    if key is not None and not isinstance(key, str):
        raise ValueError("its text has no name")
    return text if key is None else {**stub["rest"], key: text}


# -- other programs' ------------------------------------------------------------------------


def _foreign_parcel(document: Object, name: str) -> Parcel:
    session = word(document.get("session_id")) or word(document.get("trajectory_id")) or name
    return Parcel(f"{FLAVOR}:{_id_of(session)}", list(_facts(document, MAIN, 0)))


def _id_of(name: str) -> str:
    """Return a session's id of what another program calls it: another name has another id."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[: _NAME_LENGTH - 20]
    if plain == name:
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{plain}-{digest}".strip("-")


def _facts(trajectory: Object, channel: str, depth: int) -> Iterator[Fact]:
    """Yield the records of a trajectory, then those of the subagents in it."""
    about = fields(trajectory.get("agent"))
    model = word(about.get("model_name")) or None
    if channel == MAIN:
        yield Fact(
            Node(f"{channel}/head", flags=Is.INTERNAL),
            "atif",
            file=channel,
            about=_about(trajectory, about),
        )
    above: str | None = None
    for number, step in enumerate(objects(trajectory.get("steps")), start=1):
        for fact in _step_facts(step, number, channel, model):
            node = fact.node
            yield _follow(fact, above, 2 * number + node.id.endswith("/results"))
            above = node.id
    for number, below in enumerate(objects(trajectory.get("subagent_trajectories"))):
        if depth < _DEPTH:
            name = word(below.get("trajectory_id")) or f"{channel}/{number}"
            yield from _facts(below, one_line(name, _NAME_LENGTH), depth + 1)


def _about(trajectory: Object, agent: Object) -> dict[str, JSON]:
    named = {
        "version": word(agent.get("version")),
        "agent": word(agent.get("name")),
        "model": word(agent.get("model_name")),
        "cwd": word(_ours(trajectory).get("cwd")),
    }
    return {name: value for name, value in named.items() if value}


def _follow(fact: Fact, above: str | None, line: int) -> Fact:
    from msgspec.structs import replace

    return replace(fact, node=replace(fact.node, parent=above), line=line)


def _step_facts(step: Object, number: int, channel: str, model: str | None) -> Iterator[Fact]:
    """Yield what a step says, and what its calls gave."""
    source = step.get("source")
    name = f"{channel}/{number}"
    ts = word(step.get("timestamp")) or None
    is_agent = source == "agent"
    blocks = tuple(_agent_blocks(step) if is_agent else _said_blocks(step, source))
    usage = _usage(step.get("metrics")) if is_agent else None
    cost = step["metrics"].get("cost_usd") if usage is not None else None
    flags = Is.REPLY if is_agent else Is.PROMPT if source == "user" else 0
    if step.get("is_copied_context") is True:
        flags |= Is.REPLAYED
    where: dict[str, Any] = {"ts": ts, "file": channel, "channel": channel}
    if blocks or usage is not None:
        yield Fact(
            Node(name, flags=flags, calls=calls_of(blocks), response=name if is_agent else None),
            "step",
            blocks=blocks or (Block("lifecycle", "system", "step without text"),),
            model=(word(step.get("model_name")) or model) if is_agent else None,
            usage=usage,
            usage_key=name if usage is not None else None,
            cost_usd=dollars(cost),
            **where,
        )
    observation = fields(step.get("observation"))
    results = tuple(_results(observation.get("results")))
    if results:
        node = Node(f"{name}/results", flags=flags & Is.REPLAYED, answers=answers_of(results))
        edges = tuple(_subagents(observation))
        yield Fact(node, "observation", blocks=results, edges=edges, **where)


def _agent_blocks(step: Object) -> Iterator[Block]:
    if reasoning := word(step.get("reasoning_content")):
        yield thought(reasoning)
    yield from map(answer, _texts(step.get("message")))
    for item in objects(step.get("tool_calls")):
        name = word(item.get("tool_call_id")) or None
        yield call(word(item.get("function_name")), item.get("arguments"), name)


def _said_blocks(step: Object, source: JSON) -> Iterator[Block]:
    for text in _texts(step.get("message")):
        yield prompt(text) if source == "user" else note(text, {"type": "text", "text": text})


def _texts(message: JSON) -> Iterator[str]:
    if isinstance(message, str):
        if message:
            yield message
        return
    for part in objects(message):
        text = part.get("text")
        source = part.get("source")
        if isinstance(text, str) and text:
            yield text
        elif isinstance(source, dict):
            yield f"[{word(part.get('type'))}: {word(source.get('path'))}]"


def _results(results: JSON) -> Iterator[Block]:
    for result in objects(results):
        content = result.get("content")
        failed = fields(result.get("extra")).get("is_error")
        call = word(result.get("source_call_id")) or None
        kind, role = ("tool_result", "tool") if call else ("lifecycle", "user")
        payload = list(_parts(content)) if isinstance(content, list) else content
        yield Block(
            kind,  # type: ignore[arg-type] # one of two kinds
            role,
            one_line(text_of(payload)),
            payload if call else {"type": "text", "text": text_of(payload)},
            call=call,
            failed=failed if isinstance(failed, bool) else None,
        )


def _parts(content: list[JSON]) -> Iterator[JSON]:
    for text in _texts(content):
        yield {"type": "text", "text": text}


def _subagents(observation: Object) -> Iterator[Edge]:
    for result in objects(observation.get("results")):
        call = word(result.get("source_call_id")) or None
        for ref in objects(result.get("subagent_trajectory_ref")):
            if name := word(ref.get("trajectory_id")):
                yield Edge("subagent", one_line(name, _NAME_LENGTH), "ATIF", call=call, child=True)


def _usage(metrics: JSON) -> Usage | None:
    """Return what a step took; cached tokens are part of the prompt there."""
    if not isinstance(metrics, dict):
        return None
    written = fields(metrics.get("extra")).get("cache_creation_input_tokens")
    usage = usage_with_cache(
        metrics.get("prompt_tokens"),
        count(metrics.get("completion_tokens")),
        read=metrics.get("cached_tokens"),
        written=written,
    )
    return usage if usage.total else None
