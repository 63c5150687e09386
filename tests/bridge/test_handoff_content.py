"""What goes along when a session is handed over: images, files, outputs, calls that share an id."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agents import rollouts
from tests.agents.groks import Folder
from tests.agents.transcripts import Script, write
from tests.cli.desk import Ran, in_process
from tests.format.messages_api import PNG, refusals

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
SVG = {
    "type": "base64",
    "media_type": "image/svg+xml",
    "data": base64.b64encode(b"<svg/>").decode(),
}
TARGETS = ("claude", "codex", "grok")

Rows = list[dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Ran]:
    """The command line of a user whose agents live in a folder of the test."""
    homes = {"CLAUDE_CONFIG_DIR": "claude", "CODEX_HOME": "codex", "GROK_HOME": "grok"}
    env = {name: str(tmp_path / folder) for name, folder in homes.items()}
    for folder in (*homes.values(), "home"):
        (tmp_path / folder).mkdir(exist_ok=True)
    env |= {"HOME": str(tmp_path / "home"), "THENCE_HOME": str(tmp_path / "thence")}
    return lambda *arguments: in_process(*arguments, env=env)


def claude(folder: Path, script: Script) -> Path:
    """Write a session of Claude Code; gives its file."""
    return next(write(folder, script).glob("*.jsonl"))


def codex(folder: Path, *lines: dict[str, Any]) -> Path:
    """Write a session of Codex; gives its file."""
    day = folder / "sessions" / "2026" / "01" / "01"
    day.mkdir(parents=True)
    path = day / f"rollout-2026-01-01T00-00-00-{rollouts.A}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


class Handed:
    """A session that was handed over: the report, the rows written, and how we read them."""

    def __init__(self, run: Callable[..., Ran], path: Path, to: str) -> None:
        done = run("handoff", path, "--to", to, "--json")
        assert 0 == done.code, done
        self.report = done.json
        self.files: dict[str, Rows] = {
            Path(name).name: [json.loads(line) for line in Path(name).read_text().splitlines()]
            for name in self.report["files"]
            if name.endswith(".jsonl")
        }
        log = next(
            n for n in self.report["files"] if not n.endswith(("summary.json", "_history.jsonl"))
        )
        self.messages = run("show", log, "--as", "messages").json
        self.page = run("export", log, "--as", "markdown").out

    @property
    def blocks(self) -> Rows:
        """All blocks, in order."""
        return [block for message in self.messages for block in message["content"]]

    @property
    def text(self) -> str:
        """All that was written."""
        return json.dumps(list(self.files.values()), ensure_ascii=False)

    def prompts(self) -> list[str]:
        """What the target's client takes for the user's words."""
        out: list[str] = []
        for name, rows in self.files.items():
            for row in rows:
                payload = row.get("payload") or {}
                if payload.get("type") == "user_message":
                    out.append(payload["message"])
                elif (
                    row.get("type") == "user" and not row.get("isMeta") and name != "updates.jsonl"
                ):
                    content = (row.get("message") or row)["content"]
                    if "synthetic_reason" not in row and "tool_result" not in json.dumps(content):
                        out.append(content if isinstance(content, str) else json.dumps(content))
        return out


# -- images -----------------------------------------------------------------------------------


@pytest.mark.parametrize("to", TARGETS)
def test_an_image_in_a_result_of_claude_goes_along(
    run: Callable[..., Ran], to: str, tmp_path: Path
) -> None:
    """The other agent's session holds the image itself, and nothing is said to be left."""
    script = Script()
    script.user("Look.")
    script.call("t1", "Read", file_path="logo.png")
    script.result("t1", [{"type": "text", "text": "A logo:"}, IMAGE])
    script.say("Red.")
    done = Handed(run, claude(tmp_path / "claude", script), to)

    if to == "codex":  # it has no tool that reads: told in words, and counted
        assert {"image in a result": 1} == done.report["left"]
        return
    (result,) = (block for block in done.blocks if block["type"] == "tool_result")
    assert [{"type": "text", "text": "A logo:"}, IMAGE] == result["content"]
    assert {} == done.report["left"]
    if to == "grok":
        row = next(r for r in done.files["chat_history.jsonl"] if r["type"] == "tool_result")
        assert "A logo:" == row["content"]
        assert [{"type": "image", "url": f"data:image/png;base64,{PNG}"}] == row["images"]


