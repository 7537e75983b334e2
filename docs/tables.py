"""Writes the tables, and the figures beside them, that README and docs show of the trainings in records/.

python docs/tables.py

A page marks where a table goes by ``<!-- records: NAME -->`` and ``<!-- end of records -->``. Nothing is trained, and
tests/test_docs.py sees to it that pages and records agree.
"""

import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from deeppc.files import write_text
from deeppc.paper.claims import Numbers
from deeppc.paper.matrix import Matrix
from deeppc.paper.run import Plan, plan
from deeppc.report import plots
from deeppc.report.tables import Table

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/results/workstation.md", "docs/results/deep.md", "docs/results/gain.md")
MARKED = re.compile(r"(<!-- records: (\w+) -->\n).*?(<!-- end of records -->)", re.DOTALL)


def planned(recipe: str) -> Plan:
    """A recipe at the scale of a workstation, with nothing to go by but records."""
    return plan(recipe, "workstation", Path(tempfile.gettempdir()) / "deeppc-nothing", records=ROOT / "records")


def there(table: Matrix) -> Matrix:
    """A table without the networks and algorithms that have no result yet, and with one digit after the point."""
    known = [place for place, entry in table.entries.items() if entry.values or entry.diverged]
    rows, columns = {row for row, _ in known}, {column for _, column in known}
    entries = {(r, c): replace(e, note="") for (r, c), e in table.entries.items() if r in rows and c in columns}
    return replace(table, entries=entries, digits=1)


def tables(recipe: str) -> dict[str, Matrix]:
    """The tables of a recipe that have results, by name."""
    found = planned(recipe)
    made = found.recipe.tables(found.evidence())
    return {table.name: there(table) for table in made if any(entry.values for entry in table.entries.values())}


def accuracy() -> str:
    return tables("accuracy")["cifar10.top1"].table().markdown()


def deep() -> str:
    return tables("deep")["cifar10.top1"].table().markdown()


def control() -> str:
    return tables("control")["cifar10.top1"].table().markdown()


def gain() -> str:
    return tables("gain")["cifar10.top1"].table().markdown()


def cosines() -> str:
    return replace(tables("gain")["cifar10.cosine"], digits=3).table().markdown()


def behind() -> str:
    """What each cell of the gain recipe lacks to backprop in the same network, with its interval over seeds."""
    table = tables("gain")["cifar10.top1"]
    numbers, rows = Numbers("gain", table), []
    for (row, column), entry in table.entries.items():
        if entry.values and row != "BP":
            gap = numbers("BP", column.partition(" ")[0]) - numbers(row, column)
            low, high = gap.mean - gap.margin, gap.mean + gap.margin
            rows.append([row, column, f"{gap.mean:+.1f}", f"{low:+.1f} to {high:+.1f}"])
    return Table(["", "", "points behind BP", "95 % interval"], rows).markdown()


MAKERS: dict[str, Callable[[], str]] = {
    "accuracy": accuracy,
    "deep": deep,
    "control": control,
    "gain": gain,
    "cosines": cosines,
    "behind": behind,
}


def filled(page: str) -> str:
    """A page with its tables made anew."""
    return MARKED.sub(lambda found: f"{found[1]}\n{MAKERS[found[2]]()}\n{found[3]}", page)


# By recipe: the figures that the pages show, and what they are called there.
FIGURES = {
    "accuracy": {"accuracy-cifar10-work": "workstation-work"},
    "gain": {"gain-cosine-vgg10": "gain-cosine-vgg10"},
}


def figures() -> None:
    """Draw what the tables cannot say: what accuracy costs, which layers follow backprop."""
    for recipe, wanted in FIGURES.items():
        found = planned(recipe)
        made = [there(table) for table in found.recipe.tables(found.evidence())[:1]]
        for plot in found.recipe.plots(found.evidence(), made):
            if plot.stem in wanted:
                write_text(ROOT / f"docs/results/{wanted[plot.stem]}.svg", plots.svg(plot.draw()))


if __name__ == "__main__":
    for name in PAGES:
        page = ROOT / name
        write_text(page, filled(page.read_text(encoding="utf-8")))
    figures()
