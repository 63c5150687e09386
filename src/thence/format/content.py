"""Content blocks as the Messages API takes them. Pure.

`accept` gives one block of a message, `result_content` the content of a tool's result: with the
fields that the API knows, whole Unicode, images and documents that it can decode. What it would
refuse is told in words and counted; nothing else is changed. Calls and results are put together
in `repair`, which alone sees all of them.
"""

from __future__ import annotations

import binascii
import json
import math
import re
from typing import Final

from thence.format.records import JSON, blocks, word

Block = dict[str, JSON]

MAX_DEPTH: Final = 100
"""Levels that the input of a call may have; parsers of JSON refuse much deeper ones."""
MAX_NAME_CHARS: Final = 128
THOUGHTS: Final = ("thinking", "redacted_thinking")

_NAME: Final = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_NAME_CHARS}}}")
_NOT_IN_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_MAGIC: Final = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}
"""The image types that the API takes, and how their data begins."""
_LABELS: Final = ("name", "tool_name", "title", "url", "text")
"""Fields that say what a block of an unknown type is about."""


def accept(block: Block, role: str, reworded: dict[str, int]) -> Block | None:
    """Return a block as the API takes it in a message of this role; None when it says nothing.

    What is told in words is counted in `reworded`, by what it is.
    """
    kind = block.get("type")
    if kind == "text":
        return _text_block(block)
    if kind in THOUGHTS:
        return _thought(block, role, reworded)
    if not isinstance(kind, str) or not kind:
        return None
    return _attachment_block(block, kind, reworded, may_attach=role == "user")


def result_content(content: JSON, reworded: dict[str, int], *, failed: bool) -> JSON:
    """Return the content of a result; a failed one holds text alone, and is not empty."""
    if isinstance(content, list):
        parts = [_result_part(part, reworded, failed=failed) for part in blocks(content)]
        made: JSON = [part for part in parts if part is not None]
    elif isinstance(content, str):
        made = clean_text(content)
    else:
        made = "" if content is None else as_text(content)
    empty = not made.strip() if isinstance(made, str) else not made
    return "[it failed, and said nothing]" if failed and empty else made


def tool_name(name: JSON) -> str:
    """Return a tool's name in the characters that the API takes."""
    if not isinstance(name, str) or not name:
        return "unknown"
    return name if _NAME.fullmatch(name) else _NOT_IN_NAME.sub("_", name)[:MAX_NAME_CHARS]


def tool_input(value: JSON) -> Block:
    """Return the input of a call: an object of plain JSON values, not too deep."""
    fields = value if isinstance(value, dict) else {"input": value}
    return fields if _is_plain(fields) else _plain(fields)


