"""The small JSON files that Claude Code keeps beside a transcript: titles, workflows, subagents."""

from __future__ import annotations

from collections.abc import Iterable

from thence.agents.claude.fields import Record
from thence.agents.records import LineReader
from thence.format.codec import RawRecord
from thence.format.facts import Fact


class ClaudeDocument(LineReader):
    """A small JSON file beside a transcript."""

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return what a document says of the session; it is no event."""
        if about := self._about(entry.value):
            yield self._document(entry, "document", about=about)

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
