"""What a run looks like: live in a terminal, one plain line per epoch elsewhere, one JSON object per epoch on request.

The live view shows where the energy is: a bar per node on a logarithmic scale, because the wave loses a factor
``lr_x`` at each node, and eight decades between the output and the first layer are nothing unusual.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from deeppc.models import described
from deeppc.training.callbacks import JsonLines
from deeppc.training.events import BatchDone, Callback, Ended, EpochDone, Event, Finished, Note, Started
from deeppc.training.interruption import heard_by

DECADES = 8  # that a bar spans, from a node that has all the energy to one that has a 10^-8 of it
BAR = 32  # characters of a full bar
ROWS = 18  # nodes that get a bar of their own; a deeper network's are drawn side by side
REFRESH = 0.2  # seconds between two looks at the sums, each of which waits for the device
BLOCKS = "▁▂▃▄▅▆▇█"
NAMES = {"top5": "top-5", "mse": "mean squared error", "cross_entropy": "cross-entropy"}


@contextmanager
def display(as_json: bool, console: Console | None = None) -> Iterator[Callback]:
    """Yield the callback that fits where the output goes."""
    if as_json:
        yield JsonLines()
        return
    console = console or Console(highlight=False)
    if not console.is_terminal:
        yield Lines(console)
        return
    view = LiveView(console)
    with heard_by(view.say):
        try:
            yield view
        finally:
            view.stop()


def progress_bars(console: Console, *columns: TextColumn) -> Progress:
    """Return bars as every command shows them: description, bar, count, ``columns``, time spent and left."""
    return Progress(
        TextColumn("{task.description:<7}"),
        BarColumn(bar_width=BAR),
        MofNCompleteColumn(),
        *columns,
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
    )


class Lines:
    """One plain line per epoch."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._started: Started | None = None

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                self._started = event
                self.say(_opening(event))
            case EpochDone() if self._started is not None:
                self.say(self._line(self._started, event))
            case Finished():
                self.say(closing(event.result.table()))
            case Note():
                self.say(event.text, style="bold")

    def say(self, text: str, style: str = "") -> None:
        self.console.print(Text(text, style=style), soft_wrap=True)

    def _line(self, started: Started, event: EpochDone) -> str:
        metric, epochs, metrics = started.metric, started.epochs, event.metrics
        values = {part: metrics.get(f"{part}_{metric.name}") for part in ("train", "validation", "test")}
        scores = {part: value for part, value in values.items() if value is not None}
        if "test" in scores:
            scores.pop("validation", None)
        best = event.selected and len(scores) > 1 and started.settings.get("select") != "last"
        said = "  ".join(f"{part} {metric.text(value)}" for part, value in scores.items())
        return (
            f"epoch {metrics['epoch']:>{len(str(epochs))}}/{epochs}  {said}  "
            f"energy {sum(metrics['energy'].values()):.3g}  {metrics['seconds']:.1f} s{'  best so far' if best else ''}"
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
            case BatchDone() if self._live is not None and self._started is not None:
                self._update(self._live, self._started, event)
            case Finished() | Ended():
                self.stop()

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _start(self, event: Started) -> None:
        self.stop()
        self._bars = progress_bars(self.console, TextColumn("{task.fields[note]}"))
        done, total = event.epoch * event.batches + event.batch, event.epochs * event.batches
        self._run = self._bars.add_task("run", total=total, completed=done, note="batches")
        self._epoch = self._bars.add_task("epoch", total=event.batches, completed=event.batch, note="")
        self._shown_epoch = event.epoch + 1
        self._live = Live(self._bars, console=self.console, transient=True, refresh_per_second=5)
        self._live.start()

    def _update(self, live: Live, started: Started, event: BatchDone) -> None:
        now = time.monotonic()
        last = event.batch == started.batches
        if now - self._drawn < REFRESH and not last:
            return
        self._drawn = now
        self._bars.update(self._run, completed=(event.epoch - 1) * started.batches + event.batch)
        if event.epoch != self._shown_epoch:
            self._shown_epoch = event.epoch
            self._bars.reset(self._epoch)
        note = f"train {started.metric.text(event.sums.value())}" + ("  evaluating" if last else "")
        self._bars.update(self._epoch, description=f"epoch {event.epoch}", completed=event.batch, note=note)
        live.update(Group(self._bars, energy_chart(event.sums.energies())))


def energy_chart(energy: Mapping[str, float]) -> RenderableType:
    """Draw each node's share of the energy, on a logarithmic scale, the output at the top."""
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


def closing(result: Mapping[str, Any]) -> str:
    """Say what a run came to, from its table."""
    metric, select = result.get("metric", "accuracy"), result["select"]
    how = "the last"
    if select == "validation":
        how = f"chosen by its {_value(metric, result[f'validation_{metric}'])} on held-out samples"
    elif select == "test":
        how = "chosen on the test set itself (the paper's protocol)"
    tested = [key.removeprefix("test_") for key in result if key.startswith("test_")]
    scores = ", ".join(f"{NAMES.get(key, key)} {_value(key, result[f'test_{key}'])}" for key in tested)
    what = f"test {scores}" if tested else "not tested"
    return f"{what}: the weights of epoch {result['selected_epoch']} of {result['epochs']}, {how}"


def _value(metric: str, value: float) -> str:
    return f"{100 * value:.1f} %" if metric in ("accuracy", "top5") else f"{value:.4g}"


def _opening(event: Started) -> str:
    settings = event.settings
    network = described(settings["model"], settings["width"]) if "width" in settings else settings["model"]
    lines = [
        event.dataset,
        f"{network}: {event.parameters:,} parameters; {settings['algorithm']}, seed {settings.get('seed')}, "
        f"{event.samples:,} samples to learn from, on {event.device}",
    ]
    if event.run_dir is not None:
        lines.append(f"run folder {event.run_dir}")
    if event.epoch + event.batch:
        lines.append(f"resuming in epoch {event.epoch + 1} after batch {event.batch} of {event.batches}")
    return "\n".join(lines)
