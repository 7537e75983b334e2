"""What a training step costs: multiply-adds counted, time and memory measured, always relative to backprop.

Machines differ and are noisy, so every number is a ratio: the steps of all algorithms are interleaved in one run, and
each one's time is divided by the mean of the two backprop steps just before and after it. Beside the measured ratio
stands the *bound*, the ratio of multiply-adds that the engine's own work counts give: what an implementation without
any overhead would reach.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from deeppc.core.algorithms import Algorithm
from deeppc.core.engine import Work
from deeppc.core.graph import Graph
from deeppc.models import build

PLAIN = "torch"  # an ordinary training loop in torch, without deeppc
SPECS: dict[str, dict[str, float]] = {
    "bp": {},
    "pc+s+f, alpha=0": {"alpha": 0.0},
    "pc+s+f": {"alpha": 0.01},
    "pc": {},
    "ipc+s, alpha=0": {"alpha": 0.0},
    "ipc+s": {"alpha": 0.01},
}
# Seconds per epoch relative to BP on an H100, from the paper's timing table (its nets at width 1).
PAPER = {
    "vgg5": {"pc": 1.34, "pc+s+f": 1.34, "ipc+s": 1.67},
    "vgg7": {"pc": 1.71, "pc+s+f": 1.71, "ipc+s": 2.29},
    "vgg10": {"pc": 2.67, "pc+s+f": 2.66, "ipc+s": 3.69},
    "resnet10": {"pc": 2.87, "pc+s+f": 2.91, "ipc+s": 4.05},
    "resnet18": {"pc": 5.37, "pc+s+f": 5.46, "ipc+s": 7.96},
}


@dataclass(frozen=True)
class Setting:
    """What is measured: networks at a width, on batches of 3x32x32 images."""

    models: tuple[str, ...] = ("vgg5", "vgg7", "vgg10", "resnet10", "resnet18")
    algorithms: tuple[str, ...] = tuple(SPECS)
    width: float = 0.5
    batch_size: int = 128
    rounds: int = 7
    threads: int = 2


@dataclass(frozen=True)
class Cell:
    """One algorithm on one network. Ratios are to ``bp`` in the same run; ``low`` and ``high`` are quartiles."""

    model: str
    algorithm: str
    milliseconds: float
    ratio: float
    low: float
    high: float
    bound: float | None  # None for plain torch
    memory: float  # peak bytes of a step relative to bp's
    convolutions: float  # share of the step's time
    paper: float | None


def run(setting: Setting, on_progress: Callable[[str], None] = lambda text: None) -> Iterator[Cell]:
    """Measure every cell, network by network."""
    torch.set_num_threads(setting.threads)
    for model in setting.models:
        torch.manual_seed(0)
        net = build(model, width=setting.width)
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        images = torch.randn(setting.batch_size, 3, 32, 32).to(memory_format=torch.channels_last)
        labels = torch.randint(0, 10, (setting.batch_size,))
        steps = {name: step(name, net, images, labels) for name in (PLAIN, *setting.algorithms)}
        works = {name: once() for name, once in steps.items()}  # also warms up
        costs = multiply_adds(net, images[:1])
        bounds = {name: cost(work, costs) / cost(works["bp"] or Work(), costs) for name, work in works.items() if work}
        profiles = {name: profiled(once) for name, once in steps.items()}
        others = [name for name in steps if name != "bp"]
        times: dict[str, list[float]] = {name: [] for name in steps}
        ratios: dict[str, list[float]] = {name: [] for name in steps} | {"bp": [1.0]}
        for i in range(setting.rounds):
            on_progress(f"{model}: round {i + 1} of {setting.rounds}")
            times["bp"].append(seconds(steps["bp"]))
            for name in random.Random(i).sample(others, len(others)):
                times[name].append(seconds(steps[name]))
                times["bp"].append(seconds(steps["bp"]))
                ratios[name].append(times[name][-1] / statistics.mean(times["bp"][-2:]))
        for name, measured in ratios.items():
            low, middle, high = statistics.quantiles(measured, n=4) if len(measured) > 1 else measured * 3
            yield Cell(
                model,
                name,
                1e3 * statistics.median(times[name]),
                middle,
                low,
                high,
                bounds.get(name),
                profiles[name].peak / profiles["bp"].peak,
                profiles[name].convolutions,
                PAPER.get(model, {}).get(name),
            )


def seconds(once: Callable[[], object]) -> float:
    """What one call takes."""
    start = time.perf_counter()
    once()
    return time.perf_counter() - start


def step(name: str, net: Graph, images: Tensor, labels: Tensor, T: int | None = None) -> Callable[[], Work | None]:
    """A whole training step that leaves the weights nearly as they are, so that rounds are alike."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-8)
    if name == PLAIN:
        target = nn.functional.one_hot(labels, 10).float()

        def plain() -> None:
            optimizer.zero_grad()
            loss = (net(images) - target).square().sum() / (2 * len(images))
            loss.backward()
            optimizer.step()

        return plain
    algo = Algorithm.parse(name.split(",")[0], T=T, lr_x=0.1, **SPECS[name])
    return lambda: algo.step(net, images, labels, optimizer).work


