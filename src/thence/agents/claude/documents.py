"""The small JSON files that Claude Code keeps beside a transcript: titles, workflows, subagents."""

from __future__ import annotations

from collections.abc import Iterable

from thence.agents import File, Mark
from thence.agents.claude.fields import Record
from thence.format.codec import RawRecord
from thence.format.facts import Fact, line_name
from thence.format.nodes import Is, Node
from thence.format.records import JSON


class ClaudeDocument:
    """A small JSON file beside a transcript."""

    def __init__(self, file: File, mark: Mark) -> None:
        self._file = file
        self._generation = mark.generation

    def carry(self) -> JSON:
        """Nothing: a document is read whole."""

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return what a document says of the session; it is no event."""
        about = self._about(entry.value)
        if about:
            name = Node(line_name(self._file.key, entry.raw), flags=Is.INTERNAL)
            yield Fact(
                name,
                "document",
                file=self._file.key,
                generation=self._generation,
                line=entry.place.line,
                about=about,
            )

    def _about(self, value: Record) -> Record:
        what, _, name = self._file.key.partition("/")
        if what == "title":
            title = value.get("customTitle")
            return {"title:custom": title} if isinstance(title, str) else {}
        if what == "workflow":
            return {f"workflow:{name.removesuffix('.json')}": value}
        agent = f"agent:{name.rpartition('/')[2].removesuffix('.meta')}"
        fields = {
            agent: value.get("toolUseId"),
            f"{agent}:type": value.get("agentType"),
            f"{agent}:description": value.get("description"),
            f"{agent}:parent": value.get("parentAgentId"),
            f"{agent}:finished": value.get("finished"),
        }
        return {key: field for key, field in fields.items() if isinstance(field, (str, bool))}
