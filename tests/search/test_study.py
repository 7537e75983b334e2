"""Searches by one worker: judged on held-out images, resumed, every trial accounted for, other settings refused."""

from __future__ import annotations

import functools
import importlib
import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import optuna
import pytest
import sqlalchemy.exc
import torch

from deeppc.data import from_tensors
from deeppc.errors import ConfigError, RunError
from deeppc.files import read_json, write_json
from deeppc.search import plan as plans
from deeppc.search import storage
from deeppc.search.plan import Plan
from deeppc.search.study import search
from deeppc.search.trials import Progress, Trial, best_of, score
from deeppc.training import TrainConfig, loop, train
from deeppc.training.config import from_table, read_toml, replace

MakePlan = Callable[..., Plan]


def metrics(plan: Plan, trial: Trial) -> list[dict[str, Any]]:
    file = plan.folder / "trials" / f"{trial.number:04}" / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


def outcomes(trials: list[Trial]) -> list[tuple[Any, ...]]:
    return [(t.state, t.value, t.params, t.epochs) for t in trials]


# --- one search ----------------------------------------------------------------------------------------------------


def test_a_seed_decides_the_whole_search_also_in_parts(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the random trials that TPE begins with, where it goes by the first ones."""
    monkeypatch.setattr("optuna.samplers.TPESampler", functools.partial(optuna.samplers.TPESampler, n_startup_trials=1))
    straight = search(tiny("straight"))
    for trials in (1, 3):
        in_parts = search(tiny("in parts", trials=trials))
        assert len(in_parts.trials) == trials
    assert outcomes(in_parts.trials) == outcomes(straight.trials)
    assert outcomes(search(tiny("another seed", trials=1, seed=1)).trials) != outcomes(straight.trials)[:1]


def test_settings_that_are_tried_first_also_late(tiny: MakePlan) -> None:
    """Once each, whatever the search has drawn before; what they do not say is drawn."""
    space = ["lr_w=1e-4..1e-2 log", "weight_decay=1e-3..0.1"]
    drawn = search(tiny(space=space, trials=1)).trials
    given = ({"lr_w": 0.003, "weight_decay": 0.05}, {"lr_w": 0.004})
    for trials in (3, 4):
        found = search(tiny(space=space, trials=trials, first=given)).trials
    assert outcomes(found)[:1] == outcomes(drawn)
    assert [t.number for t in found] == [0, 1, 2, 3]
    assert given[0].items() <= found[1].params.items()
    assert given[1].items() <= found[2].params.items()
    assert {*found[2].params} == {*drawn[0].params}
    assert found[3].params["lr_w"] not in (0.003, 0.004)
    (fresh,) = search(tiny("fresh", space=space, trials=1, first=given[:1])).trials
    assert given[0].items() <= fresh.params.items()


def test_settings_outside_the_space_are_refused(tiny: MakePlan) -> None:
    space = tiny(space=["lr_w=1e-4..1e-2", "activation=relu,gelu"]).space
    assert space.within({"lr_w": 1e-3, "activation": "relu", "model": "mlp"}, "here") == {
        "lr_w": 1e-3,
        "activation": "relu",
    }
    for wrong in ({"lr_w": 0.5}, {"activation": "hard_tanh"}, {"lr_w": "fast"}):
        with pytest.raises(ConfigError, match=r"here: \w+ is .*, but is searched in .*: widen that"):
            space.within(wrong, "here")


def test_progress_tells_each_trial_once(tiny: MakePlan) -> None:
    seen: list[Progress] = []
    result = search(tiny(trials=2), seen.append)
    assert [t.number for progress in seen for t in progress.news] == [0, 1]
    assert seen[-1].best == result.best
    assert seen[0].seconds_left is None
    assert seen[-1].seconds_left == 0
    seen.clear()
    assert search(tiny(trials=2), seen.append).trials == result.trials  # nothing is left to do
    assert not any(progress.news for progress in seen)


@pytest.mark.parametrize("select", ["validation", "test"])
def test_a_trial_is_its_best_epoch_on_what_selects(
    tiny: MakePlan, monkeypatch: pytest.MonkeyPatch, select: str
) -> None:
    sizes, evaluate = set(), loop.evaluate

    def recording(net: Any, batches: Any, *rest: Any) -> Any:
        sizes.add(batches.size)
        return evaluate(net, batches, *rest)

    monkeypatch.setattr(loop, "evaluate", recording)
    plan = tiny(trials=1, select=select, pruner="none", epochs=3)
    trial = search(plan).best
    accuracies = [epoch[f"{select}_accuracy"] for epoch in metrics(plan, trial)]
    assert trial.value == max(accuracies)
    assert list(trial.epochs.values()) == accuracies
    # a tenth of the 1,438 training digits, not the 359 for testing; or those, the paper's protocol
    assert sizes == {144 if select == "validation" else 359}


def test_what_is_left_in_the_folder(tiny: MakePlan, tmp_path: Path) -> None:
    """Little of a trial; and best.toml, which trains to the same accuracy."""
    result = search(tiny(trials=2, pruner="none"))
    for folder in (result.plan.folder / "trials").iterdir():
        assert {path.name for path in folder.iterdir()} == {"manifest.json", "config.toml", "metrics.jsonl"}
        assert json.loads((folder / "manifest.json").read_text())["status"] == "stopped"
        assert sum(path.stat().st_size for path in folder.iterdir()) < 20_000
    best = result.plan.folder / "best.toml"
    config = from_table({**read_toml(best), "run_dir": tmp_path / "run"}, "best.toml")
    assert train(config, report=False).table()["validation_accuracy"] == result.best.value
    assert result.best.value == max(t.value for t in result.trials if t.value is not None)
    assert "2 complete, 0 pruned, 0 diverged" in best.read_text()


def test_a_strangers_family_is_searched(tiny: MakePlan) -> None:
    importlib.import_module("toy_family")  # registers it
    result = search(tiny(trials=1, algorithm="toy"))
    assert 0.5 <= float(result.best.params["strength"] or 0) <= 2
    assert result.best_config.setting("strength") == result.best.params["strength"]


# --- what becomes of a trial ---------------------------------------------------------------------------------------


def test_a_trial_that_diverges_counts_with_its_reason(tiny: MakePlan) -> None:
    result = search(tiny(trials=4, epochs=1, pruner="none", space=["lr_w=1e-3,1e6"]))
    assert {t.params["lr_w"]: t.state for t in result.trials} == {1e-3: "complete", 1e6: "failed"}
    reasons = [t.reason for t in result.trials if t.state == "failed"]
    assert all(reason.startswith("diverged at step ") and "the energy of" in reason for reason in reasons)
    assert len(result.trials) == 4
    assert result.best.params["lr_w"] == 1e-3


def test_if_all_diverge_there_is_no_best(tiny: MakePlan) -> None:
    with pytest.raises(RunError, match=r"No trial .* completed \(diverged at step"):
        search(tiny(trials=1, space=["lr_w=1e6"]))


def test_hopeless_trials_are_pruned(tiny: MakePlan) -> None:
    """Half of the trials cannot learn; they stop early, and none that can."""
    fixed = ["activation=gelu", "weight_decay=0"]
    plan = tiny(trials=8, epochs=4, space=[*fixed, "lr_w=1e-8,1e-2"], algorithm="bp", width=0.2)
    trials = search(plan).trials
    pruned = [t for t in trials if t.state == "pruned"]
    assert {t.params["lr_w"] for t in pruned} == {1e-8}
    assert all(2 <= len(t.epochs) < 4 for t in pruned)
    assert {len(t.epochs) for t in trials if t.state == "complete"} == {4}


def test_hyperband_prunes(tiny: MakePlan) -> None:
    plan = tiny(trials=5, epochs=3, pruner="hyperband", space=["lr_w=1e-8,1e-2"], algorithm="bp")
    assert {t.state for t in search(plan).trials} == {"complete", "pruned"}


def test_patience_ends_a_trial_as_it_ends_a_run(tiny: MakePlan, tmp_path: Path) -> None:
    plan = tiny(trials=1, epochs=30, patience=2, space=["lr_w=1e-8"])
    trial = search(plan).trials[0]
    run = train(replace(trial.config(plan.config), run_dir=tmp_path / "run"), report=False)
    assert len(trial.epochs) == run.epochs < 30


def test_a_regression_is_searched_for_the_least_error(tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(80, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    y = x.flatten(1)[:, :2]
    data = from_tensors(train=(x[:60], y[:60]), test=(x[60:], y[60:]), name="line")
    monkeypatch.setattr("deeppc.training.builder.load", lambda *args, **options: data)
    result = search(tiny(trials=2, algorithm="bp", pruner="none", limit=None, space=["lr_w=1e-6..1e-1"]))
    assert result.best.value == max(-epoch["validation_mse"] for epoch in metrics(result.plan, result.best))
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


def test_a_study_of_an_earlier_version(tiny: MakePlan, tmp_path: Path) -> None:
    """A setting that it does not know had its default; one that means nothing to its algorithm is dropped."""
    plan = tiny()
    storage.create(plan)
    table = read_json(plan.folder / "study.json")
    del table["config"]["depth_gain"]
    table["config"]["k"] = 1.5
    write_json(plan.folder / "study.json", table)
    assert plans.read(plan.folder).identity() == plan.identity()
    storage.create(tiny(data_dir=tmp_path / "elsewhere", trials=7, jobs=2, checkpoint_every=5.0))  # these may change
    assert plans.read(plan.folder).trials == 7
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
    for url in (f"sqlite:///{tmp_path}/no/such/folder/study.db", "postgresql+nodriver://host/name"):
        with pytest.raises(RunError, match="cannot be used"):
            storage.create(tiny(storage=url))
    url = f"sqlite:///{tmp_path}/theirs.db"
    optuna.create_study(storage=url, study_name="study").add_trial(optuna.create_trial(value=1.0))
    with pytest.raises(RunError, match="deeppc did not begin"):
        storage.create(tiny(storage=url))


def test_two_machines_share_a_study(tiny: MakePlan, tmp_path: Path) -> None:
    """Two folders of the same name, as on two machines: one study, and no trial more than was asked for."""
    url = f"sqlite:///{tmp_path}/shared.db"
    one = search(tiny("one/shared", trials=1, storage=url))
    other = search(tiny("other/shared", trials=2, storage=url))
    assert outcomes(other.trials)[:1] == outcomes(one.trials)
    assert [t.state for t in other.trials] == ["complete"] * 2
    assert (tmp_path / "other" / "shared" / "trials" / "0001").exists()


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
    found: list[tuple[Any, float | None]] = [("pruned", 0.9), ("complete", 0.5), ("complete", 0.5), ("failed", None)]
    trials = [Trial(number, state, value, {}, {}, None) for number, (state, value) in enumerate(found)]
    assert best_of(trials) == trials[1]
    assert best_of(trials[:1]) is None


def test_default_folders() -> None:
    config = TrainConfig.of(dataset="cifar10", model="vgg7", algorithm="ipc+s")
    assert plans.folder_of(config) == Path("searches/cifar10-vgg7-ipc+s")
    mine = replace(config, dataset="my/shapes.npz", model="nets/mine.py:tall net", norm="bf")
    assert plans.folder_of(mine) == Path("searches/shapes.npz-mine.py-tall-net-bf-ipc+s")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("study.db", None, r"study\.db is missing or empty: put it back from a copy"),
        ("study.db", b"", r"study\.db is missing or empty: put it back from a copy"),
        ("study.db", b"nonsense", r"study\.db cannot be used: it is no SQLite database"),
        ("study.db", "half", r"study\.db (cannot be used|is damaged)"),
        ("study.db", "foreign", r"study\.db cannot be used: it is the database of something else"),
        ("study.json", b"", r"study\.json is damaged"),
    ],
)
def test_a_search_with_a_damaged_file_is_neither_read_nor_resumed(
    name: str, content: bytes | str | None, says: str, tiny: MakePlan
) -> None:
    plan = tiny()
    with storage.create(plan):
        pass
    path = plan.folder / name
    whole = path.read_bytes()
    path.unlink()
    if content == "foreign":
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE mine (x)")
    elif content is not None:
        path.write_bytes(whole[: len(whole) // 2] if isinstance(content, str) else content)
    before = path.read_bytes() if path.exists() else None
    for use in (lambda: storage.read_study(plan.folder), lambda: search(plan)):
        with pytest.raises(RunError, match=says):
            use()
    if content != b"":  # an empty file is an empty database, and gets its tables
        assert (path.read_bytes() if path.exists() else None) == before


def test_garbled_text_in_the_storage(tiny: MakePlan) -> None:
    plan = tiny()
    with storage.create(plan) as session, session.begin_trial("me"):
        pass
    with closing(sqlite3.connect(plan.folder / "study.db")) as database:
        database.execute("UPDATE trial_user_attributes SET value_json = CAST(x'FF' AS TEXT)")
        database.commit()
    with pytest.raises(RunError, match=r"study\.db cannot be used"):
        storage.read_study(plan.folder)


@pytest.mark.parametrize("url", ["nonsense", "sqlite:////proc/nowhere/x.db"])
def test_a_search_that_cannot_begin_leaves_nothing_behind(url: str, tiny: MakePlan, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, RunError), match="storage"):
        search(tiny(storage=url))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("failures", [0, 2, 99])
def test_tables_that_another_host_is_making_are_waited_for(
    failures: int, tiny: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL lets the second of two that make the same table fail, and finds it there the next time."""
    opened, tries = Mock(), list[str]()

    def connect(url: str, **_: Any) -> Mock:
        tries.append(url)
        if len(tries) <= failures:
            raise sqlalchemy.exc.IntegrityError("CREATE TYPE studydirection", None, Exception("duplicate key"))
        return opened

    monkeypatch.setattr("optuna.storages.RDBStorage", connect)
    monkeypatch.setattr(storage, "AGAIN", 0.0)
    if failures < 99:
        assert storage._connect(tiny(storage="postgresql:///x")) is opened
        assert len(tries) == failures + 1
    else:
        with pytest.raises(RunError, match=r"cannot be used: .*duplicate key"), storage.in_words(tiny()):
            storage._connect(tiny(storage="postgresql:///x"))
        assert len(tries) == storage.TRIES + 1
