"""Run the cells of a grid, one after the other here, or several at once in processes of their own.

A worker is a process with a pipe. It gets a job, tells how it goes, and answers with the outcome. If it dies, its job
is given to a new one, once; if we die, its next word finds the pipe broken, and it ends. Every run can go on from its
last checkpoint, so nothing but the current epoch of each worker is ever lost.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from deeppc.core import memory
from deeppc.errors import Interrupted, UserError
from deeppc.paper.pool import Run, failed, perform
from deeppc.paper.scales import Scale
from deeppc.training.config import TrainConfig
from deeppc.training.events import BatchDone, Event, Started
from deeppc.training.interruption import Interruption

BEAT = 1.0  # seconds between two signs of life within an epoch
PATIENCE = 5.0  # seconds until a cell is tried again that another process is working on
SAVING = 60.0  # seconds that a worker is given to save and end
ATTEMPTS = 2  # for a job whose process dies


@dataclass(frozen=True)
class Job:
    """One run of the grid. ``config`` has its seed and its folder; ``cost`` is in seconds, only roughly."""

    name: str
    config: TrainConfig
    recipe: str
    scale: Scale = field(hash=False)
    cost: float


@dataclass(frozen=True)
class Began:
    job: Job


@dataclass(frozen=True)
class Went:
    """``share`` of the job's epochs are done."""

    job: Job
    share: float


@dataclass(frozen=True)
class Done:
    job: Job
    run: Run


GridEvent = Began | Went | Done
GridListener = Callable[[GridEvent], None]


class GridInterrupted(Interrupted):
    """Ctrl-C or SIGTERM in a grid: the same command goes on."""

    def __init__(self, number: int) -> None:
        self.signal, self.exit_code = number, 128 + number
        UserError.__init__(self, "Stopped; everything is saved. Give the same command again to go on.")


def run(jobs: Sequence[Job], workers: int, tell: GridListener) -> None:
    """Perform all jobs. Outcomes are on the disk; ``tell`` hears of each. Raises :class:`GridInterrupted`."""
    if workers == 1:
        _run_here(jobs, tell)
    elif jobs:
        Crew(min(workers, len(jobs)), tell).run(jobs)


def _run_here(jobs: Sequence[Job], tell: GridListener) -> None:
    waiting, in_vain = deque(jobs), 0
    while waiting:
        job = waiting.popleft()
        tell(Began(job))
        try:
            outcome = perform(job.config, job.recipe, job.scale, Beats(partial(_went, tell, job)))
        except Interrupted as stop:
            raise GridInterrupted(stop.signal) from None
        if outcome.status != "busy":
            in_vain = 0
            tell(Done(job, outcome))
            continue
        waiting.append(job)
        in_vain += 1
        if in_vain >= len(waiting):  # others are at work on all that is left
            time.sleep(PATIENCE)


def _went(tell: GridListener, job: Job, share: float) -> None:
    tell(Went(job, share))


class Beats:
    """A listener of a training run that passes on, now and then, how much of it is done."""

    def __init__(self, tell: Callable[[float], None]) -> None:
        self._tell, self._told, self._whole, self._batches = tell, 0.0, 1, 1

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                self._batches, self._whole = event.batches, event.batches * event.config.epochs
            case BatchDone() if time.monotonic() - self._told >= BEAT:
                self._told = time.monotonic()
                self._tell(((event.epoch - 1) * self._batches + event.batch) / self._whole)


@dataclass
class Hand:
    """A worker, and the job that it has."""

    process: BaseProcess
    pipe: Connection
    job: Job | None = None


class Crew:
    """Workers with an equal part of the cores each."""

    def __init__(self, size: int, tell: GridListener) -> None:
        self.tell = tell
        self._threads = max(1, (os.cpu_count() or 1) // size)
        self._size = size
        self._hands: list[Hand] = []
        self._waiting: list[tuple[float, Job]] = []  # not before this time
        self._deaths: dict[Job, int] = {}

    def run(self, jobs: Sequence[Job]) -> None:
        self._waiting = [(0.0, job) for job in jobs]
        with Interruption() as interruption:
            try:
                while self._waiting or any(hand.job for hand in self._hands):
                    if interruption.signal is not None:
                        raise GridInterrupted(interruption.signal)
                    self._assign()
                    for pipe in wait([hand.pipe for hand in self._hands], timeout=0.5):
                        self._hear(next(hand for hand in self._hands if hand.pipe is pipe))
            finally:
                self._dismiss()

    def _assign(self) -> None:
        """Give jobs to those who have none, and hire where somebody is missing."""
        while len(self._hands) < min(self._size, len(self._hands) + len(self._waiting)):
            self._hands.append(self._hire())
        for hand in self._hands:
            ready = [item for item in self._waiting if item[0] <= time.monotonic()]
            if hand.job is None and ready:
                self._waiting.remove(ready[0])
                hand.job = ready[0][1]
                self.tell(Began(hand.job))
                with suppress(OSError):  # it has died: its pipe will say so
                    hand.pipe.send(hand.job)

    def _hire(self) -> Hand:
        fresh = multiprocessing.get_context("spawn")  # a forked torch may hang in its thread pool
        ours, theirs = fresh.Pipe()
        process = fresh.Process(target=_work, args=(theirs, self._threads), daemon=True)
        process.start()
        theirs.close()
        return Hand(process, ours)

    def _hear(self, hand: Hand) -> None:
        try:
            word = hand.pipe.recv()
        except (EOFError, OSError):
            self._bury(hand)
            return
        job = hand.job
        assert job is not None, "a worker speaks of its job only"
        if isinstance(word, float):
            self.tell(Went(job, word))
            return
        hand.job = None
        if word.status == "busy":
            self._waiting.append((time.monotonic() + PATIENCE, job))
        else:
            self.tell(Done(job, word))

    def _bury(self, hand: Hand) -> None:
        """A worker died, by a kill or a crash: once more, then its job has failed."""
        self._hands.remove(hand)
        hand.process.join()
        if (job := hand.job) is None:
            return
        self._deaths[job] = self._deaths.get(job, 0) + 1
        if self._deaths[job] < ATTEMPTS:
            self._waiting.insert(0, (0.0, job))
            return
        code = hand.process.exitcode or 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        self.tell(Done(job, failed(job.config, job.recipe, f"Its process {how}, {ATTEMPTS} times.")))

    def _dismiss(self) -> None:
        """All are asked to end; those at work save first. (Without its pipe, a worker would end at once.)"""
        for hand in self._hands:
            hand.process.terminate()
        for hand in self._hands:
            hand.process.join(SAVING)
            hand.process.kill()  # what is on the disk is whole at every moment
            hand.process.join()
            hand.pipe.close()


def _work(pipe: Connection, threads: int) -> None:
    """What a worker does until its pipe is closed."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked worker would have the crew's handler
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C is for the crew, which lets us know
    import torch

    torch.set_num_threads(threads)
    memory.keep()
    while True:
        try:
            job: Job = pipe.recv()
            pipe.send(perform(job.config, job.recipe, job.scale, Beats(lambda share: _say(pipe, share))))
        except (EOFError, OSError, Interrupted):
            return


def _say(pipe: Connection, share: float) -> None:
    """Without anyone to hear us there is no one to work for; what is on the disk is whole at every moment."""
    try:
        pipe.send(share)
    except OSError:
        os._exit(1)
