"""Which settings matter: fANOVA, as in the paper, and PED-ANOVA beside it, in the paper's table.

fANOVA says how much of the variance of the score, over the whole space, each setting explains by itself. PED-ANOVA
says how much each decides whether a trial is among the best tenth. A search by TPE looks more closely where it is good,
and a pruned trial has no final score: with few trials neither number means much, and :data:`ENOUGH` is a modest ask.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from deeppc.report.tables import UNKNOWN, Table
from deeppc.search.plan import Plan
from deeppc.search.storage import require_optuna
from deeppc.search.trials import Trial

if TYPE_CHECKING:
    from optuna.importance import BaseImportanceEvaluator

ENOUGH = 40  # complete trials, below which the numbers are mostly noise
COLUMNS = ("activation", "T", "alpha/k", "lr_x", "lr_w", "momentum_x", "weight_decay")  # of the paper's table
NOTE = "Importance of each hyper-parameter, %. fANOVA as in the paper; PED-ANOVA: for the best tenth of trials."
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
        which = f"{self.algorithm} on {self.architecture}: only {self.trials} trials"
        return "" if self.trials >= ENOUGH else f"{which}; below {ENOUGH} importances are mostly noise."

    def table(self) -> dict[str, Any]:
        return {**vars(self), "paper": self.paper, "warning": self.warning}


def importance(plan: Plan, trials: Sequence[Trial], *, with_pruned: bool = False) -> Importance:
    """The importances in a search, from its complete trials.

    ``with_pruned`` also takes the pruned ones, by the score that they had: more trials, but each too low.
    """
    require_optuna()
    from optuna.importance import FanovaImportanceEvaluator, PedAnovaImportanceEvaluator

    states = ("complete", "pruned") if with_pruned else ("complete",)
    used = [t for t in trials if t.state in states and t.value is not None]
    common = sorted(set.intersection(*(set(t.params) for t in used))) if used else []
    everywhere = {name for t in used for name in t.params}
    partial = {name: sum(name in t.params for t in used) for name in sorted(everywhere - set(common))}
    fanova, ped_anova = (
        _shares(plan, used, evaluator, common, partial)
        for evaluator in (FanovaImportanceEvaluator(seed=0), PedAnovaImportanceEvaluator())
    )
    c = plan.config
    return Importance(c.dataset, c.model, c.norm, c.algorithm, len(used), fanova, ped_anova, partial)


def _shares(
    plan: Plan, trials: Sequence[Trial], by: BaseImportanceEvaluator, common: list[str], partial: Iterable[str]
) -> Percent:
    """Of the settings that all trials have, and of each other one among the trials that have it."""
    found = _share(plan, trials, by, common)
    for name in partial:
        own = _share(plan, [t for t in trials if name in t.params], by, [*common, name])
        found |= {n: share for n, share in own.items() if n == name}
    return found


def _share(plan: Plan, trials: Iterable[Trial], by: BaseImportanceEvaluator, params: list[str]) -> Percent:
    """Empty where there is nothing to tell: too few trials, or all equal."""
    import optuna

    study = optuna.create_study(direction="maximize")
    distributions = {d.name: d.distribution() for d in plan.space.dimensions}
    for t in trials:
        own = {name: distributions[name] for name in t.params}
        study.add_trial(optuna.create_trial(params=t.params, distributions=own, value=t.value))
    if not params or len({t.value for t in study.get_trials(deepcopy=False)}) < 2:
        return {}
    try:
        found = optuna.importance.get_param_importances(study, evaluator=by, params=params)
    except RuntimeError:  # the forest finds no variance at all
        return {}
    return {name: 100 * share for name, share in found.items()}


@cache
def _paper() -> dict[str, Any]:
    return tomllib.loads((files("deeppc.search") / "paper_importance.toml").read_text(encoding="utf-8"))


def paper_importance(dataset: str, model: str, algorithm: str) -> Percent | None:
    """The paper's per cent by column of its table, ``alpha/k`` among them; None for what it does not have."""
    values = _paper().get(dataset, {}).get(model, {}).get(algorithm)
    if values is None:
        return None
    return {name: value for name, value in zip(_paper()["columns"], values, strict=True) if not math.isnan(value)}


def as_table(found: Sequence[Importance]) -> Table:
    """The paper's table: by network and algorithm, ours and, where there is one, the paper's."""
    named = {name for one in found for name in (*one.fanova, *one.ped_anova)} - {"alpha", "k"}
    columns = [*COLUMNS, *sorted(named - set(COLUMNS))]
    rows = []
    for one in found:
        for by, values, trials in (("fANOVA", one.fanova, one.trials), ("PED-ANOVA", one.ped_anova, one.trials),
                                   ("paper", one.paper, 200)):  # fmt: skip
            if values is not None:
                cells = _cells(values, columns, {} if by == "paper" else one.partial)
                rows.append([one.architecture, one.algorithm, by, *cells, trials])
    return Table(
        ["Arch.", "Method", "by", *columns, "trials"], rows, note="\n".join(o.warning for o in found if o.warning)
    )


def turned(found: Sequence[Importance]) -> Table:
    """The table on its side, for a narrow screen: a row for each setting."""
    wide = as_table(found)
    names = [f"{net} {algorithm} {by}" for net, algorithm, by, *_ in wide.rows]
    return Table(["", *names], list(zip(wide.columns, *wide.rows, strict=True))[3:], note=wide.note)


def _cells(values: Mapping[str, float], columns: Iterable[str], partial: Mapping[str, int]) -> list[str]:
    cells = []
    for column in columns:
        name = next((n for n in ("alpha", "k") if n in values), column) if column == "alpha/k" else column
        mark = f" ({partial[name]} trials)" if name in partial else ""
        cells.append(f"{values[name]:.2f}{mark}" if name in values else UNKNOWN)
    return cells
