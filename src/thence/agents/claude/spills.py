"""Outputs too large for a transcript, which the client keeps in files beside it.

The path that a result names is not followed: only its last part counts, in the session's own
folder, never through a link.
"""

from __future__ import annotations

import os

from thence.agents import Source, files
from thence.agents.claude.text import spill_name
from thence.format.facts import WHOLE_OUTPUT, Block
from thence.format.normal import SessionEvent
from thence.format.records import JSON

MAX_READ_BYTES = 16 << 20
"""Bytes of one output that are read when somebody asks for it."""

MAX_STORED_BYTES = 4 << 20
"""Bytes that an output may have to be kept with its result; the first MiB of it is searched."""

MAX_STORED_BYTES_PER_LOG = 64 << 20
"""The same of all that one log names, whatever files they are: a log may name one for ever."""


def read_spill(
    source: Source, block: Block | SessionEvent, limit: int = MAX_READ_BYTES
) -> bytes | None:
    """Read the full text of a result that was too large for its transcript.

    None when there is none, it is not there any more, or it is larger than the limit.
    """
    path = _path_of(source, block)
    return files.read_small(path, limit) if path is not None else None


def side_file(source: Source, _call: Block, result: Block) -> str | None:
    """Return the path of the file with the whole output of a call; None when there is none."""
    return _path_of(source, result)


def _path_of(source: Source, block: Block | SessionEvent) -> str | None:
    name = spill_name(block.payload)
    log = next((file.path for file in source.files if file.key == "main"), None)
    if name is None or log is None:
        return None
    folder = f"{log.removesuffix('.jsonl')}/tool-results"
    if os.path.islink(folder) or os.path.islink(os.path.dirname(folder)):  # noqa: PTH114, PTH120
        return None
    return f"{folder}/{name}"


def with_full_output(detail: JSON, body: bytes) -> dict[str, JSON]:
    """Return the details of a result, with the full output in place of its beginning."""
    text = body.decode("utf-8", "replace")
    if not isinstance(detail, dict):
        return {WHOLE_OUTPUT: text} if detail is None else {"result": detail, WHOLE_OUTPUT: text}
    begins = detail.get("stdout")
    rest = {name: value for name, value in detail.items() if name != "stdout"}
    if isinstance(begins, str) and not text.startswith(begins):
        rest["stdout"] = begins  # other words than the file's: both are kept
    return {**rest, WHOLE_OUTPUT: text}
