"""`thence handoff`: give a session to another agent, whose own client goes on with it."""

from __future__ import annotations

import click
import msgspec

from thence.bridge.handoff import carry_out
from thence.cli import options
from thence.cli.columns import tell
from thence.cli.handoffs import ask_before, lines, prepare, read_original
from thence.cli.read_notices import exit_code
from thence.cli.terminal import as_json, say, width
from thence.format.figures import clean


@click.command(
    "handoff",
    epilog="Writes a new session in the other agent's folder; the original stays"
    " unchanged. Permissions are not copied. Secrets are not redacted. It shows the files and"
    " asks first; without a terminal it needs --yes or --json.",
)
@click.argument("wanted", metavar="ID|PATH", shell_complete=options.complete_ids)
@click.option(
    "--to",
    "target",
    type=options.AgentName("handoff"),
    required=True,
    help="The agent to continue in.",
)
@click.option("--at", "event", metavar="EVENT", help="Only the history up to this event.")
@click.option("--branch", metavar="EVENT", help="The branch of this event, to its end.")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be written; write nothing.")
@options.yes
@options.as_json
def command(
    wanted: str,
    target: str,
    event: str | None,
    branch: str | None,
    *,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> int:
    """Hand a session over, and say how the other agent goes on with it."""
    if event is not None and branch is not None:
        raise click.UsageError("use --at or --branch, not both")
    opened, notes = read_original(wanted)
    handoff = prepare(opened, target, event=event, branch=branch, notes=notes)
    if not dry_run:
        ask_before(handoff, yes=yes or json)
        carry_out(handoff)
    if json:
        say(as_json({"dry_run": dry_run, **msgspec.to_builtins(handoff.report)}))
    else:
        tell(lines(handoff.report, width(), dry_run=dry_run))
        click.echo(clean(handoff.report.command))
    return exit_code(opened.skipped)
