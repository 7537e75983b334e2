"""Presets made from a search, with where they come from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deeppc import presets
from deeppc.cli.main import main
from deeppc.errors import RunError
from deeppc.search.plan import Plan
from deeppc.search.provenance import preset_of
from deeppc.search.study import search
from deeppc.search.trials import Trial, score

MakePlan = Callable[..., Plan]


def test_made_from_a_search(
    tiny: MakePlan, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tiny(trials=2, pruner="none", beta=0.5, schedule_epochs=2)
    result = search(plan)
    assert main(["search", "preset", str(plan.folder), "--out", str(tmp_path / "made")]) == 0
    assert capsys.readouterr().out.strip().endswith("made/digits-mlp-pc+s+f.toml")
    monkeypatch.setattr(presets, "SHIPPED", tmp_path / "made")
    made = presets.load("digits-mlp-pc+s+f")
    task = {"dataset": "digits", "model": "mlp", "algorithm": "pc+s+f", "width": 0.05}
    # and what the plan fixed otherwise than by default, but no budget and no place
    assert made.table == {**task, **result.best.params, "beta": 0.5, "batch_size": 24}
    assert "Search 'study': 2 trials by TPE with seed 0, 2 complete, 0 pruned, 0 diverged." in made.provenance
    assert "2 epochs on 60 images" in made.provenance
    assert f"held-out images: {score(result.best.value)}" in made.provenance


def test_seeds_trained_afterwards_are_told(tiny: MakePlan) -> None:
    plan = tiny()
    (plan.folder / "seeds").mkdir(parents=True)
    rows = [{"test_accuracy": [0.5, 0.52, 0.54]}]
    (plan.folder / "seeds" / "comparison.json").write_text(json.dumps({"rows": rows}))
    _, text = preset_of(plan, [Trial(0, "complete", 0.5, {"lr_w": 0.01}, {}, None)])
    assert "Test accuracy over 3 seeds: 52.00 ± 2.00 %." in text  # the sample deviation of 50, 52, 54


def test_none_from_a_search_without_a_result(tiny: MakePlan) -> None:
    with pytest.raises(RunError, match="there is no best one to keep"):
        preset_of(tiny(), [])