@pytest.mark.parametrize("beside", [True, False])
def test_an_image_in_a_result_of_grok_is_read(
    run: Callable[..., Ran], beside: bool, tmp_path: Path
) -> None:
    """From its log with the text of its chat history, or from the chat history alone."""
    folder = Folder(tmp_path / "grok")
    folder.summary()
    row = {"type": "tool_result", "tool_call_id": "c1", "content": "Read image file: logo.png"}
    call = {"id": "c1", "name": "read_file", "arguments": '{"target_file": "logo.png"}'}
    folder.chat(
        type="user", content=[{"type": "text", "text": "<user_query>\nLook\n</user_query>"}]
    )
    folder.chat(type="assistant", content="", tool_calls=[call])
    folder.chat(**row, images=[{"type": "image", "url": f"data:image/png;base64,{PNG}"}])
    folder.chat(type="assistant", content="Red.")
    if beside:
        folder.prompt("Look", 0)
        folder.call("c1", "read_file", target_file="logo.png")
        shown = {"type": "image", "data": PNG, "mimeType": "image/png"}
        raw = {"type": "ReadFile", "ImageContent": {"data": PNG, "mime_type": "image/png"}}
        part = {"type": "content", "content": shown}
        ended: dict[str, Any] = {"toolCallId": "c1", "status": "completed", "rawOutput": raw}
        folder.update("tool_call_update", content=[part], **ended)
        folder.say("Red.")
        folder.done()
    expected = [{"type": "text", "text": "Read image file: logo.png"}, IMAGE]
    messages = run("show", folder.path, "--as", "messages").json
    done = Handed(run, folder.path, "claude")

    assert [] == refusals(messages)
    assert expected == messages[2]["content"][0]["content"]
    assert expected == next(b for b in done.blocks if b["type"] == "tool_result")["content"]


@pytest.mark.parametrize("to", TARGETS)
def test_an_image_that_no_model_takes_is_told_in_words_and_counted(
    run: Callable[..., Ran], to: str, tmp_path: Path
) -> None:
    """An SVG, or data that cannot be decoded, would have the whole request refused."""
    broken = {"type": "base64", "media_type": "image/png", "data": "?"}
    script = Script()
    images = [{"type": "image", "source": source} for source in (SVG, broken)]
    script.user([{"type": "text", "text": "Look."}, *images])
    script.say("Where?")
    done = Handed(run, claude(tmp_path / "claude", script), to)

    assert {"image/svg+xml": 1, "undecodable image": 1} == done.report["left"]
    assert "[image left out: image/svg+xml]" in done.text
    assert "[image left out: undecodable image]" in done.text
    assert [] == refusals(done.messages)


def test_a_session_of_codex_with_an_image_is_named_by_its_prompt(
    run: Callable[..., Ran], tmp_path: Path
) -> None:
    """Not by the label that Codex puts before the image."""
    content = [
        {"type": "input_text", "text": '<image name=[Image #1] path="logo.png">'},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
        {"type": "input_text", "text": "</image>"},
        {"type": "input_text", "text": "What is it?"},
    ]
    asked = rollouts.item("message", role="user", content=content)
    path = codex(tmp_path / "codex", rollouts.meta(), asked, rollouts.assistant("Red."))
    done = Handed(run, path, "claude")

    assert done.page.startswith("# What is it?\n")
    assert [IMAGE, {"type": "text", "text": "What is it?"}] == done.messages[0]["content"]


# -- what the user did not write --------------------------------------------------------------


def with_files(*, rendered: bool) -> Script:
    """A prompt that names a file and a picture, with what the client keeps of them."""
    script = Script()
    script.user("Look at @calc.py and @logo.png")
    text = {"filePath": "/p/calc.py", "content": "def add(a, b):\n    return a - b", "startLine": 1}
    numbered = "1\tdef add(a, b):\n2\t    return a - b"
    reminders = [
        'Called the Read tool with the following input: {"file_path":"/p/calc.py"}',
        f"Result of calling the Read tool:\n{numbered}",
    ]
    sent = [
        {"content": f"<system-reminder>\n{reminder}\n</system-reminder>"} for reminder in reminders
    ]
    attachment = {
        "type": "file",
        "filename": "/p/calc.py",
        "content": {"type": "text", "file": text},
    }
    script.add("attachment", attachment=attachment, **({"rendered": sent} if rendered else {}))
    picture = {"type": "image", "file": {"base64": PNG, "type": "image/png"}}
    attachment = {"type": "file", "filename": "/p/logo.png", "content": picture}
    script.add("attachment", attachment=attachment)
    script.say("It subtracts.")
    return script


