"""Searches by one worker: judged on held-out images, resumed, every trial accounted for, other settings refused."""

from __future__ import annotations

import functools
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest

from deeppc.errors import ConfigError, RunError
from deeppc.search import plan as plans
from deeppc.search import storage
from deeppc.search.plan import Plan
from deeppc.search.study import search
from deeppc.search.trials import Progress, Trial, best_of, score
from deeppc.training import TrainConfig, train
from deeppc.training.config import from_table, read_toml, replace

MakePlan = Callable[..., Plan]


def outcomes(trials: list[Trial]) -> list[tuple[Any, ...]]:
    return [(t.state, t.value, t.params, t.epochs) for t in trials]


# --- one search ----------------------------------------------------------------------------------------------------


def test_a_seed_decides_the_whole_search_also_in_parts(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the random trials that TPE begins with, where it goes by the first ones."""
    monkeypatch.setattr("optuna.samplers.TPESampler", functools.partial(optuna.samplers.TPESampler, n_startup_trials=2))
    straight = search(tiny("straight", trials=4))
    for trials in (1, 3, 4):
        in_parts = search(tiny("in parts", trials=trials))
        assert len(in_parts.trials) == trials
    assert outcomes(in_parts.trials) == outcomes(straight.trials)
    assert outcomes(search(tiny("another seed", trials=1, seed=1)).trials) != outcomes(straight.trials)[:1]


def test_nothing_is_left_to_do(tiny: MakePlan) -> None:
    first, seen = search(tiny()), []
    again = search(tiny(), seen.append)
    assert again.trials == first.trials
    assert [progress.ended for progress in seen] == [3] * len(seen)
    assert not any(progress.news for progress in seen)


def test_progress_tells_each_trial_once(tiny: MakePlan) -> None:
    seen: list[Progress] = []
    result = search(tiny(), seen.append)
    assert [t.number for progress in seen for t in progress.news] == [0, 1, 2]
    assert seen[-1].best == result.best
    assert seen[0].seconds_left is None
    assert seen[-1].seconds_left == 0


def test_the_test_set_is_never_looked_at(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    from deeppc.training import loop

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
    assert train(config, report=False).table()["validation_accuracy"] == result.best.value
    assert result.best.value == max(t.value for t in result.trials if t.value is not None)
    assert "complete, 0 pruned, 0 diverged" in (result.plan.folder / "best.toml").read_text()


def test_little_is_kept_of_a_trial(tiny: MakePlan) -> None:
    result = search(tiny(trials=2))
    for trial in result.trials:
        folder = result.plan.folder / "trials" / f"{trial.number:04}"
        assert {path.name for path in folder.iterdir()} == {"manifest.json", "config.toml", "metrics.jsonl"}
        assert json.loads((folder / "manifest.json").read_text())["status"] == "stopped"
        assert sum(path.stat().st_size for path in folder.iterdir()) < 20_000


def test_a_strangers_family_is_searched(tiny: MakePlan) -> None:
    importlib.import_module("toy_family")  # registers it
    result = search(tiny(trials=2, algorithm="toy"))
    assert all(0.5 <= float(t.params["strength"] or 0) <= 2 for t in result.trials)
    assert result.best_config.setting("strength") == result.best.params["strength"]


# --- what becomes of a trial ---------------------------------------------------------------------------------------


def test_a_trial_that_diverges_counts_with_its_reason(tiny: MakePlan) -> None:
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
    run = train(replace(trial.config(plan.config), run_dir=tmp_path / "run"), report=False)
    assert len(trial.epochs) == run.epochs < 30


def test_a_regression_is_searched_for_the_least_error(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from deeppc.data import from_tensors

    x = torch.randn(80, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    y = x.flatten(1)[:, :2]
    data = from_tensors(train=(x[:60], y[:60]), test=(x[60:], y[60:]), name="line")
    monkeypatch.setattr("deeppc.training.builder.load", lambda *args, **options: data)
    result = search(tiny(trials=3, algorithm="bp", pruner="none", limit=None, space=["lr_w=1e-6..1e-1"]))
    line = (result.plan.folder / "trials" / f"{result.best.number:04}" / "metrics.jsonl").read_text().splitlines()
    assert result.best.value == max(-json.loads(text)["validation_mse"] for text in line)
    assert result.best.value == max(t.value for t in result.trials if t.value is not None) < 0
    assert score(result.best.value) == f"error {-result.best.value:.4g}"


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


def test_a_study_of_an_earlier_version(tiny: MakePlan) -> None:
    """A setting that it does not know had its default; one that means nothing to its algorithm is dropped."""
    plan = tiny()
    storage.create(plan)
    table = json.loads((plan.folder / "study.json").read_text())
    del table["config"]["depth_gain"]
    table["config"]["k"] = 1.5
    (plan.folder / "study.json").write_text(json.dumps(table))
    assert plans.read(plan.folder).identity() == plan.identity()
    storage.create(plan)
    with pytest.raises(ConfigError, match="--depth-gain is True"):
        storage.create(tiny(depth_gain=True))


def test_folders_without_a_search(tiny: MakePlan, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="There is no search in"):
        plans.read(tmp_path)
    folder = storage.create(tiny()).plan.folder
    renamed = folder.rename(tmp_path / "renamed")
    with pytest.raises(RunError, match=r"holds no study 'renamed': was .* renamed\?"):
        storage.open_study(plans.read(renamed))
    (renamed / "study.db").unlink()
    with pytest.raises(RunError, match="the trials of this search are lost"):
        storage.open_study(plans.read(renamed))
    (renamed / "study.json").write_text('{"format": 1}')
    with pytest.raises(RunError, match="damaged"):
        plans.read(renamed)


# --- where it is stored --------------------------------------------------------------------------------------------


def test_a_storage_that_cannot_be_used(tiny: MakePlan, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no database URL"):
        storage.create(tiny(storage="nonsense"))
    with pytest.raises(RunError, match="cannot be used"):
        storage.create(tiny("b", storage=f"sqlite:///{tmp_path}/no/such/folder/study.db"))
    with pytest.raises(RunError, match="cannot be used"):
        storage.create(tiny("c", storage="postgresql+nodriver://host/name"))


def test_a_study_of_someone_else(tiny: MakePlan, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/theirs.db"
    optuna.create_study(storage=url, study_name="study").add_trial(optuna.create_trial(value=1.0))
    with pytest.raises(RunError, match="deeppc did not begin"):
        storage.create(tiny(storage=url))


def test_two_machines_share_a_study(tiny: MakePlan, tmp_path: Path) -> None:
    """Two folders of the same name, as on two machines: one study, and no trial more than was asked for."""
    url = f"sqlite:///{tmp_path}/shared.db"
    one = search(tiny("one/shared", trials=2, storage=url))
    other = search(tiny("other/shared", trials=3, storage=url))
    assert outcomes(other.trials)[:2] == outcomes(one.trials)
    assert [t.state for t in other.trials] == ["complete"] * 3
    assert (tmp_path / "other" / "shared" / "trials" / "0002").exists()


def test_no_password_is_written_down(tiny: MakePlan) -> None:
    plan = tiny(storage="postgresql+psycopg://me:secret@host:5432/name?sslmode=require")
    plans.write(plan)
    assert "secret" not in (plan.folder / "study.json").read_text()
    assert plans.read(plan.folder).storage == "postgresql+psycopg://me@host:5432/name?sslmode=require"
    assert plans.read(plan.folder, plan.storage).storage == plan.storage


def test_bad_settings_are_found_before_anything_is_written(tiny: MakePlan) -> None:
    with pytest.raises(ConfigError, match="vgg6"):
        search(tiny(model="vgg6", space=["T=5"]))
    assert not tiny().folder.exists()
    for name in ("trials", "jobs"):
        with pytest.raises(ConfigError, match=f"--{name} is 0"):
            tiny(**{name: 0})


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
    config = TrainConfig.of(dataset="cifar10", model="vgg7", algorithm="ipc+s")
    assert plans.folder_of(config) == Path("searches/cifar10-vgg7-ipc+s")
    assert plans.folder_of(replace(config, norm="bf")) == Path("searches/cifar10-vgg7-bf-ipc+s")
    mine = replace(config, dataset="my/shapes.npz", model="nets/mine.py:tall net")
    assert plans.folder_of(mine) == Path("searches/shapes.npz-mine.py-tall-net-ipc+s")
