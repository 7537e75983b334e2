"""Run by test_search_study.py in a process of its own: ``python killed_searches.py FOLDER``.

It imports torch and Optuna once and forks a child for each attempt. A child kills itself by SIGKILL when it is about to
commit for the n-th time; another then goes on to the end. Then two that work on one study are killed in mid-trial.
Prints how many were killed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import optuna
import sqlalchemy
import torch

from deeppc.data import load
from deeppc.runs import folder as rundir_module
from deeppc.search import ledger, storage
from deeppc.search.plan import Plan
from deeppc.search.study import search, work
from deeppc.training import TrainConfig, parts

rundir_module._git = lambda: None  # spares two processes per trial
DIGITS = load("digits")
parts.load = lambda *args, **kwargs: DIGITS  # type: ignore[attr-defined]
os.fsync = lambda handle: None  # a kill is not a power cut
sqlalchemy.event.listen(sqlalchemy.Engine, "connect", lambda c, record: c.execute("PRAGMA synchronous = OFF"))
optuna.logging.set_verbosity(optuna.logging.WARNING)
# Two trials commit about thirty times: the claim, each setting drawn, each epoch, what came out.
COMMITS = (1, 12, 22)


def plan(folder: Path) -> Plan:
    config = TrainConfig(
        *("digits", "fine", "mlp", "pc+s+f"),
        width=0.05,
        limit=60,
        batch_size=24,
        epochs=2,
        device="cpu",
        run_dir=folder,
    )
    return Plan.of(config, trials=2)


def dying_before_commit(number: int) -> None:
    commits = 0

    def count(connection: object) -> None:
        nonlocal commits
        commits += 1
        if commits == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sqlalchemy.event.listen(sqlalchemy.Engine, "commit", count)


def fork(work: Callable[[], object]) -> int:
    """A child that does ``work`` and ends."""
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


def work_slowly(begun: Plan) -> None:
    with storage.open_study(begun) as session, ledger.Worker(begun.folder) as worker:
        work(session, worker, look=lambda: time.sleep(0.3))  # at each batch


def attempt(place: Path, commits: int) -> None:
    dying_before_commit(commits)
    search(plan(place))


def kill_both(place: Path) -> int:
    """Two workers, killed from outside as soon as both are in the midst of a trial."""
    begun = Plan.of(plan(place).config, trials=2, jobs=2)
    in_child(lambda: storage.create(begun))
    children = [fork(lambda: work_slowly(begun)) for _ in range(2)]
    with storage.open_study(begun) as session:
        while sum(bool(t.intermediate_values) for t in session.trials() if ledger.is_running(t)) < 2:
            time.sleep(0.05)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return len(children)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    parts.prepare(plan(folder).config)  # imports what is imported late
    assert in_child(lambda: search(plan(folder / "straight")))
    kills = 0
    for number in COMMITS:
        place = folder / f"killed-{number}"
        in_child(lambda place=place: storage.create(plan(place)))  # type: ignore[misc]
        kills += not in_child(lambda place=place, number=number: attempt(place, number))  # type: ignore[misc]
        assert in_child(lambda place=place: search(plan(place)))  # type: ignore[misc]
    kills += kill_both(folder / "both")
    assert in_child(lambda: search(plan(folder / "both")))
    print(kills)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
