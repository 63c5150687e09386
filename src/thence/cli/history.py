"""`thence history`: prompts of all agents together, the newest first.

They come from the agents' own histories and from the sessions that are kept; one that stands in
both is shown once, one that was typed several times as often as it was typed. Everything is
redacted before it is printed as it is before it is kept: a history file of an agent may hold what
was pasted into it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from thence.cli import options, wiring
from thence.cli.columns import DIM, NARROW, TextCell, agent_label, ago, present, table, tell, when
from thence.cli.columns import project as folder
from thence.cli.terminal import as_json, clean, cut, pad_to, say, width
from thence.errors import SessionNotFound
from thence.format.facts import Block, words_of

if TYPE_CHECKING:
    from thence.agents import Adapter
    from thence.format.records import JSON
    from thence.memory.store import Store

DEFAULT_ROWS = 50
MAX_PROMPTS = 2_000
"""Prompts of kept sessions that are looked at."""
_NOT_TYPED = frozenset({"side", "replayed", "internal"})


@click.command("history")
@click.argument("text", nargs=-1)
@options.agent
@options.project
@click.option("--prefix", is_flag=True, help="Only prompts that start with the text.")
@options.rows(DEFAULT_ROWS)
@click.option("--pick", is_flag=True, help="Choose one by typing; print it in full.")
@options.utc
@options.as_json
def command(
    *,
    text: tuple[str, ...],
    agent: str | None,
    project: str | None,
    prefix: bool,
    number: int,
    pick: bool,
    utc: bool,
    json: bool,
) -> int:
    """Print prompts that hold a text, or the one of them that is chosen."""
    known = wiring.adapters()
    roots = wiring.roots(known, only=[agent] if agent else [])
    typed = PromptList(" ".join(text), agent=agent, project=project, prefix=prefix)
    for name, places in roots.items():
        typed.add(own_prompts(name, known[name], places))
    if wiring.has_store():
        with wiring.store() as store:
            typed.add(stored_prompts(store, typed.text, agent))
    prompts = typed.newest(max(number, MAX_PROMPTS) if pick else number)
    gate = wiring.printing_gate()
    prompts = [gate.value(prompt) for prompt in prompts]
    if pick:
        prompts = [_pick(prompts, present(utc=utc))]
    if json:
        say(as_json(prompts))
    elif pick:
        tell(map(clean, prompts[0]["text"].split("\n")), pager=False)
    else:
        tell(lines(prompts, present(utc=utc), width()))
    return 0


def _pick(prompts: Sequence[dict[str, JSON]], at: datetime) -> dict[str, JSON]:
    """Let the user choose a prompt, as with the Up-arrow of a shell."""
    from thence.cli import picker

    if not picker.possible():
        raise click.UsageError("--pick needs a terminal")
    if not prompts:
        raise SessionNotFound("no prompt found", hint="run thence sweep to import sessions")
    choices = [
        picker.PickerChoice(
            f"{ago(when(prompt['ts']), at):>6}  "
            f"{pad_to(agent_label(prompt['agent']), 11)}  {_flat(prompt)}",
            f"{prompt['agent']} {_flat(prompt)} {clean(prompt['cwd'] or '')}",
            tuple(map(clean, prompt["text"].split("\n")[:6])),
        )
        for prompt in prompts
    ]
    return prompts[picker.pick(choices)]


def _flat(prompt: Mapping[str, JSON]) -> str:
    return clean(" ".join(prompt["text"].split()))


class PromptList:
    """Prompts from the agents' own histories and from the store, each once."""

    def __init__(self, text: str, *, agent: str | None, project: str | None, prefix: bool) -> None:
        self.text = text
        self._agent = agent
        self._project = (project or "").lower()
        self._prefix = prefix
        self._prompts: dict[tuple[str, str, int], dict[str, JSON]] = {}

    def add(self, prompts: Iterable[dict[str, JSON]]) -> None:
        """Add the prompts of one place that are wanted.

        Places say the same of one prompt: the last time a text stands in one is the last time it
        stands in the other, and so on back.
        """
        times: Counter[tuple[str, str]] = Counter()
        wanted = filter(self._matches, prompts)
        for prompt in sorted(wanted, key=lambda prompt: prompt["ts"] or "", reverse=True):
            text = prompt["agent"], " ".join(prompt["text"].split())
            times[text] += 1
            key = *text, times[text]
            before = self._prompts.get(key)
            if before is None or (prompt["ts"] or "") > (before["ts"] or ""):
                more = before or {}
                self._prompts[key] = {name: prompt[name] or more.get(name) for name in prompt}

    def _matches(self, prompt: Mapping[str, JSON]) -> bool:
        text, wanted = prompt["text"].lower(), self.text.lower()
        fits = text.startswith(wanted) if self._prefix else wanted in text
        here = self._project in (prompt["cwd"] or "").lower()
        return bool(text.strip()) and fits and here and self._agent in (None, prompt["agent"])

    def newest(self, number: int) -> list[dict[str, JSON]]:
        """Return the last so many, the newest first."""
        prompts = sorted(
            self._prompts.values(), key=lambda prompt: prompt["ts"] or "", reverse=True
        )
        return prompts[:number]


def own_prompts(name: str, adapter: Adapter, places: Sequence[Path]) -> Iterator[dict[str, JSON]]:
    """Yield the prompts of an agent's own history."""
    for place in places:
        for prompt in adapter.prompts(place):
            moment = when(prompt.ts)
            yield {
                "ts": _utc(moment),
                "agent": name,
                "session": prompt.session,
                "cwd": prompt.cwd,
                "text": prompt.text,
            }


def _utc(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def stored_prompts(store: Store, text: str, agent: str | None) -> Iterator[dict[str, JSON]]:
    """Yield the prompts of sessions that are kept, by the index where a text is asked for."""
    from thence.memory.recall import body
    from thence.memory.search import parse
    from thence.memory.store import Filter

    quoted = " ".join(f'"{word}"' for word in text.replace('"', " ").split())
    asked = f"kind:user_msg {quoted}" + (f" agent:{agent}" if agent else "")
    matches = [
        match
        for match in store.search(parse(asked), MAX_PROMPTS).matches
        if match.state not in _NOT_TYPED and match.ref is not None
    ]
    rows = store.sessions(Filter(uids=tuple({match.session_uid for match in matches})))
    folders = {row.session.session_uid: row.session.cwd for row in rows}
    for match in matches:
        name, _, session = match.session_uid.partition(":")
        payload = body(store.blobs, match.ref or "")
        moment = datetime.fromtimestamp(match.ts / 1000, UTC) if match.ts else None
        yield {
            "ts": _utc(moment),
            "agent": name,
            "session": session,
            "cwd": folders.get(match.session_uid),
            "text": words_of(Block("user_msg", "user", payload=payload)),
        }


def lines(prompts: Sequence[Mapping[str, JSON]], at: datetime, room: int) -> Iterator[str]:
    """Yield prompts as rows, one line each."""
    if not prompts:
        yield "no prompt found"
        return
    narrow = room < NARROW
    rows: list[list[TextCell]] = []
    for prompt in prompts:
        row = [TextCell("›", "blue"), TextCell(ago(when(prompt["ts"]), at), DIM)]
        if not narrow:
            row.append(TextCell(agent_label(prompt["agent"])))
            row.append(TextCell(cut(folder(prompt["cwd"]), 14), DIM))
        rows.append([*row, TextCell(_flat(prompt))])
    yield from table("<>~" if narrow else "<><<~", rows, room)
