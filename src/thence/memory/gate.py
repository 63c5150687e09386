"""The gate: nothing is stored, shown, shared, pushed, sent or exported redacted but through it.

`Gate` alone applies the rules of `redact`; a test finds any second caller. Records go in whole:
their payloads and names are searched before anything is cut from them, and what is cut from a
payload with a secret in it, its summary, is made anew. No field is exempt: a token may be the name
of a tool, a branch, a folder or a record. Texts that hold no secret stay as they are, the same
object. A secret becomes the same placeholder wherever it stands, so that a record still leads to
the one before it and a result to its call; passing twice is passing once.

What comes out can be stored: half a character or a number of any length has another spelling then
(see `storable_json`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from thence.agents import Cursor, Source
from thence.format import fact_assembly, outcomes
from thence.format.facts import Block, CallStatus, Edge, Fact, words_of
from thence.format.normal import one_line
from thence.format.records import JSON, Skipped
from thence.format.tools import BUILT_IN
from thence.memory import storable_json
from thence.memory.notes import Note
from thence.memory.placeholders import BEGINNING, PLACEHOLDER
from thence.memory.redact import RULES, Redactor
from thence.memory.rules import Rule
from thence.memory.store import DigestRecord, SessionRow
from thence.memory.stored_paths import dash_path, printable

if TYPE_CHECKING:
    from thence.agents.sessions import LoadedSession

_BATCH_TEXTS: Final = 64
"""Texts that are searched for secrets together."""

_TEXT: Final = {"type", "text"}
_TIES: Final = tuple[Edge, ...]


class CleanFacts(NamedTuple):
    """Facts that passed the gate."""

    facts: list[Fact]
    bodies: list[bytes]
    """The payload of each block that has one, as JSON, in order."""


class Gate:
    """Takes secrets out of whole records, values and texts."""

    def __init__(
        self, rules: Sequence[Rule] = RULES, *, key: bytes, extra: Sequence[Rule] = ()
    ) -> None:
        """Set up with the key of the marks, and with rules of the user's own."""
        self._redactor = Redactor(rules, key=key, extra=extra)
        self._about: tuple[dict[str, JSON], dict[str, JSON]] = ({}, {})

    @property
    def version(self) -> int:
        """The version of its rules."""
        return self._redactor.version

    def prepare(self) -> None:
        """Compile what every text is searched with, before other processes are started."""
        self._redactor.doubts(b"")

    # -- texts and values -------------------------------------------------------------------

    def text(self, text: str) -> str:
        """Return a whole text without secrets; the text itself if there is none."""
        return self._redactor.redact(text)

    def value(self, value: Any) -> Any:
        """Return a whole JSON value without secrets, judged by the names in it, too."""
        return self._redactor.redact_json(value)

    def path(self, path: str, cwd: JSON = None) -> str:
        """Return a path that can be stored: as text, and without secrets.

        An agent may name a folder after the project's path, all but letters and digits replaced by
        dashes: no rule knows a token in that form. `cwd`, clean, says where it stands.
        """
        clean = self.text(printable(path))
        if isinstance(cwd, str) and BEGINNING in cwd:
            clean = _without_dashed(clean, cwd)
        return clean

    def skip(self, skipped: Skipped, cwd: JSON = None) -> Skipped:
        """Return what is told of a line that is no event, its file without secrets; see `path`."""
        return replace(skipped, source=self.path(skipped.source, cwd))

    def _changed(self, texts: Sequence[str]) -> dict[str, str]:
        """Return what each text that holds a secret becomes."""
        changed: dict[str, str] = {}
        for start in range(0, len(texts), _BATCH_TEXTS):
            part = texts[start : start + _BATCH_TEXTS]
            pairs = zip(part, self._redactor.redact_all(part), strict=True)
            changed.update({text: clean for text, clean in pairs if clean is not text})
        return changed

    # -- records ----------------------------------------------------------------------------

    def facts(self, facts: Iterable[Fact]) -> list[Fact]:
        """Return whole records, as a session has them, without secrets.

        Texts that a log wrote in pieces are joined first. The line that says what a call does is
        made from its clean arguments.
        """
        clean = self.texts(fact_assembly.join_pieces(self.names(list(facts)))).facts
        # By what is known of each call already: its tool may have a name in its agent only.
        outcomes.add_effects(clean, BUILT_IN)
        return clean

    def session(self, loaded: LoadedSession) -> LoadedSession:
        """Return a session, and those it continues, without secrets in records, names and ties."""
        from thence.agents.sessions import join_generations

        generations = [
            replace(
                generation,
                uid=self.text(generation.uid),
                facts=self.facts(generation.facts),
                replayed=frozenset(map(self.text, generation.replayed)),
                billed=frozenset(map(self.text, generation.billed)),
                ties=msgspec.convert(self.value(msgspec.to_builtins(generation.ties)), _TIES),
            )
            for generation in loaded.generations
        ]
        graph = join_generations(generations)
        cwd = graph.about.get("cwd")
        return replace(
            loaded,
            graph=graph,
            generations=generations,
            skipped=[self.skip(skip, cwd) for skip in loaded.skipped],
            notices=[
                replace(notice, detail=self.path(notice.detail, cwd)) for notice in loaded.notices
            ],
        )

    def names(self, facts: list[Fact]) -> list[Fact]:
        """Return records without secrets in their ids and names, what is read from a log first.

        The records themselves where there is nothing to replace.
        """
        names: set[object] = set()
        for fact in facts:
            try:
                names.update(_names_of(fact))
            except TypeError:  # of a foreign log: something that is no text, and has no hash
                names.update(_texts_of(fact))
        changed = self._changed([text for text in names if type(text) is str])
        return [_replace_texts(fact, changed) for fact in facts] if changed else facts

    def texts(self, facts: Iterable[Fact]) -> CleanFacts:
        """Return records whose names are clean without secrets in anything that they say.

        Pieces of one text must be joined before: a secret may have been cut in two.
        """
        bodies: list[bytes] = []
        clean = [self._clean(fact, bodies) for fact in facts]
        return CleanFacts(self._clean_summaries(clean), bodies)

    def _clean(self, fact: Fact, bodies: list[bytes]) -> Fact:
        blocks: list[Block] | None = None
        for number, block in enumerate(fact.blocks):
            if block.payload is None:
                continue
            clean = block
            try:
                body = storable_json.encode(block.payload)
            except storable_json.UNSPELLABLE:
                clean = replace(block, payload=storable_json.plain(block.payload))
                body = storable_json.encode(clean.payload)
            # One look at all of it tells for most payloads that there is nothing to find.
            if suspects := self._redactor.doubts(body):
                clean = self._clean_block(clean, suspects)
                if clean is not block:
                    body = storable_json.encode(clean.payload)
            if clean is not block:
                blocks = list(fact.blocks) if blocks is None else blocks
                blocks[number] = clean
            bodies.append(body)
        about = self._clean_about(fact.about) if fact.about else fact.about
        statuses = tuple(map(self._clean_status, fact.told)) if fact.told else fact.told
        if blocks is None and about == fact.about and statuses == fact.told:
            return fact
        clean_blocks = tuple(blocks) if blocks is not None else fact.blocks
        return replace(fact, blocks=clean_blocks, about=about, told=statuses)

    def _clean_block(self, block: Block, suspects: list[int]) -> Block:
        payload = self._clean_payload(block.payload, suspects)
        if payload is block.payload or payload == block.payload:
            return block
        # The summary may hold a secret cut in two, which no rule would know: it is made anew.
        clean = replace(block, payload=payload)
        summary = "" if block.kind == "tool_call" else one_line(words_of(clean, 4000))
        return replace(clean, summary=summary)

    def _clean_payload(self, payload: JSON, suspects: list[int]) -> JSON:
        """Clean a payload: a bare text, as most are, needs no walk and no second look."""
        if isinstance(payload, str):
            return self._redactor.redact(payload, suspects)
        if isinstance(payload, dict) and payload.keys() == _TEXT and payload["type"] == "text":
            text = payload["text"]
            if isinstance(text, str):
                clean = self._redactor.redact(text, suspects)
                return payload if clean is text else {**payload, "text": clean}
        return self._redactor.redact_json(payload, suspects)

    def _clean_about(self, about: dict[str, JSON]) -> dict[str, JSON]:
        """Clean what a record says of its session; most say the same as the one before."""
        last, clean = self._about
        if about != last:
            clean = self.value(about)
            self._about = about, clean
        return clean

    def _clean_status(self, status: CallStatus) -> CallStatus:
        return replace(status, output=self.value(status.output)) if status.output else status

    def _clean_summaries(self, facts: list[Fact]) -> list[Fact]:
        """Return records without secrets in short texts that no payload of theirs repeats."""
        changed = self._changed(list({block.summary for fact in facts for block in fact.blocks}))
        if not changed:
            return facts

        def clean(block: Block) -> Block:
            return replace(block, summary=changed.get(block.summary, block.summary))

        return [
            fact
            if changed.keys().isdisjoint(block.summary for block in fact.blocks)
            else replace(fact, blocks=tuple(map(clean, fact.blocks)))
            for fact in facts
        ]

    # -- what is stored beside records ------------------------------------------------------

    def row(self, row: SessionRow) -> SessionRow:
        """Return the row of a session without secrets; itself where it has none."""
        # The names of secrets that were taken out would be taken for secrets.
        fields = msgspec.to_builtins(replace(row, secrets=()))
        clean = self.value(fields)
        if clean == fields:
            return row
        return replace(msgspec.convert(clean, SessionRow), secrets=row.secrets)

    def notes(self, notes: Iterable[Note]) -> list[Note]:
        """Return what was written down without secrets."""
        return [
            replace(note, text=self.text(note.text), cwd=note.cwd and self.text(note.cwd))
            for note in notes
        ]

    def digest(self, made: DigestRecord) -> DigestRecord:
        """Return a digest without secrets."""
        task = made.task_ref and self.text(made.task_ref)
        clean = self.value(made.digest), self.value(made.signals)
        return replace(made, digest=clean[0], signals=clean[1], task_ref=task)

    def cursor(self, cursor: Cursor) -> Cursor:
        """Return a cursor that can be stored, whatever a reader remembers of the log in it."""
        try:
            msgspec.msgpack.encode(cursor)
        except storable_json.UNSPELLABLE:
            cursor = storable_json.plain_cursor(cursor)
        clean = {
            self.text(key): replace(mark, carry=self.value(mark.carry))
            for key, mark in cursor.marks.items()
        }
        return cursor if clean == cursor.marks else Cursor(clean)

    def source(self, source: Source) -> Source:
        """Return a source whose names hold no secret; its paths stay, since they are opened."""
        names = [
            source.session,
            *(name for file in source.files for name in (file.key, file.channel)),
        ]
        changed = self._changed(names)
        if not changed:
            return source
        files = tuple(
            replace(
                file,
                key=changed.get(file.key, file.key),
                channel=changed.get(file.channel, file.channel),
            )
            for file in source.files
        )
        return replace(source, session=changed.get(source.session, source.session), files=files)

    def is_below(self, path: str, starts: tuple[str, ...]) -> bool:
        """Return whether a stored path lies in one of some folders."""
        if BEGINNING in path:
            starts += tuple(self.path(start) for start in starts)
        return path.startswith(starts)


