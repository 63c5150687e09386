"""`thence mcp`: let agents ask their own past, and tell them where."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from thence import __version__
from thence.cli import launcher, mcp_settings, options, wiring
from thence.cli.columns import DIM, TextCell, agent_label, table, tell, tilde
from thence.cli.file_changes import Edit, carry_out, change
from thence.cli.terminal import answer, width

if TYPE_CHECKING:
    from thence.memory.store import Store
    from thence.serve.questions import Questions

PORT = 7332  # one more than the viewer's, so that both run side by side

_agents = click.argument("agents", nargs=-1, type=mcp_settings.NAMES)


@click.group(
    "mcp",
    invoke_without_command=True,
    epilog="It speaks MCP over stdin and stdout. With --http it listens on this machine only, and"
    " asks for the token that it prints.",
)
@click.option("--http", is_flag=True, help="Listen for HTTP on this machine instead.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True)
@click.pass_context
def command(ctx: click.Context, port: int, *, http: bool) -> int | None:
    """Serve, unless something else was asked for."""
    if ctx.invoked_subcommand is not None:
        return None
    if http:
        _listen(port)
        return 0
    from thence.serve.stdio import StdioServer

    with contextlib.ExitStack() as stack:

        def load_questions() -> Questions:
            return questions(stack.enter_context(wiring.store(must_exist=False)))

        StdioServer(load_questions, __version__).run(sys.stdin.buffer, sys.stdout.buffer)
    return 0


def questions(store: Store) -> Questions:
    """Return what may be asked of this home."""
    from thence.cli import notes
    from thence.memory.open_todos import dismissed_todos
    from thence.serve.questions import Questions

    return Questions(
        store,
        lambda text, session: notes.write(
            "decision", wiring.latest_gate().text(text), session, origin="mcp"
        ),
        wiring.clean_notes,
        lambda: dismissed_todos(wiring.home()),
        status=wiring.status,
    )


def _listen(port: int) -> None:
    import uvicorn

    from thence.cli import viewer
    from thence.serve import auth, mcp
    from thence.serve.request_timeouts import LimitedServer
    from thence.serve.stdio import StdioServer

    listeners = viewer.listen(viewer.HOST, port)
    guard = auth.AuthMiddleware(
        viewer.HOST, listeners[0].getsockname()[1], key=auth.home_key(wiring.home())
    )
    tell(
        [
            f"http://{auth.authority(viewer.HOST, guard.port)}{mcp.PATH}",
            f"Authorization: Bearer {guard.token}",
            "this machine only; Ctrl-C stops it",
        ]
    )
    sys.stdout.flush()
    with contextlib.ExitStack() as stack:
        for listener in listeners:
            stack.enter_context(listener)
        store = stack.enter_context(wiring.store(must_exist=False))
        server = StdioServer(lambda: questions(store), __version__)
        app = mcp.over_http(server, guard)
        settings = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
        LimitedServer(settings).run(listeners)


# -- telling agents -------------------------------------------------------------------------


@command.command("install", help="Add the server to agents' settings; shows the change and asks.")
@_agents
@click.option("-n", "--dry-run", is_flag=True, help="Show the change; write nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@options.as_json
def install(agents: tuple[str, ...], *, dry_run: bool, yes: bool, json: bool) -> int:
    """Put the server into agents' settings."""
    wanted = list(agents) or [
        name for name in mcp_settings.NAMES.names() if mcp_settings.place_of(name).path.exists()
    ]
    changes = [
        (name, mcp_settings.install(mcp_settings.place_of(name), mcp_settings.own_entry()))
        for name in wanted
    ]
    return _change(changes, "installed", dry_run=dry_run, yes=yes, json=json)


@command.command("uninstall", help="Remove the server from agents' settings.")
@_agents
@click.option("-n", "--dry-run", is_flag=True, help="Show the change; write nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@options.as_json
def uninstall(agents: tuple[str, ...], *, dry_run: bool, yes: bool, json: bool) -> int:
    """Take the server out of agents' settings."""
    gone = mcp_settings.removals(agents or mcp_settings.NAMES.names())
    return _change(gone, "removed", dry_run=dry_run, yes=yes, json=json)


def _change(
    edits: list[tuple[str, Edit]], word: str, *, dry_run: bool, yes: bool, json: bool
) -> int:
    is_install = word == "installed"

    def write(due: Sequence[tuple[str, Edit]]) -> None:
        if is_install:
            launcher.write(wiring.home())
        for _, edit in due:
            carry_out(edit, keep=None)

    already = "installed" if is_install else "not installed"
    done = change(edits, write, already=already, dry_run=dry_run, yes=yes, json=json)
    if not done and edits and not dry_run and is_install:
        launcher.ensure(wiring.home())
    if not json:
        none = ["no agent found on this machine; name one: thence mcp install AGENT"]
        tell([f"{word}: {', '.join(done)}"] if done else none if not edits else [])
    return 0


@command.command("status", help="Show which agents use the server.")
@_agents
@options.as_json
def status(agents: tuple[str, ...], *, json: bool) -> int:
    """Print where the server is known."""
    places = [
        {
            "agent": agent,
            "path": str(mcp_settings.place_of(agent).path),
            "state": mcp_settings.state(mcp_settings.place_of(agent), mcp_settings.own_entry()),
        }
        for agent in agents or mcp_settings.present()
    ]
    words = {
        "none": TextCell("not installed"),
        "installed": TextCell("installed", "green"),
        "elsewhere": TextCell("installed for another thence: install it again", "red"),
    }
    rows = [
        [
            TextCell(" "),
            TextCell(agent_label(place["agent"])),
            words[place["state"]],
            TextCell(tilde(place["path"]), DIM),
        ]
        for place in places
    ]
    return answer(places, table("<<<~", rows, width()), json=json)
