"""The store: a cell is found by its settings in full, as a run or as a record, whatever its folder is called."""

from __future__ import annotations

import json
import shutil

import pytest

from deeppc.files import write_json
from deeppc.paper import store
from deeppc.paper.run import jobs, plan, render
from deeppc.paper.store import Store, keep_records, read
from deeppc.runs.folder import RunFolder
from deeppc.training import config as configs
from deeppc.training.config import TrainConfig, replace, to_table

pytestmark = pytest.mark.usefixtures("undrawn")


def leave(folder, table, status="finished", **files):
    """A run folder with this config in its manifest."""
    manifest = {"status": status, "config": table, "command": ["deeppc"], "machine": {"host": "here", "threads": 1}}
    RunFolder(folder).write_manifest({**manifest, "git": None, "started": "2026-01-01"})
    RunFolder(folder).write_config('data_dir = "/secret/place"\nseed = 0\n')
    RunFolder(folder).write_result({"test_accuracy": 0.5, "seconds": 1.0})
    for name, content in files.items():
        write_json(folder / f"{name}.json", content)
    return folder


CONFIG = TrainConfig.of(dataset="cifar10", algorithm="pc+s", lr_x=0.3, seed=1)


def test_a_cell_is_known_by_what_decides_its_outcome(tmp_path):
    folder = Store(tmp_path).folder(CONFIG)
    same = replace(CONFIG, data_dir=tmp_path, device="cpu", diagnostics=True, checkpoint_every=1.0)
    assert Store(tmp_path).folder(same) == folder
    assert folder.name.startswith("cifar10-vgg5-pc+s-")
    others = [{"seed": 2}, {"epochs": 11}, {"lr_x": 0.4}, {"norm": "bf"}, {"limit": 5}, {"alpha": 0.02}]
    assert len({Store(tmp_path).folder(replace(CONFIG, **other)) for other in others} | {folder}) == 7


def test_it_is_found_whatever_its_folder_is_called(tmp_path):
    leave(tmp_path / "cells" / "renamed", to_table(CONFIG))
    assert Store(tmp_path).find(CONFIG).result["test_accuracy"] == 0.5
    assert Store(tmp_path).folder(CONFIG) == tmp_path / "cells" / "renamed"
    assert Store(tmp_path).find(replace(CONFIG, lr_x=0.4)).status == "missing"


def test_a_changed_default_neither_orphans_a_record_nor_takes_it_for_another(tmp_path, monkeypatch):
    """The manifest has lr_w 0.001 because that was the default. When it becomes 0.002, it is still 0.001."""
    leave(tmp_path / "cells" / "old", to_table(CONFIG))
    default = configs.FIELDS["lr_w"]
    assert default.default == 0.001
    monkeypatch.setitem(configs.FIELDS, "lr_w", configs.dataclasses.replace(default, default=0.002))
    assert Store(tmp_path).find(replace(CONFIG, lr_w=0.002)).status == "missing"
    assert Store(tmp_path).find(replace(CONFIG, lr_w=0.001)).status == "finished"


def test_a_manifest_of_an_older_version_is_understood(tmp_path):
    """It has options that mean nothing to its algorithm, and lacks settings that did not exist."""
    table = {**to_table(CONFIG), "k": 1.5, "free_steps": 0, "presynaptic": "relaxed"}
    del table["compile"], table["precision"]
    leave(tmp_path / "cells" / "old", table)
    assert Store(tmp_path).find(CONFIG).status == "finished"


@pytest.mark.parametrize(
    ("status", "outcome", "found"),
    [
        ("finished", None, "finished"),
        ("diverged", {"status": "diverged", "reason": "too fast"}, "diverged"),
        ("running", None, "unfinished"),
        ("failed", {"status": "failed", "reason": "no room"}, "failed"),
    ],
)
def test_states(tmp_path, status, outcome, found):
    leave(tmp_path / "a", to_table(CONFIG), status, **({"outcome": outcome} if outcome else {}))
    record = read(tmp_path / "a")
    assert (record.status, record.over) == (found, found in ("finished", "diverged"))
    assert record.reason == (outcome or {}).get("reason", "")


