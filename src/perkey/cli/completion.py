"""``perkey completion``: what a shell needs to complete the command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from cyclopts import App, Parameter

Shell = Annotated[Literal["bash", "zsh", "fish"], Parameter(help="Whose script: bash, zsh, fish.")]


def command_for(root: App) -> Callable[[Shell], None]:
    """The command that prints the script for ``root``."""

    def completion(shell: Shell, /) -> None:
        """Print the script with which a shell completes commands, options and files.

        It goes where the shell looks for such scripts; the next shell completes.

        For example:

            perkey completion bash > ~/.local/share/bash-completion/completions/perkey
            perkey completion zsh > ~/.zfunc/_perkey
            perkey completion fish > ~/.config/fish/completions/perkey.fish

        bash needs the package bash-completion for that; without it, and for now, there is
        source <(perkey completion bash). zsh looks into ~/.zfunc if ~/.zshrc has
        fpath+=~/.zfunc before compinit.
        """
        print(root.generate_completion(prog_name=root.name[0], shell=shell))

    return completion
