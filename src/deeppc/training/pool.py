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
from typing import Any, Generic, TypeVar

from deeppc.errors import Interrupted, UserError
from deeppc.training.interruption import Interruption

RETRY_AFTER = 5.0  # seconds until a job is tried again that raised Retry
SAVING = 60.0  # seconds that a worker has to save and end
ATTEMPTS = 2  # at a job whose worker dies
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

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
    queue = [Job(item) for item in jobs]
    if processes == 1:
        _run_here(function, queue, on_message)
    elif queue:
        Pool(function, min(processes, len(queue)), on_message).run(queue)
    return [job.outcome for job in queue if job.outcome is not None]


@dataclass(eq=False)
class Job(Generic[T]):
    """An item of work, and what became of it."""

    item: T
    deaths: int = 0
    not_before: float = 0.0
    outcome: Outcome | None = None


@dataclass(eq=False)
class Worker(Generic[T]):
    """A process, and the job that it has."""

    process: BaseProcess
    pipe: Connection
    job: Job[T] | None = None

    def exit_words(self) -> str:
        code = self.process.exitcode or 0
        return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"


def _run_here(function: Callable[[T, Send], Any], queue: list[Job[T]], on_message: Callable[[T, Any], None]) -> None:
    waiting = list(queue)
    while waiting:
        job = min(waiting, key=lambda job: job.not_before)
        time.sleep(max(0.0, job.not_before - time.monotonic()))
        on_message(job.item, Begun())
        try:
            answer = _call(function, job.item, partial(on_message, job.item))
        except Interrupted as stop:
            raise PoolInterrupted(stop.signal) from None
        except KeyboardInterrupt:
            raise PoolInterrupted(signal.SIGINT) from None
        if isinstance(answer, Retry):
            job.not_before = time.monotonic() + RETRY_AFTER
            continue
        waiting.remove(job)
        job.outcome = answer
        on_message(job.item, answer)


def _call(function: Callable[[T, Send], Any], item: T, send: Send) -> Outcome | Retry:
    try:
        return Done(function(item, send))
    except Retry as retry:
        return retry
    except Interrupted:
        raise
    except UserError as error:
        return Failed(str(error), traceback.format_exc())
    except Exception as error:
        return Failed(f"{type(error).__name__}: {error}", traceback.format_exc())


class Pool(Generic[T]):
    """Workers, started as they are needed, replaced when they die."""

    def __init__(
        self, function: Callable[[T, Send], Any], processes: int, on_message: Callable[[T, Any], None]
    ) -> None:
        self._function, self._processes, self._on_message = function, processes, on_message
        self._workers: list[Worker[T]] = []
        self._waiting: list[Job[T]] = []

    def run(self, jobs: Sequence[Job[T]]) -> None:
        self._waiting = list(jobs)
        with Interruption() as interruption:
            try:
                while self._waiting or any(worker.job for worker in self._workers):
                    if interruption.signal is not None:
                        raise PoolInterrupted(interruption.signal)
                    self._assign()
                    for pipe in wait([worker.pipe for worker in self._workers], timeout=0.5):
                        self._receive(next(worker for worker in self._workers if worker.pipe is pipe))
            finally:
                self._stop()

    def _assign(self) -> None:
        idle = sum(worker.job is None for worker in self._workers)
        for _ in range(min(self._processes - len(self._workers), len(self._waiting) - idle)):
            self._workers.append(self._start())
        for worker in self._workers:
            ready = [job for job in self._waiting if job.not_before <= time.monotonic()]
            if worker.job is None and ready:
                worker.job = ready[0]
                self._waiting.remove(ready[0])
                self._on_message(ready[0].item, Begun())
                with suppress(OSError):  # it has died: its pipe will say so
                    worker.pipe.send(ready[0].item)

    def _start(self) -> Worker[T]:
        context = multiprocessing.get_context("spawn")  # a forked torch may hang in its thread pool
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(self._function, theirs), daemon=True)
        with _threads(max(1, (os.cpu_count() or 1) // self._processes)):
            process.start()
        theirs.close()
        return Worker(process, ours)

    def _receive(self, worker: Worker[T]) -> None:
        try:
            message, answer = worker.pipe.recv()
        except (EOFError, OSError):
            self._replace(worker)
            return
        job = worker.job
        assert job is not None, "a worker sends only while it has a job"
        if answer is None:
            self._on_message(job.item, message)
            return
        worker.job = None
        if isinstance(answer, Retry):
            job.not_before = time.monotonic() + RETRY_AFTER
            self._waiting.append(job)
        else:
            self._finish(job, answer)

    def _replace(self, worker: Worker[T]) -> None:
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
            self._finish(job, Failed(f"Its process {worker.exit_words()}, {ATTEMPTS} times."))

    def _finish(self, job: Job[T], outcome: Outcome) -> None:
        job.outcome = outcome
        self._on_message(job.item, outcome)

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


@contextmanager
def _threads(share: int) -> Iterator[None]:
    """Let processes that start meanwhile use ``share`` threads, or as few as the user has asked for."""
    before = {name: os.environ.get(name) for name in THREADS}
    given = [int(value) for value in before.values() if value and value.isdigit() and int(value) > 0]
    os.environ.update(dict.fromkeys(THREADS, str(min(share, *given) if given else share)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _work(function: Callable[[Any, Send], Any], pipe: Connection) -> None:
    """Do jobs until the pipe is closed or the parent is gone."""
    from deeppc.core import memory

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that `finally` clauses run
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C is for the parent, which passes it on
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
