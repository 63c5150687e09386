"""`thence exec`: run an agent, and keep what it wrote as soon as it ends."""

from __future__ import annotations

import signal
import subprocess
from json import dumps
from typing import TYPE_CHECKING

import click
import msgspec

from thence import config, system
from thence.cli import options, wiring
from thence.cli.home_sweep import HomeSweep
from thence.cli.interrupts import handling
from thence.cli.terminal import clean
from thence.errors import NotReadable, ThenceError

if TYPE_CHECKING:
    from thence.format.records import JSON
    from thence.memory.sweep import SweepReport


@click.command(
    "exec",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="thence exec -- claude --model opus. thence exec --agent claude --prompt 'Say hello'."
    " Exits with the exit code of the command, even if the import fails. stdout is the command's"
    " own: --json prints to stderr.",
)
@click.option(
    "--agent",
    type=options.AgentName("prompt"),
    help="Start this agent; words after -- are added to its command.",
)
@click.option(
    "--prompt",
    metavar="TEXT",
    help="With --agent: no interface, the agent answers this prompt and ends.",
)
@options.as_json
@click.argument("words", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED)
def command(words: tuple[str, ...], agent: str | None, prompt: str | None, *, json: bool) -> int:
    """Run a command, then sweep."""
    words = _command(words, agent, prompt)
    code = run(words)
    report: SweepReport | None = None
    problem = None
    if config.persistence():
        try:
            report = sweep()
        except (ThenceError, OSError) as error:
            problem = error.message if isinstance(error, ThenceError) else str(error)
    else:
        problem = "recording is switched off" if json else None
    if json:
        click.echo(dumps(_object(words, code, report, problem)), err=True)
    elif problem is not None:
        click.echo(f"note: not imported: {clean(problem)}; run thence sweep later", err=True)
    return code


def _command(words: tuple[str, ...], agent: str | None, prompt: str | None) -> tuple[str, ...]:
    """Return the command line: the one that was given, or that of an agent."""
    if agent is None:
        if prompt is not None:
            raise click.UsageError("--prompt: give an --agent too")
        if not words:
            raise click.UsageError("give a command, or an --agent")
        return words
    known = wiring.agents()[agent]
    if prompt is not None:
        return tuple(known.profile.prompt_argv(prompt, *words))
    start = known.profile.start_command or (known.profile.program,)
    return (*start, *words)


def _object(words: tuple[str, ...], code: int, report: SweepReport | None, why: str | None) -> JSON:
    """Say how the command ended, and what the sweep did or why there was none."""
    swept = None if report is None else msgspec.to_builtins(report)
    return {"command": list(words), "exit_code": code, "sweep": swept, "not_swept": why}


def run(words: tuple[str, ...]) -> int:
    """Run it in our place: it has our streams, and the keys are its own."""
    # The keys that stop a program are left to the command: it decides, and we sweep after it.
    keys = [signal.SIGINT] if system.IS_WINDOWS else [signal.SIGINT, signal.SIGQUIT]
    with handling(keys, _ignore):
        try:
            done = subprocess.run(words, check=False)  # noqa: S603 - what was asked for
        except OSError as error:
            message = f"cannot run {words[0]}: {error.strerror}"
            raise NotReadable(message, hint="is it on your PATH?") from error
    return 128 - done.returncode if done.returncode < 0 else done.returncode


def _ignore(_number: int, _frame: object) -> None:
    """A handler of ours, unlike an ignored signal, is not handed on to the command."""


def sweep() -> SweepReport:
    """Import what is new, without a word."""
    known = wiring.adapters()
    with wiring.store(must_exist=False) as store:
        return HomeSweep(store)(known, wiring.roots(known), wait_s=wiring.SWEEP_WAIT_S)
