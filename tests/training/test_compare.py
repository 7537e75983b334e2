"""Comparisons: the same start and data for all, a table checked by hand, runs that are not repeated."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deeppc.errors import ConfigError, Interrupted, RunError
from deeppc.runs.folder import RunFolder
from deeppc.training import TrainConfig
from deeppc.training import checkpoint as checkpoints
from deeppc.training.compare import Comparison, Row, compare, saved_comparison
from deeppc.training.config import replace
from deeppc.training.events import BatchDone, Event, Note

MakeConfig = Callable[..., TrainConfig]


def row(algorithm: str, accuracies: list[float], diverged: tuple[str, ...] = ()) -> Row:
    results = {}
    for i, accuracy in enumerate(accuracies):
        scores = {"test_accuracy": accuracy, "test_top5": 1.0, "validation_accuracy": accuracy}
        results[f"{algorithm}-{i}"] = {**scores, "seconds": 2.0 + i, "epochs": 3}
    return Row(algorithm, results, list(diverged))


def test_summary_and_runs() -> None:
    """91 ± sqrt(2) of 90 and 92: the sample's standard deviation."""
    rows = [row("pc", [0.90, 0.92]), row("bp", [0.5], ("bp-1",)), row("ipc", [], ("ipc-0",))]
    comparison = Comparison(Path("x"), TrainConfig(), (0, 1), rows)
    summary = comparison.summary()
    assert list(summary.columns) == ["algorithm", "test accuracy, %", "top-5, %", "validation, %", "seconds", "runs"]
    assert list(summary.rows[0]) == ["pc", "91.00 ± 1.41", "100.00 ± 0.00", "91.00 ± 1.41", "2.50 ± 0.71", "2"]
    assert list(summary.rows[1]) == ["bp", "50.00", "100.00", "50.00", "2.00", "1, 1 diverged"]
    assert "seeds 0, 1" in summary.markdown()
    table = list(csv.DictReader(comparison.runs().csv().splitlines()))
    assert [(line["run"], line["test_accuracy"], line["status"]) for line in table] == [
        ("pc-0", "0.9", "finished"),
        ("pc-1", "0.92", "finished"),
        ("bp-0", "0.5", "finished"),
        ("bp-1", "", "diverged"),
        ("ipc-0", "", "diverged"),
    ]


def test_errors_are_no_percentages() -> None:
    made = Row("pc", {"pc-0": {"test_mse": 0.12345, "validation_mse": None, "seconds": 1.0}})
    summary = Comparison(Path("x"), TrainConfig(), (0,), [made]).summary()
    assert list(summary.columns)[1:3] == ["test mse", "validation mse"]
    assert list(summary.rows[0])[1:3] == ["0.1235", "–"]


def test_a_comparison_starts_all_alike_and_is_written_down(
    tiny: MakeConfig, monkeypatch: pytest.MonkeyPatch, reports: list[tuple[str, Path]]
) -> None:
    starts: dict[str, Any] = {}
    real = checkpoints.save

    def spy(path: Path, net: Any, *args: Any, **kwargs: Any) -> None:
        starts.setdefault(path.parent.name, [p.detach().clone() for p in net.parameters()])
        real(path, net, *args, **kwargs)

    monkeypatch.setattr(checkpoints, "save", spy)
    config = tiny("many", epochs=1, presynaptic="relaxed")
    found = compare(config, ["bp", "pc+s+f"], [0, 1])
    assert sorted(starts) == ["bp-0", "bp-1", "pc+s+f-0", "pc+s+f-1"]
    assert all((a == b).all() for a, b in zip(starts["bp-0"], starts["pc+s+f-0"], strict=True))
    assert any((a != b).any() for a, b in zip(starts["bp-0"], starts["bp-1"], strict=True))
    assert [function for function, _ in reports] == ["write_run"] * 4 + ["write_comparison"]
    assert reports[-1][1] == found.folder

    saved = json.loads((found.folder / "comparison.json").read_text())
    assert [r["algorithm"] for r in saved["rows"]] == ["bp", "pc+s+f"]
    for r in saved["rows"]:
        for run, accuracy in zip(r["runs"], r["test_accuracy"], strict=True):
            assert json.loads((found.folder / run / "result.json").read_text())["test_accuracy"] == accuracy
    assert (found.folder / "comparison.md").exists()
    assert (found.folder / "comparison.csv").exists()

    with pytest.raises(RunError, match="already holds a comparison"):
        compare(config, ["bp"], [0])
    events: list[Event] = []
    again = compare(replace(config, resume=True), ["bp", "pc+s+f", "pc"], [0, 1], events.append)
    assert sum(isinstance(e, BatchDone) for e in events) == 2 * 3  # only pc was trained
    assert [len(r.runs) for r in again.rows] == [2, 2, 2]
    assert again.rows[0] == found.rows[0]


