"""Ctrl-C and SIGTERM as a question that the loop answers between two batches, when everything is consistent."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from deeppc.errors import Interrupted, UserError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
HEARD = (
    "Stopping after this batch, then saving. Ctrl-C again stops now, and what came after the last checkpoint is lost."
)


class Interruption:
    """Within: the first signal is remembered in ``signal``, and a second one acts as it would have without us.

    ``patient``: a second one does nothing, either (torchrun and a cluster's scheduler may both send one to a worker),
    and a UserError on leaving is said first: torchrun sends signals to those who have lost another worker.
    Ctrl-C is acknowledged with ``heard`` on stderr at once. Whoever acts on ``signal`` raises Interrupted. One that
    nobody has acted on, because it came after the last look, is raised again on leaving.
    """

    def __init__(self, heard: str = HEARD, patient: bool = False) -> None:
        self.signal: int | None = None
        self._heard, self._patient = heard, patient
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():  # only there does Python handle signals
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._restore()
        ends = (UserError if self._patient else Interrupted, KeyboardInterrupt, SystemExit)
        if self.signal is not None and not (kind and issubclass(kind, ends)):
            signal.raise_signal(self.signal)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        if self._patient:
            return
        self._restore()
        if number == signal.SIGINT:
            try:
                _say(self._heard)
            except (OSError, RuntimeError):  # io refuses to be called while it is at work
                _write(self._heard)


def _write(text: str) -> None:
    with suppress(OSError):
        os.write(2, f"{text}\n".encode())


_say: Callable[[str], None] = _write


@contextmanager
def heard_by(say: Callable[[str], None]) -> Iterator[None]:
    """Within, let ``say`` acknowledge Ctrl-C: a live display would wipe out what others write."""
    global _say
    before, _say = _say, say
    try:
        yield
    finally:
        _say = before
