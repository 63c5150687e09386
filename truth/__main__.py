"""The truth suite: `python -m truth [--only thence,ccusage] [--json FILE] [--markdown FILE]`."""

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
WHERE = Path(__file__).resolve().parent.parent / ".truth"


def main() -> int:
    """Run tools on cases and print the tables; 1 when thence is wrong anywhere."""
    asked = argparse.ArgumentParser(prog="python -m truth", description=__doc__)
    asked.add_argument("--only", default="", help="names of tools, with commas")
    asked.add_argument("--case", default="", help="part of a case's name")
    asked.add_argument("--where", type=Path, default=WHERE, help="where report.json goes")
    given = asked.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # tools that were started are stopped
    names = [name for name in given.only.split(",") if name]
    tools = [tool for tool in TOOLS if not names or tool.name in names]
    cases = [case for case in CASES if given.case in f"{case.agent} {case.name}"]
    report = Report(
        {tool.name: tool.version for tool in tools},
        {f"{case.agent} {case.name}": case.about for case in cases},
        list(_answers(tools, cases)),
    )
    given.where.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.format(msgspec.json.encode(report), indent=2)
    (given.where / "report.json").write_bytes(encoded + b"\n")
    print(f"\n{summary(report)}\n\n{details(report)}")
    return 1 if any(a.tool == "thence" and a.verdict == "wrong" for a in report.answers) else 0


def _answers(tools: list[type[Tool]], cases: list[Case]) -> list[Answer]:
    out: list[Answer] = []
    for tool in tools:
        if missing := tool.missing():
            print(f"{tool.name} is left out: {missing}", flush=True)
            continue
        for case in cases:
            answers = run(case, tool)
            marks = " ".join(f"{a.question}: {a.verdict}" for a in answers)
            print(f"{tool.name}, {case.agent} {case.name}: {marks}", flush=True)
            out += answers
    return out


if __name__ == "__main__":
    sys.exit(main())
