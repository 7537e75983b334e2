"""Callbacks to give to :func:`deeppc.fit`: JSON lines, and TensorBoard.

>>> deeppc.fit(net, data, callbacks=[JsonLines(open("log.jsonl", "w")), TensorBoard("runs/mine")])

A callback is any function of an event; see :mod:`deeppc.training.events`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from deeppc.errors import ConfigError
from deeppc.training.events import Ended, EpochDone, Event, Finished, Note, Started


class JsonLines:
    """Write one JSON object per epoch and one for the result; ``event`` says which it is. Notes go to stderr."""

    def __init__(self, file: IO[str] | None = None) -> None:
        self._file, self._run_dir = file, ""

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                self._run_dir = str(event.run_dir or "")
            case EpochDone():
                self._write({"event": "epoch", "run_dir": self._run_dir, **event.metrics})
            case Finished():
                where = str(event.result.run_dir or "")
                self._write({"event": "result", "run_dir": where, **event.result.table()})
            case Note():
                print(event.text, file=sys.stderr)

    def _write(self, content: Mapping[str, Any]) -> None:
        print(json.dumps(content), file=self._file or sys.stdout, flush=True)


class TensorBoard:
    """Write each epoch's numbers to TensorBoard (``pip install 'deeppc[tensorboard]'``): tags as in ``metrics.jsonl``.

    ``folder``: where to; None: in the run folder.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = folder
        self._writer: Any = None
        if find_spec("tensorboard") is None:
            raise ConfigError("TensorBoard is not installed: pip install 'deeppc[tensorboard]'.")

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                self._open(self._folder or event.run_dir)
            case EpochDone() if self._writer is not None:
                for tag, value in _scalars(event.metrics).items():
                    self._writer.add_scalar(tag, value, event.metrics["epoch"])
            case Ended() if self._writer is not None:
                self._writer.close()
                self._writer = None

    def _open(self, folder: str | Path | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        if folder is None:
            raise ConfigError("TensorBoard needs a folder: TensorBoard(folder), or a run_dir.")
        self._writer = SummaryWriter(str(folder))


def _scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The numbers by tag: ``train_accuracy``, ``energy/conv1``."""
    flat: dict[str, Any] = {}
    for name, value in metrics.items():
        flat |= {f"{name}/{key}": one for key, one in value.items()} if isinstance(value, dict) else {name: value}
    return {tag: float(value) for tag, value in flat.items() if value is not None and tag not in ("epoch", "step")}
