"""The output of a command: whatever becomes of the terminal, pipe or file that it goes to, the work goes on."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast


class Guarded:
    """A text stream that goes quiet when it cannot be written to, and keeps the ``error`` that said so.

    Characters that its encoding does not have are written as question marks.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self.error: OSError | None = None
        self._stream = stream or io.StringIO()  # a process may be begun without one
        if hasattr(self._stream, "reconfigure"):
            self._stream.reconfigure(errors="replace")

    def write(self, text: str) -> int:
        if self.error is None:
            try:
                self._stream.write(text)
            except OSError as error:
                self._go_quiet(error)
        return len(text)

    def flush(self) -> None:
        if self.error is None:
            try:
                self._stream.flush()
            except OSError as error:
                self._go_quiet(error)

    def _go_quiet(self, error: OSError) -> None:
        self.error = error
        with suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), self._stream.fileno())  # takes what is still in the buffer, without complaint

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def guarded() -> Iterator[Guarded]:
    """Guard stdout and stderr; yields the guard of stdout, flushed once the context is left."""
    before, out, err = (sys.stdout, sys.stderr), Guarded(sys.stdout), Guarded(sys.stderr)
    sys.stdout, sys.stderr = cast(TextIO, out), cast(TextIO, err)
    try:
        yield out
    finally:
        out.flush()
        err.flush()
        sys.stdout, sys.stderr = before
