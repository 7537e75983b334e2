"""The paper's statements, one line each, against the results at hand.

A claim is a pure function of results: it *holds*, *does not hold*, or there is *not enough data*, always with the
numbers. A difference that is smaller than its own standard error over seeds is not enough data either; a few seeds tell
little about their own spread, so it is estimated from all rows of a column together. A network whose runs all diverged
counts as 0 % accurate. A claim that does not hold at a small scale is a finding about that scale, not a failure of
anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, variance
from typing import Literal

from deeppc.paper import results
from deeppc.paper.recipe import NAMES
from deeppc.paper.recipes.energy import SAME
from deeppc.paper.results import Result

Answer = Literal["holds", "does not hold", "not enough data"]
Results = Mapping[str, Result]
POINT = 1.0  # of accuracy, in percent: what the paper calls comparable
FAR = 0.25  # of what the accuracy is above chance: "far behind", "breaks" (in the paper a third, and almost all)
CHANCE = 10.0  # percent, with ten classes
ORDERS = 4.0  # orders of magnitude: "many"
CALIBRATED = 0.01  # of adaECE


@dataclass(frozen=True)
class Verdict:
    """``numbers`` are what it rests on, with the scale that they come from."""

    claim: str
    answer: Answer
    numbers: str


class Missing(Exception):  # noqa: N818 - no error: there is no such result yet
    """What a claim needs and does not find."""


@dataclass(frozen=True)
class Number:
    """A mean over seeds with its standard error (0 where no row of the column has more than one seed)."""

    name: str
    mean: float
    error: float

    def __sub__(self, other: Number) -> Number:
        return Number(f"{self.name} - {other.name}", self.mean - other.mean, math.hypot(self.error, other.error))

    def __str__(self) -> str:
        return f"{self.name} {self.mean:.4g}"


class Table:
    """A table of a result, whose entries are numbers, or :class:`Missing`. Only in ``accuracies`` has divergence a
    number."""

    def __init__(self, found: Results, recipe: str, table: str) -> None:
        if recipe not in found or table not in found[recipe].tables:
            raise Missing(f"no results of {recipe}")
        self._table, self._recipe, self.scale = found[recipe].tables[table], recipe, found[recipe].scale
        self.rows = self._table.rows
        self._accuracies = table.endswith((".top1", ".strategies"))
        if not self.rows:
            raise Missing(f"{recipe} has nothing yet")

    def number(self, row: str, column: str) -> Number:
        entry = self._table.entry(row, column)
        name = f"{row} {column}"
        if entry.values:
            return Number(name, fmean(entry.values), self._deviation(column) / math.sqrt(len(entry.values)))
        if entry.diverged and self._accuracies:
            return Number(f"{name} (diverged)", 0.0, 0.0)
        raise Missing(f"{self._recipe} has no {name}" + (" (diverged)" if entry.diverged else ""))

    def columns(self, *wanted: str) -> list[str]:
        """Those of ``wanted`` for which any row has a number; :class:`Missing` if none."""
        there = [c for c in wanted if any(e.values for (_, column), e in self._table.entries.items() if column == c)]
        if not there:
            raise Missing(f"{self._recipe} has none of {', '.join(wanted)}")
        return there

    def _deviation(self, column: str) -> float:
        """Sample standard deviation over seeds, pooled over the rows of a column."""
        groups = [e.values for (_, c), e in self._table.entries.items() if c == column and len(e.values) > 1]
        freedom = sum(len(values) - 1 for values in groups)
        return math.sqrt(sum((len(v) - 1) * variance(v) for v in groups) / freedom) if freedom else 0.0


@dataclass(frozen=True)
class Finding:
    """Whether something is so: None where the difference is within its error."""

    so: bool | None
    numbers: str


def above(difference: Number, bound: float = 0.0) -> Finding:
    """Is the difference larger than ``bound``?"""
    margin = difference.mean - bound
    within = abs(margin) <= difference.error
    return Finding(None if within else margin > 0, f"{difference.name} = {difference.mean:+.4g}")


def at_most(difference: Number, bound: float = 0.0) -> Finding:
    """Is the difference ``bound`` or less? Equal is enough."""
    margin = difference.mean - bound
    within = abs(margin) <= difference.error and difference.error > 0
    return Finding(None if within else margin <= 0, f"{difference.name} = {difference.mean:+.4g}")


def falls_far(base: Number, other: Number) -> Finding:
    """Does ``other`` lose much of what ``base`` is above chance? Who is near chance has nothing to lose."""
    room = base.mean - CHANCE
    drop = base - other
    if room < CHANCE:
        return Finding(None, f"{base}, near chance")
    return above(drop, FAR * room)


def all_of(findings: Iterable[Finding]) -> Finding:
    """So if all are; not so if one is not."""
    parts = list(findings)
    numbers = "; ".join(part.numbers for part in parts)
    if any(part.so is False for part in parts):
        return Finding(False, numbers)
    return Finding(None if any(part.so is None for part in parts) else True, numbers)


Check = Callable[[Results], tuple[Finding, str]]
CLAIMS: dict[str, Check] = {}


def claim(words: str) -> Callable[[Check], Check]:
    """Enter a check under the paper's statement. It returns what it found and the scale that it looked at."""

    def enter(check: Check) -> Check:
        CLAIMS[words] = check
        return check

    return enter


