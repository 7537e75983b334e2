"""What a recipe came to, in files that carry their own provenance.

    <out>/<recipe>-<scale>/result.json   everything: tables, every run with its settings, provenance
                           result.md     the tables, to read
                           result.csv    one line for each value
                           <figure>.svg  .png
                           report.html   the same as result.md, on one page with its figures

Made anew whenever something is added, so that a part of a grid can be looked at before the rest is there.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeppc.errors import RunError
from deeppc.files import read_json, write_json, write_text
from deeppc.paper.matrix import HOW_TO_READ, Matrix, by_value, from_json
from deeppc.paper.recipe import Evidence, Place, Plot, Recipe
from deeppc.paper.store import Record
from deeppc.report.tables import UNKNOWN, Table
from deeppc.runs.provenance import provenance
from deeppc.training.config import to_table

RESULT = "result.json"
TUNED = ("T", "lr_x", "momentum_x", "alpha", "k", "beta", "damping", "lr_w", "weight_decay", "activation")
Block = str | Table | Plot | Mapping[str, str]
Sections = list[tuple[str, Sequence[Block]]]  # headings, and what stands below them


@dataclass(frozen=True)
class Result:
    """What the claims need of a ``result.json``."""

    recipe: str
    scale: str
    planned: int
    over: int
    tables: Mapping[str, Matrix]

    @property
    def complete(self) -> bool:
        return self.over == self.planned

    @property
    def state(self) -> str:
        return "complete" if self.complete else f"{self.over} of {self.planned} runs"


def folder_of(out: Path, recipe: str, scale: str) -> Path:
    return out / f"{recipe}-{scale}"


def read(folder: Path) -> Result | None:
    """Return the result in a recipe's folder; None if there is none yet."""
    path = folder / RESULT
    if not path.exists():
        return None
    content = read_json(path)
    try:
        tables = {table["name"]: from_json(table) for table in content["tables"]}
        runs = content["runs"]
        return Result(content["recipe"], content["scale"]["name"], runs["planned"], runs["over"], tables)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path} is damaged: {error!r}. Make it anew by deeppc paper run ... --render.") from error


def write(recipe: Recipe, evidence: Evidence, folder: Path) -> Path:
    """Make tables, figures and the report from the evidence at hand. Returns the path of the report."""
    tables = recipe.tables(evidence)
    content = record(recipe, evidence, tables)
    sections = _sections(recipe, content, tables, recipe.plots(evidence, tables))
    write_json(folder / RESULT, content)
    write_text(folder / "result.csv", by_value(tables).csv())
    write_text(folder / "result.md", _markdown(recipe, content, sections))
    return _page(recipe, content, sections, folder)


def record(recipe: Recipe, evidence: Evidence, tables: Sequence[Matrix]) -> dict[str, Any]:
    """Return the content of ``result.json``."""
    runs = [run for place in evidence.places for run in place.runs]
    return {
        "recipe": recipe.name,
        "shows": recipe.shows,
        "paper": recipe.paper,
        "scale": dataclasses.asdict(evidence.scale),
        "runs": {
            "planned": len(runs),
            "over": sum(recipe.has(run) for run in runs),
            "diverged": sum(run.status == "diverged" for run in runs),
            "failed": sum(run.status == "failed" for run in runs),
            "seconds": round(sum(run.result.get("seconds", 0.0) for run in runs), 1),
        },
        "tables": [table.to_json() for table in tables],
        "cells": [_cell(place) for place in evidence.places],
        "extra": evidence.extra,
        "trained": _trained([run for run in runs if run.over]),
        "provenance": _provenance(),
    }


def _cell(place: Place) -> dict[str, Any]:
    cell = place.cell
    return {
        "table": cell.table,
        "row": cell.row,
        "column": cell.column,
        "hyper_parameters": cell.hyper,
        "runs": [
            {"seed": seed, "folder": run.folder.name, "status": run.status, "reason": run.reason or None, **run.result}
            for seed, run in zip(cell.seeds, place.runs, strict=True)
        ],
        "config": {k: v for k, v in to_table(cell.config).items() if k not in ("seed", "data_dir")},
    }


def _trained(runs: Sequence[Record]) -> dict[str, Any]:
    """When, by which commands, at which commits and with how many threads the runs were trained: all that there are."""
    found = [run.manifest for run in runs]
    return {
        "first": min((m["started"] for m in found), default=None),
        "last": max((m.get("updated", m["started"]) for m in found), default=None),
        "commands": sorted({shlex.join(m["command"]) for m in found}),
        "commits": sorted({_commit(m["git"]) for m in found if m["git"]}),
        "threads": sorted({m["machine"]["threads"] for m in found}),
    }


def _commit(git: Mapping[str, Any] | None) -> str:
    return "not in git" if git is None else git["commit"] + (" with changes" if git["dirty"] else "")


def _provenance() -> dict[str, Any]:
    """Of the command that made these files."""
    known = provenance()
    return {
        "written": known["started"],
        "command": shlex.join(known["command"]),
        **{key: known[key] for key in ("versions", "git")},
        "machine": {key: value for key, value in known["machine"].items() if key != "host"},
    }


