"""`thence export`: whole, flat, readable, and without secrets when that is asked for."""

from __future__ import annotations

import json
import os
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.cli.conftest import Run
from tests.cli.desk import in_process
from thence.agents.sessions import load
from thence.cli import wiring
from thence.cli.sample_machine import Homes, fake_token, made_id
from thence.errors import NotReadable
from thence.format import export_formats
from thence.format.repair import problems
from thence.journal import Journal
from thence.memory.readouts import readout_of

CLOCK, IMPORT = made_id("clock-change"), made_id("gauge-import")
FORMS = ("jsonl", "markdown", "html", "messages")


@pytest.mark.few(4)
@pytest.mark.parametrize("form", FORMS)
def test_redacted_holds_no_secret_in_any_form(looked_at: Homes, run: Run, form: str) -> None:
    """The source has it, the redacted export has a placeholder and says how many."""
    plain = run("export", IMPORT, "--as", form)
    clean = run("export", IMPORT, "--as", form, "--redacted")

    assert fake_token() in plain.stdout
    assert fake_token() not in clean.stdout
    assert "secret redacted" in clean.stderr.replace("secrets", "secret")


def test_one_object_says_what_was_written(looked_at: Homes, run: Run, tmp_path: Path) -> None:
    """With a file: where and how much. Without one: the export itself, as the value it is."""
    path = tmp_path / "out.md"
    answer = json.loads(
        run("export", CLOCK, "--as", "markdown", "-o", str(path), "--redacted", "--json").stdout
    )
    exports = {
        form: json.loads(run("export", CLOCK, "--as", form, "--json").stdout) for form in FORMS
    }
    plain = {form: run("export", CLOCK, "--as", form).stdout for form in FORMS}

    assert {
        "session_uid": f"claude:{CLOCK}",
        "as": "markdown",
        "path": str(path),
        "bytes": path.stat().st_size,
        "skipped": 0,
        "redacted": 0,
    } == answer
    assert plain["markdown"] == path.read_text()
    assert plain["markdown"] == exports["markdown"]["text"] + "\n"
    assert plain["html"] == exports["html"]["text"] + "\n"
    assert json.loads(plain["messages"]) == exports["messages"]["messages"]
    assert [*map(json.loads, plain["jsonl"].splitlines())] == exports["jsonl"]["lines"]


def test_what_joins_bills_is_no_secret(looked_at: Homes, run: Run) -> None:
    """A redacted export can still be counted; a secret in such a field is one."""
    keys = {
        form: [json.loads(line).get("usage_key") for line in run(*call).stdout.splitlines()]
        for form, call in {
            "plain": ("export", CLOCK),
            "redacted": ("export", CLOCK, "--redacted"),
        }.items()
    }

    assert any(keys["plain"])
    assert keys["plain"] == keys["redacted"]
    assert fake_token() not in json.dumps(wiring.gate().value({"usage_key": fake_token()}))


def test_lines_hold_every_event_in_every_state(looked_at: Homes, run: Run) -> None:
    """Dead branches and subagents are there, each event once."""
    lines = [json.loads(line) for line in run("export", CLOCK).stdout.splitlines()]
    events = lines[1:]

    assert f"claude:{CLOCK}" == lines[0]["session_uid"]
    assert {"live", "dead", "side", "internal"} <= {event.get("state") for event in events}
    assert len(events) == len({event["event_id"] for event in events})


@pytest.mark.slow
def test_a_flat_journal_needs_no_other_file(looked_at: Homes, run: Run, tmp_path: Path) -> None:
    """Of every session of every agent: the same messages, and our library goes on from it."""
    uids = [row["session_uid"] for row in json.loads(run("ls", "--json").stdout)]
    for number, uid in enumerate(uids):
        path = tmp_path / f"{number}.jsonl"
        run("export", uid, "--flatten", "-o", str(path))
        answer = json.loads(run("export", uid, "--as", "messages").stdout)
        read = load(path)

        assert answer == readout_of(read.graph).messages().messages, uid
        assert [] == problems(answer)
        assert 0o600 == path.stat().st_mode & 0o777
        name = read.graph.native
        folder = tmp_path / "home" / "sessions" / "project"
        folder.mkdir(parents=True, exist_ok=True)
        path.rename(folder / f"{name}.jsonl")
        with Journal(tmp_path / "home").resume(name) as session:
            assert len(answer) == len(session.messages)


def test_forks_of_our_own_become_whole(looked_at: Homes, run: Run) -> None:
    """What an ancestor holds stands in the flat file of its descendant."""
    answer = json.loads(run("search", '"The same in Portuguese" agent:thence', "--json").stdout)
    fork = answer["hits"][0]["session_uid"]
    text = run("export", fork, "--flatten").stdout

    assert "The notes say what changed" in text
    assert "resumed_from" not in text or '"resumed_from":null' in text


def test_pages_keep_what_is_said_as_text(tmp_path: Path, run: Run) -> None:
    """No tag, fence or script of a log gets out of its place."""
    evil = "</pre><script>alert(1)</script> ```` \n# not a heading\n\ud800"
    with Journal(tmp_path).create(cwd="/x") as s:
        s.record("user", {"role": "user", "content": evil})
        use = {"type": "tool_use", "id": "t", "name": "<b>", "input": {"x": "`" * 7 + evil}}
        s.record("assistant", {"role": "assistant", "content": [use]})
        result = {"type": "tool_result", "tool_use_id": "t", "content": evil}
        s.record("user", {"role": "user", "content": [result]})
        path = s.transcript_path
    session = readout_of(load(Path(str(path))).graph)
    parser = _Tags()
    parser.feed("\n".join(export_formats.page(session)))

    assert "script" not in parser.tags
    assert "b" not in parser.tags
    fences = [line for line in export_formats.markdown(session) if set(line) == {"`"}]

    assert max(map(len, fences)) > 7
    for form in FORMS:
        assert 0 == run("export", str(path), "--as", form, "-o", str(tmp_path / form)).return_value