def check(found: Results) -> list[Verdict]:
    """Every claim against the results."""
    return [_verdict(words, test, found) for words, test in CLAIMS.items()]


def _verdict(words: str, test: Check, found: Results) -> Verdict:
    try:
        finding, scale = test(found)
    except Missing as missing:
        return Verdict(words, "not enough data", str(missing))
    answer: Answer = "not enough data" if finding.so is None else "holds" if finding.so else "does not hold"
    close = "; too close for these seeds" if finding.so is None else ""
    return Verdict(words, answer, f"{scale}: {finding.numbers}{close}")


def gather(out: Path, scale: str | None = None) -> Results:
    """For each recipe the result at ``scale``, or else that of the largest scale, if possible a complete one; smoke
    proves nothing."""
    found: dict[str, Result] = {}
    for name in NAMES:
        for chosen in (scale,) if scale is not None else ("paper", "laptop"):
            result = results.read(results.folder_of(out, name, chosen))
            if result is not None and (name not in found or (result.complete and not found[name].complete)):
                found[name] = result
    return found


def as_markdown(verdicts: Sequence[Verdict]) -> str:
    lines = ["| claim | | numbers |", "| --- | --- | --- |"]
    lines += [f"| {v.claim} | {'**' + v.answer + '**'} | {v.numbers} |" for v in verdicts]
    return "\n".join(lines) + "\n"


SHALLOW, DEEP = "VGG5", "VGG10"


def _loss(table: Table, row: str) -> Number:
    """Accuracy lost from the shallow to the deep network."""
    return table.number(row, SHALLOW) - table.number(row, DEEP)


@claim("Plain PC loses accuracy with depth")
def _(found: Results) -> tuple[Finding, str]:
    table = Table(found, "depth", "cifar10.top1")
    return above(_loss(table, "PC"), POINT), table.scale


@claim("Plain iPC loses accuracy with depth")
def _(found: Results) -> tuple[Finding, str]:
    table = Table(found, "depth", "cifar10.top1")
    return above(_loss(table, "iPC"), POINT), table.scale


@claim("PC+S+F and iPC+S lose no accuracy with depth")
def _(found: Results) -> tuple[Finding, str]:
    table = Table(found, "depth", "cifar10.top1")
    return all_of(at_most(_loss(table, row)) for row in ("PC+S+F", "iPC+S")), table.scale


def _near_backprop(found: Results, row: str) -> tuple[Finding, str]:
    table = Table(found, "accuracy", "cifar10.top1")
    nets = table.columns("VGG5", "VGG7", "VGG10", "ResNet10", "ResNet18")
    return all_of(at_most(table.number("BP", net) - table.number(row, net), POINT) for net in nets), table.scale


@claim("PC+S+F stays within 1 point of BP in every network")
def _(found: Results) -> tuple[Finding, str]:
    return _near_backprop(found, "PC+S+F")


@claim("iPC+S stays within 1 point of BP in every network")
def _(found: Results) -> tuple[Finding, str]:
    return _near_backprop(found, "iPC+S")


@claim(f"Plain PC's first layer holds at least {ORDERS:g} orders of magnitude less than an equal share of the energy")
def _(found: Results) -> tuple[Finding, str]:
    table = Table(found, "energy", f"cifar10.{DEEP}")
    equal = Number("equal share", -1.0, 0.0)  # log10 of a tenth
    return above(equal - table.number("PC", "first"), ORDERS), table.scale


def _lifts(found: Results, pairs: Sequence[tuple[str, str]]) -> tuple[Finding, str]:
    table = Table(found, "energy", f"cifar10.{DEEP}")
    return all_of(above(table.number(a, "first") - table.number(b, "first"), 1.0) for a, b in pairs), table.scale


@claim(
    "Spiking precision, with the settings that suit it, lifts the first layer's share of the energy by an order of "
    "magnitude or more"
)
def _(found: Results) -> tuple[Finding, str]:
    return _lifts(found, (("PC+S", "PC"), ("PC+S+F", "PC+F"), ("iPC+S", "iPC")))


@claim("Spiking precision lifts it with the same settings, too (a larger lr_x alone carries energy further)")
def _(found: Results) -> tuple[Finding, str]:
    return _lifts(found, [(spiking, without) for without, spiking in SAME.items()])


