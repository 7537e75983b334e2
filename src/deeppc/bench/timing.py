"""Training steps to be measured, their time and memory, and files for the results."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from deeppc.core.algorithms import Algorithm
from deeppc.core.graph import Graph
from deeppc.core.state import Work
from deeppc.errors import RunError
from deeppc.files import write_json, write_text
from deeppc.report import plots
from deeppc.report.tables import Table
from deeppc.runs.provenance import provenance

Tell = Callable[[str], None]
PLAIN = "torch"  # an ordinary training loop in torch, without deeppc
SPECS: dict[str, dict[str, float]] = {
    "bp": {},
    "pc+s+f, alpha=0": {"lr_x": 0.1, "alpha": 0.0},
    "pc+s+f": {"lr_x": 0.1, "alpha": 0.01},
    "pc+s+f, strides=1": {"lr_x": 0.1, "alpha": 0.01, "strides": 1},
    "pc+s+f, tolerance=0.02": {"lr_x": 0.1, "alpha": 0.01, "tolerance": 0.02},
    "pc": {"lr_x": 0.1},
    "ipc+s, alpha=0": {"lr_x": 0.1, "alpha": 0.0},
    "ipc+s": {"lr_x": 0.1, "alpha": 0.01},
}


def silent(text: str) -> None:
    """Show no progress."""


def step(name: str, net: Graph, images: Tensor, labels: Tensor, T: int | None = None) -> Callable[[], Work | None]:
    """Return a whole training step that leaves the weights nearly as they are, so that rounds are alike."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-8)
    if name == PLAIN:
        target = nn.functional.one_hot(labels, 10).float()

        def plain() -> None:
            optimizer.zero_grad()
            loss = (net(images) - target).square().sum() / (2 * len(images))
            loss.backward()
            optimizer.step()

        return plain
    steps = {"T": T} if SPECS[name] else {}  # bp has none
    algo = Algorithm.parse(name.split(",")[0], **steps, **SPECS[name])
    return lambda: algo.step(net, images, labels, optimizer).work


def batch(net: Graph, size: int) -> tuple[Tensor, Tensor]:
    """Return random images (size, 3, 32, 32) and labels, and bring the net into the same memory format."""
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = torch.randn(size, 3, 32, 32).to(memory_format=torch.channels_last)
    return images, torch.randint(0, 10, (size,))


def seconds(once: Callable[[], object]) -> float:
    """Return the time that one call takes."""
    start = time.perf_counter()
    once()
    return time.perf_counter() - start


class Profile(NamedTuple):
    """``peak``: bytes that a step holds at its peak, above what there was before it. ``convolutions``: their share of
    the time."""

    peak: int
    convolutions: float


def profiled(once: Callable[[], object]) -> Profile:
    """Run one step under torch's profiler, and add up its record of allocations and operations."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler's library else prints two lines for each step
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        once()
    held = peak = 0
    for event in sorted(profiler.profiler.kineto_results.events(), key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    times = {average.key: average.self_cpu_time_total for average in profiler.key_averages()}
    return Profile(peak, sum(t for name, t in times.items() if "convolution" in name) / sum(times.values()))


def require_positive(**counts: int) -> None:
    """Raise ValueError for a count below 1."""
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} is {count}, but must be at least 1")


def origin() -> dict[str, Any]:
    """Return what the numbers depend on: commit, versions, machine, and what else it had to do."""
    busy = {"cpu": torch.backends.cpu.get_cpu_capability(), "load": [round(x, 2) for x in os.getloadavg()]}
    return {**provenance(), **busy}


def in_words(origin: Mapping[str, Any]) -> str:
    """Return what :func:`origin` has found as a line for a page."""
    machine, commit = origin["machine"], (origin["git"] or {}).get("commit", "unknown")
    where = f"{machine['cores']} cores of an {machine['processor']} ({origin['cpu']})"
    when = f"Commit {commit[:7]}, {origin['started'][:10]}"
    threads = "one thread" if machine["threads"] == 1 else f"{machine['threads']} threads"
    return f"{when}, {where}, {threads}, torch {origin['versions']['torch']}."


def save(stem: Path, record: Mapping[str, Any], table: Table, figure: Figure) -> None:
    """Write ``<stem>.json``, ``.md``, ``.svg`` and ``.png``. A RunError has the table, which else would be lost."""
    try:
        write_json(stem.with_suffix(".json"), {"origin": origin(), **record})
        write_text(stem.with_suffix(".md"), table.markdown())
        plots.save(figure, stem)
    except RunError as error:
        raise RunError(f"{error} What was measured:\n\n{table.markdown()}") from error
