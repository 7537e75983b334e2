"""Searches by one worker: reproducible, judged on held-out images, every trial accounted for, whatever happens."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest

from deeppc.search import ledger, storage
from deeppc.search import plan as plans
from deeppc.search.events import Began, SearchEvent, TrialEnded
from deeppc.search.plan import Plan
from deeppc.search.records import Trial, best_of, progress_of, trials_of
from deeppc.search.study import search
from deeppc.training import ConfigError, RunError, TrainConfig, train
from deeppc.training.config import from_table, read_toml

MakePlan = Callable[..., Plan]


def drawn(trials: list[Trial]) -> list[tuple[Any, ...]]:
    """What may not depend on when and how often the search was run."""
    return [(t.state, t.value, t.params, t.epochs) for t in trials if t.state != "lost"]


# --- reproducible --------------------------------------------------------------------------------------------------


def test_a_seed_decides_the_whole_search(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is stopped; beyond the random trials that TPE begins with, where it goes by the first ones."""
    hasty = functools.partial(optuna.samplers.TPESampler, n_startup_trials=3)
    monkeypatch.setattr("optuna.samplers.TPESampler", hasty)
    straight = search(tiny("straight", trials=6))
    for trials in (1, 5, 6):
        in_parts = search(tiny("in parts", trials=trials))
        assert len(in_parts.trials) == trials
    assert drawn(in_parts.trials) == drawn(straight.trials)
    assert in_parts.best == dataclasses.replace(straight.best, seconds=in_parts.best.seconds)
    assert drawn(search(tiny("another seed", trials=1, seed=1)).trials) != drawn(straight.trials)[:1]


def test_nothing_is_left_to_do(tiny: MakePlan) -> None:
    first = search(tiny())
    events: list[SearchEvent] = []
    again = search(tiny(), events.append)
    assert again.trials == first.trials
    assert not any(isinstance(event, TrialEnded) for event in events)
    assert next(e for e in events if isinstance(e, Began)).progress.settled == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")
