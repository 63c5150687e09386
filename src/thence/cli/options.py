"""Options that many commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from thence.agents.profiles import Part

MAX_COMPLETIONS = 30
"""Ids that a shell offers."""

Command = TypeVar("Command", bound=Callable[..., Any])

as_json = click.option("--json", "json", is_flag=True, help="Print JSON.")
yes = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
utc = click.option("--utc", is_flag=True, help="Show times in UTC.")
tz = click.option(
    "--tz", metavar="ZONE", help="Time zone of days, such as Europe/Berlin or UTC; default: yours."
)


def rows(default: int) -> Callable[[Command], Command]:
    """Return the option that says how many rows are shown."""
    return click.option(
        "-n",
        "number",
        type=click.IntRange(1),
        default=default,
        show_default=True,
        help="How many to show.",
    )


own = click.option("--own", is_flag=True, help="Do not show the sessions that this one continues.")


class AgentFilter(click.ParamType[str]):
    """The name of an agent, as it is stored (`claude`) or as people call it (`Claude Code`)."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002 - click's
        """Return the stored name; an agent without a profile has sessions in the store."""
        from thence.agents.profiles import agent_of, stored_name
        from thence.cli import wiring

        name = stored_name(str(value))
        if agent_of(name) is None:
            from thence.memory.labels import stored_agent

            with wiring.store() as store:
                return stored_agent(store, name)
        return name


agent = click.option("--agent", type=AgentFilter(), help="Only sessions of this agent.")
project = click.option("--project", help="Only sessions in folders with this text in their path.")
model = click.option("--model", help="Only sessions with this text in the model name.")
tag = click.option("--tag", metavar="WORD", help="Only sessions with this tag.")
since = click.option(
    "--since", metavar="WHEN", help="A date such as 2026-01-31, yesterday, or 7d for a week ago."
)


def view(name: str, does: str) -> Callable[[Command], Command]:
    """Add an option that shows something else: see VIEWS, which runs another command for it."""
    return click.option(name, is_flag=True, expose_value=False, help=does)


def notes(command: Command) -> Command:
    """Add what a command takes that writes decisions or notes, lists and confirms them."""
    for add in (
        as_json,
        click.option("-y", "--yes", is_flag=True, help="With --confirm: do not ask."),
        click.option(
            "--confirm",
            is_flag=True,
            help="Confirm decisions of agents, by their ids in place of TEXT; shows each and asks.",
        ),
        click.option("--session", "wanted", metavar="ID", help="The session it belongs to."),
        click.argument("words", metavar="[TEXT]...", nargs=-1),
    ):
        command = add(command)
    return command


MAX_CHOICE_CHARS = 40
"""Characters of names that help lists; more would not fit a terminal."""


class AgentName(click.ParamType[str]):
    """The name of an agent that has a part; of one that lacks it, it is said what that means.

    Agents are asked when a name was given or help is printed, not when a command is loaded.
    """

    name = "agent"

    def __init__(self, part: Part) -> None:
        self._part: Part = part

    def names(self) -> list[str]:
        """Return the agents that have the part."""
        from thence.agents.profiles import agents

        return [name for name, agent in agents().items() if agent.offers(self._part)]

    def get_metavar(
        self,
        param: click.Parameter,
        ctx: click.Context,  # noqa: ARG002 - click's
    ) -> str:
        """Return the names, as click writes choices."""
        joined = "|".join(self.names())
        if len(joined) > MAX_CHOICE_CHARS:  # a wrong name is answered with all of them
            return "AGENT"
        is_bare = param.required and param.param_type_name == "argument"
        return f"{{{joined}}}" if is_bare else f"[{joined}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name as it is, or say why it cannot be."""
        from thence.agents.profiles import PARTS, agent_of

        agent = agent_of(str(value))
        names = ", ".join(self.names())
        if agent is None:
            self.fail(f"{value!r} is not an agent. Choose from {names}.", param, ctx)
        if not agent.offers(self._part):
            self.fail(f"{agent.label} {PARTS[self._part]}. Choose from {names}.", param, ctx)
        return agent.name

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the names that begin like this."""
        return [CompletionItem(name) for name in self.names() if name.startswith(incomplete)]


def _completed(name: str, short: Mapping[str, str], typed: str) -> str:
    """Return an id as it is completed: short, but never shorter than what was typed."""
    return name if "…" in short[name] else max(short[name], typed, key=len)


def complete_ids(
    _context: click.Context, _parameter: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Return the ids of the newest sessions that begin with what was typed."""
    from thence.cli import wiring
    from thence.cli.columns import agent_label, short_ids, title_text
    from thence.cli.terminal import cut
    from thence.errors import ThenceError
    from thence.memory.store import Filter

    try:
        with wiring.store() as store:
            rows = list(store.sessions(Filter(uid=typed or None, limit=MAX_COMPLETIONS)))
    except ThenceError:  # completing is no time to complain
        return []
    short = short_ids([row.session.native_session_id for row in rows])
    return [
        CompletionItem(
            _completed(row.session.native_session_id, short, typed),
            help=cut(f"{agent_label(row.session.flavor)}: {title_text(row.title)}", 60),
        )
        for row in rows
    ]
