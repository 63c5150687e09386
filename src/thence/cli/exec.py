"""`thence exec`: run an agent, and keep what it wrote as soon as it ends."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator

import click

from thence import config
from thence.cli import wiring
from thence.cli.keep import WAIT
from thence.cli.terminal import clean
from thence.errors import NotReadable, ThenceError


@click.command(
    "exec",
    help="Run an agent, and keep what it wrote.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="thence exec -- claude --model opus. Ends with the exit code of the command, whatever"
    " the sweep does.",
)
@click.argument("words", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(words: tuple[str, ...]) -> int:
    """Run a command, then sweep."""
    code = run(words)
    if config.persistence():
        try:
            sweep()
        except (ThenceError, OSError) as error:
            told = error.message if isinstance(error, ThenceError) else str(error)
            click.echo(f"note: not swept: {clean(told)}; thence sweep does it later", err=True)
    return code


def run(words: tuple[str, ...]) -> int:
    """Run it in our place: it has our streams, and the keys are its own."""
    with _left_to_it():
        try:
            done = subprocess.run(words, check=False)  # noqa: S603 - what was asked for
        except OSError as error:
            message = f"cannot run {words[0]}: {error.strerror}"
            raise NotReadable(message, hint="is it on your PATH?") from error
    return 128 - done.returncode if done.returncode < 0 else done.returncode


@contextlib.contextmanager
def _left_to_it() -> Iterator[None]:
    """Leave the keys that stop a program to the command: it decides, and we sweep after it."""
    names = (signal.SIGINT, signal.SIGQUIT)
    try:
        before = [(number, signal.signal(number, _nothing)) for number in names]
    except ValueError:  # not in the main thread: who runs us handles signals
        yield
        return
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _nothing(_number: int, _frame: object) -> None:
    """A handler of ours, unlike an ignored signal, is not handed on to the command."""


def sweep() -> None:
    """Keep what is new, without a word."""
    known = wiring.adapters()
    with wiring.store(must_exist=False) as store, store.sweeping(WAIT):
        wiring.sweep_of(store).run(wiring.roots(known))
