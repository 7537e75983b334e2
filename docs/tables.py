"""Writes the tables, and the figures beside them, that README and docs show of what records/ holds.

python docs/tables.py

A page marks where a table goes by ``<!-- records: NAME -->`` and ``<!-- end of records -->``. Nothing is trained, and
tests/test_docs.py sees to it that pages and records agree.
"""

import json
import math
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from deeppc import presets
from deeppc.bench import scaling, steps, timing
from deeppc.files import write_text
from deeppc.paper import claims
from deeppc.paper.figures import energies, last_cosines
from deeppc.paper.hyper import LEVELS
from deeppc.paper.matrix import Entry, Matrix
from deeppc.paper.results import Result
from deeppc.paper.run import Plan, plan
from deeppc.paper.scales import MAIN
from deeppc.report import plots
from deeppc.report.records import Metrics, energy_shares
from deeppc.report.tables import UNKNOWN, Table
from deeppc.runs.folder import RunFolder

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ("workstation", "claims", "mechanisms", "batchnorm", "hundred", "stability", "deep", "gain", "rivals")
RESULTS += ("bench", "ipc", "converted")
OTHERS = ("docs/method.md", "docs/scaling.md", "docs/diagnostics.md")
PAGES = ("README.md", *(f"docs/results/{name}.md" for name in RESULTS), *OTHERS)
RIVALS = ("bp-last1", "bp-last2", "bp-repeats5", "fa", "dfa", "epc", "pc+pn", "pc+nn", "pc+cn")
SEARCHED = ("lr_w", "lr_x", "momentum_x", "alpha", "beta")
MARKED = re.compile(r"(<!-- records: ([\w/]+) -->\n).*?(<!-- end of records -->)", re.DOTALL)


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


def table(recipe: str, name: str = "top1", digits: int = 1, data: str = "cifar10") -> str:
    return replace(tables(recipe)[f"{data}.{name}"], digits=digits).table().markdown()


def nudged() -> str:
    """VGG10 without and with centre nudging, of those algorithms that have both."""
    found = tables("depth")["cifar10.top1"]
    both = {row for row, column in found.entries if column == "VGG10 CN" and found.entry(row, column).values}
    entries = {(row, net): x for (row, net), x in found.entries.items() if row in both and net.startswith("VGG10")}
    return replace(found, entries=entries).table().markdown()


def gaps() -> str:
    """The output's gap ratio by epoch, of each way to learn."""
    ways = {name.partition(".")[2]: found for name, found in tables("gap").items()}
    entries = {
        (epoch, way): x for way, found in ways.items() for (epoch, at), x in found.entries.items() if at == "L10"
    }
    return Matrix("", "", entries, digits=1).table().markdown()


def sizes() -> str:
    """Of each schedule: how long the first layers' updates are beside backprop's, as powers of ten; lowest cosine."""
    entries: dict[tuple[str, str], Entry] = {}
    for place in planned("schedules").evidence().of("cifar10"):
        last = [run.metrics()[-1]["bp_size"] for run in place.finished]
        for layer in ("conv1", "conv2", "conv3"):
            entries[place.cell.row, layer] = place.entry(math.log10(float(found[layer])) for found in last)
        lowest = [min(filter(math.isfinite, found.values())) for found in place.cosines()]
        entries[place.cell.row, "lowest cosine"] = place.entry(lowest)
        entries[place.cell.row, "accuracy, %"] = place.accuracy("top1")
    return replace(there(Matrix("", "", entries)), digits=2).table().markdown()


def behind(recipe: str) -> str:
    """What each cell of a recipe lacks to backprop in the same network, with its interval over seeds."""
    found = tables(recipe)["cifar10.top1"]
    numbers, rows = claims.Numbers(recipe, found), []
    for (row, column), entry in found.entries.items():
        if entry.values and row != "BP":
            gap = numbers("BP", column.partition(" ")[0]) - numbers(row, column)
            low, high = gap.mean - gap.margin, gap.mean + gap.margin
            interval = "one seed" if gap.alone else f"{low:+.1f} to {high:+.1f}"
            rows.append([row, column, f"{gap.mean:+.1f}", interval])
    return Table(["", "", "points behind BP", "95 % interval"], rows).markdown()


def cost(recipe: str, data: str = "cifar10") -> str:
    """How many minutes each training of a recipe took, and where and by which commits they were made."""
    places = [place for place in planned(recipe).evidence().of(data) if place.finished]
    minutes = {place.at: [seconds / 60 for seconds in place.values("seconds")] for place in places}
    entries = {(row, net.removesuffix(" BF")): Entry((fmean(found),)) for (row, net), found in minutes.items()}
    runs = sorted(
        (json.loads(RunFolder(run.folder).manifest_path.read_text()) for place in places for run in place.finished),
        key=lambda manifest: manifest["started"],
    )
    days = dict.fromkeys(manifest["started"][:10] for manifest in (runs[0], runs[-1]))
    commits = dict.fromkeys(manifest["git"]["commit"][:7] for manifest in runs)
    processors = sorted({manifest["machine"]["processor"] for manifest in runs})
    hours = sum(map(sum, minutes.values())) / 60
    words = (
        f"{len(runs)} trainings, {hours:.1f} hours of one core in sum, {' to '.join(days)}, "
        f"torch {' and '.join(dict.fromkeys(m['versions']['torch'] for m in runs))}, on {', '.join(processors)}. "
        f"Commits: {', '.join(commits)}."
    )
    return f"{replace(there(Matrix('', '', entries)), digits=0).table().markdown()}\n{words}\n"


