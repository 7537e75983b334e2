"""What a run looks like: live in a terminal, one plain line per epoch elsewhere, one JSON object per epoch on request.

The live view shows where the energy is: a bar per node on a logarithmic scale, because the wave loses a factor
``lr_x`` at each node, and eight decades between the output and the first layer are nothing unusual.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from deeppc.training.events import BatchDone, Ended, EpochDone, Event, Finished, Listener, Note, Started

DECADES = 8  # that a bar spans, from a node that has all the energy to one that has a 10^-8 of it
BAR = 32  # characters of a full bar
ROWS = 18  # nodes that get a bar of their own; a deeper network's are drawn side by side
REFRESH = 0.2  # seconds between two looks at the sums, each of which waits for the device
BLOCKS = "▁▂▃▄▅▆▇█"


@contextmanager
def display(as_json: bool, console: Console | None = None) -> Iterator[Listener]:
    """The listener that fits where the output goes."""
    if as_json:
        yield JsonLines()
        return
    console = console or Console(highlight=False)
    if not console.is_terminal:
        yield Lines(console)
        return
    view = LiveView(console)
    try:
        yield view
    finally:
        view.stop()


class JsonLines:
    """On stdout nothing but one object per epoch and one for the result; ``event`` says which it is."""

    def __init__(self) -> None:
        self._run_dir = ""

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                self._run_dir = str(event.run_dir)
            case EpochDone():
                self._print({"event": "epoch", "run_dir": self._run_dir, **event.metrics})
            case Finished():
                self._print({"event": "result", "run_dir": self._run_dir, **event.result.table()})
            case Note():
                print(event.text, file=sys.stderr)

    def _print(self, content: dict[str, Any]) -> None:
        print(json.dumps(content), flush=True)


class Lines:
    """One plain line per epoch."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._epochs, self._best, self._best_epoch = 0, -1.0, 0

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                self._epochs, self._best = event.config.epochs, -1.0
                self.say(_opening(event))
            case EpochDone():
                self.say(self._line(event.metrics))
            case Finished():
                self.say(closing(event.result.table()))
            case Note():
                self.say(event.text, style="bold")

    def say(self, text: str, style: str = "") -> None:
        self.console.print(Text(text, style=style), soft_wrap=True)

    def _line(self, metrics: Mapping[str, Any]) -> str:
        by, accuracy = selected(metrics)
        mark = ""
        if accuracy > self._best:
            self._best, mark = accuracy, "  best so far"
        return (
            f"epoch {metrics['epoch']:>{len(str(self._epochs))}}/{self._epochs}  "
            f"train {percent(metrics['train_accuracy'])}  {by} {percent(accuracy)}  "
            f"energy {sum(metrics['energy'].values()):.3g}  {metrics['seconds']:.1f} s{mark}"
        )


class LiveView(Lines):
    """Bars for the run and the epoch, and the energy of each node, under the lines of the epochs that are done."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live: Live | None = None
        self._drawn = 0.0

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        match event:
            case Started():
                self._start(event)
            case BatchDone():
                self._update(event)
            case Finished() | Ended():
                self.stop()

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _start(self, event: Started) -> None:
        self.stop()
        self._batches = event.batches
        self._bars = Progress(
            TextColumn("{task.description:<7}"),
            BarColumn(bar_width=BAR),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
        )
        self._bars.columns = (*self._bars.columns, TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        done = event.epoch * event.batches + event.batch
        self._run = self._bars.add_task(
            "run", total=event.config.epochs * event.batches, completed=done, note="batches"
        )
        self._epoch = self._bars.add_task("epoch", total=event.batches, completed=event.batch, note="")
        self._shown_epoch = event.epoch + 1
        self._live = Live(self._bars, console=self.console, transient=True, refresh_per_second=5)
        self._live.start()

    def _update(self, event: BatchDone) -> None:
        now = time.monotonic()
        last = event.batch == self._batches
        if self._live is None or (now - self._drawn < REFRESH and not last):
            return
        self._drawn = now
        done = (event.epoch - 1) * self._batches + event.batch
        self._bars.update(self._run, completed=done)
        if event.epoch != self._shown_epoch:
            self._shown_epoch = event.epoch
            self._bars.reset(self._epoch)
        note = f"train {percent(event.sums.accuracy())}" + ("  evaluating" if last else "")
        self._bars.update(self._epoch, description=f"epoch {event.epoch}", completed=event.batch, note=note)
        self._live.update(Group(self._bars, energy_chart(event.sums.energies())))


def energy_chart(energy: Mapping[str, float]) -> RenderableType:
    """Each node's share of the energy, on a logarithmic scale, the output at the top."""
    total = sum(energy.values()) or 1.0
    shares = {v: value / total for v, value in reversed(list(energy.items()))}
    if len(shares) > ROWS:
        line = "".join(BLOCKS[round(_height(share) * (len(BLOCKS) - 1))] for share in reversed(shares.values()))
        return Text(f"energy by node, input to output, {DECADES} decades\n{line}")
    table = Table.grid(padding=(0, 2))
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_row("energy", f"share, over {DECADES} decades", "", style="dim")
    for v, share in shares.items():
        bar = "█" * round(_height(share) * BAR)
        table.add_row(v, Text(bar.ljust(BAR), style="cyan"), f"{100 * share:.2g} %" if share else "none yet")
    return table


def _height(share: float) -> float:
    """1 for all the energy, 0 for ``10^-DECADES`` of it or less."""
    return max(0.0, 1 + math.log10(share) / DECADES) if share > 0 else 0.0


def selected(metrics: Mapping[str, Any]) -> tuple[str, float]:
    """What chooses the epoch, and how well it did."""
    by = "test" if "test_accuracy" in metrics else "validation"
    return by, metrics[f"{by}_accuracy"]


def percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def closing(result: Mapping[str, Any]) -> str:
    how = (
        f"chosen by its {percent(result['validation_accuracy'])} on held-out images"
        if result["select"] == "validation"
        else "chosen on the test set itself (the paper's protocol)"
    )
    return (
        f"test accuracy {percent(result['test_accuracy'])}, top-5 {percent(result['test_top5'])}: "
        f"the weights of epoch {result['selected_epoch']} of {result['epochs']}, {how}"
    )


def _opening(event: Started) -> str:
    c = event.config
    where = ""
    if event.epoch + event.batch:
        where = f"\ngoing on in epoch {event.epoch + 1} after batch {event.batch} of {event.batches}"
    return (
        f"{event.dataset}\n"
        f"{c.model} at width {c.width:g}: {event.parameters:,} parameters; {c.algorithm}, seed {c.seed}, "
        f"{event.training_images:,} images to learn from, on {event.device}\n"
        f"run folder {event.run_dir}{where}"
    )
