"""HTML pages that stand on their own: of a run, of a comparison, and the skeleton for those of searches and recipes.

Whatever state a folder is in, its page says what is known and what is not: that a run is unfinished or diverged, and
whether the epoch was chosen on held-out data or on the very test set that is reported. Everything that goes into a
template is escaped, unless it is ``markupsafe.Markup``.
"""

from __future__ import annotations

import base64
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from deeppc.files import write_text
from deeppc.report import plots, records
from deeppc.report.records import Run, mapping, numbers
from deeppc.report.tables import UNKNOWN, Table, duration, mean_and_deviation, number, percent, scientific
from deeppc.report.templates import render
from deeppc.runs.folder import ComparisonFolder, RunFolder

__all__ = ["Notice", "Picture", "picture", "render", "write", "write_comparison", "write_run"]

Notice = tuple[str, str]  # words, and good, warn, bad or nothing
HALF, TWICE = 0.5, 2.0  # of a step: what epsilon makes shorter, or longer, is said
_NAMES = {"test_accuracy": "test top-1", "test_top5": "test top-5"}


@dataclass(frozen=True)
class Picture:
    """A figure of a page. ``name`` is that of its files beside the page, without .svg and .png; empty without files."""

    svg: str
    caption: str
    name: str = ""

    @property
    def source(self) -> str:
        """The picture itself, within the page."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg.encode()).decode("ascii")


def write(path: Path, template: str, **content: Any) -> Path:
    """Render a template into a file, whole or not at all, and return its path; see :func:`render` for the content."""
    write_text(path, render(template, **content))
    return path


def picture(figure: Figure, folder: Path, name: str, caption: str = "") -> Picture:
    """Save a figure as ``<name>.svg`` and ``.png`` in the folder of its page, and return it for a template."""
    vector, _ = plots.save(figure, folder / name)
    return Picture(vector.read_text(encoding="utf-8"), caption, name)


# --- a run -----------------------------------------------------------------------------------------------------------


def write_run(folder: Path) -> Path:
    """Draw the pictures of a run and write its ``report.html``, whose path is returned.

    Raises RunError where there is no such folder; odd or missing content is left out.
    """
    run = records.read_run(folder)
    content: dict[str, Any] = {"run": run, "provenance": _provenance(run.manifest)}
    if run.metrics:
        held = number(mapping(run.manifest.get("data")).get("validation"))
        first, last = records.epochs(run.metrics)[[0, -1]]
        ends = {f"epoch {first:g}": run.metrics[:1], f"epoch {last:g}": run.metrics}
        has_gaps = bool(records.gap_ratios(run.metrics).nodes)
        content |= {
            "progress": _of(len(run.metrics), run.config.get("epochs")),
            "numbers": _headline(run),
            "select": str(run.result.get("select") or run.config.get("select") or ""),
            "samples": f"{held:,.0f}" if held > 0 else "",
            "curves": picture(plots.curves(run.metrics, number(run.result.get("selected_epoch"))), folder, "curves"),
            "energy": picture(plots.energy_shares(run.metrics), folder, "energy"),
            "profile": picture(plots.profiles(ends), folder, "profile"),
            "gap": picture(plots.gaps(run.metrics), folder, "gap") if has_gaps else None,
            "imbalance": _imbalance(run),
            "overshooting": _overshooting(run),
            "epsilon": _epsilon(run),
            "similarity": _similarity(run),
            "epochs": _epochs(run),
        }
    title = str(run.config.get("algorithm", "A run")) + _setting(run.config)
    return write(RunFolder(folder).report, "run.html", title=title, eyebrow="deeppc run report", **content)


def _setting(config: Mapping[str, Any]) -> str:
    """`` on vgg7, cifar10``, as far as known."""
    known = [str(config[key]) for key in ("model", "dataset") if config.get(key) is not None]
    return f" on {', '.join(known)}" if known else ""


def _headline(run: Run) -> dict[str, str]:
    if run.result:
        shown = {_NAMES.get(key, key.replace("_", " ")): _score(key, run.result[key]) for key in _scores([run.result])}
        shown["selected epoch"] = _of(run.result.get("selected_epoch"), run.result.get("epochs", len(run.metrics)))
        shown["time"] = duration(run.result.get("seconds"))
    else:
        keys = [f"{split}_{run.score}" for split in ("train", "validation")]
        shown = {f"{key.replace('_', ' ')} so far": _score(key, run.metrics[-1].get(key)) for key in keys}
        shown["epochs so far"] = str(len(run.metrics))
        shown["time so far"] = duration(float(np.nansum(records.series(run.metrics, "seconds"))) or None)
    return {name: value for name, value in shown.items() if value != UNKNOWN}


def _scores(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """The keys of scores, such as ``test_accuracy``: of the test set, where there are any, before the others."""
    keys = dict.fromkeys(key for record in found for key in record)
    return [key for split in ("test", "train", "validation") for key in keys if key.startswith(f"{split}_")]


def _score(key: str, value: object) -> str:
    return percent(value) if key.endswith(("_accuracy", "_top5")) else scientific(value)


def _imbalance(run: Run) -> str:
    """The energy figure in a sentence."""
    table = records.energy_shares(run.metrics)
    if len(table.nodes) < 2:
        return ""
    first, last, n = table.nodes[0], table.nodes[-1], len(table.nodes)
    low, high = table.values[-1][[0, -1]]
    if low == 0:
        return f"No energy reached {first}, the node nearest to the input: its weights did not learn."
    if not (low > 0 and high > 0):
        return ""
    orders = math.log10(high / low)
    distance = f"{abs(orders):.1f} orders of magnitude {'below' if orders > 0 else 'above'} {last}, the output"
    return (
        f"At the last epoch {first}, the node nearest to the input, holds {scientific(low)} of the energy, {distance}. "
        f"An equal spread would give each of the {n} nodes {scientific(1 / n)}."
    )


def _overshooting(run: Run) -> str:
    """What the diagnostics say of the epoch after which inference overshot most; empty if it always settled."""
    found = [mapping(record.get("stability")) for record in run.metrics]
    known = [(number(x.get("curvature")), number(x.get("limit"))) for x in found]
    over = [c / limit if limit > 0 else math.nan for c, limit in known]
    worst = int(np.nanargmax([0.0, *over])) - 1
    if worst < 0 or not over[worst] > 1:
        return ""
    epoch, (curvature, limit) = records.epochs(run.metrics)[worst], known[worst]
    advice = ["lower lr_x", *(["or alpha"] if "alpha" in run.config else [])]
    if number(run.config.get("momentum_x")) > 0 and run.config.get("nesterov", True):
        advice.append("take momentum_x 0")
    return (
        f"Inference overshoots: after epoch {epoch:g} the energy curved by up to {curvature:.3g} in the activities, "
        f"which settle at these rates where it curves by less than {limit:.3g}. A little more does little harm in a "
        f"few steps, much more ruins the updates: {', '.join(advice)}."
    )


def _epsilon(run: Run) -> str:
    """What the optimiser's epsilon does to the steps of nodes, after the last epoch; empty if it does no harm."""
    left = {v: number(x) for v, x in mapping(run.metrics[-1].get("left_by_epsilon")).items()}
    long = {v: x for v, x in left.items() if x > TWICE}
    if long:
        return (
            f"The optimiser's epsilon is too small: the steps of {len(long)} of {len(left)} nodes are up to "
            f"{scientific(max(long.values()))} times too long, because squares of their gradients are 0 in float32. "
            "Raise epsilon to 1e-20."
        )
    small = sorted((x, v) for v, x in left.items() if x < HALF)
    if not small:
        return ""
    share, least = small[0]
    advice = "set depth_gain, or lower epsilon" if run.config.get("depth_gain") is False else "lower epsilon"
    return (
        f"The optimiser's epsilon swallows updates: after the last epoch it leaves less than half of the steps of "
        f"{len(small)} of {len(left)} nodes, of {least} {percent(share, 1)}. Their gradients are no larger than it is: "
        f"{advice}, but not below 1e-20."
    )


