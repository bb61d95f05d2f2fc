"""``fastloader completion``: what a shell needs to complete commands, options and paths."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from fastloader.cli.output import say


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    r"""Print the completion script for a SHELL.

    \b
    bash  eval "$(fastloader completion bash)"     in ~/.bashrc
    zsh   eval "$(fastloader completion zsh)"      in ~/.zshrc
    fish  fastloader completion fish | source      in ~/.config/fish/config.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    say(kind(root, {}, "fastloader", "_FASTLOADER_COMPLETE").source())


commands = (command,)
