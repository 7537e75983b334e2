"""HTML pages that stand on their own: of a run, of a comparison, and the skeleton for those of searches and recipes.

Whatever state a folder is in, its page says what is known and what is not: that a run is unfinished or diverged, and
whether the epoch was chosen on held-out data or on the very test set that is reported. Everything that goes into a
template is escaped, unless it is ``markupsafe.Markup``.
"""

from __future__ import annotations

import base64
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from deeppc.files import replacing
from deeppc.report import plots, records
from deeppc.report.records import SPLITS, Run, mapping, numbers
from deeppc.report.tables import UNKNOWN, Table, duration, mean_and_deviation, number, percent, plain, scientific
from deeppc.runs.folder import ComparisonFolder, RunFolder

DEEPEST = 4  # tables within tables that are still spelt out
SPREAD = "Mean ± sample standard deviation over seeds; n is the number of finished seeds. One seed has no deviation."
Notice = tuple[str, str]  # words, and good, warn, bad or nothing


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


def render(template: str, **content: Any) -> str:
    """Fill a template of ``report/templates``.

    ``sections.html`` is the generic one: ``title``, ``eyebrow`` (above the title), ``lead`` (paragraphs), ``notes``
    (pairs of words and good, warn, bad or ""), ``numbers`` (a mapping, shown as cards) and ``sections``, pairs of a
    heading and its blocks: a string is a paragraph, a mapping a list of facts, and there are :class:`Picture`,
    :class:`~deeppc.report.tables.Table` and ``Markup``. Only ``title`` and ``sections`` are required.
    """
    defaults = {"eyebrow": "deeppc", "lead": (), "notes": (), "numbers": {}}
    return _ENVIRONMENT.get_template(template).render(defaults | content)


def write(path: Path, template: str, **content: Any) -> Path:
    """Render a template into a file, whole or not at all, and return its path."""
    page = render(template, **content).encode("utf-8", errors="replace")
    with replacing(path) as temporary:
        temporary.write_bytes(page)
    return path


def picture(figure: Figure, folder: Path, name: str, caption: str) -> Picture:
    """Save a figure as ``<name>.svg`` and ``.png`` in the folder of its page, and return it for a template."""
    vector, _ = plots.save(figure, folder / name)
    return Picture(vector.read_text(encoding="utf-8"), caption, name)


def flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield names and values; mappings within are spelt out with dots, and what is None is left out."""
    for key, value in values.items():
        if isinstance(value, Mapping) and prefix.count(".") < DEEPEST:
            yield from flat(value, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}", value if isinstance(value, Markup) else plain(value, 400)


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters["flat"] = flat


# --- a run -----------------------------------------------------------------------------------------------------------


def write_run(folder: Path) -> Path:
    """Draw the pictures of a run and write its ``report.html``, whose path is returned.

    Raises RunError where there is no such folder; odd or missing content is left out.
    """
    run = records.read_run(folder)
    content: dict[str, Any] = {"run": run, "notes": _verdict(run), "provenance": _provenance(run.manifest)}
    if run.metrics:
        chosen_on = str(run.result.get("select") or run.config.get("select") or "")
        content |= {
            "numbers": _headline(run),
            "selection": [_selection(chosen_on, mapping(run.manifest.get("data")))] if run.result else [],
            "imbalance": _imbalance(run),
            "similarity": _similarity(run),
            "epochs": _epochs(run),
            **_run_pictures(run, folder),
        }
    title = str(run.config.get("algorithm", "A run")) + _setting(run.config)
    return write(RunFolder(folder).report, "run.html", title=title, eyebrow="deeppc run report", **content)


def _setting(config: Mapping[str, Any]) -> str:
    """`` on vgg7, cifar10``, as far as known."""
    known = [str(config[key]) for key in ("model", "dataset") if config.get(key) is not None]
    return f" on {', '.join(known)}" if known else ""


def _verdict(run: Run) -> list[Notice]:
    """Whether this is a result, said before any number."""
    status, diverged = str(run.manifest.get("status", "")), run.diverged_at
    if diverged is not None or status == "diverged":
        where = f" at epoch {diverged:g}" if diverged is not None else ""
        return [(f"Diverged{where}: {run.score} or energy is no longer a finite number.", "bad")]
    if not run.metrics:
        return [("No epoch has finished yet, so there is nothing to show but the settings.", "warn")]
    if run.result:
        return []
    reason = f" ({status})" if status in ("interrupted", "failed") else ""
    progress = _of(len(run.metrics), run.config.get("epochs"))
    return [(f"Unfinished{reason}: {progress} epochs. The numbers below are not a result.", "warn")]


def _headline(run: Run) -> dict[str, str]:
    if run.result:
        keys = sorted(_scores([run.result]), key=lambda key: not key.startswith("test_"))
        shown = {
            **{_NAMES.get(key, key.replace("_", " ")): _score(key, run.result[key]) for key in keys},
            "selected epoch": _of(run.result.get("selected_epoch"), run.result.get("epochs", len(run.metrics))),
            "time": duration(run.result.get("seconds")),
        }
    else:
        keys = [f"{split}_{run.score}" for split in ("train", "validation")]
        shown = {
            **{f"{key.replace('_', ' ')} so far": _score(key, run.metrics[-1].get(key)) for key in keys},
            "epochs so far": str(len(run.metrics)),
            "time so far": duration(float(np.nansum(records.series(run.metrics, "seconds"))) or None),
        }
    return {name: value for name, value in shown.items() if value != UNKNOWN}


_NAMES = {"test_accuracy": "test top-1", "test_top5": "test top-5"}


def _scores(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """The keys of scores, such as ``test_accuracy``, in the order of the splits."""
    keys = dict.fromkeys(key for record in found for key in record)
    return [key for split in SPLITS for key in keys if key.startswith(f"{split}_")]


def _score(key: str, value: object) -> str:
    return percent(value) if key.endswith(("_accuracy", "_top5")) else scientific(value)


def _selection(select: str, data: Mapping[str, Any]) -> Notice:
    """How the epoch was chosen. A choice on the test set makes the test score too good, and that is said plainly."""
    if select == "validation":
        held = number(data.get("validation"))
        samples = f"{held:,.0f} held-out training samples" if held > 0 else "held-out training samples"
        return f"The epoch was chosen on {samples}; the test set had no part in the choice.", "good"
    if select == "test":
        words = (
            "The epoch was chosen on the test set: the test score is that of the luckiest epoch, better than what new "
            "data would give. Compare it only with numbers chosen in the same way."
        )
        return words, "warn"
    return f"How the epoch was chosen: {f'“{select}”' if select else 'not on record'}.", "warn"


def _run_pictures(run: Run, folder: Path) -> dict[str, Picture | None]:
    kept = number(run.result.get("selected_epoch"))
    curves = plots.curves(run.metrics, selected=kept if math.isfinite(kept) else None)
    energy = _ENERGY + (_COSINES if records.cosines(run.metrics).nodes else "")
    has_gaps = bool(records.gap_ratios(run.metrics).nodes)
    score = "Accuracy" if run.score == "accuracy" else run.score
    return {
        "curves": picture(curves, folder, "curves", f"{score} by epoch, and the learning rate of the weights."),
        "energy": picture(plots.energy_shares(run.metrics), folder, "energy", energy),
        "profile": picture(plots.energy_profile(run.metrics), folder, "profile", _PROFILE),
        "gap": picture(plots.gaps(run.metrics), folder, "gap", _GAP) if has_gaps else None,
    }


_ENERGY = (
    "Share of the energy that each node's weights learnt from, mean over each epoch (for bp, of the squared error that "
    "backprop carries). Logarithmic."
)
_COSINES = " Below: the cosine of each node's weight update with backprop's, on one training batch after each epoch."
_PROFILE = "The same shares at the first and the last epoch. On the dashed line all nodes would hold the same."
_GAP = (
    "Root mean square of x_T - x_0 divided by the energy that the weights learn from, on one training batch after each "
    "epoch. Logarithmic."
)


def _imbalance(run: Run) -> str:
    """The energy figure in a sentence."""
    table = records.energy_shares(run.metrics)
    if len(table.nodes) < 2:
        return ""
    first, last = table.nodes[0], table.nodes[-1]
    low, high = table.values[-1][[0, -1]]
    if low == 0:
        return f"No energy reached {first}, the node nearest to the input: its weights did not learn."
    if not (low > 0 and high > 0):
        return ""
    orders = math.log10(high / low)
    distance = f"{abs(orders):.1f} orders of magnitude {'below' if orders > 0 else 'above'} {last}, the output"
    return (
        f"At the last epoch {first}, the node nearest to the input, holds {_part(low)} of the energy, {distance}. "
        f"An equal spread would give each of the {len(table.nodes)} nodes {_part(1 / len(table.nodes))}."
    )


def _similarity(run: Run) -> Table | None:
    """The last epoch's diagnostics, from the output, where learning begins."""
    if not records.cosines(run.metrics).nodes:
        return None
    last = next(record for record in reversed(run.metrics) if mapping(record.get("bp_cosine")))
    cosine, size, gap = (mapping(last.get(key)) for key in ("bp_cosine", "bp_size", "gap_ratio"))
    rows = [[v, _fixed(cosine[v]), scientific(size.get(v)), scientific(gap.get(v))] for v in reversed(cosine)]
    return Table(["node", "cosine with backprop", "length relative to backprop's", "gap ratio"], rows)