def _similarity(run: Run) -> Table | None:
    """The last epoch's diagnostics, from the output, where learning begins."""
    if not records.cosines(run.metrics).nodes:
        return None
    last = next(record for record in reversed(run.metrics) if mapping(record.get("bp_cosine")))
    cosine, size, gap, left = (
        mapping(last.get(key)) for key in ("bp_cosine", "bp_size", "gap_ratio", "left_by_epsilon")
    )
    rows = [
        [v, f"{number(cosine[v]):.4f}", scientific(size.get(v)), scientific(gap.get(v)), percent(left.get(v), 1)]
        for v in reversed(cosine)
    ]
    return Table(
        ["node", "cosine with backprop", "length relative to backprop's", "gap ratio", "left by epsilon"], rows
    )


def _epochs(run: Run) -> Table:
    """All epochs, with the energies at both ends of the network, between which the imbalance lies."""
    nodes = list(dict.fromkeys(v for record in run.metrics for v in mapping(record.get("energy"))))
    ends = list(dict.fromkeys(nodes[:1] + nodes[-1:]))
    keys, numbered = _scores(run.metrics), records.epochs(run.metrics).tolist()
    rows = []
    for epoch, record in zip(numbered, run.metrics, strict=True):
        energy = mapping(record.get("energy"))
        scores = [_score(key, record.get(key)) for key in keys]
        rows.append([f"{epoch:g}", *scores, *(scientific(energy.get(v)) for v in ends)])
    names = [key.replace("_accuracy", "").replace("_top5", " top-5").replace("_", " ") for key in keys]
    kept = number(run.result.get("selected_epoch"))
    chosen = numbered.index(kept) if kept in numbered else None
    return Table(["epoch", *names, *(f"energy of {v}" for v in ends)], rows, chosen=chosen)


