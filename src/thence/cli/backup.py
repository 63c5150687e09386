"""`thence backup`: save what is kept for good into one file."""

from __future__ import annotations

from pathlib import Path

import click

from thence.cli import options, wiring
from thence.cli.columns import tilde
from thence.cli.terminal import answer, clean, several, size
from thence.errors import BadConfig, NotReadable


@click.command(
    "backup",
    help="Save digests, costs and signals to one file. Transcripts are not in it.",
    epilog="To restore it, replace the store file with it (thence doctor shows the path), then run"
    " thence sweep: sessions whose logs still exist are imported again.",
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@options.as_json
def command(file: Path, *, force: bool, json: bool) -> int:
    """Save tier 2 while others go on."""
    from thence.memory import backup

    address = wiring.address()
    if not address.startswith("sqlite:"):
        hint = "use the tools of your database, such as pg_dump"
        kind = address.partition(":")[0]  # the rest may hold a password
        raise BadConfig(f"only an SQLite store can be saved this way, not {kind}:", hint=hint)
    if file.exists() and not force:
        raise NotReadable(f"{file} exists", hint="choose another name, or add --force")
    with wiring.store() as store:
        sessions = sum(1 for _ in store.sessions())
        written = backup.save(Path(address.removeprefix("sqlite:")), file.absolute())
    lines = [
        f"saved {several(sessions, 'session')}, {size(written)}: {clean(tilde(str(file)))}",
        f"  digests, costs and signals; not the {wiring.KEY} and no transcripts",
    ]
    report = {"path": str(file.absolute()), "bytes": written, "sessions": sessions}
    return answer(report, lines, json=json)
