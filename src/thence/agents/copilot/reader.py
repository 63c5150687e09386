"""Sessions of GitHub Copilot CLI: a folder each, with a log of events.

`session-state/<id>/events.jsonl` is the log, `workspace.yaml` beside it has the title, and
`inuse.<pid>.hold` says which process has it open. `config.json`, `mcp-config.json` and the
databases are never opened. A rewind takes events out of the log. Copilot deletes nothing by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from thence.agents import Batch, Cursor, File, Live, Source, files
from thence.agents.records import QuietAgent, Record, first_records, is_running, subfolders, text
from thence.format.facts import Fact
from thence.format.nodes import Is, Node

LOG = "events.jsonl"
SESSIONS = "session-state"
CARD = "workspace.yaml"

_KEY = "events"
_HOLD = re.compile(r"inuse\.(\d{1,10})\.hold")
_LINE = re.compile(r"^(name|user_named): *(.*?) *$", re.MULTILINE)
_MAX_CARD_BYTES = 64 << 10


class Copilot(QuietAgent):
    """The reader of Copilot CLI's sessions."""

    name = "copilot"
    looks_for = "session-state/ID/events.jsonl"
    opens = "thence.agents.copilot.events:CopilotEvents"

    def find(self, root: Path) -> Iterator[Source]:
        """Yield all sessions: folders with a log, and logs of older versions beside them."""
        place = str(root)
        logs: dict[str, str] = {}
        folders: dict[str, str] = {}
        for entry in files.entries_in(f"{place}/{SESSIONS}"):
            if entry.is_dir(follow_symlinks=False):
                folders[entry.name] = f"{entry.path}/{LOG}"
            elif not entry.is_file(follow_symlinks=False):
                files.note_link(entry)
            elif entry.name.endswith(".jsonl"):
                logs[entry.name.removesuffix(".jsonl")] = entry.path
        for session, log in sorted({**logs, **folders}.items()):
            if session not in folders or files.is_regular(log):
                yield _source(session, log, place)

    def at(self, path: Path) -> Source | None:
        """Return the session of a log, or of the folder that it lies in."""
        log = path / LOG if path.is_dir() and not path.is_symlink() else path
        if log.suffix != ".jsonl" or log.is_symlink() or not log.is_file():
            return None
        records = first_records(str(log))
        if not any(map(_is_ours, records[:1])):
            return None
        if log.name == LOG:
            above = log.parent.parent
            root = above.parent if above.name == SESSIONS else log.parent
            return _source(log.parent.name, str(log), str(root))
        if log.parent.name == SESSIONS:
            return _source(log.stem, str(log), str(log.parent.parent))
        named = (text(record["data"].get("sessionId")) for record in records[:1])
        return _source(next(named, None) or log.stem, str(log), str(log.parent))

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """Read what is new since the cursor; the title is looked up when there is something."""
        batch = super().read(source, cursor)
        if batch.events and (title := _title_of(source)) is not None:
            batch.events.append(title)
        return batch

    def live(self, root: Path) -> Iterator[Live]:
        """Yield sessions whose process runs; what a killed one left behind is passed over."""
        for folder in subfolders(root / SESSIONS):
            for entry in files.walk(str(folder), 0):
                match = _HOLD.fullmatch(entry.name)
                if match and is_running(int(match[1])):
                    yield Live(folder.name, int(match[1]), "running")


def _source(session: str, log: str, root: str) -> Source:
    return Source(Copilot.name, session, (File(log, _KEY),), root)


def _is_ours(value: Record) -> bool:
    """Return whether a record is the first one of a log of Copilot's."""
    data = value.get("data")
    if value.get("type") != "session.start" or not isinstance(data, dict):
        return False
    return "producer" in data or "copilotVersion" in data or "sessionId" in data


def _title_of(source: Source) -> Fact | None:
    """Return the title in the card beside a log, which is rewritten at will."""
    log = Path(source.path)
    raw = files.read_small(str(log.parent / CARD), _MAX_CARD_BYTES) if log.name == LOG else None
    if not raw:
        return None
    values = {match[1]: match[2] for match in _LINE.finditer(raw.decode("utf-8", "replace"))}
    name = _unquote(values.get("name", ""))
    if not name:
        return None
    kind = "custom" if values.get("user_named") == "true" else "ai"
    node = Node(f"{CARD}#{source.session}", flags=Is.INTERNAL)
    return Fact(node, CARD, file=CARD, about={f"title:{kind}": name})


def _unquote(value: str) -> str:
    """Return a plain or quoted word of YAML; nothing for a text of several lines."""
    if value[:1] in ("|", ">"):
        return ""
    if value[:1] == '"':
        try:
            return str(json.loads(value))
        except (ValueError, RecursionError):
            return value.strip('"')
    return value[1:-1].replace("''", "'") if value[:1] == "'" else value