def verdicts() -> str:
    """The paper's claims against all records."""
    found = {}
    for name in dict.fromkeys(claim.recipe for claim in claims.CLAIMS.values()):
        wanted = planned(name)
        evidence = wanted.evidence()
        runs = [run for place in evidence.places for run in place.runs]
        made = {table.name: table for table in wanted.recipe.tables(evidence)}
        found[name] = Result(name, "workstation", len(runs), sum(map(wanted.recipe.has, runs)), made)
    decided = sorted(claims.check(found), key=lambda verdict: verdict.answer == "not enough data")
    rows = []
    for claim, answer, numbers in claims.as_table(decided).rows:
        verdict, *by = answer.split(",")
        rows.append([claim, ",".join([f"**{verdict}**", *by]), numbers.removeprefix("workstation: ")])
    return Table(["claim", "", "numbers"], rows).markdown()


def of_accuracy(number: Callable[[Metrics], float], digits: int) -> str:
    """A number of the last epoch of each training of the accuracy recipe, in all networks that have BF."""
    entries = {}
    for place in planned("accuracy").evidence().of("cifar10"):
        row, net = place.at
        entries[row, net.removesuffix(" BF")] = place.entry(number(run.metrics()) for run in place.finished)
    return replace(there(Matrix("", "", entries)), digits=digits).table().markdown()


def first_layer() -> str:
    """log10 of the first layer's share of the energy; nothing where no energy came."""

    def log10(metrics: Metrics) -> float:
        share = energy_shares(metrics).values[-1][0]
        return math.log10(share) if share else math.nan

    return of_accuracy(log10, 1)


def directions() -> str:
    """The lowest cosine of a layer's update with backprop's."""
    return of_accuracy(lambda metrics: min(filter(math.isfinite, last_cosines(metrics).values())), 2)


def settings(methods: Iterable[str]) -> str:
    """What the presets of these have, in the networks at this scale."""
    found = [(*name.split("-", 3), presets.load(name).table) for name in presets.names()]
    chosen = [(model, method, table) for _, model, _, method, table in found if method in methods]
    chosen.sort(key=lambda row: (LEVELS[row[0]], row[:2]))
    return searched([([model, method], table, []) for model, method, table in chosen], [])


def trials(*searches: str) -> str:
    """The trials of these searches, of each the three that had most held-out images right at their end."""
    rows = []
    for name in searches:
        study = measured(f"searches/{name}.json")
        first = f"`{name.rpartition('-')[2]}`" + (", `follow`" if study["study"]["config"].get("follow") else "")
        best = sorted(study["trials"], key=lambda trial: -trial["value"])[:3]
        rows += [([first], trial["params"], [f"{100 * trial['value']:.1f}"]) for trial in best]
    return searched(rows, ["held out, %"])


def searched(rows: Sequence[tuple[list[str], Mapping[str, Any], list[str]]], last: list[str]) -> str:
    """A table of settings: what stands before them in each row, by name, and after them."""
    shown = [name for name in SEARCHED if any(name in table for _, table, _ in rows)]
    values = [[f"{table[name]:.2g}" if name in table else UNKNOWN for name in shown] for _, table, _ in rows]
    lines = [[*before, *found, *after] for (before, _, after), found in zip(rows, values, strict=True)]
    return Table([*("" for _ in rows[0][0]), *(f"`{name}`" for name in shown), *last], lines).markdown()


def rivals() -> str:
    """What is trained of each method: accuracy; work, time and memory of a step; cosines with backprop."""
    evidence, rows = planned("rivals").evidence(), []
    measured = {(step["row"], step["column"]): step for step in evidence.extra.get("steps", [])}
    for place in evidence.places:
        if place.finished or place.diverged:
            step, found = measured.get(place.at, {}), [list(filter(math.isfinite, x.values())) for x in place.cosines()]
            lowest = place.entry(min(cosines) for cosines in found if cosines)
            costs = [f"{step[name]:.2f}" if step else UNKNOWN for name in ("work", "time", "memory")]
            rows.append([place.at[1], place.at[0], place.accuracy("top1").text(1), *costs, lowest.text(2)])
    return Table(["", "", "accuracy, %", "work", "time", "memory", "lowest cosine"], rows).markdown()


def measured(name: str) -> dict[str, Any]:
    """What ``deeppc bench`` or a recipe has left in a file of records/."""
    return json.loads((ROOT / "records" / name).read_text())


def origin(name: str) -> str:
    return timing.in_words(measured(name)["origin"]) + "\n"


def costs(name: str) -> list[steps.StepCost]:
    return [steps.StepCost(**cell) for cell in measured(name)["cells"]]


