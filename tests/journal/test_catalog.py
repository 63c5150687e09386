"""Finding sessions: by id at once, by prefix only when it is clear which one is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from thence.errors import SessionNotFound
from thence.journal import catalog, segments
from thence.journal.catalog import Catalog
from thence.journal.journal import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A journal in a folder of its own."""
    return Journal(tmp_path, durability="none")


def test_an_id_is_found_without_reading_a_folder_of_sessions(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home with thousands of sessions is no slower: only projects are listed."""
    made = [journal.create(cwd=f"/p{n % 3}") for n in range(9)]
    listed: list[str] = []
    plain = segments.names_in

    def watched(folder: Path) -> list[str]:
        listed.append(folder.name)
        return plain(folder)

    monkeypatch.setattr(segments, "names_in", watched)
    monkeypatch.setattr(catalog, "names_in", watched)
    paths = [journal._catalog.path_of(session.id) for session in made]

    assert [session.transcript_path for session in made] == paths
    assert {"sessions"} == set(listed)


def test_an_id_is_not_hidden_by_longer_ones(journal: Journal) -> None:
    """The whole id wins over those that it is a prefix of."""
    short = journal.create(session="ab")
    journal.create(session="abc")

    assert short.transcript_path == journal._catalog.find("ab", None)
    with pytest.raises(SessionNotFound, match="names 2 sessions"):
        journal._catalog.find("a", None)


def test_a_session_whose_first_segment_is_gone_is_found_by_the_next(tmp_path: Path) -> None:
    """What is left of a damaged session still has its name."""
    journal = Journal(tmp_path, durability="none", max_bytes=10)
    session = journal.create()
    first = session.transcript_path
    session.record("user", {"role": "user", "content": "x"})
    session.flush()
    assert first is not None
    first.unlink()

    assert session.transcript_path == Catalog(tmp_path).path_of(session.id)


@pytest.mark.parametrize("name", ["..", "a/b", "x" * 65, "a.b", "*"])
def test_what_is_no_id_leads_nowhere(journal: Journal, name: str) -> None:
    """No text from outside becomes a path."""
    journal.create(cwd="/w")

    assert journal._catalog.path_of(name) is None
    assert not journal.has(name)
