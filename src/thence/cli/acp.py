"""`thence acp`: all sessions in an editor, or any agent of the protocol recorded."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from thence import __version__
from thence.cli import wiring
from thence.errors import ThenceError

if TYPE_CHECKING:
    from thence.memory.store import SessionRow


@click.command(
    "acp",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Name it in your editor's list of agents: command thence, argument acp. With -- COMMAND"
    " it runs that agent unchanged and records it in the journal: thence acp -- opencode acp.",
)
@click.argument("words", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
def command(words: tuple[str, ...]) -> int:
    """Answer an editor on stdin and stdout."""
    if words:
        return _record(words)
    from thence.agents.profiles import label_of
    from thence.bridge.acp_agent import ArchiveAgent

    with wiring.store(must_exist=False) as store:
        agent = ArchiveAgent(
            store,
            version=__version__,
            resume=_resume,
            clean=lambda loaded: wiring.gate().session(loaded),
            label=label_of,
        )
        agent.serve(sys.stdin.buffer, sys.stdout.buffer)
    return 0


def _record(words: tuple[str, ...]) -> int:
    from thence.bridge.acp_proxy import Recorder, run
    from thence.journal import Journal

    return run(words, Recorder(Journal(wiring.home()), words))


def _resume(row: SessionRow) -> str:
    """Return the command that resumes a session."""
    from thence.cli.resume_plans import plan_resume
    from thence.format.figures import argument

    native = argument(row.session.native_session_id)
    if row.gone:
        return f"thence resume {native} --with AGENT"
    try:
        return plan_resume(row, wiring.adapters()).line
    except ThenceError:  # nothing here resumes it; a copy for another agent can go on
        return f"thence resume {native} --with AGENT"
