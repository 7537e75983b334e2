"""The report of a run, and of a comparison: pictures and one HTML page that can be mailed, printed or kept.

Whatever state the folder is in, the page says what is known and what is not: that a run is unfinished or diverged, and
whether the epoch was chosen on held-out images or on the very test set that is reported.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from matplotlib.figure import Figure

from deeppc.diagnostics.energy import FloatArray
from deeppc.report import page, plots, records
from deeppc.report.files import write_whole
from deeppc.report.page import Html, element
from deeppc.report.records import Run, mapping, number, numbers
from deeppc.report.style import NARROW

__all__ = ["write", "write_comparison"]

PAGE = "report.html"
UNKNOWN = "–"
SIGNS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def write(run_dir: Path) -> Path:
    """Make the pictures of a run and its ``report.html``, whose path is returned.

    Raises FileNotFoundError where there is no such folder; odd or missing content is left out.
    """
    run = records.read_run(run_dir)
    title = _title(run.config)
    content: list[object] = [element("p", "deeppc run report", class_="eyebrow"), element("h1", title), *_verdict(run)]
    if run.metrics:
        content += [page.cards(_headline(run)), *_selection(run), *_pictures(run, run_dir)]
        content += [element("h2", "Epochs"), _epochs(run)]
    content.append(page.side_by_side(_settings(run.config), _provenance(run.manifest)))
    return _publish(run_dir, title, content)


def write_comparison(folder: Path) -> Path:
    """Make the pictures of a comparison and its ``report.html``, whose path is returned; tolerant as :func:`write`."""
    records.require_folder(folder)
    record = records.read_object(folder / "comparison.json")
    found = record.get("rows")
    rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
    config = mapping(record.get("config"))
    title = "Algorithms compared" + _setting(config)
    content: list[object] = [element("p", "deeppc comparison", class_="eyebrow"), element("h1", title)]
    if rows:
        content += [_ranking(rows), element("p", _SPREAD, class_="small"), *_tested(config)]
        content += [*_comparison_pictures(rows, folder), element("h2", "Runs"), _runs(rows, folder)]
    else:
        content.append(page.notice("No run of this comparison has finished yet."))
    if config:
        own = ("algorithm", "seed")  # of each run, not of the comparison
        content.append(_settings({key: value for key, value in config.items() if key not in own}))
    return _publish(folder, title, content)


_SPREAD = "Mean ± sample standard deviation over seeds; n is the number of finished seeds. One seed has no deviation."


def _publish(folder: Path, title: str, content: Iterable[object]) -> Path:
    path = folder / PAGE
    write_whole(path, page.document(f"{title} · deeppc", *content))
    return path


def _title(config: Mapping[str, Any]) -> str:
    return str(config.get("algorithm", "A run")) + _setting(config)


def _setting(config: Mapping[str, Any]) -> str:
    """`` on vgg7, cifar10``, as far as known."""
    known = [str(config[key]) for key in ("model", "dataset") if key in config]
    return f" on {', '.join(known)}" if known else ""


def _verdict(run: Run) -> list[Html]:
    """Whether this is a result, said before any number."""
    status, diverged = str(run.manifest.get("status", "")), run.diverged_at
    done, planned = len(run.metrics), number(run.config.get("epochs"))
    progress = f"{done} of {planned:g} epochs" if math.isfinite(planned) else f"{done} epochs"
    if diverged is not None or status == "diverged":
        where = f" at epoch {diverged:g}" if diverged is not None else ""
        return [page.notice(f"Diverged{where}: accuracy or energy is no longer a finite number.", "bad")]
    if not run.metrics:
        return [page.notice("No epoch has finished yet, so there is nothing to show but the settings.", "warn")]
    if run.result:
        return []
    reason = f" ({status})" if status in ("interrupted", "failed") else ""
    return [page.notice(f"Unfinished{reason}: {progress}. The numbers below are not a result.", "warn")]


def _headline(run: Run) -> dict[str, str]:
    if run.result:
        result = run.result
        shown = {
            "test top-1": _percent(result.get("test_accuracy")),
            "test top-5": _percent(result.get("test_top5")),
            "validation accuracy": _percent(result.get("validation_accuracy")),
            "selected epoch": _of(result.get("selected_epoch"), result.get("epochs", len(run.metrics))),
            "time": _duration(number(result.get("seconds"))),
        }
    else:
        last = run.metrics[-1]
        shown = {
            "train accuracy so far": _percent(last.get("train_accuracy")),
            "validation accuracy so far": _percent(last.get("validation_accuracy")),
            "epochs so far": str(len(run.metrics)),
            "time so far": _duration(float(np.nansum(records.series(run.metrics, "seconds"))) or math.nan),
        }
    return {name: value for name, value in shown.items() if value != UNKNOWN}


def _selection(run: Run) -> list[Html]:
    """How the epoch was chosen. A choice on the test set makes the test accuracy too good, and that is said plainly."""
    if not run.result:
        return []
    return [
        _chosen_on(str(run.result.get("select") or run.config.get("select") or ""), mapping(run.manifest.get("data")))
    ]


def _chosen_on(select: str, data: Mapping[str, Any]) -> Html:
    if select == "validation":
        held = number(data.get("validation"))
        images = f"{held:,.0f} held-out training images" if held > 0 else "held-out training images"
        return page.notice(f"The epoch was chosen on {images}; the test set had no part in the choice.", "good")
    if select == "test":
        return page.notice(
            "The epoch was chosen on the test set: the test accuracy is that of the luckiest epoch, better than what "
            "new images would give. Compare it only with numbers chosen in the same way.",
            "warn",
        )
    said = f"“{select}”" if select else "not on record"
    return page.notice(f"How the epoch was chosen: {said}.", "warn")


def _tested(config: Mapping[str, Any]) -> list[Html]:
    return [_chosen_on(str(config["select"]), {})] if config.get("select") else []


def _pictures(run: Run, folder: Path) -> list[object]:
    kept = number(run.result.get("selected_epoch"))
    selected = kept if math.isfinite(kept) else None
    words = _imbalance(run)
    energy = _ENERGY + (_COSINES if records.cosines(run.metrics).nodes else "")
    return [
        element("h2", "Accuracy"),
        _picture(folder, "curves", lambda **size: plots.curves(run.metrics, selected=selected, **size), _CURVES),
        element("h2", "Energy"),
        *([element("p", words)] if words else []),
        _picture(folder, "energy", lambda **size: plots.energy_shares(run.metrics, **size), energy),
        _picture(folder, "profile", lambda **size: plots.energy_profile(run.metrics, **size), _PROFILE),
        *_diagnostics(run, folder),
    ]


def _diagnostics(run: Run, folder: Path) -> list[object]:
    """What ``--diagnostics`` recorded, as far as it did. The cosines over the epochs are in the energy's picture."""
    content: list[object] = []
    if records.cosines(run.metrics).nodes:
        last = next(record for record in reversed(run.metrics) if mapping(record.get("bp_cosine")))
        content += [element("h2", "Beside backprop"), element("p", _BESIDE), _beside_backprop(last)]
    if records.gap_ratios(run.metrics).nodes:
        content.append(element("h2", "Gap ratio"))
        content.append(_picture(folder, "gap", lambda **size: plots.gaps(run.metrics, **size), _GAP))
    return content


