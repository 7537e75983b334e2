"""What a recipe is: a grid of cells to train, tables and figures to make of them, and words about both.

A recipe is one file in ``recipes/`` whose ``RECIPE`` holds all of this. Nothing in here imports torch.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from deeppc.errors import ConfigError
from deeppc.paper.hyper import Task, settings_for
from deeppc.paper.scales import Scale
from deeppc.paper.tables import Entry, Table
from deeppc.training.config import TrainConfig, for_algorithm

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from deeppc.paper.pool import Run

NAMES = (
    *("accuracy", "vgg15", "depth", "energy", "schedules", "auxiliary"),
    *("batchnorm", "ablation", "gap", "robustness", "time", "readings", "alpha"),
)
DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny-imagenet": "Tiny ImageNet", "digits": "digits"}
METRICS = {"top1": "test_accuracy", "top5": "test_top5"}
EXTRA = "extra.json"
ABSENT = "Not in the paper."
Measured = dict[str, Any]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Cell:
    """One place of a recipe's grid: what is trained there, with each seed of the scale.

    ``table`` is the paper's data set, ``row`` and ``column`` are as in the paper; ``hyper`` says where the
    hyper-parameters come from.
    """

    table: str
    row: str
    column: str
    config: TrainConfig
    hyper: str

    def __str__(self) -> str:
        return f"{self.table} {self.row} {self.column}"


@dataclass(frozen=True)
class Place:
    """A cell and its runs, one for each seed, in whatever state they are."""

    cell: Cell
    runs: tuple[Run, ...]

    def values(self, key: str) -> tuple[Any, ...]:
        """``key`` of the results of all finished runs."""
        return tuple(run.result[key] for run in self.runs if run.finished)

    @property
    def diverged(self) -> int:
        return sum(run.status == "diverged" for run in self.runs)


@dataclass(frozen=True)
class Evidence:
    """All that is at hand to make a recipe's tables and figures from."""

    scale: Scale
    places: tuple[Place, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)

    def place(self, table: str, row: str, column: str) -> Place | None:
        wanted = (table, row, column)
        return next((p for p in self.places if (p.cell.table, p.cell.row, p.cell.column) == wanted), None)

    def labels(self, table: str, which: str) -> list[str]:
        """The rows or columns of a table, in the grid's order."""
        return list(dict.fromkeys(getattr(p.cell, which) for p in self.places if p.cell.table == table))

    @property
    def tables(self) -> list[str]:
        return list(dict.fromkeys(p.cell.table for p in self.places))

    def trained_on(self, table: str) -> str:
        """``CIFAR-10``, or with the name of the data set that stands in for it at this scale."""
        other = self.scale.datasets.get(table, table)
        return DATASETS[table] + (f" (trained on {DATASETS[other]} instead)" if other != table else "")


@dataclass(frozen=True)
class Picture:
    """A figure by the stem of its files; ``draw(width=...)`` makes it."""

    stem: str
    draw: Callable[..., Figure]
    caption: str


@dataclass(frozen=True)
class Recipe:
    """A table or figure of the paper as a command.

    ``shows``    one line on what it is about.
    ``paper``    the tables and figures of the paper that it makes again; may be none.
    ``expect``   what the paper found, and what to look for.
    ``cells``    the grid at a scale.
    ``tables``   what the finished cells come to; the claims read nothing else.
    ``pictures`` figures, most telling first.
    ``measure``  looks at a trained run in its folder, with the weights, and returns plain values to keep.
    ``work``     what is to be done besides training: called with the scale, the recipe's folder and a listener, it
                 leaves an ``extra.json`` there, which is part of the evidence.
    """

    name: str
    shows: str
    paper: tuple[str, ...]
    expect: str
    cells: Callable[[Scale], list[Cell]]
    tables: Callable[[Evidence], list[Table]]
    pictures: Callable[[Evidence, Sequence[Table]], list[Picture]]
    measure: Callable[[Path, Scale], Measured] | None = None
    work: Callable[[Scale, Path, Tell], None] | None = None

    @property
    def of(self) -> str:
        """What of the paper this is, in words."""
        return f"The paper's {', '.join(name[0].lower() + name[1:] for name in self.paper)}." if self.paper else ABSENT