def multiply_adds(net: Graph, sample: Tensor) -> dict[str, int]:
    """Multiply-adds of predicting each node once for one sample: those of its convolutions and linear layers."""
    counts = dict.fromkeys(net.nodes, 0)
    handles = []
    for v, module in net.nodes.items():
        for layer in module.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):

                def count(layer: nn.Module, args: tuple[Tensor], out: Tensor, v: str = v) -> None:
                    weight = layer.weight
                    assert isinstance(weight, Tensor)
                    positions = out[0].numel() // weight.shape[0]
                    counts[v] += weight.numel() * positions

                handles.append(layer.register_forward_hook(count))
    with torch.no_grad():
        net(sample)
    for handle in handles:
        handle.remove()
    return counts


def cost(work: Work, costs: Mapping[str, int]) -> int:
    """Multiply-adds of a step for one sample: a prediction, a pull-back and a weight gradient cost the same."""
    return sum(
        macs * (work.predictions[v] + work.pull_backs[v] + work.weight_gradients[v]) for v, macs in costs.items()
    )


class Profile(NamedTuple):
    """``peak``: bytes that a step holds at its peak, above what there was before it. ``convolutions``: their share of
    the time."""

    peak: int
    convolutions: float


def profiled(once: Callable[[], object]) -> Profile:
    """One step under torch's profiler, whose record of allocations and operations this adds up."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        once()
    held = peak = 0
    results = profiler.profiler.kineto_results
    for event in sorted(results.events(), key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    times = {average.key: average.self_cpu_time_total for average in profiler.key_averages()}
    return Profile(peak, sum(t for name, t in times.items() if "convolution" in name) / sum(times.values()))


def as_markdown(cells: Sequence[Cell]) -> str:
    """The table of a run, a row for each network and algorithm."""
    lines = [
        "| network | step | ms | time | quartiles | bound | time / bound | memory | in convolutions | paper |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for c in cells:
        bound = ("", "") if c.bound is None else (f"{c.bound:.2f}", f"{c.ratio / c.bound:.2f}")
        paper = "" if c.paper is None else f"{c.paper:.2f}"
        spread = f"{c.low:.2f}-{c.high:.2f}"
        row = [
            c.model,
            c.algorithm,
            f"{c.milliseconds:.0f}",
            f"{c.ratio:.2f}",
            spread,
            *bound,
            f"{c.memory:.2f}",
            f"{c.convolutions:.0%}",
            paper,
        ]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def machine() -> dict[str, object]:
    """What the numbers depend on, besides the code."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "load": [round(x, 2) for x in os.getloadavg()],
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }


def save(folder: Path, setting: Setting, cells: Sequence[Cell]) -> None:
    """bench.json, bench.md, and the picture."""
    from deeppc.bench.costs import costs
    from deeppc.report.plots import save as save_figure

    folder.mkdir(parents=True, exist_ok=True)
    record = {"setting": asdict(setting), "machine": machine(), "cells": [asdict(cell) for cell in cells]}
    (folder / "bench.json").write_text(json.dumps(record, indent=1))
    (folder / "bench.md").write_text(as_markdown(cells))
    save_figure(costs(cells), folder / "bench.svg")
