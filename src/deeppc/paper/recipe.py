"""What a recipe is: a grid of cells to train, tables and figures to make of them, and words about both.

A recipe is one file in ``recipes/`` whose ``RECIPE`` holds all of this. Nothing in here imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from deeppc.core.algorithms import known_options, options_for
from deeppc.errors import ConfigError, nearest
from deeppc.paper import published
from deeppc.paper.hyper import Task, settings_for
from deeppc.paper.matrix import Entry, Matrix
from deeppc.paper.scales import Scale
from deeppc.paper.store import Record
from deeppc.training.config import TrainConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = (
    *("accuracy", "vgg15", "depth", "energy", "schedules", "auxiliary"),
    *("batchnorm", "ablation", "gap", "robustness", "time", "readings", "alpha", "gain", "deep", "rivals"),
    "control",
)
DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny-imagenet": "Tiny ImageNet", "digits": "digits"}
METRICS = {"top1": ("top-1", "test_accuracy"), "top5": ("top-5", "test_top5")}
# What a cell takes from the scale as it is.
PROTOCOL = ("width", "epochs", "schedule_epochs", "limit", "batch_size", "patience", "select", "validation")
Values = Mapping[tuple[str, str], published.Value]
Variants = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Cell:
    """One place of a recipe's grid: what is trained there, and with which seeds.

    ``table`` is the paper's data set, ``row`` and ``column`` are as in the paper; ``hyper`` says where the
    hyper-parameters come from.
    """

    table: str
    row: str
    column: str
    config: TrainConfig
    hyper: str
    seeds: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.table} {self.row} {self.column}"


@dataclass(frozen=True)
class Place:
    """A cell and what the store has of it, one record for each seed."""

    cell: Cell
    runs: tuple[Record, ...]

    @property
    def at(self) -> tuple[str, str]:
        """Row and column."""
        return self.cell.row, self.cell.column

    @property
    def finished(self) -> tuple[Record, ...]:
        return tuple(run for run in self.runs if run.status == "finished")

    @property
    def diverged(self) -> int:
        return sum(run.status == "diverged" for run in self.runs)

    def values(self, key: str) -> tuple[Any, ...]:
        """Return ``key`` of the results of all finished runs."""
        return tuple(run.result[key] for run in self.finished)

    def cosines(self) -> list[dict[str, float]]:
        """Return for each finished run, by layer, the cosine of its update with backprop's at the last epoch."""
        from deeppc.paper.figures import last_cosines

        return [found for run in self.finished if (found := last_cosines(run.metrics()))]

    def entry(self, values: Iterable[float], paper: float | None = None) -> Entry:
        """Return the finite ones of some values, one for each finished run, beside the paper's."""
        finite = tuple(value for value in values if math.isfinite(value))
        return Entry(finite, None if paper is None else (paper, None), self.diverged)

    def accuracy(self, metric: str, paper: published.Value | None = None, note: str = "") -> Entry:
        """Return the test accuracies in percent; ``metric`` is top1 or top5."""
        values = tuple(100 * value for value in self.values(METRICS[metric][1]))
        return Entry(values, paper, self.diverged, note if values else "")


@dataclass(frozen=True)
class Evidence:
    """All that is at hand to make a recipe's tables and figures from."""

    scale: Scale
    places: tuple[Place, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)

    def place(self, table: str, row: str, column: str) -> Place | None:
        return next((place for place in self.of(table) if place.at == (row, column)), None)

    def of(self, table: str) -> list[Place]:
        return [place for place in self.places if place.cell.table == table]

    @property
    def tables(self) -> list[str]:
        return list(dict.fromkeys(place.cell.table for place in self.places))

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(place.cell.column for place in self.places))

    def trained_on(self, table: str) -> str:
        """``CIFAR-10``, or with the name of the data set that stands in for it at this scale."""
        other = self.scale.datasets.get(table, table)
        return DATASETS[table] + (f" (trained on {DATASETS[other]} instead)" if other != table else "")


@dataclass(frozen=True)
class Plot:
    """A figure by the stem of its files; ``draw()`` makes it."""

    stem: str
    draw: Callable[[], Figure]
    caption: str


@dataclass(frozen=True)
class Recipe:
    """A table or figure of the paper as a command.

    ``shows``    one line on what it is about.
    ``paper``    the tables and figures of the paper that it makes again; may be none.
    ``expect``   what the paper found, and what to look for.
    ``cells``    the whole grid; :meth:`grid` is what a scale has of it.
    ``tables``   what the finished cells come to; the claims read nothing else.
    ``plots``    figures, most telling first.
    ``measure``  called with the scale and the folder of a trained run, returns plain values to keep. Records of other
                 recipes' trainings may be without them.
    ``words``    what is to be said of each row, or of all of them, by name.
    ``work``     what is to be done besides training: called with the scale, the recipe's folder and a listener, it
                 leaves an ``extra.json`` there, which is part of the evidence.
    """

    name: str
    shows: str
    paper: tuple[str, ...]
    expect: str
    cells: Callable[[Scale], list[Cell]]
    tables: Callable[[Evidence], list[Matrix]]
    plots: Callable[[Evidence, Sequence[Matrix]], list[Plot]]
    measure: Callable[[Scale, Path], dict[str, Any]] | None = None
    work: Callable[[Scale, Path, Callable[[str], None]], None] | None = None
    words: Mapping[str, str] = field(default_factory=dict)

    @property
    def of(self) -> str:
        """What of the paper this is, in words."""
        names = ", ".join(name[0].lower() + name[1:] for name in self.paper)
        return f"The paper's {names}." if self.paper else "Not in the paper."

    def has(self, run: Record) -> bool:
        """Whether nothing is left to do in a run: it is over, and what this recipe measures of it is there."""
        return run.over and (run.status == "diverged" or self.measure is None or self.name in run.measured)

    def grid(self, scale: Scale) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells(scale) if cell.seeds)


