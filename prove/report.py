"""What a run came to: a row for each trial, as a table and as JSON."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import msgspec

from prove.state import ROOT, State
from prove.trial import Part, Trial


class Row(msgspec.Struct):
    """A trial as it is asked for."""

    trial: Trial
    parts: list[Part]
    missing: str | None


class Told(msgspec.Struct):
    """A trial as it went."""

    name: str
    title: str
    unit: str
    wanted: str
    parts: int
    ended: int
    done: int
    violations: list[str]
    seen: dict[str, int]
    skipped: list[str]
    seeds: str
    seconds: float
    missing: str | None = None

    @classmethod
    def of(cls, row: Row, state: State) -> Told:
        """Add up the parts that have ended."""
        trial = row.trial
        known = [one for part in row.parts if (one := state.get(trial.name, part))]
        seen: dict[str, int] = {}
        for ended in known:
            for name, count in ended.outcome.seen.items():
                seen[name] = seen.get(name, 0) + count
        seeds = sorted({part.seed for part in row.parts})
        return cls(
            trial.name,
            trial.title,
            trial.unit,
            trial.wanted,
            len(row.parts),
            len(known),
            sum(ended.outcome.done for ended in known),
            [one for ended in known for one in ended.outcome.violations],
            seen,
            sorted({one for ended in known for one in ended.outcome.skipped}),
            f"{seeds[0]}-{seeds[-1]}" if len(seeds) > 1 else f"{seeds[0]}",
            round(sum(ended.seconds for ended in known), 1),
            row.missing if len(known) < len(row.parts) else None,
        )


class Report(msgspec.Struct):
    """All of it."""

    machine: dict[str, str]
    code: str
    scale: float
    trials: list[Told]

    @property
    def violations(self) -> int:
        """How often Invariant I was broken."""
        return sum(len(trial.violations) for trial in self.trials)

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")


def machine() -> dict[str, str]:
    """Say what it was run on, and with which versions."""
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


def verdict(trial: Told) -> str:
    """Say in a word how a trial went."""
    if trial.violations:
        return f"{len(trial.violations)} broken"
    if trial.missing:
        return f"not run: {trial.missing}"
    if trial.ended < trial.parts:
        return f"{trial.ended} of {trial.parts} parts so far"
    if not trial.done and trial.skipped:
        return f"not run: {trial.skipped[0]}"
    return "0 violations"


def rows(report: Report) -> list[tuple[str, ...]]:
    """The cells of the table."""
    return [
        (
            trial.name,
            trial.title,
            trial.wanted,
            f"{trial.done:,} {trial.unit}" if trial.done else "",
            ", ".join(f"{count:,} {name}" for name, count in sorted(trial.seen.items())),
            trial.seeds,
            f"{trial.seconds:,.0f} s",
            verdict(trial),
        )
        for trial in report.trials
    ]


HEADS = ("", "what", "per release", "done", "counted besides", "seeds", "took", "Invariant I")


def table(report: Report) -> str:
    """The table for a terminal."""
    cells = [HEADS, *rows(report)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(HEADS))]
    out = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(
        ["", *(line.rstrip() for line in out), "", f"{report.violations} violations of Invariant I"]
    )


def markdown(report: Report) -> str:
    """The table for a page."""
    out = ["| " + " | ".join(HEADS) + " |", "|" + " --- |" * len(HEADS)]
    out += [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows(report)
    ]
    return "\n".join(out)
