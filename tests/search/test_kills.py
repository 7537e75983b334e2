"""Processes killed and stopped at any moment: no trial is lost or counted twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deeppc.errors import Interrupted, RunError
from deeppc.files import Busy, Lock
from deeppc.search import plan as plans
from deeppc.search import storage, study
from deeppc.search.plan import Plan
from deeppc.search.study import search
from deeppc.search.trials import Progress, Trial
from deeppc.training import pool

MakePlan = Callable[..., Plan]
# A trial of a second or two: long enough to be killed in.
LONG = {"epochs": 2, "limit": 800, "batch_size": 12, "pruner": "none"}


def trials_in(folder: Path) -> list[Trial]:
    with storage.open_study(plans.read(folder)) as session:
        return session.trials()


def begin_trial(session: storage.Session, owner: str | None = None) -> int:
    """A trial of a process that is then heard of no more."""
    trial_id = session.storage.create_new_trial(session.study._study_id)
    if owner is not None:
        session.storage.set_trial_user_attr(trial_id, storage.OWNER, owner)
    return trial_id


def require_accounted_for(folder: Path, wanted: int) -> None:
    """Nothing is running, as many trials ended as were asked for, and nothing lies about."""
    progress = Progress(plans.read(folder), trials_in(folder))
    assert progress.ended == wanted
    assert progress.count("running") == 0
    kept = {f"{t.number:04}" for t in progress.trials if t.state != "lost"}
    assert {path.name for path in (folder / "trials").iterdir()} <= kept
    assert (folder / "best.toml").exists()
    assert not list(folder.rglob("*.safetensors"))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")
def test_killed_at_any_commit_and_on_two_machines_at_once(tmp_path: Path) -> None:
    script = Path(__file__).with_name("killed.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 5  # kills
    for folder in tmp_path.glob("killed-*"):
        require_accounted_for(folder, 2)
        assert sum(t.state == "lost" for t in trials_in(folder)) <= 1
    require_accounted_for(tmp_path / "one" / "shared", 2)
    assert [t.state for t in trials_in(tmp_path / "one" / "shared")] == ["lost", "lost", "complete", "complete"]


class Killer:
    """A listener that kills a worker as soon as two are in the midst of a trial."""

    def __init__(self) -> None:
        self.killed: list[int] = []

    def __call__(self, progress: Progress) -> None:
        if not self.killed and progress.count("running") == 2:
            children = subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True, text=True, check=True)
            for pid in map(int, children.stdout.split()):
                if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
                    self.killed.append(pid)
                    return


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="finds the workers in /proc")
def test_one_of_two_workers_killed(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "LOOK", 0.0)
    plan = tiny(trials=3, jobs=2, **LONG)
    killer = Killer()
    result = search(plan, killer)
    assert len(killer.killed) == 1
    lost = [t for t in result.trials if t.state == "lost"]
    assert [t.reason for t in lost] == ["its worker died"]
    require_accounted_for(plan.folder, 3)


def test_a_trial_of_a_job_that_is_tried_again_is_lost(tiny: MakePlan) -> None:
    plan = tiny(trials=1)
    job = study.Job(plan, f"{storage.place(plan)}0#")
    with storage.create(plan) as session:
        begin_trial(session, job.owner)
        begin_trial(session, f"{storage.place(plan)}01#")  # another's
        study.run_job(job, lambda message: None)
        assert [t.state for t in session.trials()] == ["lost", "running"]  # the other one's has the only place
        session.give_up(storage.place(plan))
        study.run_job(job, lambda message: None)
        assert [t.state for t in session.trials()] == ["lost", "lost", "complete"]


def test_one_trial_too_many_is_not_trained(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two machines see the last free place at once; the trial with the higher number withdraws."""
    plan = tiny(trials=1)
    with storage.create(plan) as session:
        begin_trial(session, "elsewhere:/study#0#")
        live = study.Session.live
        monkeypatch.setattr(study.Session, "live", lambda self, below=None: live(self, below) if below else 0)
        study.run_job(study.Job(plan, "here#0#"), lambda message: None)
        assert [t.number for t in session.trials()] == [0]  # the surplus one is not shown
        assert [t.state.name for t in session.study.get_trials()] == ["RUNNING", "FAIL"]


def test_a_machine_that_falls_silent_is_given_up(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    with storage.create(tiny(trials=2)) as session:
        monkeypatch.setattr(storage, "GRACE", -1)
        session.storage.record_heartbeat(begin_trial(session, "elsewhere:/study#0#"))
        begin_trial(session)  # killed before it could say whose it is
        with session.storage.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE trial_heartbeats SET heartbeat = '2000-01-01 00:00:00'")
        session.give_up_silent()
        assert [t.state for t in session.trials()] == ["lost", "lost"]


def test_one_given_up_by_mistake_does_not_count(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it trained, others took it for dead and its place for free."""
    plan, given_up = tiny(trials=2), []
    is_last = study.Objective._is_last_epoch

    def give_up_first(self: study.Objective) -> bool:
        if not given_up and len(self.scores) == 2:
            given_up.append(self.trial.number)
            self.session.give_up(self.owner)
        return is_last(self)

    monkeypatch.setattr(study.Objective, "_is_last_epoch", give_up_first)
    result = search(plan)
    assert given_up == [0]
    assert [t.state for t in result.trials] == ["lost", "complete", "complete"]
    require_accounted_for(plan.folder, 2)


def test_an_error_of_ours_loses_the_trial_but_not_the_search(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(study.Objective, "_train", broken)
        with pytest.raises(RunError, match=r"ZeroDivisionError: a bug .*error\.log.*deeppc search --resume --run-dir"):
            search(tiny())
    assert "in broken" in (tiny().folder / "error.log").read_text()
    assert [(t.state, t.reason) for t in trials_in(tiny().folder)] == [("lost", "ZeroDivisionError('a bug')")]
    search(tiny())
    require_accounted_for(tiny().folder, 3)


def test_workers_that_only_die_end_the_search(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "run", lambda function, jobs, *rest: [pool.Failed("killed by signal 9, 2 times.")])
    with pytest.raises(RunError, match=r"killed by signal 9, 2 times\. Resume with:  deeppc search --resume"):
        search(tiny(jobs=2))


def test_ctrl_c_gives_the_trial_up_and_says_how_to_resume(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "LOOK", 0.0)
    plan = tiny(trials=2, **LONG)

    pressed: list[int] = []

    def press(progress: Progress) -> None:
        if not pressed and any(t.epochs for t in progress.trials):
            pressed.append(progress.ended)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match=r"after 0 of 2 trials.*deeppc search --resume --run-dir") as stop:
        search(plan, press)
    assert stop.value.exit_code == 130
    assert [(t.state, t.reason) for t in trials_in(plan.folder)] == [("lost", "interrupted")]


def test_one_search_at_a_time_in_a_folder(tiny: MakePlan) -> None:
    plan = tiny()
    with Lock(plan.folder / ".lock"), pytest.raises(Busy, match="Another process is working in"):
        search(plan)
