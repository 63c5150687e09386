"""`thence show`: one session of ours, read from its file."""

from __future__ import annotations

import json
import os
import stat
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import click
import msgspec

from thence.cli.terminal import clean, cut, escape, style, width, wrap
from thence.errors import NotReadable, SessionNotFound
from thence.format import kinds
from thence.format.codec import NOT_EVENT
from thence.format.records import JSON, Event, blocks, count, text_of, word
from thence.format.repair import Orphans
from thence.format.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Form = Literal["text", "messages", "events"]


@click.command("show", help="Read one session: its live chain, branches and damage.")
@click.argument("path", required=False)
@click.option("--sample", is_flag=True, help="Show the session that ships with thence.")
@click.option("--as", "form", type=click.Choice(get_args(Form)), default="text", show_default=True)
@click.option(
    "--orphans",
    type=click.Choice(get_args(Orphans)),
    default="answer",
    show_default=True,
    help="What to do in messages with calls that never got a result.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(path: str | None, form: Form, orphans: Orphans, *, sample: bool, as_json: bool) -> None:
    """Print a session in the form that was asked for."""
    if sample == bool(path):
        message = "give the path of one session file, or --sample"
        raise click.UsageError(message)
    transcript = Transcript.read(_sample() if path is None else read(Path(path)))
    if not transcript.events and any(s.why == NOT_EVENT for s in transcript.skipped):
        message = f"not a session of thence: {path}"
        raise NotReadable(message, hint="logs of other agents cannot be read yet")
    if form == "messages":
        _print_json(transcript.messages(orphans).messages)
    elif form == "events" or as_json:
        _print_json(_events(transcript))
    else:
        click.echo("\n".join(text(transcript, width())))


def read(path: Path) -> bytes:
    """Read a regular file without following a link and without ever writing."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        message = f"no such file: {path}"
        raise SessionNotFound(message, hint="thence show --sample shows a session") from None
    except OSError as error:
        message = f"cannot open {path}: {error.strerror}"
        raise NotReadable(message, hint="thence opens regular files, not links") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        message = f"not a regular file: {path}"
        raise NotReadable(message, hint="give the path of one session file")
    with os.fdopen(handle, "rb") as file:
        return file.read()


def _sample() -> bytes:
    return resources.files("thence").joinpath("samples/tidepool.jsonl").read_bytes()


def _print_json(value: JSON) -> None:
    # Not msgspec: a log may hold lone surrogates and numbers of any size.
    try:
        lines = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=2).split("\n")
    except RecursionError:
        message = "the session holds a value that is nested too deeply to be printed as JSON"
        raise NotReadable(message, hint="show it as text, without --as and --json") from None
    click.echo("\n".join(escape(line) for line in lines))


def _events(transcript: Transcript) -> JSON:
    """Give every event with its state, and what was found besides."""
    header = transcript.header
    return {
        "session_id": header.session_id if header else None,
        "events": [
            {"state": state.value, "line": place.line, "offset": place.offset, "event": event}
            for event, place, state in zip(
                transcript.events, transcript.places, transcript.states, strict=True
            )
        ],
        "counts": transcript.counts(),
        "turn": transcript.turn(),
        "pending": transcript.pending,
        "skipped": transcript.skipped,
        "notices": transcript.report(),
    }


# -- as text --------------------------------------------------------------------------------


def text(transcript: Transcript, room: int) -> list[str]:
    """Give the session as lines: what it is, the live chain, what became of the rest."""
    return [*_head(transcript, room), "", *_body(transcript, room), "", *_foot(transcript, room)]


def _head(transcript: Transcript, room: int) -> Iterator[str]:
    header = transcript.header
    prompts = [e for e in transcript.line() if _is_prompt(e)]
    title = text_of(prompts[0].fields.get("content")) if prompts else "empty session"
    yield style(cut(clean(title.split("\n")[0]), room), bold=True)
    state = transcript.state.values
    model, cost = state.get("model") or {}, state.get("cost") or {}
    facts = [
        header.session_id[:8] if header else "no header",
        word(model.get("model")),
        word(state.get("cwd")).rpartition("/")[2],
        f"{len(prompts)} turns",
        f"{count(cost.get('input')) + count(cost.get('output')):,} tokens",
    ]
    yield style(cut(" · ".join(clean(fact) for fact in facts if fact), room), fg="bright_black")


def _is_prompt(event: Event) -> bool:
    content = event.fields.get("content")
    return event.type == "user" and not any(
        block.get("type") == "tool_result" for block in blocks(content)
    )


def _body(transcript: Transcript, room: int) -> Iterator[str]:
    chain = transcript.graph.chain()
    results = _results(transcript)
    prompts = [event.uuid for event in transcript.line() if _is_prompt(event)]
    number = {uuid: nth for nth, uuid in enumerate(prompts, 1)}
    parted: dict[int, list[int]] = {}
    for branch in transcript.graph.branches:
        parted.setdefault(-1 if branch.at is None else branch.at, []).append(len(branch.events))
    for place in chain:
        event = transcript.events[place]
        if _is_prompt(event):
            yield from _prompt(event, number.get(event.uuid, 0), room)
        elif event.type == "summary":
            summed = set(transcript.graph.chain(boundaries=False)) - set(chain)
            yield style(f"═    compacted, {len(summed)} events summed up", fg="cyan")
            yield from (
                f"│    {line}" for line in wrap(text_of(event.fields.get("content")), room - 6)
            )
            yield from _dead(size for at in sorted(summed) for size in parted.get(at, ()))
        elif event.type == "assistant":
            yield from _reply(event, results, room)
        yield from _dead(parted.get(place, ()))
    yield from _turn(transcript)


def _dead(sizes: Iterable[int]) -> Iterator[str]:
    for size in sizes:
        events = "1 event" if size == 1 else f"{size} events"
        yield style(f"├─╳  dead branch, {events}", fg="bright_black")


def _results(transcript: Transcript) -> dict[str, dict[str, JSON]]:
    found: dict[str, dict[str, JSON]] = {}
    for event in transcript.chain():
        for block in blocks(event.fields.get("content")):
            if block.get("type") == "tool_result":
                found.setdefault(word(block.get("tool_use_id")), block)
    return found


def _prompt(event: Event, number: int, room: int) -> Iterator[str]:
    when = clean(event.ts[11:16])
    yield f"● {number:<2} " + style(f"you  {when}", fg="blue", bold=True)
    for line in wrap(text_of(event.fields.get("content")), room - 6):
        yield "│    " + line


def _reply(event: Event, results: dict[str, dict[str, JSON]], room: int) -> Iterator[str]:
    for block in blocks(event.fields.get("content")):
        if block.get("type") == "text":
            for line in wrap(word(block.get("text")), room - 6):
                yield "│    " + line
        elif block.get("type") == "tool_use":
            yield _call(block, results.get(word(block.get("id"))), room)


def _call(block: dict[str, JSON], result: dict[str, JSON] | None, room: int) -> str:
    tool = word(block.get("name"))
    said = clean(kinds.summary(tool, block.get("input")))
    if result is None:
        return style(cut(f"○    {said}: interrupted, no result was ever written", room), fg="red")
    wrong = result.get("is_error")
    ended = kinds.ending(
        tool, result.get("content"), is_error=wrong if isinstance(wrong, bool) else None
    )
    line = kinds.command(tool, block.get("input"))
    tested = line is not None and kinds.test_runner(line) is not None
    edits = kinds.is_edit(tool, block.get("input"))
    mark = "✗" if ended.failed else "✓" if tested else "■" if edits else "│"
    colour = "red" if ended.failed else {"✓": "green", "■": "yellow"}.get(mark, "")
    answer = clean(text_of(result.get("content")).split("\n")[0]) if tested else ""
    shown = cut(f"{mark}    {said}" + (f"   {answer}" if answer else ""), room)
    return style(shown, fg=colour) if colour else shown


def _turn(transcript: Transcript) -> Iterator[str]:
    now = transcript.turn()
    torn = "; its last line is torn" if now.torn else ""
    yield style(f"●    {now.state.value}{torn}", fg="cyan")


def _foot(transcript: Transcript, room: int) -> Iterator[str]:
    counts = transcript.counts()
    shown = [f"{state}\N{NO-BREAK SPACE}{number}" for state, number in counts.items() if number]
    for line in wrap(" · ".join(reversed(shown)), room):
        yield line.replace("\N{NO-BREAK SPACE}", " ")
    for todo in transcript.pending:
        yield style(cut(clean(f"open: {todo.text}"), room), fg="yellow")
    for skip in transcript.skipped:
        saved = f", {skip.salvaged} records saved from it" if skip.salvaged else ""
        said = f"skipped line {skip.line}, {skip.length} bytes: {skip.why}{saved}"
        yield cut(said, room)
    for notice in transcript.report():
        yield cut(clean(f"note: {notice.what}: {notice.detail}"), room)