def _beside_backprop(record: Mapping[str, Any]) -> Html:
    """The last epoch's diagnostics, from the output, where learning begins."""
    cosine, size, gap = (mapping(record.get(key)) for key in ("bp_cosine", "bp_size", "gap_ratio"))
    rows = [[v, _fixed(cosine[v]), _scientific(size.get(v)), _scientific(gap.get(v))] for v in reversed(cosine)]
    return page.table(["node", "cosine with backprop", "length beside backprop's", "gap ratio"], rows)


_BESIDE = (
    "Each node's weight update after the last epoch on one training batch, before any optimiser, beside the update by "
    "backprop: a cosine of 1 is the same direction, and a length of 1 as long."
)
_GAP = (
    "Root mean square of x_T - x_0 divided by the energy that the weights learn from, on one training batch after each "
    "epoch. Logarithmic."
)


_CURVES = "Accuracy by epoch, and the learning rate of the weights."
_ENERGY = (
    "Share of the energy that each node's weights learnt from, mean over each epoch (for bp, of the squared error that "
    "backprop carries). Logarithmic."
)
_COSINES = " Below: the cosine of each node's weight update with backprop's, on one training batch after each epoch."
_PROFILE = "The same shares at the first and the last epoch. On the dashed line all nodes would hold the same."


def _comparison_pictures(rows: list[dict[str, Any]], folder: Path) -> list[object]:
    metrics = {
        str(row.get("algorithm", "?")): records.read_metrics(run / "metrics.jsonl")
        for row, run in _firsts(rows, folder)
    }
    return [
        element("h2", "Accuracy and time"),
        _picture(folder, "comparison", lambda **size: plots.comparison(rows, **size), "Every dot is a seed."),
        element("h2", "Energy"),
        _picture(folder, "profiles", lambda **size: plots.profiles(metrics, **size), _PROFILES),
    ]


_PROFILES = "Share of the energy by node at the last epoch, in the first run of each algorithm. Logarithmic."


def _picture(folder: Path, stem: str, draw: Callable[..., Figure], caption: str) -> Html:
    svg, _ = plots.save(draw(), folder / stem)
    return page.picture(svg.read_bytes(), plots.as_svg(draw(width=NARROW)), stem, caption, caption)


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


