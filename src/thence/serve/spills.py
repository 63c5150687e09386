"""Results that an agent kept beside its log: asked for one by one, redacted, never as a page.

Only the agent's own reader finds such a file, within the session's own folder; what the log says
of a path is not followed. The file is the agent's and may be gone: then there is nothing to offer.
What our own sessions spilled was kept with the session: the store has it.
"""

from __future__ import annotations

import secrets
from typing import Final

from thence.agents import File, Source, claude, grok
from thence.format.facts import Block
from thence.format.spills import spilled_in, text_in
from thence.memory.fields import located
from thence.memory.redact import Redactor
from thence.memory.store import SessionRow
from thence.serve.chart import Chart

NATIVE: Final = "thence"

MOST: Final = 32 << 20
"""Bytes of one result that are read."""

_KEY: Final = secrets.token_bytes(32)
"""Placeholders in what is shown need not agree with those in the store."""


def offered(row: SessionRow, chart: Chart, name: str) -> bool:
    """Whether more of a call's result lies beside the log."""
    found = _found(chart, name) if row.session.source_path else None
    if found is None:
        return False
    call, result = found
    if row.session.flavor == NATIVE:
        return bool(_texts(chart, call, result))
    if row.session.flavor == "claude":
        return claude.spilled(_source(row), chart.filled(result), MOST) is not None
    return row.session.flavor == "grok" and bool(grok.spilled(_source(row), call.call or "", 1))


def text(row: SessionRow, chart: Chart, name: str) -> str | None:
    """Give the whole result of a call; None when there is no more of it.

    Secrets of the built-in rules are gone; whoever shows it applies the user's own as well.
    """
    found = _found(chart, name) if row.session.source_path else None
    body = None
    if found is not None and row.session.flavor == "claude":
        body = claude.spilled(_source(row), chart.filled(found[1]), MOST)
    elif found is not None and row.session.flavor == "grok":
        body = grok.spilled(_source(row), found[0].call or "", MOST)
    elif found is not None and row.session.flavor == NATIVE:
        body = "\n".join(_texts(chart, *found)).encode("utf-8", "replace")
    if not body:
        return None
    return Redactor(key=_KEY).redact(body.decode("utf-8", "replace"))


def _texts(chart: Chart, call: Block, result: Block) -> list[str]:
    """Give what was spilled from a result of ours, by the names that its placeholders say."""
    names = {spilled.name for spilled in spilled_in(chart.filled(result).payload)}
    if not names:
        return []
    notes = [
        chart.filled(block).payload
        for fact in chart.facts
        for block in fact.blocks
        if block.kind == "lifecycle" and block.call == call.call
    ]
    found = (text_in(payload, name) for name in names for payload in notes)
    return [text for text in found if text is not None]


def _source(row: SessionRow) -> Source:
    session = row.session
    file = File(located(session.source_path or ""), "main")
    return Source(session.flavor, session.native_session_id, (file,))


def _found(chart: Chart, name: str) -> tuple[Block, Block] | None:
    """Find a call and its result by the name of the call."""
    place = chart.find(name)
    if place is None:
        return None
    block = chart.facts[place[0]].blocks[place[1]]
    call = chart.calls.get(block.call or "") if block.kind == "tool_call" else None
    return (block, call.result) if call is not None and call.result is not None else None
