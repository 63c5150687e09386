"""Options that many commands share."""

from __future__ import annotations

import click

as_json = click.option("--json", "json", is_flag=True, help="Print JSON.")
utc = click.option("--utc", is_flag=True, help="Tell times in UTC.")
tz = click.option(
    "--tz", metavar="ZONE", help="Zone of days, as Europe/Berlin or UTC; your own by default."
)
own = click.option(
    "--own", is_flag=True, help="Leave out the sessions that this one was continued from."
)
agent = click.option("--agent", help="Only sessions of this agent.")
project = click.option("--project", help="Only sessions whose folder has this in its path.")
model = click.option("--model", help="Only sessions whose model has this in its name.")
since = click.option("--since", metavar="WHEN", help="A date such as 2026-01-31, or 7d ago.")
