"""The paper's statements, one line each, against the results at hand.

A claim is a pure function of results: it *holds*, *does not hold*, or there is *not enough data*, always with the
numbers. A difference is given with its interval of 95 % over seeds (Welch's t: each side has a spread of its own, for
what breaks down spreads more than what learns), and one that the interval leaves open is not enough data either. One
seed has no interval, and is called that. A network whose runs all diverged counts as 0 % accurate. A claim that does
not hold at a small scale is a finding about that scale, not a failure of anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal

from deeppc.errors import RunError
from deeppc.paper import results
from deeppc.paper.matrix import Matrix
from deeppc.paper.recipe import NAMES
from deeppc.paper.recipes.energy import SAME
from deeppc.paper.results import Result
from deeppc.report.tables import Table

Answer = Literal["holds", "does not hold", "not enough data"]
SURE = 0.95  # the intervals' coverage
POINT = 1.0  # of accuracy, in percent: what the paper calls comparable
FAR = 0.25  # of what the accuracy is above chance: "far behind", "breaks" (in the paper a third, and almost all)
CHANCE = 10.0  # percent, with ten classes
ORDERS = 4.0  # orders of magnitude: "many"
CALIBRATED = 0.01  # of adaECE
SHALLOW, DEEP = "VGG5", "VGG10"
TOP1, ENERGY, NORMS = ("cifar10.top1",), (f"cifar10.{DEEP}",), ("cifar10.strategies",)


@dataclass(frozen=True)
class Verdict:
    """``numbers`` are what it rests on, with the scale that they come from. ``alone``: one seed has decided."""

    claim: str
    answer: Answer
    numbers: str
    alone: bool = False


class Missing(Exception):  # noqa: N818 - no error: there is no such result yet
    """What a claim needs and does not find."""


@dataclass(frozen=True)
class Number:
    """A mean over seeds with its standard error, and of how many degrees of freedom that is an estimate.

    One seed has neither: it is ``alone``. So is what it is compared with, then.
    """

    name: str
    mean: float
    error: float = 0.0
    freedom: float = 0.0
    alone: bool = False

    def __sub__(self, other: Number) -> Number:
        name, mean = f"{self.name} - {other.name}", self.mean - other.mean
        if self.alone or other.alone:
            return Number(name, mean, alone=True)
        error = math.hypot(self.error, other.error)
        parts = [(n.error / error) ** 4 / n.freedom for n in (self, other) if n.error]  # Welch and Satterthwaite
        return Number(name, mean, error, 1 / sum(parts) if parts else 0.0)

    @property
    def margin(self) -> float:
        """Half the width of the interval around the mean."""
        from scipy.special import stdtrit  # the quantile of Student's t

        return self.error * float(stdtrit(self.freedom, (1 + SURE) / 2)) if self.error else 0.0

    def __str__(self) -> str:
        low, high = self.mean - self.margin, self.mean + self.margin
        spread = " (one seed)" if self.alone else f" ({low:+.3g} to {high:+.3g})" if self.error else ""
        return f"{self.name} = {self.mean:+.4g}{spread}"


class Numbers:
    """The means of a table. Only in tables of accuracies has divergence a number."""

    def __init__(self, recipe: str, table: Matrix) -> None:
        self._recipe, self._table, self.rows = recipe, table, table.rows

    def __call__(self, row: str, column: str) -> Number:
        """Return the number at a place; :class:`Missing` if there is none."""
        entry, name = self._table.entry(row, column), f"{row} {column}"
        if len(entry.values) == 1:
            return Number(name, entry.values[0], alone=True)
        if n := len(entry.values):
            return Number(name, fmean(entry.values), stdev(entry.values) / math.sqrt(n), n - 1)
        if entry.diverged and self._table.name.endswith((".top1", ".strategies")):
            return Number(f"{name} (diverged)", 0.0)
        raise Missing(f"{self._recipe} has no {name}" + (" (diverged)" if entry.diverged else ""))

    def columns(self, *wanted: str) -> list[str]:
        """Return those of ``wanted`` for which any row has a number; :class:`Missing` if none."""
        there = [column for column in wanted if any(self._table.entry(row, column).values for row in self.rows)]
        if not there:
            raise Missing(f"{self._recipe} has none of {', '.join(wanted)}")
        return there


@dataclass(frozen=True)
class Finding:
    """Whether something is so: None where the interval leaves it open. ``alone``: one seed says it."""

    so: bool | None
    numbers: str
    alone: bool = False


def above(difference: Number, bound: float = 0.0) -> Finding:
    """Is the difference larger than ``bound``?"""
    distance = difference.mean - bound
    within = abs(distance) <= difference.margin
    return Finding(None if within else distance > 0, str(difference), difference.alone)


def at_most(difference: Number, bound: float = 0.0) -> Finding:
    """Is the difference ``bound`` or less? Equal is enough."""
    found = above(difference, bound)
    if found.so is None:
        return replace(found, so=True if difference.error == 0 else None)
    return replace(found, so=not found.so)


def falls_far(base: Number, other: Number) -> Finding:
    """Does ``other`` lose much of what ``base`` is above chance? Who is near chance has nothing to lose."""
    room = base.mean - CHANCE
    if room < CHANCE:
        return Finding(None, f"{base.name} {base.mean:.4g}, near chance")
    return above(base - other, FAR * room)


def all_of(findings: Iterable[Finding]) -> Finding:
    """So if all are; not so if one is not."""
    parts = list(findings)
    answers = {part.so for part in parts}
    so = False if False in answers else None if None in answers else True
    deciding = [part for part in parts if part.so is so]  # of a claim that fails, those that fail
    alone = all(part.alone for part in deciding) if so is False else any(part.alone for part in deciding)
    return Finding(so, "; ".join(part.numbers for part in parts), alone)


@dataclass(frozen=True)
class Claim:
    """``check`` is given the ``tables`` of the recipe's result."""

    recipe: str
    tables: tuple[str, ...]
    check: Callable[..., Finding]

    def finding(self, found: Mapping[str, Matrix]) -> Finding:
        tables = [found[name] for name in self.tables if name in found and found[name].entries]
        if len(tables) < len(self.tables):
            raise Missing(f"no results of {self.recipe}")
        return self.check(*(Numbers(self.recipe, table) for table in tables))


