"""Several hosts on one shared folder: locks that hold between them, and no cell trained twice."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deeppc import files
from deeppc.errors import RunError
from deeppc.files import Busy, BusyElsewhere, Lock
from deeppc.runs.folder import RunFolder

HOST = """
import sys, platform
platform.node = lambda: sys.argv[1]          # what this process takes for its host
from pathlib import Path
from deeppc.paper import run as runs
from deeppc.training import builder
from deeppc.training import pool
pool.RETRY_AFTER = 0.2
real = builder.train
def train(config, callback, **options):
    print("trained", config.run_dir.name, flush=True)
    return real(config, callback, **options)
builder.train = train
runs.results.draw = lambda plot, folder: ""
plan = runs.plan("ablation", "smoke", Path(sys.argv[2]), width=0.02, limit=24, models=("vgg5",))
todo = runs.jobs([plan])
print("todo", len(todo), flush=True)
sys.stdin.readline()                         # until both have planned
runs.run([plan], todo)
print("over", sum(run.over for place in plan.evidence().places for run in place.runs), flush=True)
"""


@pytest.mark.slow
def test_two_hosts_share_the_cells_of_a_recipe(tmp_path: Path) -> None:
    """Both plan all cells before either begins, and both end with all of them."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    hosts = [
        subprocess.Popen(
            [sys.executable, "-c", HOST, name, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        for name in ("one", "two")
    ]
    planned = [host.stdout.readline() for host in hosts if host.stdout]
    lines = []
    for host in hosts:
        assert host.stdin is not None
        host.stdin.write("\n")
        host.stdin.flush()
    for host in hosts:
        output, _ = host.communicate(timeout=120)
        assert host.returncode == 0
        lines.append(output.splitlines())
    trained = [line for output in lines for line in output if line.startswith("trained")]
    cells = sorted(path.name for path in (tmp_path / "cells").iterdir() if path.is_dir())
    assert planned == [f"todo {len(cells)}\n"] * 2
    assert sorted(trained) == [f"trained {cell}" for cell in cells]
    assert [output[-1] for output in lines] == [f"over {len(cells)}"] * 2
    assert all(RunFolder(tmp_path / "cells" / cell).manifest()["resumed"] == [] for cell in cells)


def test_a_lock_of_another_host_counts_until_it_is_silent(tmp_path: Path) -> None:
    """As on a file system that does not tell this host of locks on others: all it sees is the mark."""
    lock = Lock(tmp_path / ".lock")
    lock.mark.write_text("elsewhere")
    with pytest.raises(BusyElsewhere, match=f"The host elsewhere is working .* remove {lock.mark}"), lock:
        pass
    assert lock.mark.read_text() == "elsewhere"
    long_ago = time.time() - files.GRACE - 1
    os.utime(lock.mark, (long_ago, long_ago))
    with lock:
        assert lock.mark.read_text() != "elsewhere"
    assert not lock.mark.exists()


def test_a_lock_that_a_kill_left_on_this_host_counts_for_nothing(tmp_path: Path) -> None:
    code = f"import os, pathlib; from deeppc.files import Lock; Lock(pathlib.Path({str(tmp_path / '.lock')!r}))"
    done = subprocess.run([sys.executable, "-c", f"{code}.__enter__(); os._exit(1)"], check=False)
    assert done.returncode == 1
    lock = Lock(tmp_path / ".lock")
    assert lock.mark.exists()
    with lock, pytest.raises(Busy, match="Another process is working"), Lock(lock.path):
        pass


def test_a_mark_without_a_name_is_of_one_who_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = Lock(tmp_path / ".lock")
    lock.mark.touch()
    monkeypatch.setattr(files, "BIRTH", 0.0)
    with lock:
        assert lock.mark.read_text()
    lock.mark.touch()  # and one that is being written
    monkeypatch.setattr(files.time, "sleep", lambda seconds: lock.mark.write_text("elsewhere"))
    with pytest.raises(BusyElsewhere, match="The host elsewhere"), lock:
        pass


def test_a_lock_whose_thread_cannot_begin_is_free_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr("_thread.start_new_thread", refuse)
        with pytest.raises(RuntimeError), Lock(tmp_path / ".lock"):
            pass
    assert not Lock(tmp_path / ".lock").mark.exists()
    with Lock(tmp_path / ".lock"):
        pass


def test_a_lock_gives_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "HEARTBEAT", 0.01)
    with Lock(tmp_path / ".lock") as lock:
        os.utime(lock.mark, (0, 0))
        until = time.monotonic() + 10
        while lock.mark.stat().st_mtime == 0 and time.monotonic() < until:
            time.sleep(0.01)
        assert time.time() - lock.mark.stat().st_mtime < 60


def test_a_mark_that_cannot_be_made_is_said_in_words(tmp_path: Path) -> None:
    lock = Lock(tmp_path / ".lock")
    lock.mark.mkdir()
    with pytest.raises(RunError, match="cannot be written"), lock:
        pass
