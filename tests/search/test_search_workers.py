"""Several processes on one study, some of them killed: every trial is accounted for."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deeppc.search import ledger, storage, study, workers
from deeppc.search import plan as plans
from deeppc.search.events import Looked, SearchEvent
from deeppc.search.plan import Plan
from deeppc.search.records import progress_of, trials_of
from deeppc.search.study import search
from deeppc.training import ConfigError, Interrupted, RunError
from deeppc.training.events import Note

MakePlan = Callable[..., Plan]
# A trial of a second or two: long enough to be killed in.
LONG = {"epochs": 2, "limit": 800, "batch_size": 12, "pruner": "none"}


@pytest.fixture(autouse=True)
def often_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "LOOK", 0.1)


def running(plan: Plan) -> dict[int, int]:
    """Numbers of the running trials, and the processes they run in."""
    session = storage.open_study(plan)
    return {t.number: t.user_attrs[ledger.OWNER]["pid"] for t in session.trials() if ledger.is_running(t)}


def accounted_for(plan: Plan) -> None:
    """Nothing is running, and each slot was filled once."""
    session = storage.open_study(plans.read(plan.folder))
    assert not [t for t in session.trials() if ledger.is_running(t)]
    slots = [t.user_attrs[ledger.SLOT] for t in session.trials() if ledger.is_settled(t)]
    assert sorted(slots) == list(range(plan.trials))
    assert not list((plan.folder / "workers").iterdir())
    assert not list(plan.folder.rglob("*.safetensors"))


class Killer:
    """A listener that kills so many workers as soon as both are in the midst of a trial."""

    def __init__(self, plan: Plan, victims: int) -> None:
        self.plan, self.victims = plan, victims
        self.killed: list[int] = []
        self.notes: list[str] = []

    def __call__(self, event: SearchEvent) -> None:
        match event:
            case Note():
                self.notes.append(event.text)
            case Looked() if not self.killed and len(event.progress.running) == 2:
                victims = dict(list(running(self.plan).items())[: self.victims])
                for pid in victims.values():
                    os.kill(pid, signal.SIGKILL)
                self.killed = list(victims)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_one_of_two_workers_killed(tiny: MakePlan) -> None:
    plan = tiny(trials=3, jobs=2, **LONG)
    killer = Killer(plan, victims=1)
    result = search(plan, killer)
    assert len(killer.killed) == 1
    assert [t.number for t in result.trials if t.state == "lost"] == killer.killed
    assert progress_of(plan, result.trials).settled == 3
    assert [note for note in killer.notes if "killed by SIGKILL" in note]
    accounted_for(plan)


def test_if_all_workers_end_early_the_last_words_are_passed_on(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, notes = tiny(jobs=2), []

    def die(session: storage.Session, number: int) -> workers.Child:
        log = plan.folder / f"worker-{number}.log"
        with log.open("w") as file:
            program = [sys.executable, "-S", "-c", "print('The disk is full.'); exit(2)"]
            return workers.Child(number, subprocess.Popen(program, stdout=file, text=True), log)

    monkeypatch.setattr(workers, "_start", die)
    with pytest.raises(RunError, match=r"the last one so: The disk is full\..*deeppc search --resume --run-dir"):
        search(plan, lambda event: notes.append(event.text) if isinstance(event, Note) else None)
    assert notes == ["Worker 1 ended: The disk is full.", "Worker 2 ended: The disk is full."]


def test_ctrl_c_stops_the_workers(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """By closing their standard input, for which this one waits."""
    plan, children = tiny(jobs=2), []

    def wait(session: storage.Session, number: int) -> workers.Child:
        program = [sys.executable, "-S", "-c", "input()"]
        process = subprocess.Popen(program, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        children.append(process)
        return workers.Child(number, process, plan.folder / "worker.log")

    monkeypatch.setattr(workers, "_start", wait)
    with pytest.raises(Interrupted, match=r"after 0 of 3 trials.*deeppc search --resume --run-dir"):
        search(plan, lambda event: os.kill(os.getpid(), signal.SIGTERM) if isinstance(event, Looked) else None)
    assert [child.poll() is not None for child in children] == [True, True]


def test_a_worker_ends_when_its_watcher_is_gone(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its standard input closes: the trial is given up at the next batch."""
    plan = tiny(trials=2, **LONG)
    storage.create(plan)
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert workers.main(plan.folder) == 0
    trials = trials_of(storage.open_study(plan))
    assert {t.state for t in trials} <= {"lost"}
    assert {t.reason for t in trials} <= {"interrupted"}


def test_a_worker_says_what_is_wrong(
    tiny: MakePlan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert workers.main(tmp_path / "nowhere") == 2
    assert "There is no search in" in capsys.readouterr().out


def test_ctrl_c_gives_the_trial_up_and_says_how_to_go_on(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tiny(trials=2, **LONG)

    def press(event: SearchEvent) -> None:
        if isinstance(event, Looked) and event.progress.running:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match=r"after 0 of 2 trials.*deeppc search --resume --run-dir") as stop:
        search(plan, press)
    assert stop.value.exit_code == 130
    assert [t.state for t in trials_of(storage.open_study(plan))] == ["lost"]


def test_jobs_are_checked(tiny: MakePlan) -> None:
    with pytest.raises(ConfigError, match="--jobs is 0"):
        tiny(jobs=0)