def _provenance(manifest: Mapping[str, Any]) -> dict[str, object]:
    """Who wrote this and how: what someone needs to get the same numbers again."""
    known: dict[str, object] = {key: manifest.get(key) for key in ("started", "updated", "seed", "deeppc")}
    if known["seed"] is None:
        known["seed"] = mapping(manifest.get("config")).get("seed")
    command = manifest.get("command")
    if isinstance(command, list) and command:
        program, *flags = (str(word) for word in command)
        path = Path(program)  # where it lies on the machine is of no use elsewhere
        start = ["python", "-m", path.parent.name] if path.name == "__main__.py" else [path.name]
        command = shlex.join([*start, *flags])
    return known | {"command": command, **{key: manifest.get(key) for key in ("git", "versions", "machine", "data")}}


# --- a comparison ----------------------------------------------------------------------------------------------------


def write_comparison(folder: Path) -> Path:
    """Draw the pictures of a comparison and write its ``report.html``, whose path is returned.

    As tolerant as :func:`write_run`.
    """
    records.require_folder(folder)
    files = ComparisonFolder(folder)
    damage: list[str] = []
    record = (records.readable(files.table, folder, damage) if files.holds_comparison else None) or {}
    found = record.get("rows")
    rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
    config = {k: v for k, v in mapping(record.get("config")).items() if k not in ("algorithm", "seed")}
    content: dict[str, Any] = {"config": config, "ranking": None, "damage": damage}
    if rows:
        firsts = {str(row.get("algorithm", "?")): folder / runs[0] for row in rows if (runs := _listed(row, "runs"))}
        metrics = {n: records.readable(RunFolder(run).metrics, folder, damage) or [] for n, run in firsts.items()}
        content |= {
            "score": records.score_name(rows),
            "ranking": _ranking(rows),
            "scores": picture(plots.comparison(rows), folder, "comparison"),
            "profiles": picture(plots.profiles(metrics), folder, "profiles"),
            "runs": {str(row.get("algorithm", "?")): _links(row, folder) for row in rows},
        }
    title = "Algorithms compared" + _setting(config)
    return write(files.report, "comparison.html", title=title, eyebrow="deeppc comparison", **content)


def _ranking(rows: Sequence[Mapping[str, Any]]) -> Table:
    """One line for each algorithm, in the order of the comparison."""
    keys = _scores(rows)
    names = [_NAMES.get(key, key.replace("_accuracy", "").replace("_", " ")) for key in keys]
    body = []
    for row in rows:
        scores, seconds = {key: numbers(row.get(key)) for key in keys}, numbers(row.get("seconds"))
        seeds, diverged = max(map(len, scores.values()), default=0), len(_listed(row, "diverged"))
        n = f"{seeds} ({diverged} diverged)" if diverged else str(seeds)
        time = duration(seconds.mean() if seconds.size else None)
        body.append([row.get("algorithm", "?"), *(_spread(*score) for score in scores.items()), time, n])
    return Table(["algorithm", *names, "time", "n"], body)


def _spread(key: str, values: Iterable[float]) -> str:
    if not key.endswith(("_accuracy", "_top5")):
        return mean_and_deviation(values, digits=4)
    words = mean_and_deviation(values, scale=100)
    return words if words == UNKNOWN else f"{words}%"


def _links(row: Mapping[str, Any], folder: Path) -> Markup:
    """Links to the runs' own reports; a run without one is only named."""
    runs = {run: RunFolder(folder / run).report for run in _listed(row, "runs") + _listed(row, "diverged")}
    link = Markup('<a href="{}">{}</a>')
    shown = [link.format(quote(f"{run}/{page.name}"), run) if page.is_file() else run for run, page in runs.items()]
    return Markup("<br>").join(shown)


def _listed(row: Mapping[str, Any], key: str) -> list[str]:
    """Folders of runs, within that of the comparison."""
    runs = row.get(key)
    return [run for run in runs if isinstance(run, str)] if isinstance(runs, list) else []


def _of(part: object, whole: object) -> str:
    a, b = number(part), number(whole)
    if not math.isfinite(a):
        return UNKNOWN
    return f"{a:g} of {b:g}" if math.isfinite(b) else f"{a:g}"
