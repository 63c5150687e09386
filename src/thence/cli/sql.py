"""`thence sql`: questions to all sessions at once, on Parquet files that are made for it."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from thence.cli import options, wiring
from thence.cli.columns import DIM, TextCell, TextColumn, table, tell, tilde
from thence.cli.terminal import answer, as_json, clean, say, several, style, width, wrap

if TYPE_CHECKING:
    from thence.analytics.views import QueryResult

DEFAULT_ROWS = 100
STDIN = "-"
_NUMBERS = ("INT", "DOUBLE", "FLOAT", "DECIMAL")
_LINES = ["explain_key", "explain_value"]
_UNBOUND = 10_000  # columns of who is no terminal

SAMPLES = (
    (
        "cost by project and week",
        (
            "SELECT date_trunc('week', day) AS week, project, sum(cost_usd) AS usd FROM usage"
            " GROUP BY ALL ORDER BY week DESC, usd DESC"
        ),
    ),
    (
        "tools that fail most",
        (
            "SELECT tool, count(*) AS calls, count(*) FILTER (failed) AS failures FROM events"
            " WHERE kind = 'tool_call' GROUP BY tool ORDER BY failures DESC"
        ),
    ),
    (
        "files edited most",
        (
            "SELECT f.path, sum(f.edits) AS edits FROM digests, unnest(files) AS u(f)"
            " GROUP BY ALL ORDER BY edits DESC"
        ),
    ),
)


@click.command(
    "sql",
    help="Query all sessions in SQL. Without a query: list the tables and example queries.",
    epilog="Queries run on Parquet files in the home, which are updated first. DuckDB can read"
    " nothing else and write nothing. docs/analytics.md has more queries.",
)
@click.argument("question", metavar="[SQL|-]", required=False)
@click.option(
    "--from",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Query this export, without updating it.",
)
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=DEFAULT_ROWS,
    show_default=True,
    help="Maximum number of rows; 0: all.",
)
@click.option("--csv", "csv_", is_flag=True, help="Print CSV.")
@options.as_json
def command(
    question: str | None, folder: Path | None, limit: int, *, csv_: bool, json: bool
) -> int:
    """Ask, and print the answer."""
    from thence.analytics.views import ask

    if csv_ and json:
        raise click.UsageError("--csv or --json, not both")
    if question is None:
        return answer(_schema, _about, json=json)
    if question == STDIN:
        question = sys.stdin.read()
    where = folder if folder is not None else _update_export(json=json)
    open_now = _open_now() if folder is None else {}
    result = ask(where, question, limit=limit or None, open_now=open_now)
    if json:
        say(as_json(_objects(result)))
    elif csv_:
        say(_csv(result))
    else:
        tell(_table(result))
    if result.cut:
        click.echo(f"the first {several(limit, 'row')}; --limit 0 gives all", err=True)
    return 0


def _open_now() -> dict[str, str]:
    """Tell which sessions run or wait now, by their uids."""
    import time

    from thence.memory import session_status
    from thence.memory.store import Filter

    at, now = time.time(), wiring.status()
    with wiring.store() as store:
        rows = session_status.open_sessions(store, Filter(), now, at)
    return {row.session.session_uid: now.of(row, at) or "" for row in rows}


def _update_export(*, json: bool) -> Path:
    """Bring the home's own export up to date, saying so; the folder it lies in."""
    from thence.analytics.exports import MANIFEST, FolderTarget
    from thence.analytics.parquet import export
    from thence.cli.progress_bar import export_progress
    from thence.memory.store import StoreLocked

    folder = wiring.analytics()
    try:
        with wiring.store() as store, export_progress(shown=not json) as show_progress:
            report = export(
                store, FolderTarget(folder), notes=wiring.session_notes(), progress=show_progress
            )
    except StoreLocked:
        if not (folder / MANIFEST).exists():
            raise
        click.echo("note: another export is running; these are the previous results", err=True)
        return folder
    if report.read or report.removed:
        what = several(report.read, "new or changed session")
        gone = f", {report.removed:,} removed" if report.removed else ""
        where = clean(tilde(str(folder)))
        click.echo(f"exported first: {what}{gone}, into {where}", err=True)
    return folder


