"""``report.html`` of a recipe: its figures and tables, its settings and its provenance on one page, offline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deeppc.paper import results, tables
from deeppc.paper.recipe import Picture, Recipe
from deeppc.paper.tables import Table
from deeppc.report import page, plots
from deeppc.report.files import write_whole
from deeppc.report.page import Html, element
from deeppc.report.style import NARROW

PAGE = "report.html"


def write(
    recipe: Recipe, content: Mapping[str, Any], shown: Sequence[Table], pictures: Sequence[Picture], folder: Path
) -> Path:
    """Draw the figures, write the page. ``content`` is that of ``result.json``."""
    body: list[object] = [
        element("p", f"deeppc · {recipe.of}", class_="eyebrow"),
        element("h1", recipe.shows),
        element("p", recipe.expect),
        _state(content),
        *(_picture(picture, folder) for picture in pictures),
    ]
    for table in shown:
        rows = [[row, *(table.text(row, column) for column in table.columns)] for row in table.rows]
        body += [element("h2", table.title), page.table(["", *table.columns], rows)]
    body += [element("p", tables.HOW_TO_READ, class_="small"), *_trouble(content), *_cells(content)]
    facts = {name: value.replace("`", "") for name, value in results.facts(content).items()}
    body += [element("h2", "Provenance"), page.facts(facts.items())]
    path = folder / PAGE
    write_whole(path, page.document(f"{recipe.shows} · deeppc", *body))
    return path


def _state(content: Mapping[str, Any]) -> Html:
    """The scale, and whether this is all of it."""
    runs = content["runs"]
    kind = "good" if runs["over"] == runs["planned"] else "warn"
    return page.notice(results.setting(content).replace("**", ""), kind)


def _picture(picture: Picture, folder: Path) -> Html:
    svg, _ = plots.save(picture.draw(), folder / picture.stem)
    narrow = plots.as_svg(picture.draw(width=NARROW))
    return page.picture(svg.read_bytes(), narrow, picture.stem, picture.caption, picture.caption)


def _trouble(content: Mapping[str, Any]) -> list[object]:
    found = results.trouble(content)
    if not found:
        return []
    return [element("h2", "Runs without a result"), *(element("p", line.removeprefix("- ")) for line in found[2:-1])]


def _short(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cells(content: Mapping[str, Any]) -> list[object]:
    """Every run, with the settings that were tuned."""
    if not content["cells"]:
        return []
    keys = ("T", "lr_x", "momentum_x", "alpha", "k", "beta", "lr_w", "weight_decay", "activation")
    rows = [
        [
            f"{cell['row']} {cell['column']}",
            cell["hyper_parameters"],
            *(_short(cell["config"][key]) for key in keys),
            ", ".join(f"{run['seed']}: {run['status']}" for run in cell["runs"]),
        ]
        for cell in content["cells"]
    ]
    return [element("h2", "Cells and their settings"), page.table(["cell", "settings from", *keys, "seeds"], rows)]
