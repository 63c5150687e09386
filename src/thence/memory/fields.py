"""Redaction of all that is stored beside payloads: ids, names, titles, paths, cursors.

No field is exempt: a token may be the name of a tool, a branch, a folder or a record. Texts that
hold no secret stay as they are. A secret becomes the same placeholder wherever it stands, so that
a record still leads to the one before it and a result to its call.

A path with a placeholder is no longer where a file lies; `locate` returns the file it stands for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from thence.agents import Cursor, Source
from thence.format.facts import Fact
from thence.format.records import JSON, Skipped
from thence.memory.redact import Redactor

_PLACEHOLDER = re.compile(r"\[REDACTED:[a-z0-9-]{1,40}(?::[0-9a-f]{8})?\]")
_MOST_CANDIDATES = 64  # paths that one path with placeholders may stand for
_BATCH_TEXTS = 64  # texts that are searched for secrets together


def clean_fields(facts: list[Fact], redactor: Redactor) -> list[Fact]:
    """Return facts without secrets in their ids and names; payloads and what is made of them stay.

    The facts themselves where there is nothing to replace.
    """
    texts: set[object] = set()
    for fact in facts:
        try:
            texts.update(_names_of(fact))
        except TypeError:  # of a foreign log: something that is no text, and has no hash
            texts.update(_texts_of(fact))
    changed = _changed_texts([text for text in texts if type(text) is str], redactor)
    if not changed:
        return facts
    return [_replace_texts(fact, changed) for fact in facts]


def clean_summaries(facts: list[Fact], redactor: Redactor) -> list[Fact]:
    """Return facts without secrets in the summaries of their blocks, once payloads have none."""
    summaries = {block.summary for fact in facts for block in fact.blocks}
    changed = _changed_texts(list(summaries), redactor)
    if not changed:
        return facts
    return [
        fact
        if changed.keys().isdisjoint(block.summary for block in fact.blocks)
        else msgspec.structs.replace(
            fact,
            blocks=tuple(
                msgspec.structs.replace(block, summary=changed.get(block.summary, block.summary))
                for block in fact.blocks
            ),
        )
        for fact in facts
    ]


def _changed_texts(texts: Sequence[str], redactor: Redactor) -> dict[str, str]:
    """Return what each text that holds a secret becomes."""
    changed: dict[str, str] = {}
    for start in range(0, len(texts), _BATCH_TEXTS):
        part = texts[start : start + _BATCH_TEXTS]
        pairs = zip(part, redactor.redact_all(part), strict=True)
        changed.update({text: clean for text, clean in pairs if clean is not text})
    return changed


def _texts_of(fact: Fact) -> list[str]:
    """Return ids and names of a fact: not payloads, summaries, `about` and outputs."""
    return [text for text in _names_of(fact) if type(text) is str]


def _names_of(fact: Fact) -> list[object]:
    """Return ids and names of a fact, and what stands in their place where it has none."""
    node = fact.node
    texts: list[object] = [
        *(node.id, node.parent, node.response, node.logical, node.tip, *node.calls, *node.answers),
        *(fact.type, fact.ts, fact.file, fact.channel, fact.model, fact.usage_key, fact.tier),
        *(fact.unbilled, fact.bill_due, fact.origin, fact.copy_key, fact.piece),
    ]
    for block in fact.blocks:
        texts += (block.tool, block.call)
    for status in fact.told:
        texts.append(status.call)
    for part in (node.span, fact.base, *fact.edges, *fact.shares):
        if part is not None:
            texts += msgspec.structs.astuple(part)
    return texts


def _replace_texts(fact: Fact, changed: Mapping[str, str]) -> Fact:
    """Return a fact whose texts are replaced; the fact itself where it has none of them."""
    if changed.keys().isdisjoint(_texts_of(fact)):
        return fact
    blocks = [msgspec.structs.replace(block, summary="", payload=None) for block in fact.blocks]
    statuses = [msgspec.structs.replace(status, output=None) for status in fact.told]
    bare = msgspec.structs.replace(fact, blocks=tuple(blocks), told=tuple(statuses), about={})
    plain = _with_texts(msgspec.to_builtins(bare), lambda text: changed.get(text, text))
    clean = msgspec.convert(plain, Fact)
    return msgspec.structs.replace(
        clean,
        blocks=tuple(
            msgspec.structs.replace(new, summary=old.summary, payload=old.payload)
            for new, old in zip(clean.blocks, fact.blocks, strict=True)
        ),
        told=tuple(
            msgspec.structs.replace(new, output=old.output)
            for new, old in zip(clean.told, fact.told, strict=True)
        ),
        about=fact.about,
    )


def _with_texts(value: Any, replace: Callable[[str], str]) -> Any:
    """Return a shallow JSON value with its texts replaced; names of fields stay."""
    if type(value) is str:
        return replace(value)
    if type(value) in (list, tuple):
        return [_with_texts(part, replace) for part in value]
    if type(value) is dict:
        return {name: _with_texts(part, replace) for name, part in value.items()}
    return value


# -- cursors and sources --------------------------------------------------------------------


def clean_cursor(cursor: Cursor, redactor: Redactor) -> Cursor:
    """Return a cursor without secrets in what a reader remembers; itself where it has none."""
    clean = {
        redactor.redact(key): msgspec.structs.replace(mark, carry=redactor.redact_json(mark.carry))
        for key, mark in cursor.marks.items()
    }
    return cursor if clean == cursor.marks else Cursor(clean)


def printable_source(source: Source) -> Source:
    """Return a source whose names can be stored, whatever bytes its files are named with."""
    for file in source.files:
        if not file.path.isascii():
            break
    else:
        if source.session.isascii():
            return source
    files = tuple(
        msgspec.structs.replace(file, key=printable(file.key), channel=printable(file.channel))
        for file in source.files
    )
    return msgspec.structs.replace(source, session=printable(source.session), files=files)


def printable_skip(skipped: Skipped) -> Skipped:
    """Return a skip whose path can be printed, whatever bytes it is made of."""
    if skipped.source.isascii():
        return skipped
    return msgspec.structs.replace(skipped, source=printable(skipped.source))


def clean_source(source: Source, redactor: Redactor) -> Source:
    """Return a source whose names hold no secret; its paths stay, since they are opened."""
    names = [source.session, *(name for file in source.files for name in (file.key, file.channel))]
    changed = _changed_texts(names, redactor)
    if not changed:
        return source
    files = tuple(
        msgspec.structs.replace(
            file,
            key=changed.get(file.key, file.key),
            channel=changed.get(file.channel, file.channel),
        )
        for file in source.files
    )
    session = changed.get(source.session, source.session)
    return msgspec.structs.replace(source, session=session, files=files)


# -- paths ----------------------------------------------------------------------------------


def printable(path: str) -> str:
    """Return a path that can be stored as text, whatever bytes it is made of."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def clean_path(path: str, redactor: Redactor, cwd: JSON = None) -> str:
    """Return a path that can be stored: as text, and without secrets.

    An agent may name a folder after the project's path, all but letters and digits replaced by
    dashes: no rule knows a token in that form. `cwd`, redacted, says where it stands.
    """
    clean = redactor.redact_uncounted(printable(path))
    if isinstance(cwd, str) and "[REDACTED:" in cwd:
        clean = _without_dashed(clean, cwd)
    return clean


