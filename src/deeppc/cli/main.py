"""The command line: a table of commands, each a small class whose fields are its flags and whose work is elsewhere.

torch is imported when a command runs, never for ``--help``.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stderr
from dataclasses import dataclass
from typing import Annotated, Literal, Union, cast

import tyro
from tyro.conf import Positional, subcommand

from deeppc.cli import paper, search, tools, train
from deeppc.cli.common import Command, Given, given_flags, remark, require_words
from deeppc.cli.streams import guarded
from deeppc.core import memory
from deeppc.errors import ConfigError, Interrupted, UserError, memory_in_words, set_by_torchrun


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

TORCHRUN = "TORCHELASTIC_RUN_ID"  # set in what it has started
DIVIDED = ("train",)  # commands whose copies under torchrun share the work

BUG = 70  # the exit code of what should not have happened: EX_SOFTWARE of sysexits.h

DESCRIPTION = """Train deep predictive coding networks.

A first run, which needs no download:  deeppc train --epochs 5

The flags of a command:  deeppc train --help"""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code.

    0 done, 2 what the user can put right, 3 a run that diverged, 70 a bug, 130 or 143 stopped by a signal, 141 done,
    but whoever read the output had gone.
    """
    args = list(sys.argv[1:] if args is None else args) or ["--help"]
    with guarded() as out:
        code = _run(args)
        out.flush()
        if out.error is not None and not code:
            if isinstance(out.error, BrokenPipeError):
                return 128 + 13  # as after SIGPIPE
            remark(f"error: the output could not be written: {out.error.strerror or out.error}.", "red")
            return UserError.exit_code
    return code


def _run(args: list[str]) -> int:
    """Run one command, and put what it raises into words."""
    try:
        if args == ["--version"]:
            from deeppc import __version__

            print(f"deeppc {__version__}")
            return 0
        require_words(args)
        if " ".join(args[:2]) in COMMANDS:  # a command of two words
            args = [" ".join(args[:2]), *args[2:]]
        _require_one(args)
        memory.keep()
        command = _parse(args)
        with memory_in_words("this command"):
            command.run(given_flags(args))
    except SystemExit as end:  # of the parser, which has said why
        return end.code if isinstance(end.code, int) else UserError.exit_code if end.code else 0
    except KeyboardInterrupt:
        remark("Interrupted.")
        return 128 + signal.SIGINT
    except Interrupted as stop:
        if _speaks(str(stop)):
            remark(str(stop))
        return stop.exit_code
    except UserError as error:
        return _refused(error, str(error), error.exit_code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        return _refused(error, f"{where}{error.strerror or error}.", UserError.exit_code)
    except Exception as error:
        what = f"deeppc failed where it should not have: {type(error).__name__}: {error}".rstrip(".")
        return _refused(error, f"{what}. Please report it; DEEPPC_TRACEBACK=1 shows where.", BUG)
    return 0


def _refused(error: Exception, words: str, code: int) -> int:
    if os.environ.get("DEEPPC_TRACEBACK", "0") not in ("", "0"):
        traceback.print_exception(error)
    if _speaks(words):
        remark(f"error: {words}", "red")
    return code


def _speaks(words: str) -> bool:
    """Whether to print this: of torchrun's workers, the first to find it out does."""
    if TORCHRUN not in os.environ:
        return True
    from deeppc.training.distributed import first_to_say

    return first_to_say(words)


def _require_one(args: Sequence[str]) -> None:
    """Refuse to run a command in several copies side by side, without a word, which torchrun would start."""
    copies = set_by_torchrun("WORLD_SIZE", "1") if TORCHRUN in os.environ else 1
    if copies > 1 and args[0] in COMMANDS and args[0] not in DIVIDED and "--help" not in args:
        raise ConfigError(
            f"torchrun starts {copies} copies of deeppc {args[0]}, which would not work together: only deeppc train "
            "does. Start it without torchrun (most commands that train have --jobs)."
        )


def _parse(args: Sequence[str]) -> Command:
    """Return the command that ``args`` name, with its flags."""
    arms = [Annotated[kind, subcommand(name)] for name, kind in COMMANDS.items()]
    table = cast(Callable[..., Command], Union[tuple(arms)])  # noqa: UP007 - of a length that is not written down
    said = io.StringIO()
    try:
        with redirect_stderr(said) if TORCHRUN in os.environ else nullcontext():
            return tyro.cli(table, args=args, prog="deeppc", description=DESCRIPTION)
    finally:
        if said.getvalue() and _speaks(said.getvalue()):
            sys.stderr.write(said.getvalue())
