"""`thence uninstall`: take our lines out of everybody's settings; what is kept stays."""

from __future__ import annotations

import click

from thence.cli import (
    background,
    file_changes,
    hook_install,
    launcher,
    mcp_settings,
    options,
    scheduling,
    setup_parts,
    wiring,
)
from thence.cli.columns import tell, tilde
from thence.cli.terminal import answer, clean


@click.command(
    "uninstall",
    epilog="Stored sessions stay; the command prints how to remove them, too.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Show the change; write nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@options.as_json
def command(*, dry_run: bool, yes: bool, json: bool) -> int:
    """Undo what install commands did."""
    hooks = hook_install.removals(hook_install.NAMES.names())
    edits = [(agent, edit) for agent, edit in hooks if edit.changes]
    ways: list[scheduling.Way] = [*scheduling.active_means(), *scheduling.active_services()]
    timers = [(way, way.uninstall()) for way in ways]
    shell = setup_parts.without_completion(
        setup_parts.read_record(wiring.home()).get("completion", [])
    )
    servers = [
        (agent, change)
        for agent, change in mcp_settings.removals(mcp_settings.NAMES.names())
        if change.changes
    ]
    files = [*edits, *((way.name, edit) for way, plan in timers for edit in plan.edits)]
    others = [*servers, *shell.due]
    shown: list[tuple[str, file_changes.Edit]] = [*files, *others]
    if not json:
        file_changes.show(files, "gone")
        tell(clean(line) for _, change in others for line in change.diff())
    if shown and not dry_run:
        file_changes.confirm(
            yes=yes, json=json, what="write this" if len(shown) == 1 else "write these"
        )
        hook_install.apply(edits, keep=False)
        for way, plan in timers:
            way.carry_out(plan)
        for agent, _ in servers:  # planned anew: a hook may have been in the same file
            file_changes.carry_out(mcp_settings.uninstall(mcp_settings.place_of(agent)), keep=None)
        shell.carry_out()
        background.stop(wiring.home())
        setup_parts.record(wiring.home(), {})
        launcher.remove(wiring.home())
    home = tilde(str(wiring.home()))
    report = [{"whose": name, "path": str(edit.path)} for name, edit in shown]
    word = "would be removed" if dry_run else "gone"
    lines = [
        f"hooks, timers and the server: {word if shown else 'none were installed'}",
        f"stored sessions stay in {clean(home)}; to remove them, too: rm -r {clean(home)}",
        "to remove the program: pip uninstall thence",
    ]
    done = {"dry_run": dry_run, "changes": report, "home": str(wiring.home())}
    return answer(done, lines, json=json)