def _sections(recipe: Recipe, content: Mapping[str, Any], tables: Sequence[Matrix], plots: Sequence[Plot]) -> Sections:
    """What stands on the page, and in ``result.md``."""
    sections: Sections = [("", plots), *((table.title, [table.table()]) for table in tables), ("", [HOW_TO_READ])]
    if recipe.words:
        sections.append(("In words", [recipe.words]))
    if trouble := _trouble(content):
        sections.append(("Runs without a result", trouble))
    if content["cells"]:
        sections.append(("Cells and their settings", [_settings(content)]))
    return [*sections, ("Provenance", [_facts(content)])]


def _markdown(recipe: Recipe, content: Mapping[str, Any], sections: Sections) -> str:
    parts = [f"# {recipe.shows}", f"{recipe.of} {recipe.expect}", setting(content)]
    for heading, blocks in sections:
        parts += [f"## {heading}"] if heading else []
        for block in blocks:
            if isinstance(block, Plot):
                parts.append(f"![{block.caption}]({block.stem}.svg)")
            elif isinstance(block, Table):
                parts.append(block.markdown().rstrip())
            else:
                parts.append(block if isinstance(block, str) else "\n".join(f"- {k}: {v}" for k, v in block.items()))
    return "\n\n".join(parts) + "\n"


def _page(recipe: Recipe, content: Mapping[str, Any], sections: Sections, folder: Path) -> Path:
    from deeppc.report import pages

    drawn = [(heading, [draw(b, folder) if isinstance(b, Plot) else b for b in blocks]) for heading, blocks in sections]
    kind = "good" if content["runs"]["over"] == content["runs"]["planned"] else "warn"
    return pages.write(
        folder / "report.html",
        "sections.html",
        title=recipe.shows,
        eyebrow=f"deeppc · {recipe.of}",
        lead=[recipe.expect],
        notes=[(setting(content), kind)],
        sections=drawn,
    )


def draw(plot: Plot, folder: Path) -> Any:
    """Save a figure, and return it for the page."""
    from deeppc.report import pages

    return pages.picture(plot.draw(), folder, plot.stem, plot.caption)


def setting(content: Mapping[str, Any]) -> str:
    """Return the scale in a sentence, and how much of the grid is there."""
    s, runs = content["scale"], content["runs"]
    if not runs["planned"]:
        return f"Scale {s['name']}: networks at width {s['width']:g}, {s['rounds']} rounds."
    images = "all training images" if s["limit"] is None else f"{s['limit']:,} training images"
    stop = "" if s["patience"] is None else f", stopped after {s['patience']} without gain"
    norm = "" if s["norm"] == "none" else f", {s['norm'].upper()} unless said otherwise"
    seeds = f"seed{'s' if len(s['seeds']) > 1 else ''} {', '.join(map(str, s['seeds']))}"
    held_out = f"on held-out images ({100 * s['validation']:g} % of the data set's training images)"
    chosen = held_out if s["select"] == "validation" else "on the test set, as in the paper"
    done = "" if runs["over"] == runs["planned"] else f" {runs['over']} of {runs['planned']} runs are there."
    return (
        f"Scale {s['name']}: width {s['width']:g}{norm}, {images} in batches of {s['batch_size']}, at most "
        f"{s['epochs']} epochs{stop}, {seeds}; the epoch is selected {chosen}.{done}"
    )


def _trouble(content: Mapping[str, Any]) -> list[str]:
    """The runs that came to no result, with the reasons."""
    return [
        f"{cell['row']} {cell['column']}, seed {run['seed']}: {run['status']}. {run['reason'] or ''}".rstrip()
        for cell in content["cells"]
        for run in cell["runs"]
        if run["status"] in ("diverged", "failed")
    ]


def _settings(content: Mapping[str, Any]) -> Table:
    """Every cell, with the settings that were tuned, and where they come from."""

    def short(value: object) -> str:
        return UNKNOWN if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)

    shown = [key for key in TUNED if any(cell["config"].get(key) is not None for cell in content["cells"])]
    rows = [
        [
            f"{cell['row']} {cell['column']}",
            cell["hyper_parameters"],
            *(short(cell["config"].get(key)) for key in shown),
            ", ".join(f"{run['seed']}: {run['status']}" for run in cell["runs"]),
        ]
        for cell in content["cells"]
    ]
    return Table(["cell", "settings from", *shown, "seeds"], rows)


def _facts(content: Mapping[str, Any]) -> dict[str, str]:
    """The provenance in words."""
    p, t, runs = content["provenance"], content["trained"], content["runs"]
    machine = p["machine"]
    known = {
        "trained": f"{t['first']} to {t['last']}, threads in each run: {' or '.join(map(str, t['threads']))}",
        "by": ", ".join(t["commands"]),
        "at commit": ", ".join(t["commits"]) or "not in git",
        "time": f"{runs['seconds'] / 3600:.2f} hours of training",
    }
    return (known if t["first"] else {}) | {
        "tables and figures": f"{p['written']}, by {p['command']}",
        "commit": _commit(p["git"]),
        "versions": ", ".join(f"{name} {version}" for name, version in p["versions"].items()),
        "machine": f"{machine['accelerator'] or machine['processor']}, {machine['cores']} cores",
    }
