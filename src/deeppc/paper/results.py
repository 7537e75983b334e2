"""What a recipe came to, in files that carry their own provenance.

    <out>/<recipe>-<scale>/result.json   everything: tables, every run with its settings, provenance
                           result.md     the tables, to read
                           result.csv    one line for each value
                           <figure>.svg  .png
                           report.html   all of it on one page

Made anew whenever something is added, so that a part of a grid can be looked at before the rest is there.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deeppc.errors import RunError
from deeppc.files import read_json, replacing, write_json
from deeppc.paper import tables as tabular
from deeppc.paper.pool import Run
from deeppc.paper.recipe import Cell, Evidence, Picture, Place, Recipe
from deeppc.paper.scales import Scale
from deeppc.paper.tables import Table
from deeppc.runs.folder import MANIFEST, provenance
from deeppc.training.config import TrainConfig, to_table

RESULT, MARKDOWN, CSV = "result.json", "result.md", "result.csv"


@dataclass(frozen=True)
class Result:
    """What the claims need of a ``result.json``."""

    recipe: str
    scale: str
    planned: int
    over: int
    tables: Mapping[str, Table]

    @property
    def complete(self) -> bool:
        return self.over == self.planned


def folder_of(out: Path, recipe: str, scale: str) -> Path:
    return out / f"{recipe}-{scale}"


def read(folder: Path) -> Result | None:
    """The result in a recipe's folder; None if there is none yet."""
    path = folder / RESULT
    if not path.exists():
        return None
    content = read_json(path)
    try:
        tables = [tabular.from_json(table) for table in content["tables"]]
        runs = content["runs"]
        return Result(
            content["recipe"], content["scale"]["name"], runs["planned"], runs["over"], {t.name: t for t in tables}
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path} is damaged: {error!r}. Make it anew by deeppc paper run ... --render.") from error