def test_runs_and_records_complement_each_other(tmp_path):
    leave(tmp_path / "records" / "a", to_table(CONFIG), **{"measured-energy": {"x": 1}})
    leave(tmp_path / "cells" / "a", to_table(CONFIG), **{"measured-robustness": {"y": 2}})
    other = replace(CONFIG, seed=2)
    leave(tmp_path / "records" / "b", to_table(other))
    leave(tmp_path / "cells" / "b", to_table(other), "running")
    found = Store(tmp_path, tmp_path / "records")
    assert found.find(CONFIG).measured == {"energy": {"x": 1}, "robustness": {"y": 2}}
    assert found.find(other).status == "finished"
    assert found.folder(other) == tmp_path / "cells" / "b"
    assert Store(tmp_path).find(other).status == "unfinished"


def test_records_are_small_and_name_no_machine(tmp_path):
    folder = leave(tmp_path / "cells" / "a", to_table(replace(CONFIG, data_dir="/secret/data")), **{"measured-gap": {}})
    RunFolder(folder).best.write_bytes(b"weights")
    manifest = RunFolder(folder).manifest()
    command = ["deeppc", "paper", "run", "gap", "--data-dir", "/secret/data"]
    again = {"command": command, "machine": manifest["machine"]}
    RunFolder(folder).write_manifest({**manifest, "command": command, "resumed": [again]})
    write_json(folder / "outcome.json", {"status": "diverged", "reason": f"see {folder}"})
    leave(tmp_path / "cells" / "b", to_table(replace(CONFIG, seed=2)), "running")
    assert keep_records(tmp_path, tmp_path / "records") == (1, 1)
    files = sorted((tmp_path / "records").rglob("*.*"))
    names = {"manifest.json", "config.toml", "result.json", "measured-gap.json", "outcome.json"}
    assert {path.name for path in files} == names
    texts = [path.read_text() for path in files]
    assert not any("secret" in text or "host" in text or str(tmp_path) in text for text in texts)
    assert keep_records(tmp_path, tmp_path / "records") == (0, 1)


def test_a_clone_with_records_alone_makes_the_same_tables(tiny, perform, trained, tmp_path):
    """Trained here, rendered there: no run folder, no weights, nothing trained; the same tables."""
    perform(tiny("robustness"))
    keep_records(tmp_path, tmp_path / "records")
    before = json.loads((tiny("robustness").folder / "result.json").read_text())
    shutil.rmtree(tmp_path / "cells")
    trained.clear()
    planned = tiny("robustness", records=tmp_path / "records")
    assert jobs([planned]) == []
    render(planned)
    again = json.loads((planned.folder / "result.json").read_text())
    assert (again["tables"], again["trained"]) == (before["tables"], before["trained"])
    assert trained == []


def test_a_measurement_that_a_record_lacks_is_trained_for(tiny, perform, trained, tmp_path):
    perform(tiny("ablation"), only="* PC VGG5")
    keep_records(tmp_path, tmp_path / "records")
    shutil.rmtree(tmp_path / "cells")
    perform(tiny("robustness", records=tmp_path / "records"))
    assert len(trained) == 1 + 2
    assert keep_records(tmp_path, tmp_path / "records") == (2, 2)  # one of them was there


def test_extra_files_of_a_recipe_are_recorded(tmp_path):
    extra = tmp_path / "time-smoke" / "extra.json"
    write_json(extra, {"width": 0.03, "cells": []})
    keep_records(tmp_path, tmp_path / "records")
    planned = plan("time", "smoke", tmp_path / "clone", records=tmp_path / "records")
    assert planned.evidence().extra == {"width": 0.03, "cells": []}


def test_measurements_survive_a_training_for_another_one(tmp_path, monkeypatch):
    """Weights that were removed are trained again for a new measurement; what was measured before stays."""
    monkeypatch.setattr(store, "KEPT_WEIGHTS", 0)
    config = TrainConfig.of(model="mlp", width=0.05, limit=40, batch_size=20, epochs=1, algorithm="bp", device="cpu")
    for name in ("a", "b"):
        store.complete(config, tmp_path / "cell", {name: lambda folder: {"x": 1}}, lambda event: None)
    assert read(tmp_path / "cell").measured == {"a": {"x": 1}, "b": {"x": 1}}