def check(found: Mapping[str, Result]) -> list[Verdict]:
    """Put every claim to the results, by recipe."""
    verdicts = []
    for words, claim in CLAIMS.items():
        result = found.get(claim.recipe)
        try:
            finding = claim.finding(result.tables if result is not None else {})
        except Missing as missing:
            verdicts.append(Verdict(words, "not enough data", str(missing)))
            continue
        answer: Answer = "not enough data" if finding.so is None else "holds" if finding.so else "does not hold"
        close = "; too close for these seeds" if finding.so is None else ""
        scale = result.scale if result is not None else ""
        alone = finding.alone and finding.so is not None
        verdicts.append(Verdict(words, answer, f"{scale}: {finding.numbers}{close}", alone))
    return verdicts


def gather(out: Path, scale: str | None = None) -> dict[str, Result]:
    """Return for each recipe the result at ``scale``, or else that of the largest scale, if possible a complete one.

    Smoke proves nothing. Raises RunError where there is no result at all.
    """
    found: dict[str, Result] = {}
    for name in NAMES:
        for chosen in (scale,) if scale is not None else ("paper", "workstation", "laptop"):
            result = results.read(results.folder_of(out, name, chosen))
            if result is not None and (name not in found or (result.complete and not found[name].complete)):
                found[name] = result
    if not found:
        which = f"of scale {scale}" if scale else "of a scale above smoke"
        raise RunError(f"There are no results {which} in {out}: make some by deeppc paper run NAME --out {out}.")
    return found


def as_table(verdicts: Sequence[Verdict]) -> Table:
    rows = [[v.claim, v.answer + (", by one seed" if v.alone else ""), v.numbers] for v in verdicts]
    return Table(["claim", "", "numbers"], rows)


# The statements. Each is given its tables, which answer ``table(row, column)``.


def _loses(table: Numbers, row: str) -> Number:
    """Accuracy lost from the shallow to the deep network."""
    return table(row, SHALLOW) - table(row, DEEP)


def _near_backprop(table: Numbers, row: str) -> Finding:
    nets = table.columns("VGG5", "VGG7", "VGG10", "ResNet10", "ResNet18")
    return all_of(at_most(table("BP", net) - table(row, net), POINT) for net in nets)


def _lifts(table: Numbers, pairs: Iterable[tuple[str, str]]) -> Finding:
    return all_of(above(table(a, "first") - table(b, "first"), 1.0) for a, b in pairs)


def _beats(table: Numbers, pairs: Iterable[tuple[str, str]]) -> Finding:
    """In a VGG10; with BF where there is none without."""
    deep = table.columns(DEEP, f"{DEEP} BF")[0]
    return all_of(above(table(a, deep) - table(b, deep)) for a, b in pairs)


def _nudged(table: Numbers, row: str) -> Number:
    """What centre nudging adds in the deepest network."""
    return table(row, f"{DEEP} CN") - table(row, DEEP)


def _without_auxiliary(table: Numbers) -> Finding:
    rows = ("iPC+S", "PC+S+F")
    return all_of(falls_far(table(row, "ResNet18"), table(row, "ResNet18 without")) for row in rows)


def _calibrated(table: Numbers) -> Finding:
    pairs, levels = [("VGG5 PC+F", "VGG5 PC"), ("VGG10 PC+S+F", "VGG10 BP")], ("0.1", "0.3", "0.5")
    return all_of(at_most(table(level, a) - table(level, b), CALIBRATED) for a, b in pairs for level in levels)


