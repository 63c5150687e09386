"""The app: errors, ETags, compression, static files."""

from __future__ import annotations

from tests.serve.conftest import House


def test_a_session_is_answered(house: House) -> None:
    """Over a real socket."""
    row = next(iter(house.store.sessions()))

    answer = house.ask(f"/api/sessions/{row.session.session_uid}")

    assert (200, row.session.session_uid) == (answer.status, answer.json["session_uid"])
