"""The tables of the truth suite, for a terminal and for a page alike: Markdown."""

from __future__ import annotations

import msgspec

from truth.harness import QUESTIONS, RIGHT, SILENT, WRONG, Answer

MARKS = {RIGHT: "right", WRONG: "**wrong**", SILENT: "-"}


class Report(msgspec.Struct):
    """All answers, with the versions of who gave them."""

    versions: dict[str, str]
    cases: dict[str, str]
    answers: list[Answer]

    @property
    def tools(self) -> list[str]:
        """Who answered."""
        return list(dict.fromkeys(answer.tool for answer in self.answers))


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def summary(report: Report) -> str:
    """Right answers of those a tool gave, by question; `-` where it does not say."""
    heads = ["question", *(f"{tool} {report.versions.get(tool, '')}" for tool in report.tools)]
    rows = [_row(heads), "|" + " --- |" * len(heads)]
    for question in (*QUESTIONS, "all"):
        cells = [question]
        for tool in report.tools:
            own = [a for a in report.answers if a.tool == tool and a.question != "all"]
            own = [a for a in own if question in ("all", a.question) and a.verdict != SILENT]
            right = sum(a.verdict == RIGHT for a in own)
            cells.append(f"{right} of {len(own)}" if own else "-")
        rows.append(_row(cells))
    return "\n".join(rows)


def by_agent(report: Report) -> str:
    """Right token counts of those a tool gave, by agent, for tools that read several agents."""
    counts = [a for a in report.answers if a.question in ("tokens", "all")]
    agents = list(dict.fromkeys(a.agent for a in counts))
    tools = [
        tool
        for tool in report.tools
        if len({a.agent for a in counts if a.tool == tool and a.verdict != SILENT}) > 1
    ]
    heads = ["tokens, by agent", *(f"{tool} {report.versions.get(tool, '')}" for tool in tools)]
    rows = [_row(heads), "|" + " --- |" * len(heads)]
    for agent in (*agents, "all"):
        cells = [agent]
        for tool in tools:
            own = [a for a in counts if a.tool == tool and agent in ("all", a.agent)]
            own = [a for a in own if a.verdict != SILENT]
            right = sum(a.verdict == RIGHT for a in own)
            cells.append(f"{right} of {len(own)}" if own else "-")
        rows.append(_row(cells))
    return "\n".join(rows)


def _cell(answers: list[Answer]) -> str:
    """What a tool said about a case: what it got wrong, or that it is right."""
    if all(a.verdict == SILENT for a in answers):
        return answers[0].said or "-" if answers else "-"
    wrong = [f"{a.question}: {a.said}" for a in answers if a.verdict == WRONG]
    right = [a.question for a in answers if a.verdict == RIGHT]
    parts = [", ".join(right) + " right"] if right else []
    return "; ".join([*parts, *(f"**{one}**" for one in wrong)])


def details(report: Report) -> str:
    """Every case: the truth, and what each tool said."""
    heads = ["case", "truth", *report.tools]
    rows = [_row(heads), "|" + " --- |" * len(heads)]
    for case, about in report.cases.items():
        own = [a for a in report.answers if f"{a.agent} {a.case}" == case]
        truth = {a.question: a.truth for a in own if a.truth and a.question in QUESTIONS[:3]}
        told = ", ".join(f"{name} {value}" for name, value in truth.items())
        cells = [f"{case}: {about}", told]
        cells += [_cell([a for a in own if a.tool == tool]) for tool in report.tools]
        rows.append(_row(cells))
    return "\n".join(rows)