def test_each_algorithm_takes_the_options_that_it_has(tiny: MakeConfig) -> None:
    found = compare(tiny("many", epochs=1), ["pc+d", "bp"], [0], options={"k": 2.0, "loss": "cross_entropy"})
    configs = [RunFolder(found.folder / run).config() for run in ("pc+d-0", "bp-0")]
    assert [(c.get("k"), c["loss"]) for c in configs] == [(2.0, "cross_entropy"), (None, "cross_entropy")]
    assert saved_comparison(found.folder)[3] == {"k": 2.0, "loss": "cross_entropy"}
    with pytest.raises(ConfigError, match=r"--alpha means nothing to any of pc[+]d, bp"):
        compare(tiny("other"), ["pc+d", "bp"], [0], options={"alpha": 0.1})


def test_a_run_that_diverges_does_not_stop_the_others(tiny: MakeConfig) -> None:
    events: list[Event] = []
    found = compare(tiny("many", epochs=1, lr_x=100.0), ["pc", "bp"], [0], events.append)
    assert [len(r.runs) for r in found.rows] == [0, 1]
    assert found.rows[0].diverged == ["pc-0"]
    assert any(isinstance(e, Note) and "diverged" in e.text for e in events)


def test_an_interrupted_comparison_is_resumed(tiny: MakeConfig, stop_after: Any) -> None:
    config = tiny("many", epochs=1)
    with pytest.raises(Interrupted, match="deeppc compare --resume --run-dir") as stopped:
        compare(config, ["bp", "pc"], [3], stop_after(2))
    assert stopped.value.exit_code == 130
    assert config.run_dir is not None
    saved, algorithms, seeds, _ = saved_comparison(config.run_dir)
    assert (algorithms, seeds) == (["bp", "pc"], [3])
    with pytest.raises(ConfigError, match=r"--lr-w is 0\.5, but this run was begun with 0\.001"):
        compare(replace(saved, lr_w=0.5), algorithms, seeds)
    assert saved_comparison(config.run_dir)[0] == saved  # and nothing is written
    assert [len(r.runs) for r in compare(saved, algorithms, seeds).rows] == [1, 1]


def test_what_cannot_be_compared(tiny: MakeConfig, tmp_path: Path) -> None:
    for algorithms, seeds, words in (
        ([], [0], "Say what to compare"),
        (["bp", "bp"], [0], "Named twice: bp, bp"),
        (["bp"], [1, 1], "Named twice: 1, 1"),
        (["bp", "pc+q"], [0], "unknown algorithm 'pc[+]q'"),
    ):
        with pytest.raises(ConfigError, match=words):
            compare(tiny(), algorithms, seeds)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="could not be written"):
        compare(tiny("file/many"), ["bp"], [0])
    with pytest.raises(RunError, match="no comparison to resume"):
        saved_comparison(tmp_path)
    (tmp_path / "comparison.json").write_text("{}")
    with pytest.raises(RunError, match="is damaged"):
        saved_comparison(tmp_path)


def test_a_refused_resume_changes_nothing(tiny: Callable[..., TrainConfig]) -> None:
    config = tiny("c", algorithm="bp", epochs=1)
    compare(config, ["bp", "pc"], [0], options={"lr_x": 0.1}, report=False)
    table = (config.run_dir or Path()) / "comparison.json"
    before = table.read_text()
    with pytest.raises(ConfigError, match="lr-x"):
        compare(replace(config, resume=True), ["bp", "pc"], [0], options={"lr_x": 0.2}, report=False)
    assert table.read_text() == before


def test_a_precision_that_kills_is_refused_before_anything_is_written(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_announces_amx", "_kills"):
        monkeypatch.setattr(f"deeppc.training.devices.{name}", lambda: True)
    with pytest.raises(ConfigError, match="kills a process"):
        compare(tiny("both", precision="bf16"), ["bp", "pc"], [0])
    assert not (tmp_path / "both").exists()
