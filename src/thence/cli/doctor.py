"""`thence doctor`: look whether all is kept, whole, private and told of."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from thence.agents.unread import as_objects, total_of
from thence.cli import options, wiring
from thence.cli.columns import DIM, WIDE, TextCell, present, table, tell
from thence.cli.terminal import as_json, clean, columns, cut, say, several, style, width
from thence.memory.reports import count_losses

if TYPE_CHECKING:
    from thence.cli.source_checks import Finding
    from thence.format.records import JSON

WARNED_EXIT_CODE = 3
BROKEN_EXIT_CODE = 1
TOPIC_NAMES = {
    "skips": "skipped",
    "caps": "limits",
    "modes": "privacy",
    "place": "home",
    "cadence": "timer",
    "queue": "reports",
}
"""What people read for topics that are named otherwise in JSON."""
_MARKS = {"ok": ("✓", "green"), "note": ("○", None), "warning": ("▲", "red"), "bad": ("✗", "red")}


@click.command(
    "doctor",
    epilog="Exit codes: 0 no problems, 3 warnings, 1 something is broken.",
)
@click.option("--deep", is_flag=True, help="Also read every payload and every damaged source.")
@click.option(
    "--mend", is_flag=True, help="Like --deep; also restore broken packs from the original logs."
)
@options.as_json
def command(*, deep: bool, mend: bool, json: bool) -> int:
    """Look at everything, and say what to do; with `mend` do what can be done."""
    from thence.cli import checks

    deep = deep or mend
    findings = checks.run_all(deep=deep)
    mended: list[str] | None = None
    if mend:
        broken = _broken_sessions(findings)
        if broken:
            _mend(broken)
            findings = checks.run_all(deep=deep)
        mended = sorted(broken - _broken_sessions(findings))
    if json:
        report = _object(findings, present(utc=True).isoformat(timespec="seconds"))
        say(as_json(report if mended is None else {**report, "mended": mended}))
    else:
        if mended is not None:
            tell([f"restored {several(len(mended), 'session')} with broken packs", ""])
        tell(lines(findings, width()))
    return code(findings)


def _broken_sessions(findings: Sequence[Finding]) -> set[str]:
    """Return the sessions whose packs are broken."""
    return {
        finding.details["session_uid"]
        for finding in findings
        if finding.level == "bad" and "session_uid" in finding.details
    }


def _mend(broken: Collection[str]) -> None:
    """Read sessions again from the start; what else is new is kept with them."""
    known = wiring.adapters()
    with wiring.store() as store, store.sweeping(wiring.SWEEP_WAIT_S):
        wiring.sweep_of(store, known, anew=broken).run(wiring.roots(known))


def code(findings: Sequence[Finding]) -> int:
    """Tell how it ends: the worst of what was found."""
    levels = {finding.level for finding in findings}
    return BROKEN_EXIT_CODE if "bad" in levels else WARNED_EXIT_CODE if "warning" in levels else 0


def _object(findings: Sequence[Finding], at: str) -> JSON:
    rows = [
        {
            "topic": finding.topic or None,
            "level": finding.level,
            "words": finding.words,
            "fix": finding.fix,
            **finding.details,
        }
        for finding in findings
    ]
    not_read = [item for finding in findings for item in finding.not_read]
    report = {"at": at, "ok": code(findings) == 0, "not_read": as_objects(not_read)}
    return {**report, "findings": rows}


def lines(findings: Sequence[Finding], room: int) -> Iterator[str]:
    """Say what was found, and below what to type."""
    yield style(_head(findings), bold=True)
    yield ""
    rows: list[list[TextCell]] = []
    last = ""
    for finding in findings:
        mark, colour = _MARKS[finding.level]
        topic = "" if finding.topic == last else TOPIC_NAMES.get(finding.topic, finding.topic)
        last = finding.topic or last
        cells = [TextCell(mark, colour), TextCell(topic), TextCell(clean(finding.words))]
        rows.append([*cells, TextCell(clean(finding.more), DIM)] if room >= WIDE else cells)
    yield from table("<<~<" if room >= WIDE else "<<~", rows, room)
    yield from _fixes(findings, room)


def _head(findings: Sequence[Finding]) -> str:
    bad = sum(finding.level == "bad" for finding in findings)
    warnings = sum(finding.level == "warning" for finding in findings)
    lost: dict[str, str] = next((f.details["lost"] for f in findings if "lost" in f.details), {})
    not_read = [item for finding in findings for item in finding.not_read]
    skipped = sum(finding.details.get("skipped", 0) for finding in findings)
    parts = [count_losses(lost)] if lost else []
    if bad + warnings:
        number = several(warnings, "warning")
        parts.append(f"{several(bad, 'problem')}, {number}" if bad else number)
    parts += [f"{total_of(not_read)} not read"] if not_read else []
    parts += [f"{several(skipped, 'line')} skipped"] if skipped else []
    by_hand = any(finding.topic == "cadence" and finding.level == "note" for finding in findings)
    if by_hand and not bad + warnings:
        start = "" if parts else "no problems, but "
        parts.append(f"{start}nothing imports new sessions automatically")
    return "; ".join(parts) or "no problems"


def _fixes(findings: Sequence[Finding], room: int) -> Iterator[str]:
    """Yield what to type, each once, for what is to be looked at."""
    fixes = {finding.fix: finding for finding in findings if finding.fix}
    shown = [fix for fix, finding in fixes.items() if finding.level != "note"]
    shown = shown or list(fixes)[:3]
    if shown:
        yield ""
    for fix in shown:
        text = cut(clean(fix), room - 2)
        yield f"  {style(text, bold=True)}" if columns(text) else ""
