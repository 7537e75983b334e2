"""Processes killed and stopped at any moment: no trial is lost or counted twice."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deeppc.errors import Interrupted, RunError
from deeppc.files import Busy, Lock
from deeppc.search import storage, study
from deeppc.search.plan import Plan
from deeppc.search.storage import read_study
from deeppc.search.study import search
from deeppc.search.trials import Progress
from deeppc.training import pool

MakePlan = Callable[..., Plan]
LONG = {"epochs": 20, "pruner": "none"}  # a trial of a second, to be killed in


def require_accounted_for(folder: Path, *states: str) -> None:
    """These are the trials, nothing of a lost one lies about, and there is a best one."""
    _, trials = read_study(folder)
    assert [t.state for t in trials] == [*states]
    kept = {f"{t.number:04}" for t in trials if t.state != "lost"}
    assert {path.name for path in (folder / "trials").iterdir()} == kept
    assert (folder / "best.toml").exists()
    assert not list(folder.rglob("*.safetensors"))


def begin_trial(session: storage.Session, owner: str | None = None) -> int:
    """A trial of a process that is then heard of no more."""
    trial_id = session.storage.create_new_trial(session.study._study_id)
    if owner is not None:
        session.storage.set_trial_user_attr(trial_id, storage.OWNER, owner)
    return trial_id


@pytest.mark.slow
def test_the_whole_search_killed(tiny: MakePlan) -> None:
    plan = tiny(trials=2, **LONG)
    process = multiprocessing.get_context("spawn").Process(target=search, args=(plan,))
    with storage.create(plan) as session:
        process.start()
        while process.is_alive() and not any(t.epochs for t in session.trials()):
            time.sleep(0.02)
        process.kill()
        process.join()
        assert [t.state for t in session.trials()] == ["running"]
    search(plan)
    require_accounted_for(plan.folder, "lost", "complete", "complete")


@pytest.mark.slow
def test_one_of_two_workers_killed(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "LOOK", 0.0)
    plan, killed = tiny(trials=2, jobs=2, **LONG), []

    def kill_one(progress: Progress) -> None:
        if not killed and progress.count("running") == 2:
            killed.append(multiprocessing.active_children()[0])
            killed[0].kill()

    result = search(plan, kill_one)
    assert len(killed) == 1
    assert [t.reason for t in result.trials if t.state == "lost"] == ["its worker died"]
    require_accounted_for(plan.folder, *(t.state for t in result.trials))
    assert sorted(t.state for t in result.trials) == ["complete", "complete", "lost"]


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
        assert [t.state for t in session.trials()] == ["running", "lost"]
        assert session.trials()[1].epochs == {}


def test_a_machine_that_falls_silent_is_given_up(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    with storage.create(tiny(trials=2)) as session:
        monkeypatch.setattr(storage, "GRACE", -1)
        session.storage.record_heartbeat(begin_trial(session, "elsewhere:/study#0#"))
        begin_trial(session)  # killed before it could say whose it is
        with session.storage.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE trial_heartbeats SET heartbeat = '2000-01-01 00:00:00'")
        session.give_up_silent()
        assert [t.state for t in session.trials()] == ["lost", "lost"]


@pytest.mark.parametrize("epoch", [1, 2])  # before an epoch is reported, and before the outcome
def test_one_given_up_by_mistake_does_not_count(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch, epoch: int) -> None:
    """While it trained, others took it for dead and its place for free."""
    plan, given_up = tiny(trials=1), []
    is_last = study.TrialRun._is_last_epoch

    def give_up_first(self: study.TrialRun) -> bool:
        if not given_up and len(self.scores) == epoch:
            given_up.append(self.trial.number)
            self.session.give_up(storage.place(plan))
        return is_last(self)

    monkeypatch.setattr(study.TrialRun, "_is_last_epoch", give_up_first)
    search(plan)
    assert given_up == [0]
    require_accounted_for(plan.folder, "lost", "complete")


def test_an_error_of_ours_loses_the_trial_but_not_the_search(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("a bug")

    plan = tiny(trials=1)
    with monkeypatch.context() as patch:
        patch.setattr(study.TrialRun, "_train", broken)
        with pytest.raises(RunError, match=r"ZeroDivisionError: a bug .*error\.log.*deeppc search --resume --run-dir"):
            search(plan)
    assert "in broken" in (plan.folder / "error.log").read_text()
    assert search(plan).trials[0].reason == "ZeroDivisionError('a bug')"
    require_accounted_for(plan.folder, "lost", "complete")


def test_workers_that_only_die_end_the_search(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "run", lambda function, jobs, *rest: [pool.Failed("killed by signal 9, 2 times.")])
    with pytest.raises(RunError, match=r"killed by signal 9, 2 times\. Resume with:  deeppc search --resume"):
        search(tiny(jobs=2))


def test_ctrl_c_gives_the_trial_up_and_says_how_to_resume(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "LOOK", 0.0)
    pressed: list[int] = []

    def press(progress: Progress) -> None:
        if not pressed and any(t.epochs for t in progress.trials):
            pressed.append(progress.ended)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match=r"after 0 of 2 trials.*deeppc search --resume --run-dir") as stop:
        search(tiny(trials=2), press)
    assert stop.value.exit_code == 130
    _, trials = read_study(tiny().folder)
    assert [(t.state, t.reason) for t in trials] == [("lost", "interrupted")]


def test_one_search_at_a_time_in_a_folder(tiny: MakePlan) -> None:
    plan = tiny()
    with Lock(plan.folder / ".lock"), pytest.raises(Busy, match="Another process is working in"):
        search(plan)
