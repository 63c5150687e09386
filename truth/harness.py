"""Runs tools on synthetic homes and compares their answers with the truth."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from truth.case import Case, Usage
from truth.tool import AGENT_FOLDERS, TokenCount, Tool

RIGHT, WRONG, UNKNOWN = "right", "wrong", "does not say"
QUESTIONS = ("sessions", "tokens", "cost", "search", "discarded", "secrets")


class Answer(msgspec.Struct):
    """The answer of a tool to a question about a case. Names in JSON stay the same."""

    tool: str
    agent: str
    case: str
    question: str
    verdict: str
    answer: str = msgspec.field(default="", name="said")
    truth: str = ""


def judge(case: Case, tool: Tool) -> Iterator[tuple[str, str, str, str]]:
    """Yield question, verdict, answer and truth, for every question with a correct answer."""
    answers = case.answers
    if answers.sessions is not None:
        yield _compare("sessions", tool.sessions(), answers.sessions)
    yield _compare_tokens(tool.tokens(), answers.usage)
    if answers.has_price:
        cost = tool.cost()
        yield _compare(
            "cost", None if cost is None else f"${cost:.6f}", f"${answers.usage.cost:.6f}"
        )
    if words := (*answers.live_words, *answers.discarded_words, *answers.never_discarded_words):
        yield _compare_words("search", tool.finds, words)
    if answers.discarded_words:
        yield _compare_words("discarded", tool.is_discarded, answers.discarded_words)
    if answers.never_discarded_words:
        yield _compare_words(
            "discarded",
            lambda word: _negate(tool.is_discarded(word)),
            answers.never_discarded_words,
        )
    if answers.secrets:
        leaked = [n for n, secret in enumerate(answers.secrets, 1) if _contains(tool, secret)]
        yield _compare("secrets", f"{len(leaked)} in its files", "0 in its files")


def _negate(value: bool | None) -> bool | None:  # noqa: FBT001 - an answer, or none
    return None if value is None else not value


def _compare(question: str, answer: object, truth: object) -> tuple[str, str, str, str]:
    if answer is None:
        return question, UNKNOWN, "", str(truth)
    return question, RIGHT if answer == truth else WRONG, str(answer), str(truth)


def _compare_tokens(answer: TokenCount | None, usage: Usage) -> tuple[str, str, str, str]:
    """Compare tokens; a tool may leave reasoning out of the output if its total includes it."""
    truth = TokenCount(usage.output, usage.total)
    without_reasoning = TokenCount(usage.output - usage.reasoning, usage.total)
    return _compare("tokens", truth if answer == without_reasoning else answer, truth)


def _compare_words(
    question: str, ask: Callable[[str], bool | None], words: Iterable[str]
) -> tuple[str, str, str, str]:
    """Check that a tool finds all words, or marks all of them correctly."""
    results = {word: ask(word) for word in words}
    if any(is_right is None for is_right in results.values()):
        return question, UNKNOWN, "", ", ".join(results)
    missing = [word for word, is_right in results.items() if not is_right]
    summary = f"not {', '.join(missing)}" if missing else "all"
    return question, WRONG if missing else RIGHT, summary, ", ".join(results)


def _contains(tool: Tool, secret: str) -> bool:
    """Return whether a file that the tool wrote contains a secret in plain text."""
    sources = {path for path in tool.written_files() if _is_source(tool.home, path)}
    return any(
        secret.encode() in path.read_bytes() for path in tool.written_files() if path not in sources
    )


def _is_source(home: Path, path: Path) -> bool:
    """Return whether the agent wrote a file, not the tool."""
    inside = path.relative_to(home).parts
    return inside[0] in AGENT_FOLDERS and path.suffix in {".jsonl", ".txt", ".json"}


def run(case: Case, tool_type: type[Tool]) -> list[Answer]:
    """Run a tool on a case in a temporary home, and return its answers."""
    if case.agent not in tool_type.reads:
        return [
            Answer(
                tool_type.name, case.agent, case.name, "all", UNKNOWN, f"does not read {case.agent}"
            )
        ]
    with tempfile.TemporaryDirectory(prefix="truth-") as name:
        home = Path(name)
        case.plant(home)
        tool = tool_type(home)
        try:
            tool.start()
            tool.sync()
            for change in case.changes:
                change(home)
                tool.sync()
            return [
                Answer(tool.name, case.agent, case.name, *result) for result in judge(case, tool)
            ]
        except Exception as error:  # noqa: BLE001 - a failing tool is reported, the others continue
            return [
                Answer(tool_type.name, case.agent, case.name, "all", WRONG, f"fails: {error}"[:300])
            ]
        finally:
            tool.stop()
