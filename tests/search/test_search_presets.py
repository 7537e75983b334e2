"""Presets: found, listed, laid under a config and flags, and made from a search."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deeppc import presets
from deeppc.cli import main as cli
from deeppc.runs.folder import saved_config
from deeppc.search.plan import Plan
from deeppc.search.provenance import preset_of
from deeppc.search.records import Trial
from deeppc.search.study import search
from deeppc.training import ConfigError, TrainConfig
from deeppc.training.config import read_toml

MakePlan = Callable[..., Plan]
TEXT = """# From a search of 40 trials.
# Held-out accuracy: 50 %.

dataset = "digits"
model = "mlp"
algorithm = "pc+s+f"
width = 0.05
lr_x = 0.3
lr_w = 0.002
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Instead of the shipped ones: a single preset."""
    place = tmp_path / "presets"
    place.mkdir()
    (place / "digits-mlp-pc+s+f.toml").write_text(TEXT)
    monkeypatch.setattr(presets, "SHIPPED", place)
    monkeypatch.chdir(tmp_path)
    return place


def test_every_shipped_preset_is_sound() -> None:
    for name in presets.names():
        preset = presets.load(name)
        assert presets.name_of(preset.config()) == name
        assert "trials" in preset.provenance.lower(), f"{name} does not say where it comes from"


def test_found_by_task(folder: Path) -> None:
    assert presets.find("digits", "mlp", "pc+s+f") == read_toml(folder / "digits-mlp-pc+s+f.toml")
    assert presets.find("digits", "mlp", "pc") is None
    assert presets.find("digits", "mlp", "pc+s+f", norm="bf") is None
    assert presets.load("digits-mlp-pc+s+f").provenance == "From a search of 40 trials.\nHeld-out accuracy: 50 %."


def test_without_any(tmp_path: Path) -> None:
    nowhere = tmp_path / "none"
    assert presets.names(nowhere) == []
    assert presets.find("cifar10", "vgg5", "bp", folder=nowhere) is None
    with pytest.raises(ConfigError, match="there are none yet"):
        presets.load("cifar10-vgg5-bp", nowhere)


def test_mistakes(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'digits-mlp-pc\+s\+f'"):
        presets.load("digits-mlp-pc+s")
    (folder / "bad.toml").write_text("lr_y = 1\n")
    with pytest.raises(ConfigError, match=r"bad.toml: unknown key 'lr_y'"):
        presets.load("bad")


def test_flags_win_over_config_wins_over_preset_wins_over_defaults(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("lr_w = 0.003\nbatch_size = 32\n")
    flags = ["--limit", "40", "--epochs", "1", "--device", "cpu", "--run-dir", "run", "--batch-size", "24"]
    assert cli.main(["train", "--preset", "digits-mlp-pc+s+f", "--config", "my.toml", *flags]) == 0
    config = saved_config(Path("run"))
    assert (config.lr_x, config.lr_w, config.batch_size) == (0.3, 0.003, 24)
    assert config.weight_decay == TrainConfig().weight_decay


def test_the_list(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["presets"]) == 0
    out = capsys.readouterr().out
    assert "digits-mlp-pc+s+f" in out
    assert "From a search of 40 trials." in out
    next(folder.iterdir()).unlink()
    assert cli.main(["presets"]) == 0
    assert "There are none yet" in capsys.readouterr().out


def test_made_from_a_search(tiny: MakePlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tiny(trials=3, pruner="none", beta=0.5, schedule_epochs=2)
    result = search(plan)
    assert cli.main(["search", "preset", str(plan.folder), "--out", str(tmp_path / "made")]) == 0
    assert capsys.readouterr().out.strip().endswith("made/digits-mlp-pc+s+f.toml")
    made = presets.load("digits-mlp-pc+s+f", tmp_path / "made")
    assert {name: made.table[name] for name in result.best.params} == result.best.params
    task = {"dataset": "digits", "model": "mlp", "algorithm": "pc+s+f", "width": 0.05}
    # and what the plan fixed otherwise than by default, but no budget and no place
    assert made.table == {**task, **result.best.params, "beta": 0.5, "batch_size": 24}
    assert "Search 'study': 3 trials by TPE with seed 0, 3 complete, 0 pruned, 0 diverged." in made.provenance
    assert "2 epochs on 60 images" in made.provenance
    assert f"held-out images: {100 * (result.best.value or 0):.2f} %" in made.provenance


def test_seeds_trained_afterwards_are_told(tiny: MakePlan) -> None:
    plan = tiny()
    (plan.folder / "seeds").mkdir(parents=True)
    rows = [{"test_accuracy": [0.5, 0.52, 0.54]}]
    (plan.folder / "seeds" / "comparison.json").write_text(json.dumps({"rows": rows}))
    _, text = preset_of(plan, [Trial(0, "complete", 0.5, {"lr_w": 0.01}, {}, None)])
    assert "Test accuracy over 3 seeds: 52.00 ± 2.00 %." in text  # the sample deviation of 50, 52, 54


def test_none_from_a_search_without_a_result(tiny: MakePlan) -> None:
    with pytest.raises(Exception, match="there is no best one to keep"):
        preset_of(tiny(), [])
