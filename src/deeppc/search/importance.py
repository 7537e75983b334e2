"""Which settings matter: fANOVA, as in the paper, and PED-ANOVA beside it, in the paper's table.

fANOVA says how much of the variance of the accuracy, over the whole space, each setting explains by itself. PED-ANOVA
says how much each decides whether a trial is among the best tenth. A search by TPE looks more closely where it is good,
and a pruned trial has no final accuracy: with few trials neither number means much, and :data:`ENOUGH` is a modest ask.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from deeppc.search.plan import Plan
from deeppc.search.records import Trial
from deeppc.search.space import Dimension
from deeppc.search.storage import require_optuna

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.importance import BaseImportanceEvaluator

ENOUGH = 40  # complete trials, below which the numbers are mostly noise
COLUMNS = ("activation", "T", "alpha/k", "lr_x", "lr_w", "momentum_x", "weight_decay")  # of the paper's table
Percent = dict[str, float]


@dataclass(frozen=True)
class Importance:
    """Per cent by setting. ``partial`` counts the trials of a setting that only some of them have.

    The share of such a setting is that among the trials that have it, so a row with one need not sum to 100.
    """

    dataset: str
    model: str
    norm: str
    algorithm: str
    trials: int
    fanova: Percent
    ped_anova: Percent
    partial: dict[str, int]

    @property
    def architecture(self) -> str:
        return self.model if self.norm == "none" else f"{self.model} {self.norm}"

    @property
    def paper(self) -> Percent | None:
        """Beside ours, whatever the norm, of which the paper does not speak; None where it has no such search."""
        return paper_importance(self.dataset, self.model, self.algorithm)

    @property
    def warning(self) -> str:
        """Empty if there are enough trials."""
        if self.trials >= ENOUGH:
            return ""
        which = f"{self.algorithm} on {self.architecture}"
        return f"{which}: only {self.trials} trials; below {ENOUGH} importances are mostly noise."

    def table(self) -> dict[str, Any]:
        return {**vars(self), "paper": self.paper, "warning": self.warning}


def importance(plan: Plan, trials: Sequence[Trial], *, with_pruned: bool = False) -> Importance:
    """The importances in a search, from its complete trials.

    ``with_pruned`` also takes the pruned ones, by the accuracy that they had: more trials, but each too low.
    """
    require_optuna()
    from optuna.importance import FanovaImportanceEvaluator, PedAnovaImportanceEvaluator

    states = ("complete", "pruned") if with_pruned else ("complete",)
    used = [t for t in trials if t.state in states and t.value is not None]
    common = sorted(set.intersection(*(set(t.params) for t in used))) if used else []
    everywhere = {name for t in used for name in t.params}
    partial = {name: sum(name in t.params for t in used) for name in sorted(everywhere - set(common))}
    study = _in_memory(plan, used)
    evaluators: tuple[BaseImportanceEvaluator, ...] = (FanovaImportanceEvaluator(seed=0), PedAnovaImportanceEvaluator())
    fanova, ped_anova = (_evaluate(study, evaluator, common, partial) for evaluator in evaluators)
    c = plan.config
    return Importance(c.dataset, c.model, c.norm, c.algorithm, len(used), fanova, ped_anova, partial)


def _evaluate(
    study: optuna.Study, evaluator: BaseImportanceEvaluator, common: list[str], partial: Iterable[str]
) -> Percent:
    """Of the settings that all trials have; then of each other one, among the trials that have it."""
    found = _shares(study, evaluator, common)
    for name in partial:
        among = _shares(study, evaluator, [*common, name])
        if name in among:
            found[name] = among[name]
    return found


def _shares(study: optuna.Study, evaluator: BaseImportanceEvaluator, params: list[str]) -> Percent:
    """Empty where there is nothing to tell: too few trials, or all equally good."""
    from optuna.importance import get_param_importances

    subset = _subset(study, params)
    values = {t.value for t in subset.trials}
    if not params or len(values) < 2:
        return {}
    try:
        found = get_param_importances(subset, evaluator=evaluator, params=params)
    except RuntimeError:  # the forest finds no variance at all
        return {}
    return {name: 100 * share for name, share in found.items()}


def _subset(study: optuna.Study, params: list[str]) -> optuna.Study:
    import optuna

    subset = optuna.create_study(direction="maximize")
    subset.add_trials([t for t in study.trials if set(params) <= set(t.params)])
    return subset


def _in_memory(plan: Plan, trials: Iterable[Trial]) -> optuna.Study:
    """A study of nothing but finished trials."""
    import optuna

    study = optuna.create_study(direction="maximize")
    distributions = {d.name: _distribution(d) for d in plan.space.dimensions}
    for t in trials:
        own = {name: distributions[name] for name in t.params}
        study.add_trial(optuna.create_trial(params=t.params, distributions=own, value=t.value))
    return study


def _distribution(dimension: Dimension) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    low, high, step = dimension.low, dimension.high, dimension.step
    if not dimension.is_range:
        return CategoricalDistribution(dimension.choices)
    if isinstance(low, int) and isinstance(high, int):
        return IntDistribution(low, high, log=dimension.log, step=int(step or 1))
    return FloatDistribution(low, high, log=dimension.log, step=step)


@cache
def _paper() -> dict[str, Any]:
    return tomllib.loads((files("deeppc.search") / "paper_importance.toml").read_text(encoding="utf-8"))


def paper_importance(dataset: str, model: str, algorithm: str) -> Percent | None:
    """The paper's per cent by column of its table, ``alpha/k`` among them; None for what it does not have."""
    values = _paper().get(dataset, {}).get(model, {}).get(algorithm)
    if values is None:
        return None
    return {name: value for name, value in zip(_paper()["columns"], values, strict=True) if not math.isnan(value)}


