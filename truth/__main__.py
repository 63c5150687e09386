"""The truth suite: `python -m truth [--only thence,ccusage] [--case NAME] [--where FOLDER]`."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

import msgspec

from truth import claude, codex, further, grok, real, totals
from truth.case import Case
from truth.harness import Answer, run
from truth.table import Report, details, summary
from truth.tool import Tool
from truth.tools import TOOLS

CASES: tuple[Case, ...] = (
    *claude.CASES,
    *codex.CASES,
    *grok.CASES,
    *further.CASES,
    *totals.CASES,
    *real.CASES,
)
DEFAULT_FOLDER = Path(__file__).resolve().parent.parent / ".truth"


def main() -> int:
    """Run tools on cases and print the tables; return 1 if an answer of thence is wrong."""
    parser = argparse.ArgumentParser(prog="python -m truth", description=__doc__)
    parser.add_argument("--only", default="", help="names of tools, separated by commas")
    parser.add_argument("--case", default="", help="part of the name of cases")
    parser.add_argument("--where", type=Path, default=DEFAULT_FOLDER, help="folder of report.json")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # stops the tools that run
    names = [name for name in options.only.split(",") if name]
    tools = [tool for tool in TOOLS if not names or tool.name in names]
    cases = [case for case in CASES if options.case in f"{case.agent} {case.name}"]
    report = Report(
        {tool.name: tool.version for tool in tools},
        {f"{case.agent} {case.name}": case.description for case in cases},
        list(_run_all(tools, cases)),
    )
    options.where.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.format(msgspec.json.encode(report), indent=2)
    (options.where / "report.json").write_bytes(encoded + b"\n")
    print(f"\n{summary(report)}\n\n{details(report)}")
    return 1 if any(a.tool == "thence" and a.verdict == "wrong" for a in report.answers) else 0


def _run_all(tools: list[type[Tool]], cases: list[Case]) -> list[Answer]:
    all_answers: list[Answer] = []
    for tool in tools:
        if missing := tool.missing():
            print(f"{tool.name} is skipped: {missing}", flush=True)
            continue
        for case in cases:
            answers = run(case, tool)
            if tool.name != "thence" and any(answer.verdict == "wrong" for answer in answers):
                # What it can answer counts, even if a busy machine kept it from that once.
                answers = [
                    first if first.verdict == "right" else second
                    for first, second in zip(answers, run(case, tool), strict=True)
                ]
            marks = " ".join(f"{a.question}: {a.verdict}" for a in answers)
            print(f"{tool.name}, {case.agent} {case.name}: {marks}", flush=True)
            all_answers += answers
    return all_answers


if __name__ == "__main__":
    sys.exit(main())
