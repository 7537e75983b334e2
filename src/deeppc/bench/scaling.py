"""How the cost of a training step grows: with inference steps, with depth, with the size of a batch.

Each point is the median time and the peak memory of a whole step, the algorithms taken in turns. The exponent of a
line is the slope of a straight line through its points in logarithms: 1 is proportional, 2 is a square, 0 is constant.
Counting multiply-adds in a chain of L equal layers with T = L, backprop and alpha = 0 grow as L, the others as L².
"""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from deeppc.bench.steps import machine, profiled, seconds, step
from deeppc.models import build
from deeppc.models.resnet import resnet

ALGORITHMS = ("bp", "pc+s+f, alpha=0", "pc+s+f", "pc", "ipc+s")


@dataclass(frozen=True)
class Case:
    """A network, a batch, and the inference steps (None: as many as levels)."""

    axis: str
    x: int
    blocks: int  # of each stage of a ResNet; 0: the VGG10
    batch_size: int = 32
    T: int | None = None
    width: float = 0.25


CASES = (
    *(Case("inference steps T", T, 0, T=T) for T in (10, 14, 20, 28, 40)),
    *(Case("levels L of a ResNet, T = L", 8 * n + 2, n, batch_size=16) for n in (1, 2, 3, 4)),
    *(Case("images in a batch", size, 0, batch_size=size) for size in (8, 16, 32, 64, 128)),
)


@dataclass(frozen=True)
class Point:
    """One algorithm in one case."""

    axis: str
    x: int
    algorithm: str
    milliseconds: float
    megabytes: float


def run(
    *, rounds: int = 5, threads: int = 2, on_progress: Callable[[str], None] = lambda text: None
) -> Iterator[Point]:
    """Measure every one of :data:`CASES`."""
    torch.set_num_threads(threads)
    for case in CASES:
        on_progress(f"{case.axis}: {case.x}")
        torch.manual_seed(0)
        net = resnet([case.blocks] * 4, width=case.width) if case.blocks else build("vgg10", width=case.width)
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        images = torch.randn(case.batch_size, 3, 32, 32).to(memory_format=torch.channels_last)
        labels = torch.randint(0, 10, (case.batch_size,))
        steps = {name: step(name, net, images, labels, T=case.T) for name in ALGORITHMS}
        for warm_up in steps.values():
            warm_up()
        memory = {name: profiled(once).peak for name, once in steps.items()}
        times: dict[str, list[float]] = {name: [] for name in steps}
        for i in range(rounds):
            for name in random.Random(i).sample(list(steps), len(steps)):
                times[name].append(seconds(steps[name]))
        for name, measured in times.items():
            yield Point(case.axis, case.x, name, 1e3 * statistics.median(measured), memory[name] / 2**20)


def exponent(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The slope of log y over log x, by least squares; nan for fewer than two different x."""
    if len(set(xs)) < 2:
        return math.nan
    return statistics.linear_regression([math.log(x) for x in xs], [math.log(y) for y in ys]).slope


def exponents(points: Sequence[Point]) -> dict[tuple[str, str], tuple[float, float]]:
    """By axis and algorithm: of time and of memory."""
    found = {}
    for axis, name in dict.fromkeys((p.axis, p.algorithm) for p in points):
        line = [p for p in points if (p.axis, p.algorithm) == (axis, name)]
        xs = [float(p.x) for p in line]
        found[axis, name] = (exponent(xs, [p.milliseconds for p in line]), exponent(xs, [p.megabytes for p in line]))
    return found


def as_markdown(points: Sequence[Point]) -> str:
    """The exponents, a row for each algorithm and axis, with the ends of each line."""
    lines = ["| against | step | from - to | ms | MB | exponent of time | of memory |", "|---|---|---|---|---|---|---|"]
    for (axis, name), (of_time, of_memory) in exponents(points).items():
        line = [p for p in points if (p.axis, p.algorithm) == (axis, name)]
        first, last = line[0], line[-1]
        lines.append(
            f"| {axis} | {name} | {first.x} - {last.x} | {first.milliseconds:.0f} - {last.milliseconds:.0f} "
            f"| {first.megabytes:.0f} - {last.megabytes:.0f} | {of_time:.2f} | {of_memory:.2f} |".replace(
                "-0.00", "0.00"
            )
        )
    return "\n".join(lines) + "\n"


def save(folder: Path, points: Sequence[Point]) -> None:
    """scaling.json, scaling.md, and the picture."""
    from deeppc.bench.costs import scaling
    from deeppc.report.plots import save as save_figure

    folder.mkdir(parents=True, exist_ok=True)
    record = {"machine": machine(), "points": [asdict(point) for point in points]}
    (folder / "scaling.json").write_text(json.dumps(record, indent=1))
    (folder / "scaling.md").write_text(as_markdown(points))
    save_figure(scaling(points), folder / "scaling.svg")