def _smaller_gap(without: Numbers, with_f: Numbers) -> Finding:
    last = with_f.rows[-1]
    return above(replace(without(last, "L10"), name="without F") - replace(with_f(last, "L10"), name="with F"))


def _as_quick(table: Numbers) -> Finding:
    def ratio(net: str, algorithm: str) -> Number:
        return replace(table(net, algorithm), alone=False)  # a time, the median of several: of no seed

    return all_of(at_most(ratio(net, "pc+s+f") - ratio(net, "pc"), 0.1 * ratio(net, "pc").mean) for net in table.rows)


def _vgg15(table: Numbers) -> Finding:
    gains = {row: table(row, "VGG15 BF") - table(row, "VGG15") for row in ("PC+S+F", "iPC+S")}
    return all_of([above(gains["PC+S+F"]), at_most(gains["iPC+S"])])


CLAIMS = {
    "Plain PC loses accuracy with depth": Claim("depth", TOP1, lambda t: above(_loses(t, "PC"), POINT)),
    "Plain iPC loses accuracy with depth": Claim("depth", TOP1, lambda t: above(_loses(t, "iPC"), POINT)),
    "PC+S+F and iPC+S lose no accuracy with depth": Claim(
        "depth", TOP1, lambda t: all_of(at_most(_loses(t, row)) for row in ("PC+S+F", "iPC+S"))
    ),
    "PC+S+F stays within 1 point of BP in every network": Claim(
        "accuracy", TOP1, lambda t: _near_backprop(t, "PC+S+F")
    ),
    "iPC+S stays within 1 point of BP in every network": Claim("accuracy", TOP1, lambda t: _near_backprop(t, "iPC+S")),
    f"Plain PC's first layer holds at least {ORDERS:g} orders of magnitude less than an equal share of energy": Claim(
        "energy",
        ENERGY,
        lambda t: above(Number("equal share", -1.0) - t("PC", "first"), ORDERS),  # log10 of a tenth
    ),
    "Spiking precision, with the settings that suit it, lifts the first layer's share of the energy by an order of "
    "magnitude or more": Claim(
        "energy", ENERGY, lambda t: _lifts(t, (("PC+S", "PC"), ("PC+S+F", "PC+F"), ("iPC+S", "iPC")))
    ),
    "Spiking precision lifts it with the same settings, too (a larger lr_x alone carries energy further)": Claim(
        "energy", ENERGY, lambda t: _lifts(t, ((spiking, without) for without, spiking in SAME.items()))
    ),
    "Spiking precision beats both decays at depth (with F, in a VGG10)": Claim(
        "schedules", TOP1, lambda t: _beats(t, (("PC+S+F", row) for row in ("PC+L+F", "PC+D+F")))
    ),
    "Every schedule beats fixed precision (with F, in a VGG10)": Claim(
        "schedules", TOP1, lambda t: _beats(t, ((row, "PC+F") for row in ("PC+L+F", "PC+D+F", "PC+S+F")))
    ),
    "Without auxiliary nodes ResNet18 falls far behind": Claim("auxiliary", TOP1, _without_auxiliary),
    "BatchNorm freezing helps (PC+S+F in a VGG10)": Claim(
        "batchnorm", NORMS, lambda t: above(t("BF", "PC+S+F") - t("none", "PC+S+F"))
    ),
    "Plain BatchNorm breaks the training, with or without affine parameters": Claim(
        "batchnorm",
        NORMS,
        lambda t: all_of(falls_far(t("none", "PC+S+F"), t(row, "PC+S+F")) for row in ("BN", "BN without affine")),
    ),
    "Centre nudging helps without the forward update (VGG10)": Claim(
        "depth", TOP1, lambda t: all_of([above(_nudged(t, row)) for row in ("PC", "iPC", "PC+S")])
    ),
    "Centre nudging does not help with the forward update (VGG10)": Claim(
        "depth", TOP1, lambda t: all_of([at_most(_nudged(t, row)) for row in ("PC+F", "PC+S+F")])
    ),
    "The forward update does not hurt calibration under corruption (adaECE, mean over corruptions, by level)": Claim(
        "robustness", ("cifar10.ada_ece",), _calibrated
    ),
    "S alone and F alone are worse than both together (VGG10)": Claim(
        "ablation", TOP1, lambda t: _beats(t, (("PC+S+F", row) for row in ("PC+S", "PC+F")))
    ),
    "The forward update lowers the output's gap ratio (VGG10, last epoch shown)": Claim(
        "gap", ("cifar10.without F", "cifar10.with F"), _smaller_gap
    ),
    "S and F add nothing to the time of PC (at most 10 % in every network)": Claim("time", ("time.ratio",), _as_quick),
    "In a VGG15, BF helps PC+S+F and not iPC+S": Claim("vgg15", ("tiny-imagenet.top1",), _vgg15),
}
