"""The tables of the truth suite, in Markdown."""

from __future__ import annotations

import msgspec

from truth.harness import QUESTIONS, RIGHT, UNKNOWN, WRONG, Answer

MARKS = {RIGHT: "right", WRONG: "**wrong**", UNKNOWN: "-"}


class Report(msgspec.Struct):
    """All answers, with the versions of the tools."""

    versions: dict[str, str]
    cases: dict[str, str]
    answers: list[Answer]

    @property
    def tools(self) -> list[str]:
        """Return the names of the tools that answered."""
        return list(dict.fromkeys(answer.tool for answer in self.answers))


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def summary(report: Report) -> str:
    """Return the table of correct answers by question and tool; `-` if a tool has none."""
    heads = ["question", *(f"{tool} {report.versions.get(tool, '')}" for tool in report.tools)]
    rows = [_row(heads), "|" + " --- |" * len(heads)]
    for question in (*QUESTIONS, "all"):
        cells = [question]
        for tool in report.tools:
            answers = [a for a in report.answers if a.tool == tool and a.question != "all"]
            answers = [
                a for a in answers if question in ("all", a.question) and a.verdict != UNKNOWN
            ]
            right = sum(a.verdict == RIGHT for a in answers)
            cells.append(f"{right} of {len(answers)}" if answers else "-")
        rows.append(_row(cells))
    return "\n".join(rows)


def by_agent(report: Report) -> str:
    """Return the table of correct token counts by agent, for tools that read several agents."""
    counts = [a for a in report.answers if a.question in ("tokens", "all")]
    agents = list(dict.fromkeys(a.agent for a in counts))
    tools = [
        tool
        for tool in report.tools
        if len({a.agent for a in counts if a.tool == tool and a.verdict != UNKNOWN}) > 1
    ]
    heads = ["tokens, by agent", *(f"{tool} {report.versions.get(tool, '')}" for tool in tools)]
    rows = [_row(heads), "|" + " --- |" * len(heads)]
    for agent in (*agents, "all"):
        cells = [agent]
        for tool in tools:
            answers = [a for a in counts if a.tool == tool and agent in ("all", a.agent)]
            answers = [a for a in answers if a.verdict != UNKNOWN]
            right = sum(a.verdict == RIGHT for a in answers)
            cells.append(f"{right} of {len(answers)}" if answers else "-")
        rows.append(_row(cells))
    return "\n".join(rows)


def _cell(answers: list[Answer]) -> str:
    """Return what a tool got right and wrong in a case."""
    if all(a.verdict == UNKNOWN for a in answers):
        return answers[0].answer or "-" if answers else "-"
    mistakes = [f"{a.question}: {a.answer}" for a in answers if a.verdict == WRONG]
    right = [a.question for a in answers if a.verdict == RIGHT]
    parts = [", ".join(right) + " right"] if right else []
    return "; ".join([*parts, *(f"**{mistake}**" for mistake in mistakes)])


def details(report: Report) -> str:
    """Return the table of all cases: the truth, and the answers of each tool."""
    heads = ["case", "truth", *report.tools]
    rows = [_row(heads), "|" + " --- |" * len(heads)]
    for case, description in report.cases.items():
        answers = [a for a in report.answers if f"{a.agent} {a.case}" == case]
        truth = {a.question: a.truth for a in answers if a.truth and a.question in QUESTIONS[:3]}
        truth_text = ", ".join(f"{name} {value}" for name, value in truth.items())
        cells = [f"{case}: {description}", truth_text]
        cells += [_cell([a for a in answers if a.tool == tool]) for tool in report.tools]
        rows.append(_row(cells))
    return "\n".join(rows)
