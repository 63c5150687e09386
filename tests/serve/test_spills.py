"""Results that an agent kept beside its log."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.serve.conftest import House
from thence.agents.claude.sample import SampleTranscript
from thence.cli.sample_machine import fake_token
from thence.journal.journal import Journal

PREVIEW = (
    "<persisted-output>\nOutput too large (190 KB). Full output saved to: {path}\n\n"
    "Preview (first 2KB):\nline 0\n</persisted-output>"
)


def planted(house: House, path: str, *, is_complete: bool = True) -> tuple[str, str]:
    """Write a session with a result that was too large; its uid and the call's name."""
    s = SampleTranscript("spilled", house.homes.work / "tidepool", datetime.now(UTC))
    s.prompt("Print a lot.")
    s.bash("seq 90000", PREVIEW.format(path=path))
    log = s.save(house.homes.claude)
    if is_complete:
        folder = log.with_suffix("") / "tool-results"
        folder.mkdir(parents=True)
        (folder / "b1.txt").write_text(f"all of it\nGITHUB_TOKEN={fake_token()}\n")
    house.swept()
    uid = f"claude:{s.id}"
    listed = house.ask(f"/api/sessions/{uid}/events").json["events"]
    call = next(event for event in listed if event["kind"] == "tool_call")
    return uid, f"e{call['event_id']:013x}"


def test_a_spilled_result_is_had_on_demand_without_its_secrets(own_house: House) -> None:
    """The fold says that there is more; the file comes as text, as an attachment."""
    uid, call = planted(own_house, "/home/dev/.claude/projects/x/tool-results/b1.txt")
    fold = own_house.ask(f"/sessions/{uid}/event/{call}", headers={"HX-Request": "true"})
    answer = own_house.ask(f"/sessions/{uid}/spill/{call}")

    assert f"/sessions/{uid}/spill/{call}".encode() in fold.body
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert b"all of it" in answer.body
    assert b"ghp_" not in answer.body


@pytest.mark.slow
def test_no_path_of_a_log_is_followed(own_house: House, tmp_path: Path) -> None:
    """Only the last part counts, in the session's own folder: nothing else is ever opened."""
    secret = tmp_path / "secret.txt"
    secret.write_text("nobody should read this")
    uid, call = planted(own_house, str(secret), is_complete=False)

    assert own_house.ask(f"/sessions/{uid}/spill/{call}").status == 404
    assert json.dumps("nobody").encode() not in own_house.ask(f"/sessions/{uid}").body


@pytest.mark.slow
def test_what_is_no_call_has_no_more(house: House) -> None:
    """And says so."""
    uid = next(house.store.sessions()).session.session_uid

    assert house.ask(f"/sessions/{uid}/spill/e0000000000000").status == 404
    assert house.ask(f"/sessions/{uid}/spill/x").status == 404


def test_what_our_own_sessions_spilled_is_had_on_demand(own_house: House) -> None:
    """From the store: the side file may be gone. Without its secrets, like any other."""
    text = (
        "".join(f"line {n}\n" for n in range(6000)) + f"narwhal\nGITHUB_TOKEN={fake_token()}\n" * 2
    )
    with Journal(own_house.homes.thence, durability="none").create(cwd="/x") as session:
        session.record("user", {"role": "user", "content": "Print a lot."})
        call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "cat"}}
        session.record("assistant", {"role": "assistant", "content": [call]})
        result = {"type": "tool_result", "tool_use_id": "c1", "content": text + "end\n" * 9000}
        session.record("user", {"role": "user", "content": [result]})
    own_house.swept()
    shutil.rmtree(own_house.homes.thence / "spill")
    uid = f"thence:{session.id}"
    listed = own_house.ask(f"/api/sessions/{uid}/events").json["events"]
    name = next(f"e{event['event_id']:013x}" for event in listed if event["kind"] == "tool_call")
    fold = own_house.ask(f"/sessions/{uid}/event/{name}", headers={"HX-Request": "true"})
    answer = own_house.ask(f"/sessions/{uid}/spill/{name}")

    assert f"/sessions/{uid}/spill/{name}".encode() in fold.body
    assert answer.status == 200
    assert b"narwhal" in answer.body
    assert b"ghp_" not in answer.body