# -- names of records -----------------------------------------------------------------------


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
    blocks = [replace(block, summary="", payload=None) for block in fact.blocks]
    statuses = [replace(status, output=None) for status in fact.told]
    bare = replace(fact, blocks=tuple(blocks), told=tuple(statuses), about={})
    plain = _with_texts(msgspec.to_builtins(bare), lambda text: changed.get(text, text))
    clean = msgspec.convert(plain, Fact)
    return replace(
        clean,
        blocks=tuple(
            replace(new, summary=old.summary, payload=old.payload)
            for new, old in zip(clean.blocks, fact.blocks, strict=True)
        ),
        told=tuple(
            replace(new, output=old.output) for new, old in zip(clean.told, fact.told, strict=True)
        ),
        about=fact.about,
    )


def _with_texts(value: Any, exchange: Callable[[str], str]) -> Any:
    """Return a shallow JSON value with its texts exchanged; names of fields stay."""
    if type(value) is str:
        return exchange(value)
    if type(value) in (list, tuple):
        return [_with_texts(part, exchange) for part in value]
    if type(value) is dict:
        return {name: _with_texts(part, exchange) for name, part in value.items()}
    return value


def _without_dashed(path: str, cwd: str) -> str:
    """Return a path without the secrets of the clean `cwd` in the form with dashes."""
    kinds = PLACEHOLDER.findall(cwd)
    pieces = [re.escape(dash_path(piece)) for piece in PLACEHOLDER.split(cwd)]
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
