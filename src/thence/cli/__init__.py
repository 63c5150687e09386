"""The command line: parse, call one function, print.

Commands are imported when they are called, so that `--help` and completion stay quick. Errors
reach the user as `error:` and `hint:` on stderr, with the exit codes of the contract.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from typing import Any, get_args

import click

from thence import __version__
from thence.cli import screen
from thence.errors import STOPPED, DiskFull, ThenceError, is_disk_full, remedy

COMMANDS = {
    "sweep": "Import new lines of your agents' logs; deletes nothing.",
    "ls": "List sessions, newest first.",
    "search": "Find what was said or done, in the sessions of all agents.",
    "ask": "Answer a question from past sessions: what was done, decided and learned.",
    "show": "Read one session, with its branches and subagents.",
    "tree": "Draw a session's branches.",
    "digest": "Show a session's digest.",
    "cost": "Show what sessions cost.",
    "signals": "Show what went wrong in sessions: loops, repeated errors, corrections.",
    "patterns": "Show recurring errors and detours.",
    "todos": "List open to-dos of all sessions.",
    "brief": "Show what the next session in a folder should know.",
    "files": "Show which sessions touched a file, and why.",
    "history": "List prompts of all agents, newest first.",
    "inspect": "Count what a session file holds: records, links, calls, tokens, damage.",
    "export": "Write a session as JSON lines, Markdown, HTML, messages, ATIF or OTLP.",
    "import": "Import sessions from files: ATIF, share files, exports, logs.",
    "share": "Write a session to one file for a colleague, redacted.",
    "sql": "Query all sessions in SQL.",
    "resume": "Resume a session in its agent, or in another one.",
    "handoff": "Continue a session in another agent, with its history.",
    "rewind": "Rewind a session recorded by thence: its chain or its files.",
    "exec": "Run an agent and import its session.",
    "setup": "Set everything up: hooks, brief, MCP, daily import, completion.",
    "hook": "Install hooks: agents report new activity.",
    "mcp": "Let agents search past sessions (MCP).",
    "acp": "Show all sessions in editors (ACP), or record an ACP agent.",
    "schedule": "Import every day, by a systemd timer or by cron.",
    "store": "Manage what is stored: limits, pins, removal, backup, team.",
    "gc": "Apply storage limits now.",
    "evict": "Remove transcripts; digests, costs and signals stay.",
    "keep": "Pin sessions: their transcripts are never removed.",
    "forget": "Delete a session for good, and check that it is gone.",
    "backup": "Save digests, costs and signals to one file.",
    "push": "Send sessions to the store of a team, redacted.",
    "sync": "Share sessions between your machines, encrypted.",
    "project": "Merge folders that are one project.",
    "copy": "Copy a store into another one, and compare both.",
    "doctor": "Check sources, store, hooks, permissions, clock and disk.",
    "self-check": "Check that this version works here, and opens the home of an earlier one.",
    "config": "Show every setting, its value and its origin.",
    "decide": "Record a decision.",
    "note": "Record a note.",
    "name": "Name a session.",
    "tag": "Tag a session.",
    "serve": "Run the viewer.",
    "open": "Open the viewer in the browser, at a session if one is named.",
    "demo": "Try thence on sample sessions.",
    "completion": "Print the completion script of your shell.",
    "help": "List all commands, or show the help of one.",
    "status": "Show what runs, what needs you and what it cost.",
    "uninstall": "Remove hooks, timers and MCP entries.",
}


GROUPS = {
    "Start": ("setup", "serve", "demo"),
    "Find": ("ls", "search", "ask", "files"),
    "Read and continue": ("show", "export", "import", "share", "resume", "sync"),
    "Understand": ("cost", "patterns"),
    "Keep": ("sweep", "store", "doctor", "config"),
}
"""The commands that `--help` lists, by title; `thence help` lists all of them."""

ALIASES = {"list": "ls", "view": "serve", "pin": "keep"}
"""Names that people try first; they work and are listed nowhere."""

VIEWS = {
    ("show", "--tree"): "tree",
    ("show", "--digest"): "digest",
    ("show", "--stats"): "inspect",
    ("show", "--signals"): "signals",
    ("ls", "--todos"): "todos",
    ("patterns", "--signals"): "signals",
    ("note", "--decision"): "decide",
}
"""Options that show something else, and the command that does so; it takes the other options."""

MOVED = {
    "tree": "show --tree",
    "digest": "show --digest",
    "inspect": "show --stats",
    "signals": "patterns --signals",
    "todos": "ls --todos",
    "decide": "note --decision",
    "gc": "store gc",
    "keep": "store pin",
    "evict": "store remove",
    "forget": "store forget",
    "backup": "store backup",
    "push": "store push",
    "copy": "store copy",
}
"""Commands of earlier versions, and what they are now. They still work."""


COLLECTOR_THRESHOLDS = 100_000, 20, 100
"""How often Python looks for cycles: modules and records are many objects with hardly any."""

HELP_WIDTH = 80
"""Columns that help fills at most."""

MODULES = {"import": "import_"}
"""Modules of commands whose names Python keeps for itself."""

COMMANDS_WITHOUT_NOTES = ("brief", "mcp", "acp", "completion", "self-check")
"""Commands that programs start, where no person would read a note, and one that changes nothing."""


def module_of(name: str) -> str:
    """Return the name of the module of a command, below thence.cli."""
    return MODULES.get(name, name.replace("-", "_"))


def load_command(name: str) -> click.Command:
    """Import a command; one that runs another one asks for it here instead of importing it."""
    command: click.Command = importlib.import_module(f"thence.cli.{module_of(name)}").command
    if not (command.help or "").startswith(COMMANDS[name]):  # a module may say more
        command.help = COMMANDS[name]
    return command


class Lazy(click.Group):
    """A group whose commands live in modules of the same name, imported when called."""

    # ruff: noqa: ARG002 - the signatures are click's

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Measure the terminal as click does; its way imports every format of archives."""
        extra.setdefault("terminal_width", max(min(screen.width(), HELP_WIDTH) - 2, 50))
        return super().make_context(info_name, args, parent, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name all commands without importing one."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command."""
        cmd_name = ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in COMMANDS:
            return None
        command = load_command(cmd_name)
        if cmd_name not in ("exec", "acp"):  # what follows there is another program's
            _about_the_screen(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, so that help imports none of them."""
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, COMMANDS[name]) for name in names])
        formatter.write_paragraph()
        formatter.write_text("`thence help` lists all commands.")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is meant; name the nearest one where there is none."""
        name = args[0]
        if name not in COMMANDS and name not in ALIASES and not name.startswith("-"):
            import difflib

            known = [*COMMANDS, *ALIASES]
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
            hint = f"Did you mean `thence {near[0]}`?" if near else "`thence help` lists commands."
            raise UnknownCommand(f"unknown command {name!r}", hint=hint)
        if name in MOVED and "--json" not in args and sys.stderr.isatty():
            click.echo(f"note: `thence {name}` is now `thence {MOVED[name]}`", err=True)
        options = args[: args.index("--")] if "--" in args else args
        for (shown, option), view in VIEWS.items():
            if ALIASES.get(name, name) == shown and option in options and not _HELP & {*options}:
                rest = [word for at, word in enumerate(args) if at != options.index(option)]
                return name, self.get_command(ctx, view), rest[1:]
        return super().resolve_command(ctx, args)


_HELP = {"-h", "--help"}


class UnknownCommand(ThenceError):
    """The first word is not the name of a command."""

    exit_code = 2


def _about_the_screen(command: click.Command) -> None:
    """Let a command, and those below it, be told about colour and the pager as well."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            _about_the_screen(below)
        if not command.params:  # one that does something by itself is told as well
            return
    if not any(option.name == "color" for option in command.params):
        command.params += (
            click.Option(
                ["--color"],
                type=click.Choice(get_args(screen.Colour)),
                callback=_colour,
                expose_value=False,
                hidden=True,
            ),
            click.Option(
                ["--no-pager"], is_flag=True, callback=_no_pager, expose_value=False, hidden=True
            ),
        )


def _colour(_ctx: click.Context, _option: click.Parameter, colour: screen.Colour | None) -> None:
    screen.screen_options.colour = colour or screen.screen_options.colour


def _no_pager(_ctx: click.Context, _option: click.Parameter, no_pager: bool) -> None:  # noqa: FBT001
    screen.screen_options.pager = screen.screen_options.pager and not no_pager


@click.group(
    cls=Lazy, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="thence")
@click.option(
    "--color",
    type=click.Choice(get_args(screen.Colour)),
    default="auto",
    show_default=True,
    help="Use colour; auto: on a terminal unless NO_COLOR is set, or if FORCE_COLOR is set.",
)
@click.option("--no-pager", is_flag=True, help="Do not use a pager for long output.")
@click.option("--json", "json", is_flag=True, help="Without a command: print JSON.")
@click.option("--utc", is_flag=True, help="Without a command: show times in UTC.")
@click.pass_context
def thence(
    ctx: click.Context, *, color: screen.Colour, no_pager: bool, json: bool, utc: bool
) -> None:
    """Search, read and price everything your coding agents did.

    Without a command: a status summary. --color and --no-pager may also follow a command.
    """
    from thence.cli import silent_packages

    screen.screen_options.colour, screen.screen_options.pager = color, not no_pager
    _refresh_launcher(ctx.invoked_subcommand, json=json or "--json" in sys.argv)
    silent_packages.leave_out(ctx)
    if ctx.invoked_subcommand is None:
        from thence.cli.home import show

        show(json=json, utc=utc)


def _refresh_launcher(command: str | None, *, json: bool) -> None:
    """Write the launcher of the home anew if it is stale; tell once that hooks could not run."""
    from thence import config

    try:
        home = config.home()
    except ThenceError:  # who needs a home says so
        return
    if not (home / "bin").is_dir() or command in COMMANDS_WITHOUT_NOTES:
        return
    from thence.cli import launcher
    from thence.cli.terminal import clean

    news = launcher.refresh(home, tells=not json)
    if news:
        click.echo(f"note: {clean(news)}", err=True)


def _tell(error: ThenceError) -> None:
    """Say on stderr what went wrong and what to do, as an object to who asked for JSON."""
    from thence.cli.terminal import clean

    if "--json" in sys.argv:
        import json

        click.echo(json.dumps({"error": error.message, "hint": error.hint}), err=True)
        return
    click.echo(f"error: {clean(error.message)}", err=True)
    if error.hint:
        click.echo(f"hint:  {clean(error.hint)}", err=True)


def _of_the_system(error: OSError) -> ThenceError:
    """Say what the system refused; what else is waiting to be printed would be refused too."""
    import io

    sys.stdout = io.StringIO()
    if is_disk_full(error):
        return DiskFull(f"{error.filename or 'a file'} cannot be written")
    where = f": {error.filename}" if error.filename else ""
    hint = f"{remedy(error)}; THENCE_HOME selects another folder"
    return ThenceError(f"{error.strerror or error}{where}", hint=hint)


def _of_the_words(error: click.ClickException) -> ThenceError:
    """Say what was typed wrong, and how it is written."""
    message = " ".join(error.format_message().split())
    ctx = getattr(error, "ctx", None)
    if ctx is None:
        return ThenceError(message)
    usage = " ".join(ctx.get_usage().split()).removeprefix("Usage: ")
    return ThenceError(message, hint=f"{usage}; see {ctx.command_path} --help")


def _nobody_reads() -> bool:
    """Whether who read our answer has gone, as `head` does: it has seen enough."""
    import select

    try:
        poll = select.poll()
        poll.register(1, 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except OSError:  # no descriptor at all: printing tells more than we could
        return False


def _keep_cycles() -> None:
    """Keep Python from looking through all objects for cycles; the process ends anyway."""
    if "duckdb" not in sys.modules:  # it prints what was not collected
        import gc

        gc.freeze()


@contextlib.contextmanager
def _seldom_collecting() -> Iterator[None]:
    """Let Python look for cycles seldom, and not through all objects when the process ends."""
    import atexit
    import gc  # here: a command has the same name

    before = gc.get_threshold()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    atexit.unregister(_keep_cycles)  # once is enough for many commands in one process
    atexit.register(_keep_cycles)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def main() -> None:
    """Run the command line and leave with the contract's exit code."""
    try:
        with _seldom_collecting():
            code = thence(prog_name="thence", standalone_mode=False)
    except ThenceError as error:
        _tell(error)
        sys.exit(error.exit_code)
    except click.exceptions.Abort:
        sys.exit(STOPPED)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _tell(_of_the_words(error))
        sys.exit(error.exit_code)
    except OSError as error:
        _tell(_of_the_system(error))
        sys.exit(1)
    except SystemExit:
        if _nobody_reads():  # so click ends when a pipe breaks, whosever it was
            sys.exit(0)
        raise
    if code:
        sys.exit(code)
