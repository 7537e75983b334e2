"""Importances against variances known by arithmetic, and the paper's table typed from it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import nan
from typing import Any

import pytest

from deeppc.search.importance import COLUMNS, ENOUGH, as_table, importance, paper_importance, turned
from deeppc.search.plan import Plan
from deeppc.search.trials import Trial

MakePlan = Callable[..., Plan]


def trial(number: int, value: float | None, params: dict[str, Any], state: Any = "complete") -> Trial:
    return Trial(number, state, value, params, {}, None)


def grid(value: Callable[[float, float], float]) -> list[Trial]:
    """Every pair of lr_x and momentum_x on a grid of 11 by 11."""
    steps = [i / 10 for i in range(11)]
    pairs = product([0.1 + 0.4 * s for s in steps], steps)
    return [trial(i, value(x, m), {"lr_x": x, "momentum_x": m}) for i, (x, m) in enumerate(pairs)]


@pytest.fixture
def plan(tiny: MakePlan) -> Plan:
    return tiny(algorithm="pc", space=["lr_x=0.1..0.5 linear", "momentum_x=0..1 step 0.1"])


def test_shares_are_those_of_the_variance(plan: Plan) -> None:
    """Of 3 a + b with a and b even on the same interval, a has 9 parts of the variance and b has 1."""
    found = importance(plan, grid(lambda x, m: 3 * (x - 0.1) / 0.4 + m))
    assert found.fanova["lr_x"] == pytest.approx(90, abs=3)
    assert found.fanova["momentum_x"] == pytest.approx(10, abs=3)
    assert sum(found.ped_anova.values()) == pytest.approx(100)
    assert found.ped_anova["lr_x"] > found.ped_anova["momentum_x"]
    assert found.trials == 121
    assert found.warning == ""


def test_only_complete_trials_count_unless_asked(plan: Plan) -> None:
    trials = grid(lambda x, m: m)
    others = [trial(200, 0.9, {"lr_x": 0.2, "momentum_x": 0.0}, state) for state in ("pruned", "failed", "lost")]
    assert importance(plan, trials + others).trials == 121
    assert importance(plan, trials + others, with_pruned=True).trials == 122


def test_a_setting_of_some_trials_only(tiny: MakePlan) -> None:
    """Of those with a norm, half have it affine and are better by far."""
    plan = tiny(algorithm="pc", space=["norm=none,bf", "affine=true,false", "lr_x=0.1..0.5 linear"])
    trials = []
    for i in range(80):
        params: dict[str, Any] = {"lr_x": 0.1 + 0.4 * (i // 4) / 19, "norm": ("none", "bf")[i % 2]}
        if params["norm"] == "bf":
            params["affine"] = i % 4 == 1
        trials.append(trial(i, 0.5 + 0.4 * bool(params.get("affine")), params))
    found = importance(plan, trials)
    assert found.partial == {"affine": 40}
    assert found.fanova["affine"] > 95
    assert "affine" in found.ped_anova
    table = as_table([found])
    assert str(table.rows[0][table.columns.index("affine")]).endswith("(40 trials)")


def test_where_there_is_little_to_tell(plan: Plan) -> None:
    for n in (0, 1, 2):
        found = importance(plan, grid(lambda x, m: m)[:n])
        assert f"only {n} trials; below {ENOUGH}" in found.warning
        assert found.warning in as_table([found]).markdown()
    equal = importance(plan, grid(lambda x, m: 0.5))
    assert equal.fanova == equal.ped_anova == {}


@pytest.mark.parametrize(
    ("task", "values"),  # by column; nan where the paper has none
    [
        ("cifar10 vgg5 bp", [0.94, nan, nan, nan, 98.99, nan, 0.07]),
        ("cifar10 vgg10 pc+s+f", [4.84, 1.55, 2.08, 9.80, 77.14, 2.16, 2.43]),
        ("cifar100 resnet18 pc+s+f", [1.30, 0.46, 0.79, 14.49, 34.98, 45.45, 2.54]),
        ("cifar100 vgg7 ipc", [3.26, 0.64, nan, 1.87, 57.30, 36.54, 0.40]),
    ],
)
def test_the_papers_values(task: str, values: list[float]) -> None:
    known = {name: value for name, value in zip(COLUMNS, values, strict=True) if value == value}
    assert paper_importance(*task.split()) == known


def test_every_row_of_the_paper_sums_to_a_hundred() -> None:
    """But three, which are printed so."""
    nets, algorithms = ("vgg5", "vgg7", "vgg10", "resnet10", "resnet18"), ("bp", "pc", "ipc", "ipc+s", "pc+s+f")
    tasks = product(("cifar10", "cifar100"), nets, algorithms)
    sums = {task: sum((paper_importance(*task) or {}).values()) for task in tasks}
    odd = {task: round(total, 2) for task, total in sums.items() if abs(total - 100) > 0.1}
    assert set(odd) == {("cifar10", "vgg5", "ipc"), ("cifar10", "vgg7", "ipc"), ("cifar10", "vgg7", "ipc+s")}
    assert sorted(odd.values()) == [98.71, 99.47, 100.36]
    assert paper_importance("digits", "vgg5", "bp") is None


def test_the_papers_layout(tiny: MakePlan) -> None:
    plan = tiny(algorithm="pc+d+f", dataset="cifar10", model="vgg5", space=["norm=none"])
    trials = [trial(i, i / 10, {"k": (1.0, 1.5, 2.0)[i % 3], "T": 5 + i % 4}) for i in range(6)]
    found = importance(plan, trials)
    table = as_table([found])
    head, lines = list(table.columns), table.rows
    assert head == ["Arch.", "Method", "by", *COLUMNS, "trials"]
    assert [line[:3] for line in lines] == [["vgg5", "pc+d+f", by] for by in ("fANOVA", "PED-ANOVA", "paper")]
    assert lines[0][head.index("alpha/k")] == f"{found.fanova['k']:.2f}"
    assert lines[2][head.index("lr_w")] == "74.62"
    assert lines[0][head.index("lr_w")] == "–"
    narrow = turned([found])
    assert narrow.columns == ["", *(f"vgg5 pc+d+f {by}" for by in ("fANOVA", "PED-ANOVA", "paper"))]
    assert list(narrow.rows[4]) == ["lr_w", "–", "–", "74.62"]
