"""Sessions of Droid, Factory's command line client: a log each, and a document with its totals.

Logs lie in `sessions/<folder of the project>/<uuid>.jsonl`, some of them directly in `sessions`;
`<uuid>.settings.json` beside a log has what the session took. Credentials and the settings of the
home are never opened. Droid deletes nothing by age and does not list running sessions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from thence.agents import File, Source, files
from thence.agents.records import QuietAgent, Record, first_records, folder_above, text

_LOG, _TOTALS = ".jsonl", ".settings.json"
_MAX_DEPTH = 1


class Droid(QuietAgent):
    """The reader of Droid's sessions."""

    name = "droid"
    looks_for = "sessions/*/ID.jsonl"
    opens = "thence.agents.droid.lines:open_records"

    def find(self, root: Path) -> Iterator[Source]:
        """Yield all sessions; one whose log lies in several folders is one."""
        place = str(root)
        sessions: dict[str, dict[str, File]] = {}
        entries = list(files.walk(f"{place}/sessions", _MAX_DEPTH))
        paths = {entry.path for entry in entries}
        for entry in entries:
            if entry.name.endswith(_LOG):
                own = sessions.setdefault(entry.name.removesuffix(_LOG), {})
                totals = _totals_of(entry.path)
                _add(own, entry.path, totals if totals in paths else "")
        for session, own in sorted(sessions.items()):
            yield Source(self.name, session, tuple([own[key] for key in sorted(own)]), place)

    def at(self, path: Path) -> Source | None:
        """Return the session of a log, or of the document beside it."""
        path = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links
        if path.name.endswith(_TOTALS):
            path = path.with_name(path.name.removesuffix(_TOTALS) + _LOG)
        if path.suffix != _LOG or path.is_symlink() or not path.is_file():
            return None
        if not any(map(_is_start, first_records(str(path))[:1])):
            return None
        session = path.name.removesuffix(_LOG)
        root = folder_above(path, "sessions", steps=2)
        if (source := self.holder(root, path)) is not None:
            return source
        own: dict[str, File] = {}
        totals = _totals_of(str(path))
        _add(own, str(path), totals if files.is_regular(totals) else "")
        return Source(self.name, session, tuple(own.values()), str(root or path.parent))


def _is_start(value: Record) -> bool:
    return value.get("type") == "session_start" and text(value.get("id")) is not None


def _totals_of(log: str) -> str:
    return log.removesuffix(_LOG) + _TOTALS


def _add(own: dict[str, File], log: str, totals: str) -> None:
    """Add a log, and its totals if there are any, to the files of a session."""
    key, place = "main", ""
    while key in own:
        place = f"{place}@{log.split('/')[-2]}"
        key = f"main{place}"
    own[key] = File(log, key)
    if totals:
        own[f"totals{place}"] = File(totals, f"totals{place}", is_document=True, beside=(log,))
