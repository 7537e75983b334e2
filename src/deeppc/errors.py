"""The one family of errors that a user, not the program, can put right: a command line prints them without a traceback.

A message says what was wrong, what was expected and what to do.
"""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class UserError(Exception):
    """Something that the user can put right. ``exit_code`` is what a command ends with."""

    exit_code = 2


class ConfigError(UserError):
    """A setting that is unknown, of the wrong type or out of range, or that contradicts the run to resume."""


class DataError(UserError):
    """A data set that cannot be used as it is."""


class RunError(UserError):
    """A run folder that cannot be used: not writable, full, locked, damaged, or without a run."""


class OutOfMemory(UserError):  # noqa: N818
    """The machine, or the accelerator, has not the memory that was asked for. The last checkpoint is kept."""


class DivergedError(UserError):
    """The energy or a weight became NaN or exploded. The last good checkpoint is kept."""

    exit_code = 3

    def __init__(self, step: int, node: str, value: float, run_dir: Path | None, advice: str) -> None:
        self.step, self.node, self.value, self.run_dir = step, node, value, run_dir
        kept = f" The last good checkpoint is kept in {run_dir}." if run_dir else ""
        super().__init__(
            f"Training diverged at step {step}: the energy of node {node!r} is {value:.3g}. {advice}{kept}"
        )


class Interrupted(UserError):  # noqa: N818 - the user asked for it
    """Ctrl-C or SIGTERM: everything is saved, and the message says how to resume."""

    def __init__(self, where: str, command: str, run_dir: Path | None, signal: int) -> None:
        self.signal = signal
        self.exit_code = 128 + signal
        if run_dir is None:
            super().__init__(f"Stopped {where}; nothing is saved, since there is no run folder.")
            return
        again = f"deeppc {command} --resume --run-dir {shlex.quote(str(run_dir))}"
        if command == "fit":
            again = f"deeppc.fit(..., run_dir={str(run_dir)!r}, resume=True)"
        super().__init__(f"Stopped {where}; everything is saved. Resume with:  {again}")


@contextmanager
def memory_in_words(doing: str) -> Iterator[None]:
    """Raise :class:`OutOfMemory` where memory is refused while ``doing`` something: by Python, numpy or torch."""
    try:
        yield
    except (MemoryError, RuntimeError, OverflowError) as error:
        if not is_memory_refused(error):
            raise
        raise OutOfMemory(f"There is not enough memory for {doing}: lower the width or the batch size.") from error


def is_memory_refused(error: BaseException) -> bool:
    """Whether an error says that memory was refused. torch raises RuntimeError, with one of several texts."""
    refused = (
        "out of memory",
        "allocate memory",
        "not enough memory",
        "size calculation overflowed",
        "start new thread",
    )
    told = isinstance(error, RuntimeError) and any(words in str(error) for words in refused)
    return told or isinstance(error, MemoryError | OverflowError)


def set_by_torchrun(name: str, default: str | None = None) -> int:
    """Return the whole number in an environment variable of torchrun's; ConfigError if it is none."""
    text = os.environ.get(name, default)
    if text is None or not text.isdecimal():
        raise ConfigError(f"{name} is {text!r}, but torchrun sets it to a whole number: unset TORCHELASTIC_RUN_ID.")
    return int(text)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: ``did you mean 'x'?``, or all the names where none is like it."""
    known = list(known)
    lower = {k.lower(): k for k in known}
    like = name.lower()
    for spelling in (like, like.replace("-", "_")):
        if near := difflib.get_close_matches(spelling, lower, n=1, cutoff=0.5):
            return f"did you mean {lower[near[0]]!r}?"
    return f"choose {', '.join(known)}." if known else "there are none."
