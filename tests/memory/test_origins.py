"""Where a text comes from, in words that no name of a file or machine can stretch or break."""

from __future__ import annotations

import pytest

from thence.format.normal import Session
from thence.memory.notes import session_confirmation
from thence.memory.origins import MAX_NAME_CHARS, describe_origin
from thence.memory.store import SYNCED, ImportedFrom, SessionRow

FILE = ImportedFrom("share", "gift.thence", "thence", "h1")
UNNAMED = ImportedFrom("atif", "", "", "h2")
SENT = ImportedFrom(SYNCED, "laptop", "thence", "h3", FILE)


@pytest.mark.parametrize(
    ("imported", "member", "words"),
    [
        (None, None, ""),
        (None, "desk", "from machine desk"),
        (FILE, None, "imported from gift.thence"),
        (UNNAMED, None, "imported from atif"),
        (SENT, None, "imported from gift.thence, from machine laptop"),
        (ImportedFrom(SYNCED, "laptop"), None, "from machine laptop"),
    ],
)
def test_a_row_says_where_it_comes_from(
    imported: ImportedFrom | None, member: str | None, words: str
) -> None:
    """A file waits until the content that it has was confirmed, wherever it was imported."""
    row = SessionRow(Session("claude:a", "claude", "a"), imported=imported, member=member)
    file = row.file
    confirmed = frozenset({("claude:a", file.content_hash)} if file else ())
    state = ", unconfirmed" if file else ""

    assert words == row.origin
    assert f"{words}{state}" == row.origin_and_state(frozenset())
    assert (file is not None, False) == tuple(map(row.is_withheld, (frozenset(), confirmed)))
    assert row.is_withheld(frozenset({("claude:a", "other")})) is (file is not None)


def test_names_are_one_short_line() -> None:
    """They are the words of whoever made the file or set up the machine."""
    words = describe_origin(file="a\nb " + "x" * 1_000_000, machine="m" * 99, is_confirmed=False)

    assert "imported from a b xx" in words
    assert words.endswith("…, unconfirmed")
    assert len(words) < 2 * MAX_NAME_CHARS + 60


def test_a_log_in_a_project_is_a_file_that_a_clone_brings() -> None:
    """It waits until the user confirms the project, once for all that it keeps; a home has none."""

    def row(uid: str, path: str, agent: str = "thence") -> SessionRow:
        return SessionRow(Session(f"{agent}:{uid}", agent, uid, source_path=path))

    local, child, other = (
        row("a", "/w/pool/.transcripts/a.jsonl"),
        row("b", "/w/pool/.sidechains/x.jsonl"),
        row("a", "/w/sea/.transcripts/a.jsonl"),
    )
    own = row("c", "/home/dev/.thence/sessions/pool-1/c.jsonl")
    claude = row("d", "/w/pool/.transcripts/d.jsonl", "claude")
    line = session_confirmation(local)
    confirmed = frozenset({(f"{line['confirms']}", f"{line['content_hash']}")})
    sent = SessionRow(own.session, imported=ImportedFrom(SYNCED, "laptop", first=local.file))

    assert "kept in pool/.transcripts, unconfirmed" == local.origin_and_state(frozenset())
    assert "kept in pool/.transcripts, from machine laptop" == sent.origin
    assert ["", ""] == [own.origin, claude.origin]
    assert [True, True, True] == [each.is_withheld(frozenset()) for each in (local, other, sent)]
    assert [False, False, True, False] == [
        each.is_withheld(confirmed) for each in (local, child, other, sent)
    ]
    assert "session_uid" not in line
