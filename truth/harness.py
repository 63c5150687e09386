"""Run tools on planted homes and hold their answers against the truth."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from truth.case import Case, Usage
from truth.tool import AGENTS, Tool, Total

RIGHT, WRONG, SILENT = "right", "wrong", "does not say"
QUESTIONS = ("sessions", "tokens", "cost", "found", "dead", "secrets")


class Answer(msgspec.Struct):
    """What one tool said to one question about one case."""

    tool: str
    agent: str
    case: str
    question: str
    verdict: str
    said: str = ""
    truth: str = ""


def judged(case: Case, tool: Tool) -> Iterator[tuple[str, str, str, str]]:
    """Ask everything there is a right answer to: question, verdict, what was said, the truth."""
    answers = case.answers
    if answers.sessions is not None:
        yield _equal("sessions", tool.sessions(), answers.sessions)
    yield _tokens(tool.tokens(), answers.usage)
    if answers.priced:
        cost = tool.cost()
        yield _equal("cost", None if cost is None else f"${cost:.6f}", f"${answers.usage.cost:.6f}")
    if words := (*answers.live, *answers.dead, *answers.not_dead):
        yield _words("found", tool.finds, words)
    if answers.dead:
        yield _words("dead", tool.dead, answers.dead)
    if answers.not_dead:
        yield _words("dead", lambda word: _not(tool.dead(word)), answers.not_dead)
    if answers.secrets:
        held = [n for n, secret in enumerate(answers.secrets, 1) if _holds(tool, secret)]
        yield _equal("secrets", f"{len(held)} in its files", "0 in its files")


def _not(said: bool | None) -> bool | None:  # noqa: FBT001 - an answer, or none
    return None if said is None else not said


def _equal(question: str, said: object, truth: object) -> tuple[str, str, str, str]:
    if said is None:
        return question, SILENT, "", str(truth)
    return question, RIGHT if said == truth else WRONG, str(said), str(truth)


def _tokens(said: Total | None, usage: Usage) -> tuple[str, str, str, str]:
    """Compare tokens; a tool may tell thoughts apart from the output, if its total has them."""
    truth = Total(usage.output, usage.total)
    apart = Total(usage.output - usage.thought, usage.total)
    return _equal("tokens", truth if said == apart else said, truth)


def _words(
    question: str, ask: Callable[[str], bool | None], words: Iterable[str]
) -> tuple[str, str, str, str]:
    """All of some words are found, or told as dead."""
    said = {word: ask(word) for word in words}
    if any(one is None for one in said.values()):
        return question, SILENT, "", ", ".join(said)
    missing = [word for word, one in said.items() if not one]
    told = f"not {', '.join(missing)}" if missing else "all"
    return question, WRONG if missing else RIGHT, told, ", ".join(said)


def _holds(tool: Tool, secret: str) -> bool:
    """Whether any file that the tool wrote holds a secret as it is."""
    planted = {p for p in tool.written() if _is_source(tool.home, p)}
    return any(
        secret.encode() in path.read_bytes() for path in tool.written() if path not in planted
    )


def _is_source(home: Path, path: Path) -> bool:
    """Whether the agent wrote it, not the tool."""
    inside = path.relative_to(home).parts
    return inside[0] in AGENTS and path.suffix in {".jsonl", ".txt", ".json"}


def run(case: Case, make: type[Tool]) -> list[Answer]:
    """Run one tool on one case, in a home that is thrown away."""
    if case.agent not in make.reads:
        return [
            Answer(make.name, case.agent, case.name, "all", SILENT, f"not asked about {case.agent}")
        ]
    with tempfile.TemporaryDirectory(prefix="truth-") as name:
        home = Path(name)
        case.plant(home)
        tool = make(home)
        try:
            tool.start()
            tool.sync()
            for change in case.later:
                change(home)
                tool.sync()
            return [
                Answer(tool.name, case.agent, case.name, *judgement)
                for judgement in judged(case, tool)
            ]
        except Exception as error:  # noqa: BLE001 - a tool that fails is told, the others go on
            return [Answer(make.name, case.agent, case.name, "all", WRONG, f"fails: {error}"[:300])]
        finally:
            tool.stop()
