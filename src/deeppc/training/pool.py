"""The process pool of searches and recipes: jobs that may be killed at any moment, and lose nothing by it.

    def job(item, send):            # in a worker; importable by name
        send("half way")            # -> on_message(item, "half way") in the parent
        return value                # -> Done(value)

    outcomes = pool.run(job, items, processes=2, on_message=print)

A worker is a spawned process with a pipe and an equal share of the cores. If it dies, its job is given to a new one,
once. On Ctrl-C or SIGTERM the workers get SIGTERM and a minute to save; if the parent dies, they give it to themselves.
With one process the jobs run here, one after the other.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from deeppc.errors import Interrupted, UserError
from deeppc.training.interruption import Interruption

RETRY_AFTER = 5.0  # seconds until a job is tried again that raised Retry
SAVING = 60.0  # seconds that a worker has to save and end
ATTEMPTS = 2  # at a job whose worker dies
THREADS = "OMP_NUM_THREADS"
HEARD = (
    f"Stopping: the workers have {SAVING:g} seconds to save. Ctrl-C again stops now, and what came after their last "
    "checkpoints is lost."
)

T = TypeVar("T")
Send = Callable[[Any], None]


@dataclass(frozen=True)
class Begun:
    """A worker has taken the job."""


@dataclass(frozen=True)
class Done:
    """The job's function returned ``value``."""

    value: Any


@dataclass(frozen=True)
class Failed:
    """The job's function raised, or its worker died ``ATTEMPTS`` times."""

    reason: str
    traceback: str = ""


Outcome = Done | Failed


class Retry(Exception):  # noqa: N818 - a request, no error
    """Raise in a job to have it tried again in a few seconds: another process is at work on the same thing."""


class PoolInterrupted(Interrupted):
    """Ctrl-C or SIGTERM while a pool ran."""

    def __init__(self, number: int) -> None:
        self.signal, self.exit_code = number, 128 + number
        UserError.__init__(self, "Stopped; everything is saved. Give the same command again to resume.")


def run(
    function: Callable[[T, Send], Any],
    jobs: Sequence[T],
    processes: int = 1,
    on_message: Callable[[T, Any], None] = lambda job, message: None,
) -> list[Outcome]:
    """Call ``function(job, send)`` for each job, in this order, and return their outcomes.

    ``on_message(job, message)`` hears :class:`Begun`, whatever the function sends, and the outcome. Raises
    :class:`PoolInterrupted` on Ctrl-C or SIGTERM, once all workers have ended.
    """
    pool = Pool(function, jobs, on_message)
    if processes == 1:
        pool.run_here()
    else:
        pool.run_in_workers(processes)
    return [job.outcome for job in pool.jobs if job.outcome is not None]


@dataclass(eq=False)
class Job:
    """An item of work, and what became of it."""

    item: Any
    outcome: Outcome | None = None
    deaths: int = 0
    not_before: float = 0.0


@dataclass(eq=False)
class Worker:
    """A process, and the job that it has."""

    process: BaseProcess
    pipe: Connection
    job: Job | None = None