def test_killed_at_any_commit_or_all_at_once_and_resumed(tmp_path: Path) -> None:
    """SIGKILL before, during and after the transactions of a search; then it goes on to the same trials."""
    script = Path(__file__).with_name("killed_searches.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 5  # kills
    straight = _read(tmp_path / "straight")
    for folder in tmp_path.glob("killed-*"):
        assert drawn(_read(folder)) == drawn(straight), folder.name
        _require_accounted_for(folder)
    _require_accounted_for(tmp_path / "both")
    assert [t.state for t in _read(tmp_path / "both")].count("lost") == 2


def _require_accounted_for(folder: Path) -> None:
    """Nothing is running, each slot was filled once, and nothing lies about."""
    trials = storage.open_study(plans.read(folder)).trials()
    assert not [t for t in trials if ledger.is_running(t)]
    assert sorted(t.user_attrs[ledger.SLOT] for t in trials if ledger.is_settled(t)) == [0, 1]
    assert (folder / "best.toml").exists()
    assert not list(folder.rglob("*.safetensors"))
    assert not list((folder / "workers").iterdir())


def _read(folder: Path) -> list[Trial]:
    return trials_of(storage.open_study(plans.read(folder)))


# --- judged on held-out images -------------------------------------------------------------------------------------


def test_the_test_set_is_never_looked_at(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    from deeppc.training import fit as loop

    sizes: list[int] = []
    evaluate = loop.evaluate

    def recording(net: Any, batches: Any, *rest: Any) -> Any:
        sizes.append(batches.size)
        return evaluate(net, batches, *rest)

    monkeypatch.setattr(loop, "evaluate", recording)
    search(tiny(trials=2, patience=1, epochs=4))
    assert set(sizes) == {144}  # a tenth of the 1,438 training digits, not the 359 for testing


def test_a_trial_is_its_best_epoch_on_what_selects(tiny: MakePlan) -> None:
    for select in ("validation", "test"):
        plan = tiny(select, trials=2, select=select, pruner="none", epochs=3)
        for trial in search(plan).trials:
            lines = (plan.folder / "trials" / f"{trial.number:04}" / "metrics.jsonl").read_text().splitlines()
            accuracies = [json.loads(line)[f"{select}_accuracy"] for line in lines]
            assert trial.value == max(accuracies)
            assert list(trial.epochs.values()) == accuracies


def test_best_toml_trains_to_the_same_accuracy(tiny: MakePlan, tmp_path: Path) -> None:
    result = search(tiny(trials=3, pruner="none"))
    config = from_table({**read_toml(result.plan.folder / "best.toml"), "run_dir": tmp_path / "run"}, "best.toml")
    assert train(config).validation_accuracy == result.best.value
    assert result.best.value == max(t.value for t in result.trials if t.value is not None)
    assert result.best_config == dataclasses.replace(config, run_dir=None)


# --- what becomes of a trial ---------------------------------------------------------------------------------------


def test_a_trial_that_diverges_is_failed_with_its_reason_and_the_search_goes_on(tiny: MakePlan) -> None:
    result = search(tiny(trials=4, pruner="none", space=["lr_w=1e-3,1e30"]))
    states = {t.params["lr_w"]: t.state for t in result.trials}
    assert states == {1e-3: "complete", 1e30: "failed"}
    reasons = [t.reason for t in result.trials if t.state == "failed"]
    assert all(reason.startswith("diverged at step ") and "the energy of" in reason for reason in reasons)
    assert len(result.trials) == 4
    assert result.best.params["lr_w"] == 1e-3


def test_if_all_diverge_there_is_no_best(tiny: MakePlan) -> None:
    with pytest.raises(RunError, match=r"No trial .* completed \(diverged at step"):
        search(tiny(trials=2, space=["lr_w=1e30"]))


def test_hopeless_trials_are_pruned(tiny: MakePlan) -> None:
    """Half of the trials cannot learn; they stop early, and none that can."""
    fixed = ["activation=gelu", "weight_decay=0"]
    plan = tiny(trials=8, epochs=4, space=[*fixed, "lr_w=1e-8,1e-2"], algorithm="bp", width=0.2, limit=200)
    trials = search(plan).trials
    pruned = [t for t in trials if t.state == "pruned"]
    assert pruned
    assert {t.params["lr_w"] for t in pruned} == {1e-8}
    assert all(2 <= len(t.epochs) < 4 for t in pruned)
    assert {len(t.epochs) for t in trials if t.state == "complete"} == {4}


@pytest.mark.parametrize(("pruner", "states"), [("none", {"complete"}), ("hyperband", {"complete", "pruned"})])
def test_other_pruners(tiny: MakePlan, pruner: str, states: set[str]) -> None:
    plan = tiny(trials=6, epochs=4, pruner=pruner, space=["lr_w=1e-8,1e-2"], algorithm="bp", width=0.2)
    assert {t.state for t in search(plan).trials} == states


def test_patience_ends_a_trial_as_it_ends_a_run(tiny: MakePlan, tmp_path: Path) -> None:
    plan = tiny(trials=1, epochs=30, patience=2, space=["lr_w=1e-8"])
    trial = search(plan).trials[0]
    run = train(dataclasses.replace(trial.config(plan.config), run_dir=tmp_path / "run"))
    assert len(trial.epochs) == run.epochs < 30


def test_little_is_kept_of_a_trial(tiny: MakePlan) -> None:
    result = search(tiny(trials=2))
    for trial in result.trials:
        folder = result.plan.folder / "trials" / f"{trial.number:04}"
        assert {path.name for path in folder.iterdir()} == {"manifest.json", "config.toml", "metrics.jsonl"}
        assert json.loads((folder / "manifest.json").read_text())["status"] == "stopped"
        assert sum(path.stat().st_size for path in folder.iterdir()) < 20_000


# --- whose trial it is ---------------------------------------------------------------------------------------------


def test_a_slot_is_taken_once(tiny: MakePlan) -> None:
    session = storage.create(tiny(trials=3))
    with ledger.Worker(session.plan.folder) as one, ledger.Worker(session.plan.folder) as other:
        claims = [ledger.claim(session, worker) for worker in (one, other, one, other)]
    assert [c.slot for c in claims if c is not None] == [0, 1, 2]
    assert claims[3] is None
    assert not ledger.all_settled(session)


def test_the_trial_of_a_dead_worker_is_lost_and_its_slot_free(tiny: MakePlan) -> None:
    plan = tiny(trials=2)
    session = storage.create(plan)
    with ledger.Worker(plan.folder) as dead:
        ledger.claim(session, dead)
        lock = dead.lock
        with ledger.Worker(plan.folder) as alive:
            assert ledger.bury(session) == []  # it still holds its lock
            dead.__exit__()
            lock.touch()  # as a kill leaves it: there, but not held
            claim = ledger.claim(session, alive)
        dead.__enter__()
    assert claim is not None
    assert claim.slot == 0
    assert [t.state for t in trials_of(session)] == ["lost", "running"]


def test_a_worker_elsewhere_is_given_up_after_long_silence(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    session = storage.create(tiny(trials=2))
    with ledger.Worker(session.plan.folder) as worker:
        ledger.claim(session, worker)
        monkeypatch.setattr(ledger.platform, "node", lambda: "another machine")
        assert ledger.bury(session) == []
        now = ledger.time.time()
        monkeypatch.setattr(ledger.time, "time", lambda: now + ledger.GRACE - 1)
        assert ledger.bury(session) == []
        monkeypatch.setattr(ledger.time, "time", lambda: now + ledger.GRACE + 1)
        assert ledger.bury(session) == [0]


def test_signs_of_life(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "BEAT", 0.01)
    session = storage.create(tiny())
    with ledger.Worker(session.plan.folder) as worker:
        claim = ledger.claim(session, worker)
        assert claim is not None
        first = session.storage.get_trial(claim.trial_id).user_attrs[ledger.SEEN]
        with worker.signs_of_life(session, claim):
            until = ledger.time.time() + 5
            while session.storage.get_trial(claim.trial_id).user_attrs[ledger.SEEN] == first:
                assert ledger.time.time() < until
    assert session.storage.get_trial(claim.trial_id).user_attrs[ledger.SEEN] > first


def test_one_taken_for_dead_does_not_spoil_the_search(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it trained, others gave its trial up and took the slot."""
    from deeppc.search import study

    plan = tiny(trials=2)
    given_up: list[int] = []
    report = study.Watch.report

    def too_late(self: study.Watch, session: storage.Session, claim: ledger.Claim) -> None:
        if not given_up:
            given_up.append(claim.number)
            ledger.lose(session, claim.number, "silence")
        report(self, session, claim)

    monkeypatch.setattr(study.Watch, "report", too_late)
    result = search(plan)
    assert [t.state for t in result.trials].count("lost") == 1
    assert progress_of(plan, result.trials).settled == 2


def test_an_error_of_ours_loses_the_trial_but_not_the_search(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    from deeppc.training import fit as loop

    def broken(*args: object) -> None:
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(loop.Run, "_train_epoch", broken)
        with pytest.raises(ZeroDivisionError):
            search(tiny())
    trials = _read(tiny().folder)
    assert [(t.state, t.reason) for t in trials] == [("lost", "ZeroDivisionError: a bug")]
    assert progress_of(tiny(), search(tiny()).trials).settled == 3


# --- another search in the same folder -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"epochs": 3}, "--epochs is 3, but the search in .* was begun with 2"),
        ({"algorithm": "pc"}, "--algorithm is 'pc'"),
        ({"pruner": "none"}, "--pruner is 'none'"),
        ({"space": ["lr_w=1e-4..1e-3"]}, "--space lr_w is '0.0001..0.001 log'"),
        ({"space": ["norm=none,bf"]}, "--space norm is 'none, bf', but the search in .* was begun with not there"),
    ],
)
def test_other_settings_are_refused(tiny: MakePlan, changes: dict[str, Any], says: str) -> None:
    storage.create(tiny())
    with pytest.raises(ConfigError, match=says):
        storage.create(tiny(**changes))


def test_what_is_not_searched_may_change(tiny: MakePlan, tmp_path: Path) -> None:
    storage.create(tiny())
    session = storage.create(tiny(data_dir=tmp_path / "elsewhere", trials=7, jobs=2, checkpoint_every=5.0))
    assert plans.read(session.plan.folder).trials == 7


def test_a_setting_younger_than_the_search_had_its_default(tiny: MakePlan) -> None:
    plan = tiny()
    storage.create(plan)
    table = json.loads((plan.folder / "study.json").read_text())
    del table["config"]["depth_gain"]
    (plan.folder / "study.json").write_text(json.dumps(table))
    storage.create(plan)
    with pytest.raises(ConfigError, match="--depth-gain is True"):
        storage.create(tiny(depth_gain=True))


def test_folders_without_a_search(tiny: MakePlan, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="There is no search in"):
        plans.read(tmp_path)
    session = storage.create(tiny())
    (session.plan.folder / "study.db").unlink()
    with pytest.raises(RunError, match="the trials of this search are lost"):
        storage.open_study(plans.read(session.plan.folder))
    (session.plan.folder / "study.json").write_text('{"format": 1}')
    with pytest.raises(RunError, match="damaged"):
        plans.read(session.plan.folder)


def test_a_storage_that_cannot_be_used(tiny: MakePlan, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no database URL"):
        storage.create(tiny(storage="nonsense"))
    with pytest.raises(RunError, match="cannot be used"):
        storage.create(tiny("b", storage=f"sqlite:///{tmp_path}/no/such/folder/study.db"))
    with pytest.raises(RunError, match="cannot be used"):
        storage.create(tiny("c", storage="postgresql+nodriver://host/name"))


def test_a_study_of_someone_else(tiny: MakePlan, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/theirs.db"
    study = optuna.create_study(storage=url, study_name="study")
    study.add_trial(optuna.create_trial(value=1.0))
    with pytest.raises(RunError, match="deeppc did not begin"):
        storage.create(tiny(storage=url))


def test_no_password_is_written_down(tiny: MakePlan) -> None:
    plan = tiny(storage="postgresql+psycopg://me:secret@host:5432/name?sslmode=require")
    plan.folder.mkdir()
    plans.write(plan)
    text = (plan.folder / "study.json").read_text()
    assert "secret" not in text
    assert plans.read(plan.folder).storage == "postgresql+psycopg://me@host:5432/name?sslmode=require"


def test_bad_settings_are_found_before_anything_is_written(tiny: MakePlan) -> None:
    with pytest.raises(ConfigError, match="vgg6"):
        search(tiny(model="vgg6", space=["T=5"]))
    assert not tiny().folder.exists()
    with pytest.raises(ConfigError, match="--trials is 0"):
        tiny(trials=0)


def test_without_optuna_a_friendly_word(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"pip install 'deeppc\[search\]'"):
        search(tiny())


def test_the_best_is_a_complete_trial() -> None:
    def trial(number: int, state: Any, value: float | None) -> Trial:
        return Trial(number, state, value, {}, {}, None)

    trials = [trial(0, "pruned", 0.9), trial(1, "complete", 0.5), trial(2, "complete", 0.5), trial(3, "failed", None)]
    assert best_of(trials) == trials[1]
    assert best_of(trials[:1]) is None


def test_default_folders() -> None:
    config = TrainConfig(dataset="cifar10", model="vgg7", algorithm="ipc+s")
    assert plans.folder_of(config) == Path("searches/cifar10-vgg7-ipc+s")
    assert plans.folder_of(dataclasses.replace(config, norm="bf")) == Path("searches/cifar10-vgg7-bf-ipc+s")
