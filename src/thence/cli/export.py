"""`thence export`: a session in a form that can be given to others."""

from __future__ import annotations

import json as text
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import click

from thence.cli import wiring
from thence.cli.reading import exit_code
from thence.cli.terminal import clean, several, size
from thence.errors import NotAppendable, NotReadable

if TYPE_CHECKING:
    from thence.adapters.sessions import Loaded
    from thence.format.records import JSON
    from thence.memory.redact import Redactor

Form = Literal["jsonl", "markdown", "html", "messages"]


@click.command(
    "export",
    help="Write a session as lines, Markdown, a page or messages.",
    epilog="What agents wrote is exported as it is where it is still there; what thence kept has"
    " no secrets in it. --redacted goes over all of it. See docs/incident.md before you share.",
)
@click.argument("wanted", metavar="ID|PATH")
@click.option("--redacted", is_flag=True, help="Put placeholders where secrets stand.")
@click.option("--flatten", is_flag=True, help="One journal that needs no other file.")
@click.option("--as", "form", type=click.Choice(get_args(Form)), default="jsonl", show_default=True)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Into a file."
)
@click.option("--force", is_flag=True, help="Overwrite a file that is there.")
def command(
    wanted: str, form: Form, output: Path | None, *, redacted: bool, flatten: bool, force: bool
) -> int:
    """Write a session out."""
    if flatten and form != "jsonl":
        raise click.UsageError("--flatten makes a journal: it goes with --as jsonl only")
    if output is not None and output.exists() and not force:
        raise NotReadable(f"{output} exists", hint="give another name, or --force")
    loaded = original(wanted)
    redactor = wiring.redactor() if redacted else None
    body = exported(loaded, form, redactor, flatten=flatten)
    if output is None:
        for line in body:
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    else:
        _write(output, body)
        click.echo(f"written: {clean(str(output))}, {size(output.stat().st_size)}", err=True)
    if redactor is not None:
        number = sum(redactor.counts.values())
        click.echo(f"{several(number, 'secret')} redacted; read it before you share it", err=True)
    return exit_code(loaded.skipped)


def original(wanted: str) -> Loaded:
    """Give a session as its agent wrote it, or else as it is kept."""
    from thence.adapters.sessions import load
    from thence.cli.kept import is_path
    from thence.memory.recall import loaded

    if is_path(wanted):
        return load(Path(wanted))
    with wiring.store() as store:
        row = wiring.session(store, wanted)
        path = row.session.source_path
        if path and not row.gone and Path(path).exists():
            return load(Path(path))
        return loaded(store, row)


def exported(
    loaded: Loaded, form: Form, redactor: Redactor | None, *, flatten: bool = False
) -> Iterator[str]:
    """Give the lines of an export."""
    from thence.cli import forms

    whole = loaded.whole
    if form == "messages":
        yield _line(whole.messages().messages, redactor)
    elif form == "jsonl":
        for one in forms.flat(whole) if flatten else forms.lines(whole):
            yield _line(one, redactor)
    else:
        made = forms.markdown(whole) if form == "markdown" else forms.page(whole)
        # As a whole: a secret may stand on several lines.
        told = "\n".join(made)
        yield redactor.redact(told) if redactor is not None else told


def _line(value: JSON, redactor: Redactor | None) -> str:
    import msgspec

    plain = msgspec.to_builtins(value)
    if redactor is not None:
        plain = redactor.redact_json(plain)
    # ASCII, so that whatever a log holds is a text that every tool can read.
    return text.dumps(plain, separators=(",", ":"))


def _write(path: Path, lines: Iterator[str]) -> None:
    passing = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        handle = os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)
        passing.replace(path)
    except OSError as error:
        raise NotAppendable(f"cannot write {path}: {error.strerror}") from error
    finally:
        passing.unlink(missing_ok=True)
