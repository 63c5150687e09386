"""The report of a run: a row for each trial, as a table and as JSON."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import msgspec

from prove.state import ROOT, State
from prove.trial import Part, Trial


class TrialPlan(msgspec.Struct):
    """A trial, and the parts of it that a run asks for."""

    trial: Trial
    parts: list[Part]
    missing: str | None


class TrialResult(msgspec.Struct):
    """The totals of a trial. Names in JSON stay, so that older reports can be read."""

    name: str
    title: str
    unit: str
    required: str = msgspec.field(name="wanted")
    parts: int
    finished: int = msgspec.field(name="ended")
    done: int
    violations: list[str]
    counts: dict[str, int] = msgspec.field(name="seen")
    skipped: list[str]
    seeds: str
    seconds: float
    missing: str | None = None
    code: str = ""
    """The hash of the code that it ran."""

    @classmethod
    def of(cls, plan: TrialPlan, state: State) -> TrialResult:
        """Return the sum of the finished parts."""
        trial = plan.trial
        records = [record for part in plan.parts if (record := state.get(trial.name, part))]
        counts: dict[str, int] = {}
        for record in records:
            for name, count in record.outcome.counts.items():
                counts[name] = counts.get(name, 0) + count
        seeds = sorted({part.seed for part in plan.parts})
        return cls(
            trial.name,
            trial.title,
            trial.unit,
            trial.required,
            len(plan.parts),
            len(records),
            sum(record.outcome.done for record in records),
            [text for record in records for text in record.outcome.violations],
            counts,
            sorted({reason for record in records for reason in record.outcome.skipped}),
            f"{seeds[0]}-{seeds[-1]}" if len(seeds) > 1 else f"{seeds[0]}",
            round(sum(record.seconds for record in records), 1),
            plan.missing if len(records) < len(plan.parts) else None,
            state.code_of(trial.name),
        )


class Report(msgspec.Struct):
    """The results of all trials of a run, and where it ran."""

    machine: dict[str, str]
    code: str
    scale: float
    trials: list[TrialResult]

    @property
    def violations(self) -> int:
        """Return how often Invariant I was violated."""
        return sum(len(trial.violations) for trial in self.trials)

    def write(self, path: Path) -> None:
        """Write the report as JSON."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")


def describe_machine() -> dict[str, str]:
    """Return the commit, the versions and the size of this machine."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "commit": commit.stdout.strip() or "unknown",
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": str(os.cpu_count()),
        "memory": f"{memory / 2**30:.0f} GiB",
    }


def describe_result(trial: TrialResult) -> str:
    """Return in a few words how a trial went."""
    if trial.violations:
        number = len(trial.violations)
        return f"{number} violation{'s' if number > 1 else ''}"
    if trial.missing:
        return f"not run: {trial.missing}"
    if trial.finished < trial.parts:
        return f"{trial.finished} of {trial.parts} parts so far"
    if not trial.done and trial.skipped:
        return f"not run: {trial.skipped[0]}"
    return "0 violations"


def rows(report: Report) -> list[tuple[str, ...]]:
    """Return the cells of the table, a row per trial."""
    return [
        (
            trial.name,
            trial.title,
            trial.required,
            f"{trial.done:,} {trial.unit}" if trial.done else "",
            ", ".join(f"{count:,} {name}" for name, count in sorted(trial.counts.items())),
            trial.seeds,
            f"{trial.seconds:,.0f} s",
            describe_result(trial),
        )
        for trial in report.trials
    ]


HEADINGS = ("", "trial", "per release", "done", "also counted", "seeds", "time", "Invariant I")


def table(report: Report) -> str:
    """Return the table for a terminal."""
    cells = [HEADINGS, *rows(report)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(HEADINGS))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(
        [
            "",
            *(line.rstrip() for line in lines),
            "",
            f"{report.violations} violations of Invariant I",
        ]
    )


def markdown(report: Report) -> str:
    """Return the table in Markdown."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + " --- |" * len(HEADINGS)]
    lines += [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows(report)
    ]
    return "\n".join(lines)
