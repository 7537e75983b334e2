"""The process pool: messages are relayed, workers may die, Ctrl-C lets them save, nothing outlives the parent."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deeppc.errors import ConfigError
from deeppc.training import pool
from deeppc.training.interruption import Interruption
from deeppc.training.pool import Begun, Done, Failed, PoolInterrupted, Retry, Send

# Jobs are functions of this module, which a spawned worker imports by its path.


def square(number: int, send: Send) -> int:
    send(f"squaring {number}")
    return number**2


def threads(number: int, send: Send) -> str:
    return os.environ["OMP_NUM_THREADS"]


def fail(number: int, send: Send) -> int:
    if number == 1:
        raise ConfigError("one is too few")
    return 1 // number


def die_once(path: Path, send: Send) -> str:
    """Kill the worker, unless ``path`` says that it has happened before."""
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def die_always(number: int, send: Send) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def busy_once(path: Path, send: Send) -> str:
    if not path.exists():
        path.touch()
        raise Retry
    return "free"


def work_and_save(path: Path, send: Send) -> None:
    """Work until interrupted, then save, as a training run does."""
    with Interruption() as interruption:
        send(os.getpid())
        while interruption.signal is None:
            time.sleep(0.01)
        path.write_text("saved")
        sys.exit(1)


class Recorder(list):
    """All messages, as (job, message)."""

    def __call__(self, job: object, message: object) -> None:
        self.append((job, message))


@pytest.mark.parametrize("processes", [1, 2])
def test_messages_and_outcomes_are_relayed(processes):
    heard = Recorder()
    outcomes = pool.run(square, [3, 4, 5], processes, heard)
    assert outcomes == [Done(9), Done(16), Done(25)]
    for number, outcome in zip([3, 4, 5], outcomes, strict=True):
        assert [message for job, message in heard if job == number] == [Begun(), f"squaring {number}", outcome]


@pytest.mark.parametrize(("asked", "given"), [("", "3"), ("6", "3"), ("1", "1")])
def test_workers_share_the_cores_unless_fewer_are_asked_for(asked, given, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    monkeypatch.setattr(pool.os, "cpu_count", lambda: 6)
    assert pool.run(threads, [1, 2], 2) == [Done(given), Done(given)]
    assert os.environ.get("OMP_NUM_THREADS", "") == asked


@pytest.mark.parametrize("processes", [1, 2])
def test_a_job_that_raises_has_failed_and_the_others_have_not(processes):
    bad, worse, good = pool.run(fail, [1, 0, 2], processes)
    assert isinstance(bad, Failed)
    assert bad.reason == "one is too few"
    assert isinstance(worse, Failed)
    assert worse.reason.startswith("ZeroDivisionError")
    assert "in fail" in worse.traceback
    assert good == Done(0)


def test_one_process_runs_here():
    heard = Recorder()
    pool.run(lambda job, send: send(os.getpid()), ["here"], 1, heard)  # a lambda: nothing is pickled
    assert ("here", os.getpid()) in heard
    assert pool.run(square, [], 2) == []


def test_the_job_of_a_killed_worker_is_done_by_another(tmp_path):
    heard = Recorder()
    assert pool.run(die_once, [tmp_path / "a", tmp_path / "b"], 2, heard) == [Done("alive"), Done("alive")]
    assert sum(message == Begun() for _, message in heard) == 4


def test_a_job_that_kills_every_worker_has_failed():
    assert pool.run(die_always, [0, 1, 2], 2) == [
        Done(0),
        Failed("Its process was killed by signal 9, 2 times."),
        Done(2),
    ]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_busy_job_is_tried_again(processes, tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "RETRY_AFTER", 0.05)
    jobs = [tmp_path / "a", tmp_path / "b"]
    assert pool.run(busy_once, jobs, processes) == [Done("free"), Done("free")]


def test_interrupted_workers_save_first(tmp_path):
    jobs = [tmp_path / "a", tmp_path / "b"]
    at_work = set()

    def interrupt_when_all_are_at_work(job, message):
        if isinstance(message, int):
            at_work.add(message)
            if len(at_work) == 2:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(PoolInterrupted, match="Give the same command again") as stopped:
        pool.run(work_and_save, jobs, 2, interrupt_when_all_are_at_work)
    assert stopped.value.exit_code == 130
    assert [job.read_text() for job in jobs] == ["saved", "saved"]
    assert not any(_alive(process) for process in at_work)


def test_ctrl_c_in_this_process(tmp_path):
    def press(job, send):
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(PoolInterrupted):
        pool.run(press, [1], 1)


def finish_late(number: int, send: Send) -> None:
    """Get SIGTERM after the last look at it, as a run that is just finishing."""
    with Interruption():
        signal.raise_signal(signal.SIGTERM)


def test_a_worker_that_finished_as_the_signal_came_ends_at_once():
    start = time.monotonic()
    outcomes = pool.run(finish_late, [1, 2], 2)
    assert [outcome.reason for outcome in outcomes] == ["Its process ended with code 143, 2 times."] * 2
    assert time.monotonic() - start < pool.SAVING / 2


@pytest.mark.parametrize(
    ("error", "raised"),
    [(None, KeyboardInterrupt), (ValueError("another"), KeyboardInterrupt), (PoolInterrupted(2), PoolInterrupted)],
)
def test_a_signal_that_nobody_acted_on_is_raised_on_leaving(error, raised, capfd):
    def work():
        with Interruption():
            signal.raise_signal(signal.SIGINT)
            assert "Stopping after this batch, then saving" in capfd.readouterr().err  # at once
            if error is not None:
                raise error

    with pytest.raises(raised):
        work()


def test_workers_never_hear_ctrl_c():
    with pool._no_ctrl_c():
        mask = subprocess.run(["grep", "SigBlk", "/proc/self/status"], capture_output=True, text=True, check=True)
    assert int(mask.stdout.split()[1], 16) >> (signal.SIGINT - 1) & 1
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_workers_save_and_end_when_the_parent_is_killed(tmp_path):
    here = Path(__file__)
    program = (
        "import sys, pathlib\n"
        f"sys.path.insert(0, {str(here.parent)!r})\n"
        f"import {here.stem} as jobs\n"
        "from deeppc.training import pool\n"
        f"paths = [pathlib.Path({str(tmp_path)!r}) / name for name in 'ab']\n"
        "if __name__ == '__main__':\n"
        "    pool.run(jobs.work_and_save, paths, 2, lambda job, message: print(message, flush=True))\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        lines = (line.strip() for line in parent.stdout)
        workers = [int(line) for line in itertools.islice(filter(str.isdigit, lines), 2)]
        parent.kill()
    until = time.monotonic() + 10
    while any(_alive(worker) for worker in workers) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(_alive(worker) for worker in workers)
    assert [(tmp_path / name).read_text() for name in "ab"] == ["saved", "saved"]


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