@claim("Spiking precision beats both decays at depth (with F, in a VGG10)")
def _(found: Results) -> tuple[Finding, str]:
    table = Table(found, "schedules", "cifar10.top1")
    spiking = table.number("PC+S+F", DEEP)
    return all_of(above(spiking - table.number(row, DEEP)) for row in ("PC+L+F", "PC+D+F")), table.scale


@claim("Every schedule beats fixed precision (with F, in a VGG10)")
def _(found: Results) -> tuple[Finding, str]:
    table = Table(found, "schedules", "cifar10.top1")
    fixed, rows = table.number("PC+F", DEEP), ("PC+L+F", "PC+D+F", "PC+S+F")
    return all_of(above(table.number(row, DEEP) - fixed) for row in rows), table.scale


@claim("Without auxiliary nodes ResNet18 falls far behind")
def _(found: Results) -> tuple[Finding, str]:
    table = Table(found, "auxiliary", "cifar10.top1")
    rows = ("iPC+S", "PC+S+F")
    pairs = [(table.number(row, "ResNet18"), table.number(row, "ResNet18 without")) for row in rows]
    return all_of(falls_far(*pair) for pair in pairs), table.scale


@claim("BatchNorm freezing helps (PC+S+F in a VGG10)")
def _(found: Results) -> tuple[Finding, str]:
    table = Table(found, "batchnorm", "cifar10.strategies")
    return above(table.number("BF", "PC+S+F") - table.number("none", "PC+S+F")), table.scale


@claim("Plain BatchNorm breaks the training, with or without affine parameters")
def _(found: Results) -> tuple[Finding, str]:
    table = Table(found, "batchnorm", "cifar10.strategies")
    none = table.number("none", "PC+S+F")
    rows = ("BN", "BN without affine")
    return all_of(falls_far(none, table.number(row, "PC+S+F")) for row in rows), table.scale


def _nudging(found: Results, rows: Sequence[str]) -> tuple[list[Number], str]:
    """What centre nudging adds in the deepest network, for each algorithm."""
    table = Table(found, "depth", "cifar10.top1")
    return [table.number(row, f"{DEEP} CN") - table.number(row, DEEP) for row in rows], table.scale


@claim("Centre nudging helps without the forward update (VGG10)")
def _(found: Results) -> tuple[Finding, str]:
    gains, scale = _nudging(found, ("PC", "iPC", "PC+S"))
    return all_of(above(gain) for gain in gains), scale


@claim("Centre nudging does not help with the forward update (VGG10)")
def _(found: Results) -> tuple[Finding, str]:
    gains, scale = _nudging(found, ("PC+F", "PC+S+F"))
    return all_of(at_most(gain) for gain in gains), scale


@claim("The forward update does not hurt calibration under corruption (adaECE, mean over corruptions, by level)")
def _(found: Results) -> tuple[Finding, str]:
    table = Table(found, "robustness", "cifar10.ada_ece")
    pairs = [("VGG5 PC+F", "VGG5 PC"), ("VGG10 PC+S+F", "VGG10 BP")]
    levels = ("0.1", "0.3", "0.5")
    return all_of(
        at_most(table.number(level, a) - table.number(level, b), CALIBRATED) for a, b in pairs for level in levels
    ), table.scale


@claim("S alone and F alone are worse than both together (VGG10)")
def _(found: Results) -> tuple[Finding, str]:
    table = Table(found, "ablation", "cifar10.top1")
    both = table.number("PC+S+F", DEEP)
    return all_of(above(both - table.number(row, DEEP)) for row in ("PC+S", "PC+F")), table.scale


@claim("The forward update lowers the output's gap ratio (VGG10, last epoch shown)")
def _(found: Results) -> tuple[Finding, str]:
    tables = {name: Table(found, "gap", f"cifar10.{name}") for name in ("without F", "with F")}
    last = tables["with F"].rows[-1]
    without, with_f = (replace(table.number(last, "L10"), name=name) for name, table in tables.items())
    return above(without - with_f), tables["with F"].scale


@claim("S and F add nothing to the time of PC (at most 10 % in every network)")
def _(found: Results) -> tuple[Finding, str]:
    table = Table(found, "time", "time.ratio")
    return all_of(
        at_most(table.number(net, "pc+s+f") - table.number(net, "pc"), 0.1 * table.number(net, "pc").mean)
        for net in table.rows
    ), table.scale


@claim("In a VGG15, BF helps PC+S+F and not iPC+S")
def _(found: Results) -> tuple[Finding, str]:
    table = Table(found, "vgg15", "tiny-imagenet.top1")
    gains = {row: table.number(row, "VGG15 BF") - table.number(row, "VGG15") for row in ("PC+S+F", "iPC+S")}
    return all_of([above(gains["PC+S+F"]), at_most(gains["iPC+S"])]), table.scale