def _epochs(run: Run) -> Html:
    """All epochs, with the energies at both ends of the network, between which the imbalance lies."""
    nodes = list(dict.fromkeys(v for record in run.metrics for v in mapping(record.get("energy"))))
    ends = list(dict.fromkeys(nodes[:1] + nodes[-1:]))
    columns = [(key, words) for key, words in _COLUMNS.items() if any(key in record for record in run.metrics)]
    rows = []
    for epoch, record in zip(records.epochs(run.metrics), run.metrics, strict=True):
        energy = mapping(record.get("energy"))
        accuracies = [_percent(record.get(key)) for key, _ in columns]
        rows.append([f"{epoch:g}", *accuracies, *(_scientific(energy.get(v)) for v in ends)])
    kept = number(run.result.get("selected_epoch"))
    chosen = next((i for i, epoch in enumerate(records.epochs(run.metrics)) if epoch == kept), None)
    return page.table(["epoch", *(words for _, words in columns), *(f"energy of {v}" for v in ends)], rows, chosen)


_COLUMNS = {
    "train_accuracy": "train",
    "validation_accuracy": "validation",
    "validation_top5": "validation top-5",
    "test_accuracy": "test",
    "test_top5": "test top-5",
}


def _settings(config: Mapping[str, Any]) -> Html:
    known = page.facts(page.flat(config)) if config else element("p", "None on record.")
    return page.join(element("h2", "Settings"), known)


def _provenance(manifest: Mapping[str, Any]) -> Html:
    """Who wrote this and how: what someone needs to get the same numbers again."""
    known: dict[str, object] = {key: manifest.get(key) for key in ("started", "updated", "seed", "deeppc")}
    if known["seed"] is None:
        known["seed"] = mapping(manifest.get("config")).get("seed")
    command = manifest.get("command")
    if isinstance(command, list) and command:
        program, *flags = (str(word) for word in command)
        command = shlex.join([*_program(Path(program)), *flags])
    known |= {"command": command, **{key: manifest.get(key) for key in ("git", "versions", "machine", "data")}}
    return page.join(element("h2", "Provenance"), page.facts(page.flat(known)))


def _program(path: Path) -> list[str]:
    """As one would type it: where it lies on the machine is of no use elsewhere."""
    return ["python", "-m", path.parent.name] if path.name == "__main__.py" else [path.name]


def _ranking(rows: list[dict[str, Any]]) -> Html:
    """One line for each algorithm, in the order of the comparison."""
    head = ["algorithm", "test top-1", "test top-5", "validation", "time", "n"]
    body = []
    for row in rows:
        accuracies = [_spread(numbers(row.get(key))) for key in ("test_accuracy", "test_top5", "validation_accuracy")]
        seconds = numbers(row.get("seconds"))
        time = _duration(float(seconds.mean())) if seconds.size else UNKNOWN
        seeds, diverged = len(numbers(row.get("test_accuracy"))), len(_listed(row, "diverged"))
        lost = f" ({diverged} diverged)" if diverged else ""
        body.append([row.get("algorithm", "?"), *accuracies, time, f"{seeds}{lost}"])
    return page.table(head, body)


def _runs(rows: list[dict[str, Any]], folder: Path) -> Html:
    """Links to the runs' own reports; a run without one is only named."""
    body = []
    for row in rows:
        links: list[object] = []
        for run in _listed(row, "runs") + _listed(row, "diverged"):
            there = (folder / run / PAGE).is_file()
            links += [element("a", run, href=quote(f"{run}/{PAGE}")) if there else run, element("br")]
        body.append((str(row.get("algorithm", "?")), page.join(*links[:-1])))
    return page.facts(body)


def _firsts(rows: list[dict[str, Any]], folder: Path) -> Iterable[tuple[dict[str, Any], Path]]:
    return ((row, folder / runs[0]) for row in rows if (runs := _listed(row, "runs")))


def _listed(row: Mapping[str, Any], key: str) -> list[str]:
    """Folders of runs, within that of the comparison."""
    runs = row.get(key)
    return [run for run in runs if isinstance(run, str)] if isinstance(runs, list) else []


def _percent(value: object) -> str:
    x = number(value)
    return f"{100 * x:.2f}%" if math.isfinite(x) else UNKNOWN if value is None else "not finite"


def _spread(values: FloatArray) -> str:
    if not values.size:
        return UNKNOWN
    deviation = f" ± {100 * values.std(ddof=1):.2f}" if len(values) > 1 else ""
    return f"{100 * values.mean():.2f}{deviation}%"


def _of(part: object, whole: object) -> str:
    a, b = number(part), number(whole)
    if not math.isfinite(a):
        return UNKNOWN
    return f"{a:g} of {b:g}" if math.isfinite(b) else f"{a:g}"


def _scientific(value: object) -> str:
    """``3.2 × 10⁻⁹``; numbers near 1 as they are."""
    x = number(value)
    if not math.isfinite(x):
        return UNKNOWN if value is None else "not finite"
    if x == 0 or 0.01 <= abs(x) < 1000:
        return f"{x:.3g}"
    mantissa, exponent = f"{x:.1e}".split("e")
    return f"{mantissa} × 10{str(int(exponent)).translate(SIGNS)}"


def _fixed(value: object) -> str:
    x = number(value)
    return f"{x:.4f}" if math.isfinite(x) else UNKNOWN


def _part(x: float) -> str:
    return f"{100 * x:.2g}%" if x >= 0.001 else _scientific(x)


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
