"""`headwater completion`: the script with which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from headwater.cli.output import echo

VARIABLE = "_HEADWATER_COMPLETE"  # by which click recognises a call of the script


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "fish", "zsh"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in a shell.

    \b
    bash: headwater completion bash > ~/.local/share/bash-completion/completions/headwater
    fish: headwater completion fish > ~/.config/fish/completions/headwater.fish
    zsh:  headwater completion zsh > ~/.zfunc/_headwater     (with ~/.zfunc in $fpath)
    """
    kind = get_completion_class(shell)
    assert kind is not None
    echo(kind(ctx.find_root().command, {}, "headwater", VARIABLE).source())