ACTIVE = (
    "<script>alert(1)</script>", "<img src='http://evil.example/a'>", "<!-- hidden", "<?php",
    "</p>", "![a](http://evil.example/b)", "![a][r]", "![[http://evil.example/c]]", "<http://evil.example>",
    "<svg/onload=alert(1)>", "[![a](http://evil.example/d)](http://evil.example)", "`", "``", "```",
    "```html", "~~~", "````", "\\", "\\`", "|", "|-|-|", "\n", "\n\n", "\r", "    ", "> ", "- ",
    "1. ", "# ", "[r]: http://evil.example/e", "code", " ", "\t", "*", "<div\n", "&lt;img>",
    "\u2028",
)  # fmt: skip
"""Pieces of texts that readers of Markdown run, load, or are confused by."""
DRAWS = {"p", "h1", "h2", "h3", "em", "strong", "ul", "ol", "li", "a", "code", "pre", "hr", "br"}
DRAWS |= {"blockquote", "table", "thead", "tbody", "tr", "th", "td", "s"}


def _markdown(folder: Path, text: str) -> str:
    """Export a session in which everything says this text."""
    with Journal(folder).create(cwd=text) as s:
        s.record("user", {"role": "user", "content": text})
        use = {"type": "tool_use", "id": "t", "name": text[:60], "input": {"x": text}}
        s.record("assistant", {"role": "assistant", "content": [{"type": "text", "text": text}]})
        s.record("assistant", {"role": "assistant", "content": [use]})
        path = Path(str(s.transcript_path))
    return "\n".join(export_formats.markdown(readout_of(load(path).graph)))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(st.sampled_from(ACTIVE), min_size=1, max_size=14))
def test_markdown_holds_no_html_and_loads_nothing(parts: list[str], tmp_path: Path) -> None:
    """Whatever a log says: two readers that render HTML make no element of it, and no image."""
    text = _markdown(tmp_path, "".join(parts))
    for kind in ("commonmark", "gfm-like"):
        reader = MarkdownIt(kind, {"html": True, "linkify": False})
        parser = _Tags()
        parser.feed(reader.render(text))

        assert set() == parser.tags - DRAWS


def test_code_in_markdown_stays_readable(tmp_path: Path) -> None:
    """Tags in blocks and spans of code are code; a block keeps its language, an open one ends."""
    fenced = "```html\n<div>![a](b)</div>\n```"
    text = f"Use `List<int>` <b>now</b> ![a](http://evil.example)\n\n{fenced}\n~~~mermaid\n<x>"
    lines = _markdown(tmp_path, text).splitlines()

    assert "Use `List<int>` &lt;b>now&lt;/b> &#33;[a](http://evil.example)" in lines
    at = lines.index("```html")
    assert ["<div>![a](b)</div>", "```"] == lines[at + 1 : at + 3]
    assert ["```text", "<x>", "```"] == lines[at + 6 : at + 9]


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_an_exported_document_steers_no_terminal(tmp_path: Path, form: str) -> None:
    """Escapes that write the clipboard, the title or the screen are marks, in a file as well."""
    evil = "\x1b]52;c;ZXZpbA==\x07 \x1b]0;title\x07 \x1b[2J \x9b2J \u202e \x00 tab\there\nnext"
    with Journal(tmp_path).create(cwd="/x") as s:
        s.record("user", {"role": "user", "content": evil})
        path = Path(str(s.transcript_path))
    env = {**os.environ, "THENCE_HOME": str(tmp_path)}
    shown = in_process("export", path, "--as", form, env=env, tty=True)
    piped = in_process("export", path, "--as", form, env=env)
    file = tmp_path / "file"
    written = in_process("export", path, "--as", form, "-o", str(file), env=env)

    assert (0, 0, 0) == (shown.code, piped.code, written.code)
    assert [] == [c for c in shown.out if not c.isprintable() and c not in "\n\t"]
    assert "tab\there\nnext" in shown.out
    assert shown.out == piped.out == file.read_text()


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)


def test_a_file_that_is_there_stays(looked_at: Homes, run: Run, tmp_path: Path) -> None:
    """Unless it is said that it may go."""
    path = tmp_path / "mine"
    path.write_text("mine")
    with pytest.raises(NotReadable, match="exists"):
        run("export", CLOCK, "-o", str(path))

    assert "mine" == path.read_text()

    run("export", CLOCK, "-o", str(path), "--force")

    assert ["mine"] == [child.name for child in tmp_path.iterdir()]
    assert "mine" != path.read_text()


def test_what_the_agent_deleted_is_exported_as_it_was_kept(machine: Homes, run: Run) -> None:
    """The store's copy has no secret in it, whatever is asked."""
    next(machine.claude.rglob(f"{IMPORT}.jsonl")).unlink()
    run("sweep")
    text = run("export", IMPORT).stdout

    assert "empty row 17" in text
    assert fake_token() not in text