def find(name: str) -> Recipe:
    """Return the recipe called ``name``."""
    if name not in NAMES:
        raise ConfigError(f"There is no recipe {name!r}: {nearest(name, NAMES)}")
    recipe: Recipe = import_module(f"deeppc.paper.recipes.{name}").RECIPE
    return recipe


def cell(scale: Scale, table: str, row: str, column: str, *, model: str, algorithm: str, **changes: Any) -> Cell:
    """Return a cell at a scale: hyper-parameters for its data set, net and algorithm, then ``changes`` on top.

    Options that the algorithm does not have are left out. All cells record diagnostics, so that every recipe can use
    every cell.
    """
    dataset = scale.datasets.get(table, table)
    norm = changes.get("norm", scale.norm)
    own = {name: value for name, value in changes.items() if name in options_for(algorithm)}
    method = TrainConfig.of(algorithm=algorithm, **own).method
    settings, hyper = settings_for(Task(dataset, model, norm, method))
    if scale.activation is not None and (norm == "none" or scale.same_activation):
        settings, hyper = settings | {"activation": scale.activation}, f"{hyper} with {scale.activation}"
    settings = {**settings, "norm": norm, **changes}
    foreign = known_options().keys() - options_for(algorithm).keys()
    config = TrainConfig.of(
        dataset=dataset,
        model=model,
        algorithm=algorithm,
        diagnostics=True,
        **{name: getattr(scale, name) for name in PROTOCOL},
        **{key: value for key, value in settings.items() if key not in foreign},
    )
    return Cell(table, row, column, config, hyper, scale.seeds_for(table, model, algorithm, norm))


def grid(
    scale: Scale, datasets: Sequence[str], rows: Sequence[str], nets: Sequence[str], variants: Variants
) -> list[Cell]:
    """Return data sets x algorithms x nets x variants.

    ``rows`` and ``nets`` are the paper's names, which in small letters are ours. A variant is what its name adds to
    the column (``"BF"``: ``VGG5 BF``; ``""``: nothing) and the settings that it changes.
    """
    return [
        cell(scale, dataset, row, f"{net} {variant}".strip(), model=net.lower(), algorithm=row.lower(), **changes)
        for dataset in datasets
        for row in rows
        for net in nets
        for variant, changes in variants.items()
    ]


def accuracies(evidence: Evidence, dataset: str, metric: str, paper: Values, title: str = "Test accuracy") -> Matrix:
    """Return rows x columns of test accuracy in percent, ``metric`` top1 or top5, beside the published values."""
    entries = {place.at: place.accuracy(metric, paper.get(place.at)) for place in evidence.of(dataset)}
    return Matrix(f"{dataset}.{metric}", f"{title}, {METRICS[metric][0]}, %: {evidence.trained_on(dataset)}", entries)


def lowest_cosines(evidence: Evidence, dataset: str) -> Matrix:
    """Return rows x columns of how far the worst layer's update is from backprop's at the end of the training."""
    places = evidence.of(dataset)
    entries = {place.at: place.entry(min(found.values()) for found in place.cosines()) for place in places}
    return Matrix(f"{dataset}.cosine", "Lowest cosine of a layer's update with backprop's, last epoch", entries)


def best_of(places: Iterable[Place], short: Callable[[str], str]) -> dict[tuple[str, str], Place]:
    """Return for each row and column, shortened, the place whose runs did best.

    On what selects the epoch, that is: held-out images, or (the paper's way) the test set.
    """

    def selected(place: Place) -> float:
        values = [x for x in place.values("validation_accuracy") if x is not None] or place.values("test_accuracy")
        return fmean(values) if values else -1.0

    found: dict[tuple[str, str], list[Place]] = {}
    for place in places:
        found.setdefault((place.cell.row, short(place.cell.column)), []).append(place)
    return {at: max(candidates, key=selected) for at, candidates in found.items()}


def dot_plot(table: Matrix, title: str, by: str = "column") -> Plot:
    """Return a figure of a table of accuracies, with ours and the paper's."""
    from deeppc.paper.figures import dots

    return Plot(table.name.replace(".", "-"), partial(dots, table, title=title, by=by), f"{table.title}.")


def dot_plots(made: Sequence[Matrix], title: str, by: str = "column") -> list[Plot]:
    """Return a figure of each table; each belongs to a data set, which its title names."""
    return [dot_plot(table, f"{title}, {DATASETS[table.name.split('.')[0]]}", by) for table in made]


def accuracy_recipe(
    *,
    datasets: Mapping[str, tuple[str, ...]],
    rows: Sequence[str],
    nets: Sequence[str],
    variants: Variants,
    title: str,
    figure: str,
    by: str = "column",
    **words: Any,
) -> Recipe:
    """Return a recipe that is a grid of trainings and a table of accuracies for each data set and metric."""

    def tables(evidence: Evidence) -> list[Matrix]:
        return [
            accuracies(evidence, dataset, metric, published.table(words["name"], dataset, metric), title)
            for dataset in evidence.tables
            for metric in datasets[dataset]
        ]

    return Recipe(
        cells=lambda scale: grid(scale, tuple(datasets), rows, nets, variants),
        tables=tables,
        plots=lambda evidence, made: dot_plots(made, figure, by),
        **words,
    )