def _without_dashed(path: str, cwd: str) -> str:
    """Return a path without the secrets of the redacted `cwd` in the form with dashes."""
    kinds = _PLACEHOLDER.findall(cwd)
    pieces = [re.escape(_dash_path(piece)) for piece in _PLACEHOLDER.split(cwd)]
    form = re.compile("([^/]+?)".join(pieces))
    names = path.split("/")
    for at, name in enumerate(names):
        if match := form.fullmatch(name):
            clean, end = "", 0
            for number, kind in enumerate(kinds, 1):
                clean += name[end : match.start(number)] + kind
                end = match.end(number)
            names[at] = clean + name[end:]
    return "/".join(names)


def _dash_path(text: str) -> str:
    return re.sub(r"[^0-9A-Za-z]", "-", text)


def is_below(path: str, starts: tuple[str, ...], redactor: Redactor) -> bool:
    """Return whether a stored path lies in one of some folders."""
    if "[REDACTED:" in path:
        starts += tuple(clean_path(start, redactor) for start in starts)
    return path.startswith(starts)


def locate(path: str) -> str:
    """Return where the file of a stored path lies; the path itself where nothing is known of it.

    A placeholder stands for any name: of several files the path may mean, none is returned.
    """
    if "[REDACTED:" not in path or os.path.lexists(path):
        return path
    places = [Path("/" if path.startswith("/") else "")]
    for name in path.strip("/").split("/"):
        places = list(_entries(places, name))
        if len(places) > _MOST_CANDIDATES:
            return path
    return str(places[0]) if len(places) == 1 else path


def _entries(places: Iterable[Path], name: str) -> Iterator[Path]:
    """Yield what of a name with placeholders is there in some folders."""
    pieces = _PLACEHOLDER.split(name)
    if len(pieces) == 1:
        yield from (place / name for place in places if os.path.lexists(place / name))
        return
    form = re.compile(".+?".join(map(re.escape, pieces)))
    for place in places:
        try:
            yield from (entry for entry in place.iterdir() if form.fullmatch(entry.name))
        except OSError:
            continue
