"""The harness of the truth suite, with tools that are made up: right, wrong, silent, failing."""

from __future__ import annotations

from pathlib import Path

import pytest

from truth import harness
from truth.case import Answers, Case, Usage
from truth.harness import RIGHT, UNKNOWN, WRONG, Answer
from truth.table import Report, details, summary
from truth.tool import TokenCount, Tool

SECRET = "AKIA" + "Q3EGTZKJ7XWMPLNB"


def plant(home: Path) -> None:
    """One file with a word, a dead word and a secret."""
    folder = home / ".claude" / "projects"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text(f"quillfern thornvault {SECRET}")


def delete_log(home: Path) -> None:
    """The file goes."""
    (home / ".claude" / "projects" / "a.jsonl").unlink()


CASE = Case(
    "claude",
    "planted",
    "one of everything",
    plant,
    Answers(
        2,
        Usage(1, 2, 3, 4),
        has_price=True,
        live_words=("quillfern",),
        discarded_words=("thornvault",),
        secrets=(SECRET,),
    ),
    (delete_log,),
)


class SilentTool(Tool):
    """Says nothing at all."""

    name = "silent"


class CorrectTool(Tool):
    """Has read the file in time and knows all about it."""

    name = "knowing"

    def sync(self) -> None:
        """Keep what is there."""
        store = self.home / "store"
        for path in self.home.rglob("*.jsonl"):
            store.write_text(path.read_text().replace(SECRET, "[key]"))

    def sessions(self) -> int | None:
        """As planted."""
        return 2

    def tokens(self) -> TokenCount | None:
        """As planted."""
        return TokenCount(2, 10)

    def cost(self) -> float | None:
        """Of one, two, three and four tokens."""
        return (1 * 3 + 2 * 15 + 3 * 3.75 + 4 * 0.3) / 1e6

    def finds(self, word: str) -> bool | None:
        """In the store."""
        return word in (self.home / "store").read_text()

    def is_discarded(self, word: str) -> bool | None:
        """Told by its name."""
        return word == "thornvault"


class WrongTool(CorrectTool):
    """Counts twice, forgets, and keeps keys."""

    name = "mistaken"

    def sync(self) -> None:
        """Keep only what is there now, and the key with it."""
        (self.home / "store").write_text("".join(p.read_text() for p in self.home.rglob("*.jsonl")))
        (self.home / ".claude" / "cache.db").write_text(SECRET)

    def tokens(self) -> TokenCount | None:
        """Twice."""
        return TokenCount(4, 20)

    def is_discarded(self, word: str) -> bool | None:
        """Calls everything alive."""
        return False


class FailingTool(Tool):
    """Cannot read this."""

    name = "failing"
    stopped = False

    def sync(self) -> None:
        """Fail."""
        raise RuntimeError("cannot read line 1")

    def stop(self) -> None:
        """End what was started, whatever happened."""
        FailingTool.stopped = True


class OtherAgentsTool(Tool):
    """Reads another agent's logs."""

    name = "other"
    reads = ("codex",)


def verdicts(tool: type[Tool]) -> dict[str, str]:
    """What a tool's answers are worth."""
    return {answer.question: answer.verdict for answer in harness.run(CASE, tool)}


def test_a_right_tool_is_right_everywhere() -> None:
    """Also after the source has gone, for it was read before."""
    assert dict.fromkeys(harness.QUESTIONS, RIGHT) == verdicts(CorrectTool)


def test_a_wrong_tool_is_told_what_it_said() -> None:
    """Each wrong answer stands beside the truth; the right ones stay right."""
    answers = {answer.question: answer for answer in harness.run(CASE, WrongTool)}

    assert {"sessions", "cost"} == {q for q, answer in answers.items() if answer.verdict == RIGHT}
    assert ("20 (4 out)", "10 (2 out)") == (answers["tokens"].answer, answers["tokens"].truth)
    assert "not quillfern, thornvault" == answers["search"].answer
    assert "not thornvault" == answers["discarded"].answer
    assert "1 in its files" == answers["secrets"].answer


def test_a_silent_tool_is_not_called_wrong() -> None:
    """What is not its business is not held against it; it wrote no secret either."""
    expected = dict.fromkeys(harness.QUESTIONS, UNKNOWN) | {"secrets": RIGHT}

    assert expected == verdicts(SilentTool)


def test_a_tool_that_fails_is_told_and_stopped() -> None:
    """The others go on."""
    [answer] = harness.run(CASE, FailingTool)

    assert (WRONG, "fails: cannot read line 1") == (answer.verdict, answer.answer)
    assert FailingTool.stopped


def test_a_tool_for_other_agents_is_not_asked() -> None:
    """It says so."""
    [answer] = harness.run(CASE, OtherAgentsTool)

    assert (UNKNOWN, "does not read claude") == (answer.verdict, answer.answer)


def test_an_answer_is_asked_for_once(tmp_path: Path) -> None:
    """A command that prints JSON is run once for many questions."""
    tool = SilentTool(tmp_path)
    command = ("sh", "-c", 'echo x >> runs; echo "{}"')

    assert ({}, {}) == (tool.query_json(*command), tool.query_json(*command))
    assert "x\n" == (tmp_path / "runs").read_text()


def test_a_command_that_ends_badly_is_an_error(tmp_path: Path) -> None:
    """With what it said."""
    with pytest.raises(RuntimeError, match="silent ended with 7: oh"):
        SilentTool(tmp_path).run("sh", "-c", "echo oh >&2; exit 7")


def test_tables_count_only_what_was_said() -> None:
    """Right answers of those that were given, and every case with what was wrong."""
    answers = [
        a for tool in (CorrectTool, WrongTool, OtherAgentsTool) for a in harness.run(CASE, tool)
    ]
    report = Report({"knowing": "1"}, {"claude planted": "one of everything"}, answers)

    assert "| question | knowing 1 | mistaken  | other  |" == summary(report).splitlines()[0]
    assert "| tokens | 1 of 1 | 0 of 1 | - |" in summary(report)
    assert "| all | 6 of 6 | 2 of 6 | - |" in summary(report)
    assert "**tokens: 20 (4 out)**" in details(report)
    assert "does not read claude |" in details(report)
    assert isinstance(answers[0], Answer)
