"""The command line: a table of commands, each a small class whose fields are its flags and whose work is elsewhere.

torch is imported when a command runs, never for ``--help``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Union, cast

import tyro
from tyro.conf import Positional, subcommand

from deeppc.cli import paper, search, tools, train
from deeppc.cli.common import Command, Given, given_flags, remark
from deeppc.core import memory
from deeppc.errors import Interrupted, UserError


@dataclass(frozen=True)
class Completion:
    """Print a completion script: deeppc completion bash > ~/.local/share/bash-completion/completions/deeppc"""

    shell: Positional[Literal["bash", "zsh", "tcsh", "fish"]]
    """The shell to write it for."""

    def run(self, given: Given) -> None:
        _parse(["--tyro-write-completion", self.shell, "-"])


COMMANDS: dict[str, type[Command]] = {
    **train.COMMANDS,
    **search.COMMANDS,
    **paper.COMMANDS,
    **tools.COMMANDS,
    "completion": Completion,
}

DESCRIPTION = """Train deep predictive coding networks.

A first run, which needs no download:  deeppc train --epochs 5

The flags of a command:  deeppc train --help"""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 2 for what the user can put right, 3 for a run that diverged."""
    args = list(sys.argv[1:] if args is None else args) or ["--help"]
    if args == ["--version"]:
        from deeppc import __version__

        print(f"deeppc {__version__}")
        return 0
    if " ".join(args[:2]) in COMMANDS:  # a command of two words
        args = [" ".join(args[:2]), *args[2:]]
    memory.keep()
    try:
        _parse(args).run(given_flags(args))
    except KeyboardInterrupt:
        remark("Interrupted.")
        return 130
    except BrokenPipeError:  # whoever read our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Interrupted as stop:
        remark(str(stop))
        return stop.exit_code
    except UserError as error:
        remark(f"error: {error}", "red")
        return error.exit_code
    return 0


def _parse(args: Sequence[str]) -> Command:
    """Return the command that ``args`` name, with its flags."""
    arms = [Annotated[kind, subcommand(name)] for name, kind in COMMANDS.items()]
    table = cast(Callable[..., Command], Union[tuple(arms)])  # noqa: UP007 - of a length that is not written down
    return tyro.cli(table, args=args, prog="deeppc", description=DESCRIPTION)
