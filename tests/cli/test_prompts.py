"""Which texts in the user's name are prompts: those that somebody typed, shown as typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.groks import FIRST, Folder
from tests.agents.transcripts import A, Script
from tests.cli.desk import Desk

NOTE = "<bash-notification>\nBackground command 'sleep 9' completed (exit code 0).\n"
COMMAND = (
    "<command-message>orchestrator is running…</command-message>\n"
    "<command-name>/orchestrator</command-name>\n"
    "<command-args>Bring the notes up to date,\nthen <b>stop</b>.</command-args>"
)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine without sessions."""
    return Desk(tmp_path, monkeypatch)


def prompts(desk: Desk, session: str) -> list[str]:
    """Return the prompts of a session, as its tree has them."""
    desk.sweep()
    return [turn["prompt"] for turn in desk.run("tree", session, "--json").json["turns"]]


def test_a_notice_of_a_command_in_the_background_is_no_prompt(desk: Desk) -> None:
    """Neither as a record of its own nor when it waited in the queue of an older client."""
    log = Script(version="2.1.40")
    log.user("Start it.")
    log.call("c1")
    log.note("queue-operation", operation="enqueue", content=NOTE)
    log.note("queue-operation", operation="remove")
    log.result("c1")
    log.say("Started.")
    log.user(NOTE)
    log.say("It has ended.")
    desk.write_claude(log)

    assert ["Start it."] == prompts(desk, A)
    assert ["Start it."] == [prompt["text"] for prompt in desk.run("history", "--json").json]


def test_a_command_of_the_users_own_with_a_text_is_a_prompt(desk: Desk) -> None:
    """As it was typed; the model was sent what the client made of it."""
    log = Script()
    log.user(COMMAND)
    log.user("You are an orchestrator. Bring the notes up to date.", isMeta=True)
    log.say("Done.")
    desk.write_claude(log)
    typed = "/orchestrator Bring the notes up to date,\nthen <b>stop</b>."
    shown = prompts(desk, A)
    (prompt,) = desk.run("history", "--json").json
    sent = desk.run("show", A, "--as", "messages").json[0]["content"][0]

    assert [" ".join(typed.split())] == shown
    assert typed == prompt["text"]
    assert "/orchestrator Bring" in desk.run("show", A).out
    assert "command-message" not in desk.run("show", A).out
    assert {"type": "text", "text": COMMAND} == sent
    assert typed.split("\n", maxsplit=1)[0] in desk.run("digest", A).out


@pytest.mark.parametrize(
    "text",
    [
        (
            "<command-name>/compact</command-name>\n<command-message>compact</command-message>\n"
            "<command-args>keep the file names</command-args>"
        ),
        "<command-message>reviewer</command-message>\n<command-name>/reviewer</command-name>",
    ],
)
def test_commands_of_the_client_or_without_a_text_are_no_prompts(desk: Desk, text: str) -> None:
    """They say nothing to the model in the user's words."""
    log = Script()
    log.user("Go.")
    log.say("Done.")
    log.user(text)
    log.say("Done.")
    desk.write_claude(log)

    assert ["Go."] == prompts(desk, A)


@pytest.mark.parametrize("hidden", [True, False])
def test_a_reminder_that_grok_injects_is_no_prompt(desk: Desk, hidden: bool) -> None:
    """The client hides it from the user, or its tag tells."""
    folder = Folder(desk.user / ".grok")
    folder.summary()
    folder.prompt("Look around.")
    folder.say("I see.")
    text = "A task has ended." if hidden else "<system-reminder>\nA task has ended."
    more = {"_meta": {"hideFromScrollback": True, "promptIndex": 1}} if hidden else {}
    folder.update("user_message_chunk", content={"type": "text", "text": text}, **more)
    folder.say("Noted.")

    assert ["Look around."] == prompts(desk, FIRST)
    assert ["Look around."] == [prompt["text"] for prompt in desk.run("history", "--json").json]
