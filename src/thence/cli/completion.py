"""`thence completion`: what a shell needs to complete commands, options and ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from thence.cli import options

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SHOWN = 30

_PLACES = {
    "bash": 'eval "$(thence completion bash)"  in ~/.bashrc',
    "zsh": 'eval "$(thence completion zsh)"  in ~/.zshrc',
    "fish": "thence completion fish > ~/.config/fish/completions/thence.fish",
}


@click.command(
    "completion",
    help="Print the completion script of your shell.",
    epilog=f"{'; '.join(_PLACES.values())}.",
)
@click.argument("shell", type=click.Choice(sorted(_PLACES)))
@options.as_json
def command(shell: str, *, json: bool) -> int:
    """Print the script."""
    from thence.cli.shells import script as script_of

    script = script_of(shell)
    if json:
        from thence.cli.terminal import as_json, say

        say(as_json({"shell": shell, "use": _PLACES[shell], "script": script}))
    else:
        click.echo(script)
    return 0


def ids(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Give the ids of the newest sessions that begin with what was typed."""
    from click.shell_completion import CompletionItem

    from thence.cli import wiring
    from thence.cli.columns import short_ids
    from thence.cli.terminal import clean, cut
    from thence.errors import ThenceError
    from thence.memory.store import Filter

    try:
        with wiring.store() as store:
            rows = list(store.sessions(Filter(uid=typed or None, limit=SHOWN)))
    except ThenceError:  # completing is no time to complain
        return []
    short = short_ids([row.session.native_session_id for row in rows])
    return [
        CompletionItem(
            max(short[row.session.native_session_id], typed, key=len),
            help=cut(clean(f"{row.session.flavor}: {' '.join((row.title or '').split())}"), 60),
        )
        for row in rows
    ]