def find(name: str) -> Recipe:
    """The recipe called ``name``."""
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(NAMES)}."
        raise ConfigError(f"There is no recipe {name!r}: {hint}")
    recipe: Recipe = import_module(f"deeppc.paper.recipes.{name}").RECIPE
    return recipe


def cell(scale: Scale, table: str, row: str, column: str, *, model: str, algorithm: str, **changes: Any) -> Cell:
    """A cell at a scale: hyper-parameters for its data set, net and algorithm, then ``changes`` on top.

    All cells record diagnostics, so that every recipe can use every cell.
    """
    dataset = scale.datasets[table]
    norm = changes.get("norm", "none")
    settings, hyper = settings_for(Task(dataset, model, norm, algorithm))
    if scale.activation is not None and (norm == "none" or scale.same_activation):
        settings, hyper = settings | {"activation": scale.activation}, f"{hyper} with {scale.activation}"
    base = TrainConfig(
        dataset=dataset,
        model=model,
        width=scale.width,
        epochs=scale.epochs,
        limit=scale.limit,
        batch_size=scale.batch_size,
        patience=scale.patience,
        select=scale.select,
        validation=scale.validation,
        diagnostics=True,
    )
    config = for_algorithm(dataclasses.replace(base, **settings), algorithm)
    return Cell(table, row, column, dataclasses.replace(config, **changes), hyper)


def grid(
    scale: Scale,
    datasets: Sequence[str],
    rows: Sequence[str],
    nets: Sequence[str],
    variants: Mapping[str, Mapping[str, Any]],
) -> list[Cell]:
    """Data sets x algorithms x nets x variants, as far as the scale has them.

    ``rows`` and ``nets`` are the paper's names, which in small letters are ours. A variant is what its name adds to
    the column (``"BF"``: ``VGG5 BF``; ``""``: nothing) and the settings that it changes.
    """
    return [
        cell(scale, dataset, row, f"{net} {variant}".strip(), model=net.lower(), algorithm=row.lower(), **changes)
        for dataset in datasets
        if dataset in scale.datasets
        for row in rows
        for net in nets
        if net.lower() in scale.models
        for variant, changes in variants.items()
    ]


def accuracies(
    evidence: Evidence,
    dataset: str,
    metric: str,
    published: Mapping[tuple[str, str], tuple[float, float | None]],
    title: str = "",
) -> Table:
    """Rows x columns of test accuracy in percent, ``metric`` top1 or top5, beside the published values."""
    rows, columns = evidence.labels(dataset, "row"), evidence.labels(dataset, "column")
    entries = {}
    for row in rows:
        for column in columns:
            place = evidence.place(dataset, row, column)
            if place is not None:
                entries[row, column] = accuracy(place, metric, published.get((row, column)))
    words = f"{title or 'Test accuracy'}, {metric_words(metric)}, %: {evidence.trained_on(dataset)}"
    return Table(f"{dataset}.{metric}", words, tuple(rows), tuple(columns), entries)


def accuracy(place: Place, metric: str, published: tuple[float, float | None] | None = None) -> Entry:
    """What a cell's runs came to, in percent."""
    values = tuple(100 * value for value in place.values(METRICS[metric]))
    return Entry(values, published, diverged=place.diverged)


def best_of(places: Sequence[Place]) -> Place:
    """The one whose runs did best on what selects the epoch: held-out images, or (the paper's way) test images."""

    def selected(place: Place) -> float:
        values = [x for x in place.values("validation_accuracy") if x is not None] or place.values("test_accuracy")
        return fmean(values) if values else -1.0

    return max(places, key=selected)


def metric_words(metric: str) -> str:
    return {"top1": "top-1", "top5": "top-5"}[metric]


def dot_plots(made: Sequence[Table], title: str, by: str = "column") -> list[Picture]:
    """A figure of each table, with ours and the paper's; each belongs to a data set, which its title names."""
    from deeppc.paper.figures import dots

    return [
        Picture(
            table.name.replace(".", "-"),
            partial(dots, table, title=f"{title}, {DATASETS[table.name.split('.')[0]]}", by=by),
            f"{table.title}.",
        )
        for table in made
    ]