# -- answers --------------------------------------------------------------------------------


def _table(answer: QueryResult) -> Iterator[str]:
    if answer.columns == _LINES:  # a plan, drawn on many lines
        for _, drawn in answer.rows:
            yield from map(clean, f"{drawn}".split("\n"))
        return
    heads = [
        TextColumn(clean(name), right=type_.startswith(_NUMBERS) or "INT" in type_)
        for name, type_ in zip(answer.columns, answer.types, strict=True)
    ]
    rows = [[TextCell(" "), *(TextCell(_cell(value)) for value in row)] for row in answer.rows]
    room = width() if sys.stdout.isatty() else _UNBOUND
    yield from table([TextColumn(), *heads], rows, room, head=True)
    if not rows:
        yield style("    no rows", fg=DIM)


def _cell(value: Any) -> str:
    """Return a value as one harmless line."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Decimal):
        return f"{value.normalize():f}" if value.is_finite() else f"{value}"
    if isinstance(value, (list, dict, tuple)):
        return clean(dumps(_plain(value), ensure_ascii=False))
    return clean(" ".join(f"{value}".split()) if isinstance(value, str) else f"{value}")


def _csv(answer: QueryResult) -> Iterator[str]:
    for row in (answer.columns, *answer.rows):
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow([_cell(value) for value in row])
        yield line.getvalue()


def _objects(answer: QueryResult) -> list[dict[str, Any]]:
    names: list[str] = []
    for name in answer.columns:
        number = sum(other == name or other.startswith(f"{name}:") for other in names)
        names.append(f"{name}:{number}" if number else name)
    return [dict(zip(names, map(_plain, row), strict=True)) for row in answer.rows]


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, dict):
        return {f"{name}": _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds") + ("" if value.tzinfo else "Z")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, float) and value not in (float("inf"), float("-inf")) and value == value:  # noqa: PLR0124 - what is no number is not itself
        return value
    return value if isinstance(value, (bool, int, str, type(None))) else f"{value}"


# -- without a question ---------------------------------------------------------------------


def _schema() -> dict[str, Any]:
    from thence.analytics.tables import SCHEMA_VERSION, TABLES

    return {
        "schema": SCHEMA_VERSION,
        "tables": [
            {
                "table": name,
                "about": table.about,
                "columns": {"day": "DATE", **{c.name: c.type for c in table.columns}},
            }
            for name, table in TABLES.items()
        ],
        "samples": [{"asks": asks, "sql": question} for asks, question in SAMPLES],
    }


def _about() -> Iterator[str]:
    """Say which tables there are, and what one may ask."""
    from thence.analytics.tables import TABLES

    room = width()
    for name, described in TABLES.items():
        yield f"{style(name, bold=True)}  {described.about}"
        yield from (f"    {line}" for line in _columns(described.columns, room - 4))
        yield ""
    yield "times are in UTC, usd in dollars; day is a date; docs/analytics.md explains every column"
    for asks, question in SAMPLES:
        yield ""
        yield style(f"# {asks}", fg=DIM)
        yield from wrap(f'thence sql "{question}"', room)


def _columns(columns: Sequence[Any], room: int) -> list[str]:
    names = ["day date", *(f"{column.name} {_short(column.type)}" for column in columns)]
    return wrap(", ".join(names), room)


def _short(type_: str) -> str:
    """Name a type the way people do."""
    usual = {"VARCHAR": "text", "BIGINT": "int", "DOUBLE": "float", "BOOLEAN": "bool"}
    usual |= {"TIMESTAMP": "time", "DECIMAL(18,10)": "money"}
    return usual.get(type_, "list" if type_.endswith("[]") else type_.lower())
