"""`thence open`: the viewer that runs, or one that is started, at the session that is named."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest

from tests.cli.conftest import Run
from thence.cli import background, mcp, sample_machine, serve, viewer, wiring
from thence.serve import auth


@pytest.fixture
def listed(looked_at: sample_machine.Homes, run: Run) -> dict[str, Any]:
    """The newest session of the machine."""
    del looked_at
    session: dict[str, Any] = json.loads(run("ls", "--json").output)[0]
    return session


def test_it_opens_a_session_at_the_server_that_runs(
    listed: dict[str, Any], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link signs in, once, and leads to the page of the session."""
    monkeypatch.setattr(viewer, "is_ours", lambda _gate: True)
    uid = listed["session_uid"]
    shown = json.loads(run("open", uid, "--json").output)
    first = json.loads(run("open", "--json").output)

    assert shown["running"]
    assert f"&page=/sessions/{uid.replace(':', '%3A')}" in shown["url"]
    assert "page=" not in first["url"]


def test_it_opens_a_session_at_an_event(
    listed: dict[str, Any], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `search`, `show` and the answers to agents name it; what is no event is refused."""
    monkeypatch.setattr(viewer, "is_ours", lambda _gate: True)
    uid = listed["session_uid"]
    shown = json.loads(run("open", uid, "--at", "e4c01a6", "--json").output)

    assert shown["url"].endswith("%3Fat%3De4c01a6")
    for wrong in ((uid, "--at", "evil"), ("--at", "e4c01a6")):
        with pytest.raises(click.UsageError, match="one of its events"):
            run("open", *wrong, "--json")


def test_answers_to_agents_do_not_name_the_viewer(listed: dict[str, Any]) -> None:
    """An answer stays in a log; the host name of the viewer is a secret of the user."""
    uid = listed["session_uid"]
    key = auth.home_key(wiring.home())
    with wiring.store() as store, background.claim(wiring.home(), 7999):
        answer = mcp.questions(store).answer("outline", {"session": uid})

    assert f"thence open {uid[:20]} --at e" in answer
    assert auth.AuthMiddleware(viewer.HOST, 7999, key=key).origin not in answer
    assert "http://" not in answer


def test_it_starts_a_server_when_none_runs(
    listed: dict[str, Any], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `thence serve` does, with the same session."""
    started: list[dict[str, Any]] = []

    def start(**how: object) -> int:
        started.append(how)
        return 0

    monkeypatch.setattr(viewer, "is_ours", lambda _gate: False)
    monkeypatch.setattr(serve.command, "callback", start)
    run("open", listed["session_uid"], "--no-open")

    assert [f"/sessions/{listed['session_uid']}"] == [how["page"] for how in started]
    assert started[0]["no_open"]