class Pool:
    """Jobs, those of them that wait, and the workers: started as they are needed, replaced when they die."""

    def __init__(self, function: Callable[..., Any], items: Sequence[Any], on_message: Callable[..., None]) -> None:
        self.jobs = [Job(item) for item in items]
        self._function, self._on_message = function, on_message
        self._waiting = list(self.jobs)
        self._workers: list[Worker] = []

    def run_here(self) -> None:
        while self._waiting:
            job = self._waiting.pop(0)
            time.sleep(max(0.0, job.not_before - time.monotonic()))
            self._on_message(job.item, Begun())
            try:
                answer = _call(self._function, job.item, partial(self._on_message, job.item))
            except Interrupted as stop:
                raise PoolInterrupted(stop.signal) from None
            except KeyboardInterrupt:
                raise PoolInterrupted(signal.SIGINT) from None
            self._settle(job, answer)

    def run_in_workers(self, processes: int) -> None:
        processes = min(processes, len(self.jobs))
        with Interruption(HEARD) as interruption:
            try:
                while self._waiting or any(worker.job for worker in self._workers):
                    if interruption.signal is not None:
                        raise PoolInterrupted(interruption.signal)
                    self._assign(processes)
                    for pipe in wait([worker.pipe for worker in self._workers], timeout=0.5):
                        self._receive(next(worker for worker in self._workers if worker.pipe is pipe))
            finally:
                self._stop()

    def _settle(self, job: Job, answer: Outcome | Retry) -> None:
        if isinstance(answer, Retry):
            job.not_before = time.monotonic() + RETRY_AFTER
            self._waiting.append(job)
        else:
            job.outcome = answer
            self._on_message(job.item, answer)

    def _assign(self, processes: int) -> None:
        idle = [worker for worker in self._workers if worker.job is None]
        for _ in range(min(processes - len(self._workers), len(self._waiting) - len(idle))):
            with _threads(max(1, (os.cpu_count() or 1) // processes)):
                idle.append(_start(self._function))
            self._workers.append(idle[-1])
        ready = [job for job in self._waiting if job.not_before <= time.monotonic()]
        for worker, job in zip(idle, ready, strict=False):
            worker.job = job
            self._waiting.remove(job)
            self._on_message(job.item, Begun())
            with suppress(OSError):  # it has died: its pipe will say so
                worker.pipe.send(job.item)

    def _receive(self, worker: Worker) -> None:
        try:
            message, answer = worker.pipe.recv()
        except (EOFError, OSError):
            self._remove(worker)
            return
        job = worker.job
        assert job is not None, "a worker sends only while it has a job"
        if answer is None:
            self._on_message(job.item, message)
        else:
            worker.job = None
            self._settle(job, answer)

    def _remove(self, worker: Worker) -> None:
        """A worker died, by a kill or a crash: its job is tried once more, then it has failed."""
        self._workers.remove(worker)
        worker.process.join()
        worker.pipe.close()
        if (job := worker.job) is None:
            return
        job.deaths += 1
        if job.deaths < ATTEMPTS:
            self._waiting.insert(0, job)
        else:
            code = worker.process.exitcode or 0
            end = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            self._settle(job, Failed(f"Its process {end}, {ATTEMPTS} times."))

    def _stop(self) -> None:
        """Ask all workers to end, and give those at work time to save."""
        for worker in self._workers:
            worker.process.terminate()
        until = time.monotonic() + SAVING
        for worker in self._workers:
            worker.process.join(max(0.0, until - time.monotonic()))
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()


def _call(function: Callable[..., Any], item: Any, send: Send) -> Outcome | Retry:
    try:
        return Done(function(item, send))
    except Retry as retry:
        return retry
    except Interrupted:
        raise
    except Exception as error:
        reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        return Failed(reason, traceback.format_exc())


@contextmanager
def _threads(share: int) -> Iterator[None]:
    """Let processes that start meanwhile use ``share`` threads, or as few as the user has asked for."""
    before = os.environ.get(THREADS, "")
    asked = int(before) if before.isdigit() and int(before) > 0 else share
    os.environ[THREADS] = str(min(share, asked))
    try:
        yield
    finally:
        os.environ[THREADS] = before
        if not before:
            del os.environ[THREADS]


def _start(function: Callable[..., Any]) -> Worker:
    context = multiprocessing.get_context("spawn")  # a forked torch may hang in its thread pool
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(function, theirs), daemon=True)
    with _no_ctrl_c():
        process.start()
    theirs.close()
    return Worker(process, ours)


@contextmanager
def _no_ctrl_c() -> Iterator[None]:
    """Let processes that start meanwhile never hear Ctrl-C, not even while they import: the parent passes it on."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(function: Callable[..., Any], pipe: Connection) -> None:
    """Do jobs until the pipe is closed or the parent is gone."""
    from deeppc.core import memory

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that `finally` clauses run
    if hasattr(os, "setsid"):
        os.setsid()  # a closed terminal is for the parent, too
    threading.Thread(target=_end_with_parent, daemon=True).start()
    memory.keep()

    def send(message: Any, answer: Outcome | Retry | None = None) -> None:
        with suppress(OSError):  # the parent is gone
            pipe.send((message, answer))

    while True:
        try:
            item = pipe.recv()
            send(None, _call(function, item, send))
        except (EOFError, OSError, Interrupted):
            return


def _end_with_parent() -> None:
    """Once the parent is gone, end as on SIGTERM: a run saves first."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "only workers call this"
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(SAVING)
    os._exit(1)
