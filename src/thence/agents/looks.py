"""One look for the sessions of agents: those that are read, and what is there besides.

Readers note what they cannot read (`unread`). What earlier versions of a client left and nobody
reads (`OldSessions` of its profile) is counted here, for all agents in one way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path

from thence.agents import Adapter, Source
from thence.agents.files import entries_in
from thence.agents.profiles import agent_of
from thence.agents.unread import Notes, Unread


class Look(Notes):
    """One look for the sessions of agents, with the notes that are taken on the way."""

    def __init__(self, remembered: Iterable[Unread] = ()) -> None:
        """Begin; what is `remembered` of damaged databases is not looked at again."""
        super().__init__(remembered)
        self.looked: dict[str, list[Path]] = {}
        """The folders that were looked through, by agent."""

    def find(self, adapter: Adapter, root: Path) -> list[Source]:
        """Return the sessions of an agent below a root, and note what else is there.

        A reader that `finds_some` of the sessions only says nothing of what else is there.
        """
        if getattr(adapter, "finds_some", False):
            return list(adapter.find(root))
        self.agent = adapter.name
        self.looked.setdefault(adapter.name, []).append(root)
        with self.taken():
            entries_in(str(root))  # one that is locked is noted, however its reader lists it
            sources = list(adapter.find(root))
        self.add(_older(adapter.name, root, sources))
        return sources


def _older(name: str, root: Path, sources: Sequence[Source]) -> Iterator[Unread]:
    """Yield how many sessions of each old kind lie below a root.

    Some lie there twice, and some were taken over by a newer version and are read from there: each
    counts once, by its name, and not at all where there is a session of that name.
    """
    agent = agent_of(name)
    for old in agent.profile.older if agent is not None else ():
        pattern = old.pattern.split("/")
        paths = map(Path, _match(str(root), pattern))
        names = {path.stem if old.names == "file" else path.parent.name for path in paths}
        if not names:
            continue
        names -= {source.session for source in sources}
        names -= {Path(file.path).stem for source in sources for file in source.files}
        if names:
            place = root.joinpath(*takewhile(lambda part: "*" not in part, pattern[:-1]))
            yield Unread(name, str(place), old.versions, "older", len(names))


def _match(folder: str, pattern: Sequence[str]) -> Iterator[str]:
    """Yield the paths below a folder that a pattern means; no link is followed."""
    wanted, *rest = pattern
    if rest and "*" not in wanted:
        yield from _match(f"{folder}/{wanted}", rest)
        return
    for entry in entries_in(folder):
        if not fnmatchcase(entry.name, wanted):
            continue
        if rest and entry.is_dir(follow_symlinks=False):
            yield from _match(entry.path, rest)
        elif not rest and entry.is_file(follow_symlinks=False):
            yield entry.path
