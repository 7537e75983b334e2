"""Pictures of a search: every trial where it belongs, whatever is missing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from deeppc.report import study_plots
from deeppc.report.plots import as_svg
from deeppc.report.study_plots import GREEN, Scale
from deeppc.report.style import NARROW, WIDE

SCALES = {
    "lr_x": Scale(log=True),
    "activation": Scale(choices=("gelu", "relu")),
    "T": Scale(),
    "k": Scale(choices=(1.0, None)),
}


def trial(number: int, value: float | None, state: str = "complete", **params: Any) -> dict[str, Any]:
    given = {"lr_x": 10.0 ** -(number % 3), "activation": ("gelu", "relu")[number % 2], "T": 5 + number, **params}
    epochs = {1: 0.1, 2: value} if value is not None else {}
    return {"number": number, "state": state, "value": value, "params": given, "epochs": epochs}


TRIALS = [
    trial(0, 0.5),
    trial(1, 0.4, k=1.0),
    trial(2, 0.2, "pruned"),
    trial(3, None, "failed"),
    trial(4, 0.7, k=None),
    trial(5, None, "running"),
    trial(6, 0.6),
]
DRAW: dict[str, Callable[..., Figure]] = {
    "history": study_plots.history,
    "learning": study_plots.learning,
    "slices": lambda trials, **size: study_plots.slices(trials, SCALES, **size),
    "parallel": lambda trials, **size: study_plots.parallel(trials, SCALES, **size),
}


@pytest.mark.parametrize("name", DRAW)
@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("trials", [TRIALS, TRIALS[:1], TRIALS[2:3], TRIALS[3:4], []])
def test_always_a_picture(name: str, width: float, trials: list[dict[str, Any]]) -> None:
    figure = DRAW[name](trials, width=width)
    assert as_svg(figure).startswith(b"<?xml")
    assert figure.get_size_inches()[0] == width


def points(figure: Figure, label: str) -> np.ndarray[Any, Any]:
    found = [c.get_offsets() for axes in figure.axes for c in axes.collections if c.get_label() == label]
    return np.concatenate([np.asarray(offsets) for offsets in found])


def test_history_shows_each_state_and_the_best_so_far() -> None:
    figure = study_plots.history(TRIALS)
    assert points(figure, "complete").tolist() == [[0, 0.5], [1, 0.4], [4, 0.7], [6, 0.6]]
    assert points(figure, "pruned").tolist() == [[2, 0.2]]
    assert points(figure, "failed")[:, 0].tolist() == [3]
    best = next(line for line in figure.axes[0].lines if line.get_label() == "best")
    assert np.asarray(best.get_ydata()).tolist() == [0.5, 0.5, 0.7, 0.7, 0.7]


def test_learning_marks_the_best_trial() -> None:
    lines = study_plots.learning(TRIALS).axes[0].lines
    green = [line for line in lines if line.get_color() == GREEN]
    assert len(lines) == 5
    assert [np.asarray(line.get_ydata()).tolist() for line in green] == [[0.1, 0.7]]


def test_a_slice_for_each_setting_at_its_values() -> None:
    figure = study_plots.slices(TRIALS, SCALES)
    assert [axes.get_title(loc="left") for axes in figure.axes] == list(SCALES)
    assert points(figure, "lr_x")[:, 0].tolist() == pytest.approx([1, 0.1, 0.01, 0.1, 1])
    assert points(figure, "activation")[:, 0].tolist() == [0, 1, 0, 0, 0]
    assert points(figure, "k").tolist() == [[0, 0.4], [1, 0.7]]  # only where it was drawn
    assert figure.axes[0].get_xscale() == "log"
    assert points(figure, "best")[:3].tolist() == [[0.1, 0.7], [0, 0.7], [9, 0.7]]


def test_parallel_lines_run_through_the_settings() -> None:
    figure = study_plots.parallel(TRIALS, SCALES)
    axes = figure.axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["lr_x", "activation", "T", "accuracy"]  # not k
    lines = axes.collections[0].get_segments()  # type: ignore[attr-defined]
    by_accuracy = [[0.5, 1, 1 / 6, 0.0], [1, 0, 0, 1 / 3], [1, 0, 1, 2 / 3], [0.5, 0, 4 / 6, 1]]
    heights = [line[:, 1].tolist() for line in lines]
    expected = [
        [h if i else _log(n) for i, h in enumerate(row)] for n, row in zip((1, 0, 6, 4), by_accuracy, strict=True)
    ]
    for found, wanted in zip(heights, expected, strict=True):
        assert found == pytest.approx(wanted)


def _log(number: int) -> float:
    """lr_x of trials 0, 1, 4 and 6 lies between 0.1 and 1."""
    return 1 + math.log10(10.0 ** -(number % 3))


def test_importances_beside_each_other() -> None:
    rows = {"fANOVA": {"lr_w": 80.0, "T": 20.0}, "PED-ANOVA": {"lr_w": 60.0}, "paper": {"T": 5.0}}
    axes = study_plots.importances(rows).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [20, 80]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["T", "lr_w"]
    marks = {c.get_label(): c.get_offsets().tolist() for c in axes.collections}  # type: ignore[union-attr]
    assert marks == {"PED-ANOVA": [[60, 1]], "paper": [[5, 0]]}
    assert axes.collections[0].get_edgecolor()[0].tolist() != list(to_rgba("none"))  # type: ignore[index]
    assert study_plots.importances({"fANOVA": {}}).axes == []
