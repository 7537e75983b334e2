"""What can go wrong in words that a user can act on: a command line prints these without a traceback."""

from __future__ import annotations

import shlex
from pathlib import Path


class UserError(Exception):
    """Something that the user, not the program, can put right. ``exit_code`` is what a command ends with."""

    exit_code = 2


class ConfigError(UserError):
    """A setting that is unknown, of the wrong type or out of range, or that contradicts a run begun earlier."""


class RunError(UserError):
    """A run folder that cannot be used: not writable, full, taken, damaged, or without a run."""


class DivergedError(UserError):
    """The energy or a weight became NaN or exploded. The last good checkpoint is kept."""

    exit_code = 3

    def __init__(self, step: int, node: str, value: float, run_dir: Path, advice: str) -> None:
        self.step, self.node, self.value, self.run_dir = step, node, value, run_dir
        super().__init__(
            f"Training diverged at step {step}: the energy of node {node!r} is {value:.3g}. {advice} "
            f"The last good checkpoint is kept in {run_dir}."
        )


class Interrupted(UserError):  # noqa: N818 - the user asked for it, it is no error
    """Ctrl-C or SIGTERM: everything is saved, and the message says how to go on."""

    def __init__(self, where: str, command: str, run_dir: Path, signal: int) -> None:
        self.signal = signal
        self.exit_code = 128 + signal
        go_on = f"deeppc {command} --resume --run-dir {shlex.quote(str(run_dir))}"
        super().__init__(f"Stopped {where}; everything is saved. Go on with:  {go_on}")


class DataError(UserError):
    """A data set that cannot be used as it is.

    The message is plain prose that says what is wrong and what to do, so a command line can print it
    without a traceback.
    """


class BadFileError(Exception):
    """What is wrong inside a data set's files. `load` adds where they lie and what to do about it."""