@pytest.mark.parametrize("rendered", [True, False])
@pytest.mark.parametrize("to", TARGETS)
def test_files_that_a_prompt_names_go_along(
    run: Callable[..., Ran], to: str, rendered: bool, tmp_path: Path
) -> None:
    """Their content is in the messages and in the new session, but not as the user's words."""
    path = claude(tmp_path / "claude", with_files(rendered=rendered))
    messages = run("show", path, "--as", "messages").json
    done = Handed(run, path, to)
    inside = "2\t    return a - b"

    assert [] == refusals(messages)
    assert IMAGE in messages[0]["content"]
    assert any(inside in block.get("text", "") for block in messages[0]["content"])
    assert IMAGE in done.blocks
    (handed,) = (b["text"] for b in done.blocks if inside in b.get("text", ""))
    if to == "claude":
        assert handed.startswith("<system-reminder>\nResult of calling the Read tool:")
    else:
        assert handed.startswith("[Recorded by claude, not written by the user:]\n")
        assert not any(inside in prompt for prompt in done.prompts())
        assert f"<user_query>\\n{handed[:12]}" not in done.text
    assert {} == done.report["left"]


@pytest.mark.parametrize("to", TARGETS)
def test_output_of_local_commands_is_not_the_users_words(
    run: Callable[..., Ran], to: str, tmp_path: Path
) -> None:
    """It goes along, marked as what it is; no client takes it for a prompt."""
    outputs = (
        "<bash-stdout>OUTPUT one</bash-stdout><bash-stderr></bash-stderr>",
        "<local-command-stdout>OUTPUT two</local-command-stdout>",
        "<task-notification>OUTPUT three</task-notification>",
    )
    script = Script()
    script.user("Go on.")
    script.say("Yes.")
    for output in outputs:
        script.user(output)
    script.user("And now?")
    script.say("Done.")
    done = Handed(run, claude(tmp_path / "claude", script), to)
    texts = [block["text"] for block in done.blocks if "OUTPUT" in block.get("text", "")]

    assert 3 == len(texts)
    if to == "claude":  # its own words for it
        assert list(outputs) == texts
        return
    assert all(text.startswith("[Recorded by claude, not written by the user:]") for text in texts)
    assert 2 == len(done.prompts())
    assert not any("OUTPUT" in prompt for prompt in done.prompts())


@pytest.mark.parametrize("to", ["claude", "grok"])
def test_a_notice_of_a_subagent_is_not_the_users_words(
    run: Callable[..., Ran], to: str, tmp_path: Path
) -> None:
    """Codex puts it into the user's mouth; the next agent's client is told whose it is."""
    notice = "<subagent_notification>OUTPUT</subagent_notification>"
    path = codex(
        tmp_path / "codex",
        rollouts.meta(),
        rollouts.user("Go on."),
        rollouts.assistant("Yes."),
        rollouts.user(notice),
        rollouts.assistant("Done."),
    )
    done = Handed(run, path, to)

    marked = f"[Recorded by codex, not written by the user:]\n{notice}"
    assert marked in [block.get("text") for block in done.blocks]
    assert 1 == len(done.prompts())
    assert "OUTPUT" not in done.prompts()[0]


# -- calls ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["functions.exec_command:0", ""])
@pytest.mark.parametrize("to", TARGETS)
def test_calls_that_share_an_id_all_go_along(
    run: Callable[..., Ran], to: str, name: str, tmp_path: Path
) -> None:
    """Two turns, one id: both calls and both results are there, and the report names them."""
    script = Script()
    for place in ("here", "there"):
        script.user(f"What is {place}?")
        script.call(name, "Bash", command=f"ls {place}")
        script.result(name, f"files of {place}")
        script.say("That.")
    done = Handed(run, claude(tmp_path / "claude", script), to)
    results = [block["content"] for block in done.blocks if block["type"] == "tool_result"]

    assert ["files of here", "files of there"] == results
    assert 2 == done.report["calls"]
    assert 2 == len([line for line in done.report["mended"] if "new id" in line])
    assert [] == refusals(done.messages)
