"""Files and folders that a prompt names with `@`, or that are read again after a compaction.

The client keeps each in an attachment and describes it to the model as a tool call with its result.
Newer versions write down what they sent; for older ones the same text is made here. Pure functions
over the values of one record; nothing raises.
"""

from __future__ import annotations

import json
from collections.abc import Container

from thence.format.facts import Block
from thence.format.normal import one_line
from thence.format.records import JSON, count, word
from thence.format.records import blocks as content_blocks

Record = dict[str, JSON]

SENT = frozenset({"file", "directory"})
"""Attachments whose content is sent; all others tell of rules and surroundings."""


def note_of(record: Record, attachment: Record, envelope: Container[str]) -> Record:
    """Return what the record says beside the content, which stands in blocks of its own."""
    rest = {name: value for name, value in record.items() if name not in envelope}
    rest.pop("rendered", None)
    return {**rest, "attachment": {n: v for n, v in attachment.items() if n != "content"}}


def sent_blocks(record: Record, attachment: Record) -> tuple[Block, ...]:
    """Return what the model is told of the attachment, as blocks in the user's name."""
    rendered = record.get("rendered")
    parts = [
        part
        for entry in (rendered if isinstance(rendered, list) else ())
        if isinstance(entry, dict)
        for part in content_blocks(entry.get("content"))
    ]
    return tuple(
        Block("lifecycle", "user", one_line(word(part.get("text")) or word(part.get("type"))), part)
        for part in parts or _render(attachment)
    )


def _render(attachment: Record) -> list[Record]:
    """Put together what the client sends of an attachment."""
    content = attachment.get("content")
    if attachment.get("type") == "directory":
        listing = {"command": f"ls {word(attachment.get('path'))}"}
        return (
            [_describe_call("Bash", listing), _describe_result("Bash", word(content))]
            if content
            else []
        )
    if not isinstance(content, dict) or not isinstance(file := content.get("file"), dict):
        return []
    path = word(file.get("filePath")) or word(attachment.get("filename"))
    call = _describe_call("Read", {"file_path": path})
    data = word(file.get("base64"))
    if content.get("type") == "image" and data:
        media = word(file.get("type"))
        source = {"type": "base64", "media_type": media, "data": data}
        return [call, {"type": "image", "source": source}]
    if content.get("type") == "pdf" and data:
        source = {"type": "base64", "media_type": "application/pdf", "data": data}
        return [call, {"type": "document", "source": source}]
    text = file.get("content")
    if isinstance(text, str):
        return [
            call,
            _describe_result("Read", _number_lines(text, count(file.get("startLine")) or 1)),
        ]
    cells = file.get("cells")
    return [call, _describe_result("Read", json.dumps(cells))] if isinstance(cells, list) else []


def _describe_call(tool: str, arguments: Record) -> Record:
    text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    return _reminder(f"Called the {tool} tool with the following input: {text}")


def _describe_result(tool: str, text: str) -> Record:
    return _reminder(f"Result of calling the {tool} tool:\n{text}")


def _reminder(text: str) -> Record:
    return {"type": "text", "text": f"<system-reminder>\n{text}\n</system-reminder>"}


def _number_lines(text: str, first: int) -> str:
    lines = text.split("\n")
    return "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, first))
