"""Several processes on one study: one watches (here), the others work (``python -m deeppc.search.workers``).

A worker is told on its standard input where the trials are stored. That input stays open; when it closes, because the
watcher wants so or has died, the worker gives its trial up and ends. What a worker says goes to ``worker-<n>.log``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from deeppc.core import memory
from deeppc.errors import RunError, UserError
from deeppc.search import ledger
from deeppc.search import plan as plans
from deeppc.search import storage as storages
from deeppc.search.ledger import Worker
from deeppc.search.study import WAIT, Abandoned, Watcher, interrupted, work
from deeppc.training.interruption import Interruption

if TYPE_CHECKING:
    from deeppc.search.storage import Session

FAREWELL = 60.0  # seconds that workers have to give their trials up
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass
class Child:
    number: int
    process: subprocess.Popen[str]
    log: Path

    def last_words(self) -> str:
        """Why it ended before its time."""
        code = self.process.returncode
        if code is not None and code < 0:
            return f"killed by {signal.Signals(-code).name}"
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {code}"


def oversee(session: Session, watcher: Watcher) -> None:
    """Start the workers and wait for them. If one dies, the others do its work; if all do, RunError says why."""
    children = [_start(session, number) for number in range(1, session.plan.jobs + 1)]
    alive = children
    try:
        with Interruption() as interruption:
            while alive:
                watcher.look()
                if interruption.signal is not None:
                    _stop(children)
                    raise interrupted(session, interruption.signal)
                time.sleep(WAIT / 2)
                alive = _still_alive(alive, watcher)
    finally:
        _stop(children)
    if not ledger.all_settled(session):
        raise RunError(
            f"All workers ended early, the last one so: {children[-1].last_words()}. What they finished is kept; go on "
            f"with:  deeppc search --resume --run-dir {session.plan.folder}"
        )
    for child in children:
        child.log.unlink(missing_ok=True)


def _still_alive(children: list[Child], watcher: Watcher) -> list[Child]:
    """Those that work on; of the others, what became of them is told, unless they had nothing left to do."""
    gone = [child for child in children if child.process.poll() is not None]
    for child in gone:
        if child.process.returncode != 0:
            watcher.note(f"Worker {child.number} ended: {child.last_words()}")
    return [child for child in children if child not in gone]


def _start(session: Session, number: int) -> Child:
    plan = session.plan
    log = plan.folder / f"worker-{number}.log"
    threads = {name: os.environ.get(name, "1") for name in THREADS}  # workers share the cores, not each its loops
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "deeppc.search.workers", str(plan.folder)],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **threads},
            start_new_session=True,  # Ctrl-C is for the watcher, who tells the workers
        )
    assert process.stdin is not None
    process.stdin.write(f"{plan.storage or ''}\n")  # not an argument: it may hold a password
    process.stdin.flush()
    return Child(number, process, log)


def _stop(children: list[Child]) -> None:
    """Ask all to end, then wait; whoever takes too long is killed, and its trial found to be lost."""
    for child in children:
        if child.process.stdin is not None:
            _close(child.process.stdin)
    until = time.monotonic() + FAREWELL
    for child in children:
        try:
            child.process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.process.kill()
            child.process.wait()


def _close(pipe: IO[str]) -> None:
    with suppress(BrokenPipeError):  # it has gone already
        pipe.close()


def main(folder: Path) -> int:
    """A worker's life."""
    memory.keep()
    url = sys.stdin.readline().strip()
    closed = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        closed.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    from deeppc.data import DataError

    try:
        plan = plans.read(folder, url or None)
        with storages.open_study(plan) as session, Worker(folder) as worker:
            work(session, worker, stopped=closed.is_set)
    except Abandoned:
        return 0
    except (UserError, DataError) as error:
        print(error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