def with_norms() -> str:
    """Times of a step with BatchNorm freezing, and in parentheses the bound."""
    found = [cost for cost in costs("time-workstation/extra.json") if cost.bound is not None]
    texts = {(c.model, c.algorithm): f"{c.ratio:.2f} ({c.bound:.2f})" for c in found if c.algorithm != "bp"}
    models, names = (list(dict.fromkeys(each)) for each in zip(*texts, strict=True))
    backprop = {cost.model: f"{cost.milliseconds:.0f}" for cost in found if cost.algorithm == "bp"}
    rows = [[model, backprop[model], *(texts[model, name] for name in names)] for model in models]
    return Table(["network", "`bp`, ms", *(f"`{name}`" for name in names)], rows).markdown()


def points() -> list[scaling.Point]:
    return [scaling.Point(**point) for point in measured("bench/scaling.json")["points"]]


MAKERS: dict[str, Callable[[], str]] = {
    "accuracy": lambda: table("accuracy"),
    "hundred": lambda: table("accuracy", data="cifar100"),
    "hundredcontrol": lambda: table("control", data="cifar100"),
    "hundredcost": lambda: cost("accuracy", "cifar100"),
    "tiny": lambda: table("accuracy", data="tiny-imagenet"),
    "tinycost": lambda: cost("accuracy", "tiny-imagenet"),
    "norming": lambda: table("batchnorm", "strategies"),
    "normeffect": lambda: table("batchnorm", "effect"),
    "normscost": lambda: cost("batchnorm"),
    "nudged": nudged,
    "claims": verdicts,
    "first": first_layer,
    "directions": directions,
    "settings": lambda: settings(MAIN),
    "rivals": rivals,
    "rivalsettings": lambda: settings(RIVALS),
    "deep": lambda: table("deep"),
    "control": lambda: table("control"),
    "gain": lambda: table("gain"),
    "cosines": lambda: table("gain", "cosine", digits=3),
    "ablation": lambda: table("ablation"),
    "schedules": lambda: table("schedules"),
    "sizes": sizes,
    "energies": lambda: table("energy", "VGG10", digits=2),
    "gaps": gaps,
    "calibration": lambda: table("robustness", "ada_ece", digits=3),
    "behind": lambda: behind("gain"),
    "cost": lambda: cost("accuracy"),
    "deepcost": lambda: cost("deep"),
    "gaincost": lambda: cost("gain"),
    "mechanismscost": lambda: cost("schedules"),
    "rivalscost": lambda: cost("rivals"),
    "deepcosines": lambda: table("deep", "cosine", digits=3),
    "deepbehind": lambda: behind("deep"),
    "arrival": lambda: trials("second/cifar10-vgg10-bf-ipc+s", "pullback/cifar10-vgg10-bf-ipc+s"),
    "follow": lambda: trials("cifar10-vgg10-bf-ipc", "pullback/cifar10-vgg10-bf-ipc"),
    "bench": lambda: steps.as_table(costs("bench/bench.json")).markdown(),
    "benchorigin": lambda: origin("bench/bench.json"),
    "norms": with_norms,
    "normsorigin": lambda: origin("time-workstation/extra.json"),
    "scaling": lambda: scaling.as_table(points()).markdown(),
    "scalingorigin": lambda: origin("bench/scaling.json"),
}


def made(name: str) -> str:
    """A table of that name; or else a file of records/, as a script of benchmarks/ has printed it."""
    return MAKERS[name]() if name in MAKERS else (ROOT / "records" / f"{name}.md").read_text(encoding="utf-8")


def filled(page: str) -> str:
    """A page with its tables made anew."""
    return MARKED.sub(lambda found: f"{found[1]}\n{made(found[2])}\n{found[3]}", page)


# By recipe: the figures that the pages show, and what they are called there.
FIGURES = {
    "accuracy": {"accuracy-cifar10-work": "workstation-work"},
    "deep": {"deep": "deep"},
    "gain": {"gain-cosine-vgg10": "gain-cosine-vgg10"},
    "rivals": {"rivals": "rivals-work"},
}


def figures() -> None:
    """Draw what the tables cannot say: what accuracy costs, which layers follow backprop."""
    for recipe, wanted in FIGURES.items():
        found = planned(recipe)
        shown = [there(table) for table in found.recipe.tables(found.evidence())[:1]]
        for plot in found.recipe.plots(found.evidence(), shown):
            if plot.stem in wanted:
                write_text(ROOT / f"docs/results/{wanted[plot.stem]}.svg", plots.svg(plot.draw()))
    trained = [place for place in planned("accuracy").evidence().of("cifar10") if place.finished]
    figure = energies({p.cell.row: p.finished[0].metrics() for p in trained if p.cell.column == "VGG10 BF"})
    write_text(ROOT / "docs/results/energy-vgg10.svg", plots.svg(figure))
    write_text(ROOT / "docs/results/bench.svg", plots.svg(steps.draw(costs("bench/bench.json"))))
    write_text(ROOT / "docs/results/scaling.svg", plots.svg(scaling.draw(points())))


if __name__ == "__main__":
    for name in PAGES:
        page = ROOT / name
        write_text(page, filled(page.read_text(encoding="utf-8")))
    figures()