def rows(found: Sequence[Importance]) -> tuple[list[str], list[list[str]]]:
    """Head and lines of the paper's table: by network and algorithm, ours and, where there is one, the paper's."""
    named = {name for one in found for name in (*one.fanova, *one.ped_anova)} - {"alpha", "k"}
    columns = [*COLUMNS, *sorted(named - set(COLUMNS))]
    head = ["Arch.", "Method", "by", *columns, "trials"]
    lines = []
    for one in found:
        name, n = [one.architecture, one.algorithm], str(one.trials)
        lines.append([*name, "fANOVA", *_cells(one.fanova, columns, one.partial), n])
        lines.append([*name, "PED-ANOVA", *_cells(one.ped_anova, columns, one.partial), n])
        if one.paper is not None:
            lines.append([*name, "paper", *_cells(one.paper, columns, {}), "200"])
    return head, lines


def by_setting(found: Sequence[Importance]) -> tuple[list[str], list[list[str]]]:
    """The table turned, for a narrow screen: three lines for each setting, a column for each search."""
    head, lines = rows(found)
    searches = list(dict.fromkeys((line[0], line[1]) for line in lines))
    kinds = list(dict.fromkeys(line[2] for line in lines))
    cells = {(line[0], line[1], line[2], name): cell for line in lines for name, cell in zip(head, line, strict=True)}
    turned = []
    for setting in head[3:]:
        for kind in kinds if setting != "trials" else kinds[:1]:
            shown = [cells.get((*search, kind, setting), "–") for search in searches]
            turned.append([setting if kind == kinds[0] else "", kind if setting != "trials" else "", *shown])
    return ["", "", *(f"{net}\n{algorithm}" for net, algorithm in searches)], turned


def _cells(values: Mapping[str, float], columns: Iterable[str], partial: Mapping[str, int]) -> list[str]:
    cells = []
    for column in columns:
        name = next((n for n in ("alpha", "k") if n in values), column) if column == "alpha/k" else column
        mark = f" ({partial[name]} trials)" if name in partial else ""
        cells.append(f"{values[name]:.2f}{mark}" if name in values else "–")
    return cells


def markdown(found: Sequence[Importance]) -> str:
    """The table, with a warning for each row that stands on too few trials."""
    head, lines = rows(found)
    text = [
        "Importance of each hyper-parameter, %. fANOVA as in the paper; PED-ANOVA: for the best tenth of trials.",
        "",
    ]
    text += ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    text += ["| " + " | ".join(line) + " |" for line in lines]
    warnings = [one.warning for one in found if one.warning]
    return "\n".join([*text, *(["", *(f"- {w}" for w in warnings)] if warnings else [])]) + "\n"
