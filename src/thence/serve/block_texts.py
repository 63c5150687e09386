"""The texts of blocks, whatever their shape: words, results, JSON. Pure; nothing raises.

Payloads of logs come as text, as lists of blocks and as structures. Here each becomes a text to
show, cut where it is long, with what was left out measured. All of it is still hostile.
"""

from __future__ import annotations

import json
from typing import Final

from markupsafe import Markup

from thence.format import tools
from thence.format.facts import text_in, words_of
from thence.format.figures import size
from thence.format.normal import SessionEvent, one_line
from thence.format.records import JSON
from thence.format.tools import Effect
from thence.memory.session_timeline import prompt_text
from thence.serve import markdown

MAX_PREVIEW_CHARS: Final = 20_000
"""Characters of a text that are shown before the rest is asked for."""


def without_plugin(text: str) -> str:
    """Return a prompt without what an editor's plug-in put before it."""
    return (
        prompt_text(SessionEvent("", 0, "user_msg", payload=text))
        if text[:9] == "# Context"
        else text
    )


def all_of(block: SessionEvent) -> str:
    """Return all of a block's text."""
    payload = block.payload
    if isinstance(payload, dict) and isinstance(payload.get("thinking"), str):
        return str(payload["thinking"])
    return payload_text(payload) or words_of(block) or text_in(block)


def payload_text(payload: JSON) -> str:
    """Return a payload as text: its texts where it has some, else its JSON."""
    if isinstance(payload, str):
        return payload
    if isinstance(payload, list) and all(isinstance(block, dict) for block in payload):
        return "\n".join(filter(None, map(_block_text, payload)))
    if isinstance(payload, dict):
        texts = [payload.get(name) for name in ("text", "output", "stdout", "content")]
        first = next((text for text in texts if isinstance(text, str) and text), None)
        return first if first is not None else pretty_json(payload)
    return "" if payload is None else pretty_json(payload)


def _block_text(block: dict[str, JSON]) -> str:
    if isinstance(text := block.get("text"), str):
        return text
    kind = block.get("type")
    return f"[{kind}, not loaded]" if kind in ("image", "document") else pretty_json(block)


def pretty_json(value: JSON) -> str:
    """Return a value as JSON of many lines."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return "[nested too deeply to show]"


def compact_json(value: JSON) -> str:
    """Return a value on one line: its only text, or its JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        texts = [v for v in value.values() if isinstance(v, str) and v]
        if len(value) <= 2 and texts:
            return texts[0]
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return ""


def render_input(block: SessionEvent, effect: Effect) -> Markup:
    """Show what a call was given: a script as a script, the rest as its JSON."""
    tool, payload = block.tool or "", block.payload
    script = tools.command(effect, tool, payload)
    if script is not None:
        return markdown.code_block(script, "bash")
    changes = tools.changes(effect, tool, payload)
    if changes or payload in (None, {}, ""):
        return Markup("")
    if isinstance(payload, str):
        return markdown.code_block(payload, "json" if payload[:1] in "{[" else "")
    return markdown.code_block(pretty_json(payload), "json")


def cut_lines(text: str, lines: int | None) -> tuple[str, str]:
    """Cut a text after so many lines; what is left out is measured."""
    most = markdown.MAX_SHOWN_CHARS if lines is None else MAX_PREVIEW_CHARS
    end = -1
    for _ in range(lines or 1_000_000):
        end = text.find("\n", end + 1)
        if end < 0 or end > most:
            break
    end = min(len(text), most) if end < 0 or end > most else end
    rest = text[end:]
    if len(rest) < 200:
        return text, ""
    total = text.count("\n") + 1
    shown = text[:end].count("\n") + 1
    return text[:end], f"first {shown:,} of {total:,} lines, {size(len(rest))} more"


def first_line(text: str) -> str:
    """Return the first line that holds something."""
    return next((line.strip() for line in text.split("\n") if line.strip()), "")


def answer_line(text: str) -> str:
    """Return the first line that is no mark-up of the harness."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return one_line(next((ln for ln in lines if not ln.startswith("<")), "".join(lines[:1])), 240)


def tool_name(tool: str) -> str:
    """Name a tool; of one behind a server its own name."""
    return tool.rsplit("__", 1)[-1] or tool
