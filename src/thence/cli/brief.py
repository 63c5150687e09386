"""`thence brief`: what the next session in a folder should know, as an agent is told it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from thence.cli import options, wiring
from thence.cli.columns import present, tell
from thence.cli.terminal import as_json, clean, say

if TYPE_CHECKING:
    from thence.serve.brief import Brief

MIN_TOKENS, MAX_TOKENS = 100, 10_000
MAX_HOOK_INPUT_CHARS = 1 << 20
MAX_HOOK_SECONDS = 5
"""After so long a hook ends without a brief; agents are told to wait for twice as long."""


@click.command(
    "brief",
    help="Show what the next session in a folder should know. That is how the last session"
    " ended, open to-dos, decisions, errors and what helped. The text is redacted and quoted as"
    " data.",
)
@click.argument(
    "folder", type=click.Path(exists=True, file_okay=False, path_type=Path), default="."
)
@click.option(
    "--tokens",
    type=click.IntRange(MIN_TOKENS, MAX_TOKENS),
    help="Maximum length of the text.  [default: 800, or the setting brief.tokens]",
)
@click.option(
    "--hook", metavar="AGENT", hidden=True, help="Answer a hook; reads its input from stdin."
)
@options.as_json
def command(folder: Path, *, tokens: int | None, hook: str | None, json: bool) -> int:
    """Print the brief of the repository that holds a folder."""
    if hook:
        return _answer_hook(hook)
    from thence.memory.projects import repository_of

    project = str(repository_of(folder.resolve()))
    brief, text = _brief_of(project, tokens)
    if json:
        import msgspec

        say(as_json({**msgspec.to_builtins(brief), "text": text}))
    else:
        lines = text.split("\n") if text else [f"no session in {project} is stored yet"]
        tell(map(clean, lines))
    return 0


def _brief_of(
    project: str, tokens: int | None = None, without: str | None = None
) -> tuple[Brief, str]:
    """Return the brief of a repository, and its text."""
    from thence.memory.budgets import budget_warnings
    from thence.memory.notes import read_notes
    from thence.serve.brief import brief_text, make_brief

    with wiring.store() as store:
        budgets = budget_warnings(wiring.budget_uses(store, present()), project)
        notes = read_notes(wiring.home())
        brief = make_brief(store, notes, project, without=without, budgets=budgets)
    limit = tokens or wiring.settings()["session_memory.brief.tokens"]
    return brief, brief_text(brief, wiring.redactor().redact, max_tokens=limit)


def _answer_hook(agent: str) -> int:
    """Print what the hook of an agent expects; nothing, and no error, whatever goes wrong.

    The agent comes first: a store that is busy or missing must not keep a session from starting.
    """
    previous = signal.signal(signal.SIGALRM, _end_silently)
    signal.alarm(MAX_HOOK_SECONDS)
    try:
        answer = _hook_answer(agent)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    if answer:
        click.echo(answer)
    return 0


def _end_silently(_signal: int, _frame: object) -> None:
    os._exit(0)


def _hook_answer(agent: str) -> str:
    """Return what is printed for the hook of an agent; empty for nothing."""
    import json

    try:
        request = json.loads(sys.stdin.read(MAX_HOOK_INPUT_CHARS))
        folder, session = request.get("cwd"), request.get("session_id")
        text = _hook_text(Path(folder), f"{agent}:{session}")
        event = request.get("hook_event_name", "SessionStart")
    except Exception:  # noqa: BLE001 - whatever it is, the agent goes on without a brief
        return ""
    answer = {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}
    return json.dumps(answer) if text else ""


def _may_say_something(project: str) -> bool:
    """Return False where it is clear that there is no brief, without loading what makes one.

    Most folders that an agent starts in have no session: it should not wait for us there.
    """
    from thence.memory.folders import has_sessions

    if wiring.has_budgets() or wiring.has_decisions():
        return True
    path = wiring.store_file()
    return path is None or has_sessions(path, project)


def _hook_text(folder: Path, session_uid: str) -> str:
    """Return the brief for a session that starts in a folder; empty where none is wanted."""
    from thence.memory.exclusion import Exclusion
    from thence.memory.projects import repository_of

    project = str(repository_of(folder))
    settings = wiring.settings()
    excluded = (
        *settings["session_memory.exclude"],
        *settings["session_memory.brief.skip"],
    )
    if Exclusion(excluded).means(project) or not _may_say_something(project):
        return ""
    return _brief_of(project, without=session_uid)[1]