def _epochs(run: Run) -> Table:
    """All epochs, with the energies at both ends of the network, between which the imbalance lies."""
    nodes = list(dict.fromkeys(v for record in run.metrics for v in mapping(record.get("energy"))))
    ends = list(dict.fromkeys(nodes[:1] + nodes[-1:]))
    keys, shown = _scores(run.metrics), records.epochs(run.metrics)
    rows = []
    for epoch, record in zip(shown, run.metrics, strict=True):
        energy = mapping(record.get("energy"))
        scores = [_score(key, record.get(key)) for key in keys]
        rows.append([f"{epoch:g}", *scores, *(scientific(energy.get(v)) for v in ends)])
    kept = number(run.result.get("selected_epoch"))
    names = [re.sub("_accuracy$", "", key).replace("_top5", " top-5").replace("_", " ") for key in keys]
    chosen = next((i for i, epoch in enumerate(shown) if epoch == kept), None)
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
    record = records.read_object(files.table_path)
    found = record.get("rows")
    rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
    config = {k: v for k, v in mapping(record.get("config")).items() if k not in ("algorithm", "seed")}
    content: dict[str, Any] = {"config": config, "ranking": None}
    if rows:
        firsts = {str(row.get("algorithm", "?")): folder / runs[0] for row in rows if (runs := _listed(row, "runs"))}
        metrics = {name: records.read_metrics(run) for name, run in firsts.items()}
        content |= {
            "score": records.score_name(rows),
            "ranking": _ranking(rows),
            "selection": [_selection(str(config["select"]), {})] if config.get("select") else [],
            "scores": picture(plots.comparison(rows), folder, "comparison", "Every dot is a seed."),
            "profiles": picture(plots.profiles(metrics), folder, "profiles", _PROFILES),
            "runs": {str(row.get("algorithm", "?")): _links(row, folder) for row in rows},
        }
    else:
        content["notes"] = [("No run of this comparison has finished yet.", "")]
    title = "Algorithms compared" + _setting(config)
    return write(files.path / "report.html", "comparison.html", title=title, eyebrow="deeppc comparison", **content)


_PROFILES = "Share of the energy by node at the last epoch, in the first run of each algorithm. Logarithmic."


def _ranking(rows: Sequence[Mapping[str, Any]]) -> Table:
    """One line for each algorithm, in the order of the comparison."""
    keys = sorted(_scores(rows), key=lambda key: not key.startswith("test_"))
    names = [_NAMES.get(key, key.replace("_accuracy", "").replace("_", " ")) for key in keys]
    body = []
    for row in rows:
        scores = [_spread(key, numbers(row.get(key))) for key in keys]
        seconds = numbers(row.get("seconds"))
        seeds, diverged = max([len(numbers(row.get(key))) for key in keys] or [0]), len(_listed(row, "diverged"))
        lost = f" ({diverged} diverged)" if diverged else ""
        time = duration(float(seconds.mean()) if seconds.size else None)
        body.append([row.get("algorithm", "?"), *scores, time, f"{seeds}{lost}"])
    return Table(["algorithm", *names, "time", "n"], body, note=SPREAD)


def _spread(key: str, values: Iterable[float]) -> str:
    if not key.endswith(("_accuracy", "_top5")):
        return mean_and_deviation(values, digits=4)
    words = mean_and_deviation(values, scale=100)
    return words if words == UNKNOWN else f"{words}%"


def _links(row: Mapping[str, Any], folder: Path) -> Markup:
    """Links to the runs' own reports; a run without one is only named."""
    links = []
    for run in _listed(row, "runs") + _listed(row, "diverged"):
        report = RunFolder(folder / run).report
        link = Markup('<a href="{}">{}</a>').format(quote(f"{run}/{report.name}"), run)
        links.append(link if report.is_file() else run)
    return Markup("<br>").join(links)


def _listed(row: Mapping[str, Any], key: str) -> list[str]:
    """Folders of runs, within that of the comparison."""
    runs = row.get(key)
    return [run for run in runs if isinstance(run, str)] if isinstance(runs, list) else []


def _of(part: object, whole: object) -> str:
    a, b = number(part), number(whole)
    if not math.isfinite(a):
        return UNKNOWN
    return f"{a:g} of {b:g}" if math.isfinite(b) else f"{a:g}"


def _fixed(value: object) -> str:
    x = number(value)
    return f"{x:.4f}" if math.isfinite(x) else UNKNOWN


def _part(x: float) -> str:
    return f"{100 * x:.2g}%" if x >= 0.001 else scientific(x)
