"""`thence completion`: what a shell needs to complete commands, options and ids."""

from __future__ import annotations

import click

from thence.cli import options

_PLACES = {
    "bash": 'eval "$(thence completion bash)"  in ~/.bashrc',
    "zsh": 'eval "$(thence completion zsh)"  in ~/.zshrc',
    "fish": "thence completion fish > ~/.config/fish/completions/thence.fish",
}


@click.command(
    "completion",
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
