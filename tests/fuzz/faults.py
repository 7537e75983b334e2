"""Faults while a run is at work: kills, signals, full and failing disks, clocks, closed pipes, refused memory.

After each, nothing is lost: the run is resumed without the fault and ends in the same bits as an undisturbed one.
Children are forked from this process, which has imported everything and has one thread.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import random
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from machine import Outcome, attempt, difference, good_runs, kind, train
from torch.utils._python_dispatch import TorchDispatchMode

from deeppc.__main__ import ENDED
from deeppc.cli.main import main
from deeppc.training.loop import Loop

Context = contextlib.AbstractContextManager[Any]
HANGS = 30.0  # seconds after which a child is given up
KILLED = -signal.SIGKILL


def in_child(work: Callable[[], int], watch: Callable[[int], Any], tie: Callable[[], Any]) -> tuple[int, str]:
    """Do ``work`` in a child, whose streams are ``tie``d first. Returns its exit code (minus a signal) and stderr."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.close(read)
            os.dup2(write, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            tie()
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
            code = work()
            sys.stdout.flush()
        except KeyboardInterrupt:  # a second one, while the first is answered: as in deeppc.__main__
            code = ENDED
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(BaseException):
                sys.stderr.flush()
            os._exit(code)
    os.close(write)
    watch(child)
    said, until = b"", time.monotonic() + HANGS
    while select.select([read], [], [], max(0.0, until - time.monotonic()))[0] and (more := os.read(read, 65536)):
        said += more
    os.close(read)
    if hung := time.monotonic() >= until:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return (70 if hung else code), "it hung: " * hung + " ".join(said.decode(errors="replace").split())


def disturbed(
    run: Path,
    case: str,
    fault: Callable[[], Context] = contextlib.nullcontext,
    *fine: int,
    watch: Callable[[int], Any] = lambda child: None,
    tie: Callable[[], Any] = lambda: None,
    words: Sequence[str] | None = None,
    deaf: bool = False,
) -> Outcome:
    """Train in a child within ``fault`` (or give another command, ``words``), and say what came of it.

    It may end by itself, in words (unless it is ``deaf``), or with one of the exit codes that are ``fine``.
    """
    good_runs()  # what is imported late is there before a child is forked

    def work() -> int:
        with fault():
            return train(run) if words is None else main(words)

    code, said = in_child(work, watch, tie)
    if "Traceback" in said or code not in (0, 2, 3, *fine) or (code in (2, 3) and len(said) < 15 and not deaf):
        return Outcome("traceback", case, f"exit {code}: {said[-600:]}")
    return Outcome("accepted" if code in (0, KILLED) else "refused", case, f"exit {code}: {said[:300]}")


def resumed(outcome: Outcome, run: Path) -> Outcome:
    """Resume the run to its end; lost, if that does not come to the same bits."""
    if outcome.verdict == "traceback":
        return outcome
    again = attempt("", lambda: train(run))
    differs = again.said if again.verdict != "accepted" else difference(run)
    return outcome.lost(f"resumed: {differs}") if differs else outcome


def after(*waits: float, number: int) -> Callable[[int], None]:
    """Send a child a signal after each wait."""

    def send(child: int) -> None:
        for wait in waits:
            time.sleep(wait)
            os.kill(child, number)

    return send


@cache
def duration() -> float:
    """Seconds that an undisturbed run takes in a child."""
    good_runs()
    begun = time.monotonic()
    disturbed(good_runs()["finished"].with_name("timed"), "")
    return time.monotonic() - begun


@kind("SIGKILL at random moments, until it is done")
def kills(rng: random.Random, place: Path) -> Outcome:
    for number in range(1, 7):
        watch = after(rng.uniform(0, 1.2 * duration()), number=signal.SIGKILL)
        outcome = disturbed(place / "run", f"killed {number} times", contextlib.nullcontext, KILLED, watch=watch)
        if not outcome.said.startswith(f"exit {KILLED}"):
            break
    return resumed(outcome, place / "run") if outcome.verdict == "accepted" else outcome.lost("it did not go on")


@kind("SIGKILL before the n-th touch of the disk")
def kills_at_writes(rng: random.Random, place: Path) -> Outcome:
    number = rng.randint(1, touches())
    fault = lambda: failing_disk(number, lambda: os.kill(os.getpid(), signal.SIGKILL))  # noqa: E731
    return resumed(disturbed(place / "run", f"killed before touch {number}", fault, KILLED), place / "run")


@kind("Ctrl-C or SIGTERM at a random moment, once or twice")
def signals(rng: random.Random, place: Path) -> Outcome:
    number, waits = rng.choice([signal.SIGINT, signal.SIGTERM]), (rng.uniform(0, duration()), rng.uniform(0, 0.05))
    watch = after(*waits[: rng.choice([1, 1, 2])], number=number)
    fine = (128 + number, -number)
    return resumed(disturbed(place / "run", number.name, contextlib.nullcontext, *fine, watch=watch), place / "run")


# ---- the disk ----


@contextlib.contextmanager
def failing_disk(number: int, fail: Callable[[], None], forever: bool = False) -> Iterator[list[str]]:
    """Call ``fail`` at the ``number``-th touch of the disk (``forever``: and at each later one). Yields the touches."""
    touched: list[str] = []

    def touch(name: str, before: Callable[[], Any] = lambda: None) -> None:
        touched.append(name)
        if len(touched) == number or (forever and len(touched) > number):
            before()
            fail()

    class Watched(io.FileIO):
        """Half of what cannot be written is written."""

        def write(self, data: Any) -> int:
            touch("write", lambda: super(Watched, self).write(bytes(data)[: len(bytes(data)) // 2]))
            return super().write(data)

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            touch(name)
            return function(*args, **kwargs)

        return call

    open_file = io.open

    def open_watched(path: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if isinstance(path, int) or not set(mode) & set("wa+x"):
            return open_file(path, mode, *args, **kwargs)
        touch("open")
        return Watched(path, mode.replace("b", "")) if "b" in mode else open_file(path, mode, *args, **kwargs)

    with contextlib.ExitStack() as stack:
        for name in ("fsync", "replace", "mkdir", "truncate"):
            stack.enter_context(mock.patch.object(os, name, watched(name, getattr(os, name))))
        stack.enter_context(mock.patch("io.open", open_watched))
        yield touched


@cache
def touches() -> int:
    """How often an undisturbed run touches the disk."""
    run = good_runs()["finished"].with_name("touched")
    with failing_disk(0, lambda: None) as touched, contextlib.redirect_stdout(io.StringIO()):
        train(run)
    return len(touched)


@kind("a disk that fills or fails at the n-th touch")
def disks(rng: random.Random, place: Path) -> Outcome:
    number, forever, run = rng.randint(1, touches()), rng.random() < 0.5, place / "run"
    code = rng.choice([errno.ENOSPC, errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT, errno.EACCES])

    def fail() -> None:
        raise OSError(code, os.strerror(code))

    case = f"{errno.errorcode[code]} at touch {number} of the disk{', and ever after' * forever}"
    outcome = disturbed(run, case, lambda: failing_disk(number, fail, forever))
    if not forever and (left := [*run.glob(".*.tmp")]):  # where nothing can be written, nothing can be removed
        return outcome.lost(f"left behind: {left}")
    return resumed(outcome, run)


@kind("a folder that becomes read-only")
def read_only(rng: random.Random, place: Path) -> Outcome:
    """In a child that is not root, who may write everywhere."""
    wait, run = rng.choice([0, rng.uniform(0, duration())]), place / "run"
    run.mkdir()
    for folder in (run, place, place.parent, place.parents[1]):
        folder.chmod(0o777)

    def close(child: int = 0) -> None:
        time.sleep(wait)
        for path in (*run.glob("*"), run):
            with contextlib.suppress(FileNotFoundError):
                path.chmod(0o555 if path.is_dir() else 0o444)

    def nobody() -> None:
        if wait == 0:
            close()
        if os.geteuid() == 0:
            os.setuid(65534)

    outcome = disturbed(run, f"read-only after {wait:.3f} s", watch=close, tie=nobody)
    for path in (run, *run.glob("*")):
        path.chmod(0o777)
    return resumed(outcome, run)


# ---- the clock ----


@kind("a clock that jumps")
def clocks(rng: random.Random, place: Path) -> Outcome:
    """Hours to and fro at any look at it; and Ctrl-C at some batch."""
    batches, seen, real = rng.choice([0, *range(1, 10)]), 0, Loop._require_sound

    def jumping(clock: Callable[[], float]) -> Callable[[], float]:
        return lambda: clock() + rng.choice([0, 0, 0, rng.uniform(-1e5, 1e5)])

    class Jumping(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(hours=rng.uniform(-9000, 9000))

    def stop(loop: Loop, energy: torch.Tensor) -> None:
        nonlocal seen
        seen += 1
        if seen == batches:
            os.kill(os.getpid(), signal.SIGINT)
        real(loop, energy)

    def fault() -> Context:
        stack = contextlib.ExitStack()
        stack.enter_context(mock.patch.object(Loop, "_require_sound", stop))
        for name in ("time", "monotonic", "perf_counter"):
            stack.enter_context(mock.patch(f"time.{name}", jumping(getattr(time, name))))
        for name in ("deeppc.runs.folder", "deeppc.runs.provenance"):
            if getattr(sys.modules[name], "datetime", None) is datetime:
                stack.enter_context(mock.patch(f"{name}.datetime", Jumping))
        return stack

    outcome = disturbed(place / "run", f"a clock that jumps, Ctrl-C after {batches or 'no'} batches", fault, 130)
    return resumed(outcome, place / "run")


# ---- pipes ----


@kind("an output that is closed, or full")
def pipes(rng: random.Random, place: Path) -> Outcome:
    """Whoever reads our output goes after some bytes. A training goes on; whatever else may end without a word."""
    count, full, both = rng.choice([0, 0, 1, 10, 100, 300, 1000]), rng.random() < 0.3, rng.random() < 0.3
    words = rng.choice([None, None, None, ["show", "mlp"], ["presets"], ["paper", "list"], ["train", "--help"]])
    read, write = os.pipe()
    out = os.open("/dev/full", os.O_WRONLY) if full else write

    def tie() -> None:
        os.close(read)
        os.dup2(out, 1)
        if both:
            os.dup2(1, 2)
        for end in {out, write}:
            os.close(end)

    def look(child: int) -> None:
        for end in {out, write}:
            os.close(end)
        if count and not full:
            os.read(read, count)
        os.close(read)

    case = f"{words or 'train'} to {'/dev/full' if full else f'a pipe closed after {count} bytes'}"
    outcome = disturbed(place / "run", case, contextlib.nullcontext, 141, watch=look, tie=tie, words=words, deaf=both)
    if words is not None or outcome.verdict == "traceback":
        return outcome
    if not (place / "run/result.json").exists():
        return outcome.lost("the training did not go on")
    return resumed(outcome, place / "run")


# ---- memory ----


class Refusing(TorchDispatchMode):
    """Refuses the memory for the n-th operation of torch."""

    def __init__(self, number: int = 0, error: Exception | None = None) -> None:
        super().__init__()
        self.number, self.error, self.count = number, error, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        if self.count == self.number and self.error is not None:
            raise self.error
        return func(*args, **(kwargs or {}))


@cache
def operations() -> int:
    """The operations of torch in an undisturbed run."""
    run = good_runs()["finished"].with_name("counted")
    with Refusing() as mode, contextlib.redirect_stdout(io.StringIO()):
        train(run)
    return mode.count


@kind("memory refused at the n-th operation")
def memory(rng: random.Random, place: Path) -> Outcome:
    number = rng.randint(1, operations())
    text = "[enforce fail at alloc_cpu.cpp:119] . DefaultCPUAllocator: can't allocate memory: you tried 9 bytes"
    error = rng.choice([MemoryError(), RuntimeError(text), torch.OutOfMemoryError("CUDA out of memory.")])
    outcome = disturbed(place / "run", f"{type(error).__name__} at operation {number}", lambda: Refusing(number, error))
    return resumed(outcome, place / "run")


@kind("an address space that is too small")
def address_space(rng: random.Random, place: Path) -> Outcome:
    """The system itself refuses memory, to a child with a wide network or with next to nothing left."""
    more, run = rng.choice([rng.randint(0, 1 << 20), rng.randint(0, 1 << 26)]), str(place / "run")
    wide = ["train", "--model", "mlp", "--limit", "60", "--epochs", "1", "--device", "cpu", "--run-dir", run, "--width"]
    words = rng.choice([None, None, [*wide, "3"], [*wide, "1e5"]])

    def refuse() -> None:
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + more, -1))

    outcome = disturbed(place / "run", f"{words or 'train'} with {more / 1e6:.1f} MB left", tie=refuse, words=words)
    if words is None or not (place / "run/manifest.json").exists():
        return resumed(outcome, place / "run")
    again = attempt("", lambda: train(place / "run"))
    return outcome if again.verdict == "accepted" or outcome.verdict == "traceback" else outcome.lost(again.said)