def write(recipe: Recipe, evidence: Evidence, folder: Path) -> Path:
    """Make tables, figures and the report from the evidence at hand. Returns the path of the report."""
    from deeppc.paper import report

    folder.mkdir(parents=True, exist_ok=True)
    tables = recipe.tables(evidence)
    pictures = recipe.pictures(evidence, tables)
    content = record(recipe, evidence, tables)
    write_json(folder / RESULT, content)
    for name, text in ((MARKDOWN, markdown(recipe, content, tables, pictures)), (CSV, tabular.as_csv(tables))):
        with replacing(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return report.write(recipe, content, tables, pictures, folder)


def record(recipe: Recipe, evidence: Evidence, tables: Sequence[Table]) -> dict[str, Any]:
    """The content of ``result.json``."""
    runs = [run for place in evidence.places for run in place.runs]
    return {
        "recipe": recipe.name,
        "shows": recipe.shows,
        "paper": list(recipe.paper),
        "scale": _scale(evidence.scale),
        "runs": {
            "planned": len(runs),
            "over": sum(run.over for run in runs),
            "diverged": sum(run.status == "diverged" for run in runs),
            "failed": sum(run.status == "failed" for run in runs),
            "seconds": round(sum(run.result.get("seconds", 0.0) for run in runs), 1),
        },
        "tables": [tabular.to_json(table) for table in tables],
        "cells": [_cell(place) for place in evidence.places],
        "extra": dict(evidence.extra),
        "trained": _trained(run for run in runs if run.over),
        "provenance": _provenance(evidence.scale),
    }


def _scale(scale: Scale) -> dict[str, Any]:
    values = {f.name: getattr(scale, f.name) for f in dataclasses.fields(scale)}
    return {**values, "datasets": dict(scale.datasets), "seeds": list(scale.seeds), "models": list(scale.models)}


def _cell(place: Place) -> dict[str, Any]:
    config = {key: value for key, value in to_table(place.cell.config).items() if key not in ("seed", "data_dir")}
    cell: Cell = place.cell
    return {
        "table": cell.table,
        "row": cell.row,
        "column": cell.column,
        "hyper_parameters": cell.hyper,
        "runs": [_run(run) for run in place.runs],
        "config": config,
    }


def _run(run: Run) -> dict[str, Any]:
    return {
        "seed": run.seed,
        "folder": run.folder.name,
        "status": run.status,
        "reason": run.reason or None,
        **run.result,
    }


def _trained(runs: Iterable[Run]) -> dict[str, Any]:
    """When, by which commands, at which commits and with how many threads the runs were trained: all that there are."""
    manifests = [read_json(run.folder / MANIFEST) for run in runs]
    commits = [m["git"]["commit"] + (" with changes" if m["git"]["dirty"] else "") for m in manifests if m["git"]]
    return {
        "first": min((m["started"] for m in manifests), default=None),
        "last": max((m.get("updated", m["started"]) for m in manifests), default=None),
        "commands": sorted({shlex.join(m["command"]) for m in manifests}),
        "commits": sorted(set(commits)),
        "threads": sorted({m["machine"]["threads"] for m in manifests}),
    }


def _provenance(scale: Scale) -> dict[str, Any]:
    """Of the command that made these files."""
    from deeppc.training.parts import choose_device

    known = provenance(TrainConfig(seed=scale.seeds[0]), choose_device("auto").type)
    return {
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(known["command"]),
        **{key: known[key] for key in ("versions", "git")},
        "machine": {key: value for key, value in known["machine"].items() if key != "host"},
    }


def markdown(recipe: Recipe, content: Mapping[str, Any], tables: Sequence[Table], pictures: Sequence[Picture]) -> str:
    """The tables, what they mean, and how they came about."""
    lines = [f"# {recipe.shows}", "", f"{recipe.of} {recipe.expect}", "", setting(content)]
    lines += [tabular.HOW_TO_READ, ""]
    for picture in pictures:
        lines += [f"![{picture.caption}]({picture.stem}.svg)", ""]
    for table in tables:
        lines += [f"## {table.title}", "", tabular.markdown(table)]
    if recipe_cells := content["cells"]:
        lines += ["## Hyper-parameters", "", *hyper_parameters(recipe_cells), ""]
    lines += trouble(content)
    lines += ["## Provenance", "", *(f"- {name}: {value}" for name, value in facts(content).items())]
    return "\n".join(lines) + "\n"


def setting(content: Mapping[str, Any]) -> str:
    """The scale in a sentence, and how much of the grid is there."""
    s, runs = content["scale"], content["runs"]
    if not runs["planned"]:
        return f"Scale {s['name']}: networks at width {s['width']:g}, {s['rounds']} rounds."
    images = "all training images" if s["limit"] is None else f"{s['limit']:,} training images"
    stop = "" if s["patience"] is None else f", stopped after {s['patience']} without gain"
    seeds = f"seed{'s' if len(s['seeds']) > 1 else ''} {', '.join(map(str, s['seeds']))}"
    held_out = f"on held-out images ({100 * s['validation']:g} % of the data set's training images)"
    chosen = held_out if s["select"] == "validation" else "on the test set, as in the paper"
    done = "" if runs["over"] == runs["planned"] else f" **{runs['over']} of {runs['planned']} runs are there.**"
    return (
        f"Scale {s['name']}: width {s['width']:g}, {images} in batches of {s['batch_size']}, at most {s['epochs']} "
        f"epochs{stop}, {seeds}; the epoch is selected {chosen}.{done}"
    )


def hyper_parameters(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for each source, with the cells that took it."""
    sources: dict[str, list[str]] = {}
    for cell in cells:
        sources.setdefault(cell["hyper_parameters"], []).append(f"{cell['row']} {cell['column']}")
    if len(sources) == 1:
        return [f"- {source}: all cells" for source in sources]
    return [f"- {source}: {', '.join(dict.fromkeys(names))}" for source, names in sources.items()]


def trouble(content: Mapping[str, Any]) -> list[str]:
    """The runs that came to no result, with the reasons."""
    found = [
        f"- {cell['row']} {cell['column']}, seed {run['seed']}: {run['status']}. {run['reason'] or ''}".rstrip()
        for cell in content["cells"]
        for run in cell["runs"]
        if run["status"] in ("diverged", "failed")
    ]
    return ["## Runs without a result", "", *found, ""] if found else []


def facts(content: Mapping[str, Any]) -> dict[str, str]:
    """Provenance in words."""
    p, machine, t = content["provenance"], content["provenance"]["machine"], content["trained"]
    git = p["git"]
    where = machine["accelerator"] or machine["processor"]
    known = {
        "trained": f"{t['first']} to {t['last']}, threads in each run: {' or '.join(map(str, t['threads']))}",
        "by": ", ".join(f"`{command}`" for command in t["commands"]),
        "at commit": ", ".join(t["commits"]) or "not in git",
        "time": f"{content['runs']['seconds'] / 3600:.2f} hours of training in {content['runs']['over']} runs",
    }
    return (known if t["first"] else {}) | {
        "tables and figures": f"{p['written']}, by `{p['command']}`",
        "commit": "not in git" if git is None else git["commit"] + (" with changes" if git["dirty"] else ""),
        "versions": ", ".join(f"{name} {version}" for name, version in p["versions"].items()),
        "machine": f"{where}, {machine['cores']} cores",
    }
