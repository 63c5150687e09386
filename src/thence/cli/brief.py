"""`thence brief`: what the next session in a folder should know, as an agent is told it."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from thence.cli import options, wiring
from thence.cli.columns import present
from thence.cli.terminal import answer, clean
from thence.memory.projects import repository_of
from thence.serve.ready_briefs import (
    MAX_HOOK_INPUT_CHARS,
    MAX_HOOK_SECONDS,
    BriefOrigin,
    answer_hook,
    end_silently,
    frame_lines,
    hook_json,
)

if TYPE_CHECKING:
    from thence.serve.brief import Brief

MIN_TOKENS, MAX_TOKENS = 100, 10_000
_CONFIRM = "hooks leave out what is unconfirmed"


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
    project = str(repository_of(folder.resolve()))
    brief, text = _brief_of(project, tokens)
    lines = text.split("\n") if text else [f"no session in {project} is stored yet"]
    lines += _hints(brief)
    return answer({**msgspec.to_builtins(brief), "text": text}, map(clean, lines), json=json)


def _hints(brief: Brief) -> Iterator[str]:
    """Yield how to confirm what is shown here and not given to agents."""
    from thence.cli.notes import NOTE_ID_CHARS

    ids = [item["uuid"][:NOTE_ID_CHARS] for item in brief.decisions if item["is_withheld"]]
    if ids:
        yield f"{_CONFIRM}: thence note --confirm {' '.join(ids)}"
    sessions = (brief.last or {}, *brief.todos)
    uids = dict.fromkeys(item["session_uid"] for item in sessions if item.get("is_withheld"))
    if uids:
        names = " ".join(shlex.quote(uid) for uid in uids)
        yield f"{_CONFIRM}: thence import --confirm {names}"


def _brief_of(
    project: str, tokens: int | None = None, without: str | None = None, *, for_hook: bool = False
) -> tuple[Brief, str]:
    """Return the brief of a repository, and its text."""
    from thence.memory.budgets import budget_warnings
    from thence.memory.labels import texts_of
    from thence.memory.notes import read_confirmations
    from thence.serve.brief import brief_text, make_brief

    with wiring.store() as store:
        budgets = budget_warnings(wiring.budget_uses(store, present()), project)
        notes = texts_of(wiring.clean_notes())
        brief = make_brief(
            store,
            notes,
            project,
            without=without,
            budgets=budgets,
            confirmed=read_confirmations(wiring.home()),
            for_hook=for_hook,
            rules=wiring.own_rules(store),
        )
    limit = tokens or wiring.settings()["session_memory.brief.tokens"]
    return brief, brief_text(brief, max_tokens=limit)


def _answer_hook(agent: str) -> int:
    """Print what the hook of an agent expects; nothing, and no error, whatever goes wrong.

    The agent comes first: a store that is busy or missing must not keep a session from starting.
    """
    previous = signal.signal(signal.SIGALRM, end_silently)
    signal.alarm(MAX_HOOK_SECONDS)
    try:
        answer = _hook_answer(agent)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    if answer:
        click.echo(answer)
    return 0


def _hook_answer(agent: str) -> str:
    """Return what is printed for the hook of an agent; empty for nothing."""
    import json

    try:
        request = sys.stdin.read(MAX_HOOK_INPUT_CHARS)
        answer = answer_hook(agent, request)
        if answer is not None:
            return answer
        fields = json.loads(request)
        text = _hook_text(Path(fields["cwd"]), f"{agent}:{fields.get('session_id')}")
        return hook_json(fields, text)
    except Exception:  # noqa: BLE001 - whatever it is, the agent goes on without a brief
        return ""


def _hook_text(folder: Path, session_uid: str) -> str:
    """Return the brief for a session that starts in a folder; empty where none is wanted."""
    project = str(repository_of(folder))
    origin = BriefOrigin(wiring.home(), project)
    if origin.is_excluded or origin.is_empty():
        return ""
    if origin.has_budgets or origin.store is None:
        return _brief_of(project, without=session_uid, for_hook=True)[1]
    from thence.memory.labels import texts_of
    from thence.serve.brief import save_brief

    with wiring.store() as store:
        notes = texts_of(wiring.clean_notes())
        lines = save_brief(store, notes, origin, session_uid, rules=wiring.own_rules(store))
    return frame_lines(project, lines, origin.max_tokens)
