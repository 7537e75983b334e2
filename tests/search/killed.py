"""Run by test_kills.py in a process of its own: ``python killed.py FOLDER``.

It imports torch and Optuna once and forks a child for each attempt. A child kills itself by SIGKILL when it is about to
commit for the n-th time; another then resumes to the end. Then two that share a storage, as two machines do, are killed
in mid-trial, and one of them resumes. Prints how many were killed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import sqlalchemy
import torch

from deeppc.data import load
from deeppc.runs import provenance
from deeppc.search import storage, study
from deeppc.search.plan import Plan
from deeppc.search.study import search
from deeppc.training import TrainConfig, builder

provenance._git = lambda: None  # spares two processes per trial
DIGITS = load("digits")
builder.load = lambda *args, **kwargs: DIGITS  # type: ignore[attr-defined]
os.fsync = lambda handle: None  # a kill is not a power cut
sqlalchemy.event.listen(sqlalchemy.Engine, "connect", lambda c, record: c.execute("PRAGMA synchronous = OFF"))
storage.require_optuna()
storage.HEARTBEAT, storage.GRACE, study.WAIT = 1, 3, 0.5  # type: ignore[misc]
# Two trials commit about fifty times: begun, owned, each setting drawn, heartbeats, each epoch, what came out.
COMMITS = (2, 12, 25)


def plan(folder: Path, url: str | None = None, epochs: int = 2) -> Plan:
    config = TrainConfig.of(
        model="mlp", width=0.05, limit=60, batch_size=24, epochs=epochs, device="cpu", run_dir=folder
    )
    return Plan.of(config, trials=2, storage=url)


def die_before_commit(number: int) -> None:
    commits = 0

    def count(connection: object) -> None:
        nonlocal commits
        commits += 1
        if commits == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sqlalchemy.event.listen(sqlalchemy.Engine, "commit", count)


def fork(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def in_child(work: Callable[[], object]) -> bool:
    """Whether ``work`` came to its end in a child that may be killed."""
    _, status = os.waitpid(fork(work), 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "a child failed by itself"
    return not os.WIFSIGNALED(status)


def attempt(place: Path, commits: int) -> None:
    die_before_commit(commits)
    search(plan(place))


def kill_two_machines(folder: Path) -> int:
    """Both are killed as soon as both are in the midst of a trial. One resumes, and has to miss the other."""
    both = [plan(folder / name / "shared", f"sqlite:///{folder}/shared.db", epochs=20) for name in ("one", "other")]
    in_child(lambda: storage.create(both[0]))
    children = [fork(lambda p=p: search(p)) for p in both]  # type: ignore[misc]
    with storage.open_study(both[0]) as session:
        while sum(bool(t.epochs) for t in session.trials() if t.state == "running") < 2:
            time.sleep(0.05)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert in_child(lambda: search(both[0]))
    return len(children)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    builder.build(plan(folder).config)  # imports what is imported late
    kills = 0
    for number in COMMITS:
        place = folder / f"killed-{number}"
        in_child(lambda place=place: storage.create(plan(place)))  # type: ignore[misc]
        kills += not in_child(lambda place=place, number=number: attempt(place, number))  # type: ignore[misc]
        assert in_child(lambda place=place: search(plan(place)))  # type: ignore[misc]
    print(kills + kill_two_machines(folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
