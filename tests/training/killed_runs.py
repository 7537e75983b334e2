"""Run by test_training_kill.py in a process of its own: ``python killed_runs.py FOLDER``.

It imports torch once and forks a child for each attempt, so that a kill costs a tenth of a second. Children are killed
by SIGKILL (a) before each single write, replacement or sync of a file, one after the other, by their own hand, and
(b) at random times, from outside, again and again until the run is finished. Each run is then resumed to its end.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from deeppc.data import load
from deeppc.runs import provenance
from deeppc.training import TrainConfig, builder
from deeppc.training.builder import build, saved_config, train

provenance._git = lambda: None  # spares two processes per run
DIGITS = load("digits")
builder.load = lambda *args, **kwargs: DIGITS  # type: ignore[attr-defined]


def config(run_dir: Path) -> TrainConfig:
    every_batch = run_dir.name.startswith("time")  # saves after every batch, to be killed while it does
    return TrainConfig(
        *("digits", "fine", "mlp", "pc+s+f+cn"),
        width=0.05,
        limit=60,
        batch_size=24,
        epochs=2,
        checkpoint_every=0 if every_batch else None,
        device="cpu",
        run_dir=run_dir,
    )


def start_or_resume(run_dir: Path) -> None:
    train(saved_config(run_dir) if (run_dir / "manifest.json").exists() else config(run_dir), report=False)


def in_child(work: Callable[[], None], kill_after: float | None = None) -> bool:
    """Whether ``work`` came to its end in a child that may be killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "a child failed by itself"
    return not os.WIFSIGNALED(status)


def dying_before_write(number: int) -> None:
    """From now on the process kills itself when it is about to touch the disk for the ``number``-th time."""
    calls = 0

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return call

    os.fsync = watched(os.fsync)
    Path.replace = watched(Path.replace)  # type: ignore[method-assign]
    Path.write_bytes = watched(Path.write_bytes)  # type: ignore[method-assign]
    Path.write_text = watched(Path.write_text)  # type: ignore[method-assign]


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    torch.optim.AdamW(build(config(folder / "unused")).net.parameters())  # imports what is imported late
    begun = time.monotonic()
    assert in_child(lambda: start_or_resume(folder / "straight"))
    duration = time.monotonic() - begun

    number, over = 0, False
    while not over:
        number += 1
        run_dir = folder / f"write-{number}"

        def die(run_dir: Path = run_dir, number: int = number) -> None:
            dying_before_write(number)
            start_or_resume(run_dir)

        over = in_child(die)
        in_child(lambda run_dir=run_dir: start_or_resume(run_dir))  # type: ignore[misc]

    rng = random.Random(0)
    kills = 0
    for i in range(6):
        run_dir = folder / f"time-{i}"
        while not in_child(lambda run_dir=run_dir: start_or_resume(run_dir), rng.uniform(0, duration)):  # type: ignore[misc]
            kills += 1
    print(number, kills)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
