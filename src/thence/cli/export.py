"""`thence export`: a session in a form that can be given to others; all of them for analysts."""

from __future__ import annotations

import json as text
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import click
import msgspec

from thence import __version__, config
from thence.agents.profiles import label_of
from thence.cli import options, wiring
from thence.cli.columns import tell, tilde
from thence.cli.read_notices import exit_code
from thence.cli.terminal import answer, as_json, clean, say, several, size
from thence.errors import NotAppendable, NotReadable, remedy
from thence.format.figures import clean_text
from thence.memory.readouts import open_loaded

if TYPE_CHECKING:
    from thence.agents.sessions import LoadedSession
    from thence.analytics.parquet import ExportReport
    from thence.bridge.otlp import Trace
    from thence.format.readout import Readout
    from thence.format.records import JSON
    from thence.memory.gate import Gate
    from thence.memory.readouts import OpenedSession

Form = Literal["jsonl", "markdown", "html", "messages", "atif", "otlp"]


class Either(click.Group):
    """One session is exported, unless the first word names an export of all of them."""

    # As plain commands have it: options may follow the id, and no word is passed over.
    allow_extra_args = False
    allow_interspersed_args = True

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Let the command that is meant read the words."""
        if args and args[0] in self.commands:
            meant = self.commands[args[0]]
            return meant.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words as those of a plain command."""
        return click.Command.parse_args(self, ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run as a plain command."""
        return click.Command.invoke(self, ctx)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Show the usage of a plain command; what else there is stands below."""
        return click.Command.collect_usage_pieces(self, ctx)


@click.group(
    "export",
    cls=Either,
    help="Write a session as JSON lines, Markdown, HTML, messages, ATIF or OTLP. Or all of them as"
    " Parquet: thence export parquet.",
    epilog="Exports the agent's own log unchanged if it still exists, else the stored copy, which"
    " is redacted. --redacted redacts both. See docs/incident.md before you share.",
)
@click.argument("wanted", metavar="ID|PATH")
@click.option("--redacted", is_flag=True, help="Replace secrets with placeholders.")
@click.option("--flatten", is_flag=True, help="One self-contained journal file.")
@click.option("--as", "form", type=click.Choice(get_args(Form)), default="jsonl", show_default=True)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option(
    "--to",
    "endpoint",
    metavar="URL",
    help="With --as otlp: send the spans to this OTLP/HTTP collector, redacted.",
)
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Send with --to.")
@click.option("--content", is_flag=True, help="With --as otlp: include what was said.")
@click.option("--openinference", is_flag=True, help="With --as otlp: add OpenInference names.")
@click.option(
    "--json", "json", is_flag=True, help="Print one JSON object: the result, or the export itself."
)
def command(
    wanted: str,
    form: Form,
    output: Path | None,
    endpoint: str | None,
    headers: tuple[str, ...],
    *,
    redacted: bool,
    flatten: bool,
    force: bool,
    content: bool,
    openinference: bool,
    json: bool,
) -> int:
    """Write a session out."""
    if form != "otlp" and (endpoint or headers or content or openinference):
        raise click.UsageError("--to, --header, --content and --openinference need --as otlp")
    spans = Spans(content=content, openinference=openinference)
    if endpoint is not None:
        return _send(wanted, endpoint, headers, spans, json=json)
    if flatten and form != "jsonl":
        raise click.UsageError("--flatten works with --as jsonl only")
    if output is not None and output.exists() and not force:
        raise NotReadable(f"{output} exists", hint="choose another name, or add --force")
    gate = wiring.gate() if redacted else None
    opened, body = _open(wanted, form, gate, spans, flatten=flatten)
    secret_names: set[str] | None = set() if redacted else None
    if secret_names is not None:
        body = _noting_secrets(body, secret_names)
    if json:
        say(as_json(_object(opened, form, body, output, secret_names)))
    else:
        _put_out(body, output)
        if secret_names is not None:
            secrets = several(len(secret_names), "secret")
            click.echo(f"{secrets} redacted; read it before you share it", err=True)
    return exit_code(opened.skipped)


def _open(
    wanted: str, form: Form, gate: Gate | None, spans: Spans, *, flatten: bool
) -> tuple[OpenedSession, Iterator[str]]:
    """Return a session, and the lines of its export."""
    from thence.cli.lookup import load_original, open_original

    if form == "atif" or gate is not None:
        loaded = load_original(wanted)
        loaded = loaded if gate is None else gate.session(loaded)
        opened = open_loaded(loaded)
        if form == "atif":
            return opened, iter([_trajectory(loaded)])
    else:
        opened, _ = open_original(wanted)
    return opened, export_lines(opened.session, form, gate, flatten=flatten, spans=spans)


def _noting_secrets(lines: Iterator[str], secret_names: set[str]) -> Iterator[str]:
    """Yield lines, and note the secrets that were taken out of them."""
    from thence.memory.placeholders import secrets_in

    for line in lines:
        secret_names |= secrets_in(line.encode("utf-8", "surrogatepass"))
        yield line


def _put_out(body: Iterator[str], output: Path | None) -> None:
    """Write lines to a file, or print them; what a terminal shows is made harmless."""
    if output is not None:
        _write(output, body)
        click.echo(f"wrote {clean(str(output))}, {size(output.stat().st_size)}", err=True)
        return
    is_terminal = sys.stdout.isatty()
    for line in body:
        sys.stdout.write(f"{clean_text(line) if is_terminal else line}\n")
    sys.stdout.flush()


def _object(
    opened: OpenedSession,
    form: Form,
    body: Iterator[str],
    output: Path | None,
    secret_names: set[str] | None,
) -> JSON:
    """Say what was written into a file; without one, give it: records, messages or a text."""
    report: dict[str, JSON] = {"session_uid": opened.session.uid, "as": form}
    if output is not None:
        _write(output, body)
        report |= {"path": str(output), "bytes": output.stat().st_size}
    elif form == "jsonl":
        report["lines"] = [text.loads(line) for line in body]
    elif form in ("messages", "atif", "otlp"):
        report["messages" if form == "messages" else "document"] = text.loads("".join(body))
    else:
        report["text"] = "\n".join(body)
    report["skipped"] = len(opened.skipped)
    report["redacted"] = None if secret_names is None else len(secret_names)
    return report


# -- all of them ----------------------------------------------------------------------------


@command.command(
    "parquet",
    help="Write all sessions as Parquet, a folder a day, into a folder or an object store. Later"
    " runs write only the days that changed.",
    short_help="Write all sessions as Parquet files.",
    epilog="Tables: sessions, events, usage, digests, signals. Of messages they have the first"
    " lines only, secrets redacted: see docs/analytics.md. s3://…, gs://… and az://… need"
    " thence[objects].",
)
@click.argument("target", metavar="DIR|URL")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be read; write nothing.")
@options.as_json
def parquet(target: str, *, dry_run: bool, json: bool) -> int:
    """Bring an export of the whole store up to date."""
    from thence.analytics.exports import target_at
    from thence.analytics.parquet import export
    from thence.cli.progress_bar import export_progress

    with wiring.store() as store, export_progress(shown=not json) as show_progress:
        report = export(
            store,
            target_at(target),
            dry_run=dry_run,
            notes=wiring.session_notes(),
            progress=show_progress,
        )
    return answer(msgspec.to_builtins(report), _describe_export(report), json=json)


def _describe_export(report: ExportReport) -> Iterator[str]:
    where = clean(tilde(report.target))
    gone = f", {report.removed:,} removed" if report.removed else ""
    if report.dry_run:
        everything = "all of " if report.is_complete else ""
        yield f"would read {everything}{several(report.read, 'session')}{gone}, into {where}"
        return
    if not report.read and not report.removed:
        yield f"nothing changed: {several(report.sessions, 'session')} in {where}"
        return
    yield (
        f"exported {several(report.read, 'session')}, {report.unchanged:,} already there{gone};"
        f" {several(report.days, 'day')}, {several(report.files, 'file')} of {size(report.bytes)}"
    )
    rows = ", ".join(f"{number:,} {name}" for name, number in report.rows.items())
    yield f"{where}: {rows}; {size(report.all_bytes)}"


# -- one of them ----------------------------------------------------------------------------


def export_lines(
    session: Readout,
    form: Form,
    gate: Gate | None,
    *,
    flatten: bool = False,
    spans: Spans | None = None,
) -> Iterator[str]:
    """Yield the lines of an export."""
    from thence.format import export_formats
    from thence.memory.labels import Label
    from thence.memory.notes import note_events, read_notes

    label = wiring.labels().get(session.uid, Label())
    name = label.name if gate is None or label.name is None else gate.text(label.name)
    if form == "otlp":
        yield _trace_text(session, spans or Spans())
    elif form == "messages":
        yield _line(session.messages(full=True).messages)
    elif form == "jsonl":
        written = (
            read_notes(wiring.home()) if gate is None else gate.notes(read_notes(wiring.home()))
        )
        notes = note_events(written, session.uid)
        lines = export_formats.lines(session, notes, name=name, tags=list(label.tags))
        for line in export_formats.flat(session) if flatten else lines:
            yield _line(line)
    else:
        write = export_formats.markdown if form == "markdown" else export_formats.page
        yield export_formats.document(write(session, name=name))


class Spans(NamedTuple):
    """What an export as spans has besides."""

    content: bool = False
    openinference: bool = False


def _trajectory(loaded: LoadedSession) -> str:
    from thence.bridge.atif import trajectory_of

    agent = label_of(loaded.graph.uid.partition(":")[0]).lower().replace(" ", "-")
    document = trajectory_of(loaded, agent=agent, by=f"thence {__version__}")
    return text.dumps(document, separators=(",", ":"))


def _trace_text(session: Readout, spans: Spans) -> str:
    from thence.bridge.otlp import otlp_json

    return text.dumps(otlp_json(_trace(session, spans)), separators=(",", ":"))


def _trace(session: Readout, spans: Spans) -> Trace:
    from thence.bridge.otlp import trace_of

    return trace_of(
        session,
        agent=label_of(session.uid.partition(":")[0]),
        version=__version__,
        has_content=spans.content,
        is_openinference=spans.openinference,
    )


def _send(wanted: str, endpoint: str, headers: tuple[str, ...], spans: Spans, *, json: bool) -> int:
    """Send a session to a collector, redacted."""
    from thence.bridge.otlp import send
    from thence.cli.lookup import load_original

    pairs = [header.partition("=") for header in headers]
    if not all(name and equals for name, equals, _ in pairs):
        raise click.UsageError("write a header as NAME=VALUE")
    loaded = wiring.gate().session(load_original(wanted))
    trace = _trace(open_loaded(loaded).session, spans)
    requests = send(trace, endpoint, {name.strip(): value.strip() for name, _, value in pairs})
    if json:
        report = {"session_uid": trace.uid, "trace_id": trace.trace_id.hex(), "endpoint": endpoint}
        say(as_json({**report, "spans": len(trace.spans), "requests": requests}))
    else:
        tell([f"sent {several(len(trace.spans), 'span')} to {clean(endpoint)}, redacted"])
    return exit_code(loaded.skipped)


def _line(value: JSON) -> str:
    # ASCII, so that whatever a log holds is a text that every tool can read.
    return text.dumps(msgspec.to_builtins(value), separators=(",", ":"))


def _write(path: Path, lines: Iterator[str]) -> None:
    try:
        with config.replacing(path, sync=False) as file:
            file.writelines(f"{line}\n".encode("utf-8", "replace") for line in lines)
    except OSError as error:
        raise NotAppendable(f"cannot write {path}: {error.strerror}", hint=remedy(error)) from error