def clean_text(text: str) -> str:
    """Return a text with lone surrogates replaced: they have no UTF-8 form."""
    return text if _is_utf8(text) else _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def _is_utf8(text: str) -> bool:
    """Whether a text has a UTF-8 form; encoding it is several times quicker than searching it."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_text(value: JSON) -> str:
    """Return a value as JSON, for reading."""
    try:
        return clean_text(json.dumps(value, ensure_ascii=False))
    except (ValueError, TypeError, RecursionError):
        return "[nested too deeply to be told]"


# -- blocks ---------------------------------------------------------------------------------


def _text_block(block: Block) -> Block | None:
    text = block.get("text")
    if not isinstance(text, str) or not text.strip():
        return None
    clean = clean_text(text)
    if clean is text and len(block) == 2:
        return block
    return {"type": "text", "text": clean}


def _thought(block: Block, role: str, reworded: dict[str, int]) -> Block | None:
    """Return a thought that the API signed; others are of no use to it."""
    if role == "assistant":
        signature, data = block.get("signature"), block.get("data")
        if block["type"] == "redacted_thinking" and isinstance(data, str) and data:
            return {"type": "redacted_thinking", "data": clean_text(data)}
        if block["type"] == "thinking" and isinstance(signature, str) and signature:
            text = clean_text(word(block.get("thinking")))
            return {"type": "thinking", "thinking": text, "signature": clean_text(signature)}
    _count(reworded, UNSIGNED)
    return None


UNSIGNED: Final = "thinking"
"""How thoughts are counted that no API signed: they are left out."""


def _attachment_block(
    block: Block, kind: str, reworded: dict[str, int], *, may_attach: bool
) -> Block | None:
    """Return an image or a document; what else there is, in words."""
    if kind == "image" and may_attach:
        source, wrong = _image_source(block.get("source"))
        if source is not None:
            return {"type": "image", "source": source}
        _count(reworded, wrong)
        return {"type": "text", "text": f"[image left out: {wrong}]"}
    if kind == "document" and may_attach:
        source = _document_source(block.get("source"))
        if source is not None:
            return {"type": "document", "source": source}
    _count(reworded, clean_text(kind))
    label = next((word(block.get(name)) for name in _LABELS if word(block.get(name)).strip()), "")
    text = f"[{kind}: {label}]" if label else f"[{kind}]"
    return {"type": "text", "text": clean_text(text)}


def _result_part(part: Block, reworded: dict[str, int], *, failed: bool) -> Block | None:
    kind = part.get("type")
    if kind == "text":
        return _text_block(part)
    if not isinstance(kind, str) or not kind:
        return {"type": "text", "text": as_text(part)}
    return _attachment_block(part, kind, reworded, may_attach=not failed)


def _image_source(source: JSON) -> tuple[Block | None, str]:
    """Return a source that the API takes, or none and the reason."""
    if not isinstance(source, dict):
        return None, "image without data"
    if source.get("type") == "url":
        url = word(source.get("url"))
        if _is_address(url):
            return {"type": "url", "url": url}, ""
        return None, "image without an https address"
    named, data = word(source.get("media_type")), word(source.get("data"))
    kind = _image_type(_decode_base64(data))
    if kind is not None:
        return {"type": "base64", "media_type": kind, "data": data}, ""
    if named and named not in _MAGIC:
        return None, clean_text(named)[:MAX_NAME_CHARS]
    return None, "undecodable image"


def _document_source(source: JSON) -> Block | None:
    if not isinstance(source, dict):
        return None
    kind, data = source.get("type"), word(source.get("data"))
    if kind == "base64" and (_decode_base64(data) or b"").startswith(b"%PDF-"):
        return {"type": "base64", "media_type": "application/pdf", "data": data}
    if kind == "text" and data.strip():
        return {"type": "text", "media_type": "text/plain", "data": clean_text(data)}
    if kind == "url" and _is_address(url := word(source.get("url"))):
        return {"type": "url", "url": url}
    return None


def _is_address(url: str) -> bool:
    return url.startswith("https://") and url.isascii() and url.isprintable() and " " not in url


def _decode_base64(data: str) -> bytes | None:
    try:
        return binascii.a2b_base64(data, strict_mode=True) if data.isascii() else None
    except ValueError:  # not what it says it is: no image
        return None


def _image_type(body: bytes | None) -> str | None:
    if body is None:
        return None
    return next((kind for kind, magic in _MAGIC.items() if magic.match(body)), None)


def _count(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1


# -- values ---------------------------------------------------------------------------------


def _is_plain(value: Block) -> bool:
    level: list[JSON] = [value]
    for _ in range(MAX_DEPTH):
        below: list[JSON] = []
        for part in level:
            if isinstance(part, str):
                if not _is_utf8(part):
                    return False
            elif isinstance(part, float):
                if not math.isfinite(part):
                    return False
            elif isinstance(part, dict):
                below += part
                below += part.values()
            elif isinstance(part, list):
                below += part
        if not below:
            return True
        level = below
    return False


def _plain(value: Block) -> Block:
    """Copy an object with texts made whole, numbers that JSON has, and the deepest levels told."""
    out: Block = {}
    todo: list[tuple[JSON, JSON, JSON, int]] = [
        (out, clean_text(name), part, 2) for name, part in value.items()
    ]
    while todo:
        into, at, part, depth = todo.pop()
        made: JSON = part
        if isinstance(part, str):
            made = clean_text(part)
        elif isinstance(part, float) and not math.isfinite(part):
            made = str(part)
        elif isinstance(part, (dict, list)) and depth >= MAX_DEPTH:
            made = "[nested too deeply to be told]"
        elif isinstance(part, dict):
            made = {}
            todo += [(made, clean_text(name), below, depth + 1) for name, below in part.items()]
        elif isinstance(part, list):
            made = [None] * len(part)
            todo += [(made, place, below, depth + 1) for place, below in enumerate(part)]
        into[at] = made
    return out
