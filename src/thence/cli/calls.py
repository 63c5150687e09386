"""Calls for the eye: what of their results is worth a line."""

from __future__ import annotations

from thence.format import output, testruns


def answer_of(text: str) -> str:
    """The first line that is no mark-up of the harness."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return next((line for line in lines if not line.startswith("<")), "".join(lines[:1]))


def telling_line(text: str, *, at_end: bool) -> str:
    """The line of a failure that says most: a program's last, a tool's first."""
    lines = output.lines(output.open_envelope(text)[1].replace("<tool_use_error>", ""))
    return (lines[-1] if at_end else lines[0]).strip() if lines else ""


def run_of(tests: testruns.Tests) -> str:
    """Say how many tests failed, passed and were skipped."""
    named = (("failed", tests.failed), ("passed", tests.passed), ("skipped", tests.skipped))
    return ", ".join(f"{number:,} {name}" for name, number in named if number)
