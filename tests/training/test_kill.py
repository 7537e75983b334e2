"""SIGKILL before every write and at random moments: the resumed run ends in the same bits.

As a script (``python test_kill.py FOLDER``) it imports torch once and forks a child for each attempt. Children are
killed (a) by their own hand before each single write, replacement or sync of a file, one after the other, and (b) at
random times, from outside, again and again until the run is finished. Each run is then resumed to its end.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import deeppc
from deeppc import files
from deeppc.runs import provenance
from deeppc.runs.folder import RunFolder


def start_or_resume(run_dir: Path) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(24, 4)
    net = deeppc.Chain(nn.Sequential(nn.Linear(4, 3), nn.Tanh()), nn.Linear(3, 2))
    options: dict[str, Any] = {"resume": (run_dir / "manifest.json").exists(), "show": False, "report": False}
    options |= {"checkpoint_every": 0 if run_dir.name.startswith("time") else None}  # to be killed while it saves
    data = {"train": (inputs, inputs[:, :2]), "validation": (inputs, inputs[:, :2])}
    deeppc.fit(net, data, "pc+s+f+cn", epochs=2, batch_size=12, run_dir=run_dir, device="cpu", **options)


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


def die_before_write(number: int, run_dir: Path) -> None:
    """Train, but kill this process when it is about to touch the disk for the ``number``-th time."""
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
    Path.replace = watched(Path.replace)
    files._put = watched(files._put)
    start_or_resume(run_dir)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    provenance._git = lambda: None  # spares two processes per run
    start_or_resume(folder / "straight")  # in this process: it imports what is imported late
    begun = time.monotonic()
    assert in_child(partial(start_or_resume, folder / "time-0"))
    duration = time.monotonic() - begun

    writes, over = 0, False
    while not over:
        writes += 1
        run_dir = folder / f"write-{writes}"
        over = in_child(partial(die_before_write, writes, run_dir))
        in_child(partial(start_or_resume, run_dir))

    rng, kills, runs = random.Random(0), 0, 0
    while kills < 3:
        runs += 1
        while not in_child(partial(start_or_resume, folder / f"time-{runs}"), rng.uniform(0, 1.5 * duration)):
            kills += 1
        duration *= 0.7  # where runs are quicker than the first was, kills must be too
    print(writes, kills)


def recorded(run_dir: Path) -> list[dict[str, object]]:
    """Metrics and result, without the time they took."""
    folder = RunFolder(run_dir)
    records = [*folder.metrics(), folder.result()]
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")
def test_killed_at_any_moment_and_resumed_is_never_killed(
    tmp_path: Path, assert_same_state: Callable[[Path, Path], None]
) -> None:
    command = [sys.executable, __file__, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    writes, kills = map(int, done.stdout.split())
    assert writes > 30  # a run touches the disk at least so often
    assert kills > 0
    for run_dir in tmp_path.glob("*-*"):
        assert_same_state(tmp_path / "straight", run_dir)
        assert recorded(run_dir) == recorded(tmp_path / "straight"), run_dir.name
        assert not list(run_dir.glob(".*.tmp")), run_dir.name


if __name__ == "__main__":
    main(Path(sys.argv[1]))
