"""Results that an agent kept beside its log: asked for one by one, redacted, never as a page.

Only the agent's own reader finds such a file, within the session's own folder; what the log says
of a path is not followed. The file is the agent's and may be gone: then there is nothing to offer.
What our own sessions spilled was kept with the session: the store has it.
"""

from __future__ import annotations

from typing import Final

from thence.agents import File, Source, files
from thence.agents.profiles import agent_of
from thence.format.facts import Block
from thence.format.normal import SessionEvent
from thence.format.spills import spilled_in, text_in
from thence.memory.store import SessionRow
from thence.memory.stored_paths import locate
from thence.serve.chart import Chart

MAX_RESULT_BYTES: Final = 32 << 20
"""Bytes of one result that are read."""


def is_offered(row: SessionRow, chart: Chart, name: str) -> bool:
    """Whether more of a call's result lies beside the log."""
    return bool(_output(row, chart, name, 1))


def text(row: SessionRow, chart: Chart, name: str) -> str | None:
    """Return the whole result of a call; None when there is no more of it.

    It is what the file has: whoever shows it passes it through the gate. Of a file that is too
    large the last line is left out, since a secret may be cut in two there.
    """
    body = _output(row, chart, name, MAX_RESULT_BYTES)
    if len(body or b"") >= MAX_RESULT_BYTES:
        body = body[: body.rfind(b"\n") + 1] if body else None
    return body.decode("utf-8", "replace") if body else None


def _texts(chart: Chart, call: SessionEvent, result: SessionEvent) -> list[str]:
    """Return what was spilled from a result of ours, by the names that its placeholders say."""
    names = {spilled.name for spilled in spilled_in(chart.filled(result).payload)}
    if not names:
        return []
    notes = [
        chart.filled(block).payload
        for record in chart.records
        for block in record.blocks
        if block.kind == "lifecycle" and block.call == call.call
    ]
    matches = (text_in(payload, name) for name in names for payload in notes)
    return [text for text in matches if text is not None]


def _output(row: SessionRow, chart: Chart, name: str, limit: int) -> bytes | None:
    """Return the output of a call that its log does not hold, up to so many bytes.

    It lies in a file beside the log, or, of sessions of our own, with the stored session.
    """
    pair = _find_call(chart, name) if row.session.source_path else None
    if pair is None:
        return None
    if texts := _texts(chart, *pair):
        return "\n".join(texts).encode("utf-8", "replace")[:limit]
    agent = agent_of(row.session.flavor)
    find = agent.side_file if agent is not None else None
    if find is None:
        return None
    call, result = pair
    path = find(_source(row), _block(call), _block(chart.filled(result)))
    return files.start_of(path, limit) if path is not None else None


def _block(event: SessionEvent) -> Block:
    """Return an event as the readers of agents know it."""
    return Block(
        *(event.kind, event.role or "", event.summary, event.payload),
        *(event.tool, event.call, event.failed),
    )


def _source(row: SessionRow) -> Source:
    session = row.session
    file = File(locate(session.source_path or ""), "main")
    return Source(session.flavor, session.native_session_id, (file,))


def _find_call(chart: Chart, name: str) -> tuple[SessionEvent, SessionEvent] | None:
    """Find a call and its result by the name of the call."""
    place = chart.find(name)
    if place is None:
        return None
    block = chart.records[place[0]].blocks[place[1]]
    call = chart.calls.get(block.call or "") if block.kind == "tool_call" else None
    return (block, call.result) if call is not None and call.result is not None else None
