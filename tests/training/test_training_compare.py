"""Comparisons: the same start and data for all, a table checked by hand, runs that are not repeated."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deeppc.training import ConfigError, Interrupted, RunError, TrainConfig
from deeppc.training import checkpoint as checkpoints
from deeppc.training.compare import Comparison, Row, as_csv, cells, compare, markdown, saved_comparison, spread
from deeppc.training.events import BatchDone, Event, Note

MakeConfig = Callable[..., TrainConfig]


def row(algorithm: str, accuracies: list[float]) -> Row:
    made = Row(algorithm)
    for i, accuracy in enumerate(accuracies):
        made.add(
            f"{algorithm}-{i}",
            {"test_accuracy": accuracy, "test_top5": 1.0, "validation_accuracy": accuracy, "seconds": 2.0 + i},
        )
    return made


def test_mean_and_spread_by_hand() -> None:
    mean, deviation = spread([2.0, 4.0, 9.0])  # squares of the differences from 5: 9 + 1 + 16 = 26, over n - 1 = 2
    assert mean == 5.0
    assert deviation == pytest.approx(math.sqrt(13))
    assert spread([3.0]) == (3.0, None)


def test_cells_show_percent_mean_and_spread() -> None:
    assert cells(row("pc", [0.90, 0.92])) == ("pc", "91.00 ± 1.41", "100.00 ± 0.00", "91.00 ± 1.41", "2.50 ± 0.71", "2")
    assert cells(row("bp", [0.5])) == ("bp", "50.00", "100.00", "50.00", "2.00", "1")
    assert cells(dataclasses.replace(Row("pc"), diverged=["pc-0"])) == ("pc", "-", "-", "-", "-", "0, 1 diverged")


def test_markdown_and_csv() -> None:
    lost = dataclasses.replace(row("pc", [0.9]), diverged=["pc-1"])
    comparison = Comparison(Path("x"), TrainConfig(), (0, 1), [row("bp", [0.5, 0.7]), lost])
    assert "| bp | 60.00 ± 14.14 |" in markdown(comparison)
    assert "seeds 0, 1" in markdown(comparison)
    table = list(csv.DictReader(as_csv(comparison).splitlines()))
    assert [(line["run"], line["test_accuracy"]) for line in table] == [
        ("bp-0", "0.5"),
        ("bp-1", "0.7"),
        ("pc-0", "0.9"),
        ("pc-1", "diverged"),
    ]


def test_a_comparison_starts_all_alike_and_is_written_down(tiny: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
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
    again = compare(dataclasses.replace(config, resume=True), ["bp", "pc+s+f", "pc"], [0, 1], events.append)
    assert sum(isinstance(e, BatchDone) for e in events) == 2 * 3  # only pc was trained
    assert [len(r.runs) for r in again.rows] == [2, 2, 2]
    assert again.rows[0] == found.rows[0]


def test_a_run_that_diverges_does_not_stop_the_others(tiny: MakeConfig) -> None:
    events: list[Event] = []
    found = compare(tiny("many", epochs=1, lr_x=100.0), ["pc", "bp"], [0], events.append)
    assert [len(r.runs) for r in found.rows] == [0, 1]
    assert found.rows[0].diverged == ["pc-0"]
    assert any(isinstance(e, Note) and "diverged" in e.text for e in events)


def test_an_interrupted_comparison_goes_on(tiny: MakeConfig) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, BatchDone) and event.batch == 2:
            signal.raise_signal(signal.SIGINT)

    config = tiny("many", epochs=1)
    with pytest.raises(Interrupted, match="deeppc compare --resume --run-dir") as stopped:
        compare(config, ["bp", "pc"], [3], stop)
    assert stopped.value.exit_code == 130
    assert config.run_dir is not None
    saved, algorithms, seeds = saved_comparison(config.run_dir)
    assert (algorithms, seeds) == (["bp", "pc"], [3])
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
    with pytest.raises(RunError, match="cannot be written"):
        compare(tiny("file/many"), ["bp"], [0])
    with pytest.raises(RunError, match="no comparison to resume"):
        saved_comparison(tmp_path)
    (tmp_path / "comparison.json").write_text("{}")
    with pytest.raises(RunError, match="is damaged"):
        saved_comparison(tmp_path)
