"""Every recipe, run to its end at the smallest scale; the numbers in its tables are those of the runs."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

import pytest
import torch
from browser import check_layout
from markupsafe import escape
from safetensors.torch import load_file

from deeppc.bench import steps as bench
from deeppc.paper.figures import against, by_levels
from deeppc.paper.matrix import Entry, Matrix
from deeppc.paper.recipe import NAMES, find
from deeppc.paper.run import plan, render, run
from deeppc.paper.scales import scale_for
from deeppc.runs.folder import RunFolder
from deeppc.training.builder import build, saved_config

VGG10 = {"models": ("vgg10",)}  # for recipes that are about this net
CHANGES = {
    "gap": VGG10,
    "batchnorm": VGG10,
    "auxiliary": {"models": ("resnet10",)},
    "vgg15": {"models": ("vgg15",)},
    "deep": {"models": ("resnet18",)},
    "time": {"batch_size": 4, "rounds": 1},
}
PART = {  # enough to see it run
    "ablation": "* PC+? VGG5",
    "accuracy": "* [BP][PC] VGG5*",
    "auxiliary": "* PC+S+F *",
    "energy": "* [BP][PC] VGG5",
    "alpha": "*VGG5 PC+S+F",
    "batchnorm": "* PC+S+F *BF*",
    "control": "* BP* VGG5",
    "deep": "* PC+S+F *",
    "depth": "* iPC+S *",
    "gain": "* PC* VGG5*",
    "readings": "*initial*stored x1",
    "rivals": "* [BPZFDe]*",
    "schedules": "* PC+?+F *",
    "vgg15": "* PC+S+F *",
}
PICTURES = {"accuracy": 2, "energy": 4, "gain": 2, "rivals": 2, "depth": 2, "batchnorm": 2, "robustness": 2, "vgg15": 2}


@pytest.fixture
def done(tiny, perform):
    """Run a recipe; return its plan and its result.json."""

    def run_it(name):
        planned = tiny(name, **CHANGES.get(name, {}))
        perform(planned, only=PART.get(name))
        return planned, json.loads((planned.folder / "result.json").read_text())

    return run_it


def values(table):
    return {(e["row"], e["column"]): e["values"] for e in table["entries"]}


@pytest.mark.usefixtures("unsaved")
@pytest.mark.parametrize("name", NAMES)
def test_recipe_runs(name, done):
    planned, content = done(name)
    assert content["runs"]["failed"] == 0
    assert content["runs"]["over"] == content["runs"]["planned"] or name in PART
    assert any(entry["values"] for table in content["tables"] for entry in table["entries"])
    assert content["provenance"]["versions"]["deeppc"]
    assert content["scale"]["width"] == planned.scale.width
    page, text = ((planned.folder / file).read_text() for file in ("report.html", "result.md"))
    assert page.count("<figure") == text.count("![") == PICTURES.get(name, 1)
    assert not re.search(r"(src|href)=\"https?:", page)
    assert all(table["title"] in text and escape(table["title"]) in page for table in content["tables"])
    assert (planned.folder / "result.csv").read_text().startswith("table,row,column,")
    CHECKS.get(name, lambda planned, content: None)(planned, content)


def test_figures_are_saved_beside_the_page(done):
    planned, _ = done("depth")
    stems = {"depth", "cifar10-top1"}
    assert {path.name for path in planned.folder.glob("*.*g")} == {
        f"{s}.{kind}" for s in stems for kind in ("svg", "png")
    }


# What else is to be true of some of them.


def accuracies_are_those_of_the_runs(planned, content):
    found = values(content["tables"][0])
    for place in planned.evidence().places:
        for record in place.finished:
            result = json.loads((record.folder / "result.json").read_text())
            assert found[place.cell.row, place.cell.column] == [100 * result["test_accuracy"]]


def the_worst_layer_is_reported(planned, content):
    accuracies_are_those_of_the_runs(planned, {"tables": content["tables"][:1]})
    for place in (place for place in planned.evidence().places if place.finished):
        lowest = min(place.finished[0].metrics()[-1]["bp_cosine"].values())
        assert values(content["tables"][1])[place.at] == [lowest]


def the_better_of_with_and_without_bf_is_chosen_on_held_out_images(planned, content):
    evidence = planned.evidence()
    for entry in (entry for entry in content["tables"][0]["entries"] if entry["values"]):
        plain, bf = (evidence.place("cifar10", entry["row"], column).runs[0] for column in ("VGG5", "VGG5 BF"))
        better = bf if bf.result["validation_accuracy"] > plain.result["validation_accuracy"] else plain
        assert entry["values"] == [100 * better.result["test_accuracy"]]
        assert entry["note"] == ("BF" if better is bf else "")
    _, plot = find("accuracy").plots(evidence, find("accuracy").tables(evidence))
    (axes,) = plot.draw().axes
    drawn = {tuple(line.get_xdata()): tuple(line.get_ydata()) for line in axes.lines}
    (bp,) = (y for x, y in drawn.items() if x == (1,))  # one epoch of backprop is one of backprop
    (pc,) = (y for x, y in drawn.items() if x != (1,))
    for row, y in (("BP", bp), ("PC", pc)):
        runs = [evidence.place("cifar10", row, column).runs[0].result for column in ("VGG5", "VGG5 BF")]
        assert y == (100 * max(result["validation_accuracy"] for result in runs),)


def energy_is_what_the_runs_recorded(planned, content):
    found = values(content["tables"][0])
    (record,) = planned.evidence().place("cifar10", "PC", "VGG5").runs
    energy = record.metrics()[-1]["energy"]
    assert 10 ** found["PC", "first"][0] == pytest.approx(energy["conv1"] / sum(energy.values()), rel=1e-9)
    assert found["BP", "lowest cosine"] == [pytest.approx(1)]
    measured = record.measured["energy"]
    assert measured["nodes"][-1] == "linear"
    looks = len(measured["energy"][0])
    reached = [sum(e > 0 for e in row) for row in measured["energy"]]
    assert reached == [looks - arrival for arrival in (4, 3, 2, 1, 0)]  # later further down
    before = build(saved_config(record.folder)).net.state_dict()
    after = load_file(RunFolder(record.folder).best)
    weights = [key for key in before if key.startswith("nodes.conv1.")]
    first, last = (torch.cat([state[key].flatten() for key in weights]).double() for state in (before, after))
    assert found["PC", "first moved"] == [pytest.approx(math.log10(float((last - first).norm() / first.norm())))]


def gap_ratios_are_those_of_the_epoch(planned, content):
    (record,) = planned.evidence().place("cifar10", "with F", "VGG10").runs
    ratios = record.metrics()[0]["gap_ratio"]
    found = values(next(table for table in content["tables"] if table["name"] == "cifar10.with F"))
    row = "epoch 1 (paper: 5)"
    assert [found[row, f"L{i}"] for i in range(1, 11)] == [[float(ratio)] for ratio in ratios.values()]


def ranges_of_calibration_span_the_corruptions(planned, content):
    (record,) = planned.evidence().place("cifar10", "PC", "VGG5").runs
    found = values(next(table for table in content["tables"] if table["name"] == "cifar10.VGG5"))
    for level in (0.1, 0.5):
        scores = record.measured["robustness"]["scores"]
        errors = [score["ada_ece"] for score in scores if score["level"] == level]
        assert len(errors) == 6
        assert found[str(level), "PC lowest"] == [min(errors)]
        assert found[str(level), "PC highest"] == [max(errors)]


def readings_differ_in_what_they_say(planned, content):
    names = ("precision_on", "presynaptic", "free_steps", "depth_gain")
    kinds = {tuple(cell.config.setting(name) for name in names) for cell in planned.cells}
    assert len(kinds) == len(planned.cells) == 16


def a_network_that_was_timed_is_not_timed_again(planned, content):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "run", lambda *args: pytest.fail("measured again"))
        run([planned], [])
    assert json.loads((planned.folder / "result.json").read_text())["tables"] == content["tables"]


def variants_differ_in_what_their_names_say(planned, content):
    for cell in planned.cells:
        gain, small = "gain" in cell.column, "epsilon" in cell.column
        rounded = cell.config.options.get("resolve") is False
        assert (cell.config.setting("depth_gain"), cell.config.epsilon) == (gain, 1e-30 if small else 1e-8)
        assert rounded == (cell.row == "PC rounded")
    accuracy, cosine = map(values, content["tables"])
    assert all(-1 <= value <= 1 for found in cosine.values() for value in found)
    assert {at for at, found in accuracy.items() if found} == {at for at, found in cosine.items() if found}


def every_rival_is_measured_and_said_something_of(planned, content):
    (table,) = content["tables"]  # all networks and methods in one
    found = {(row.removeprefix("VGG5 "), column): each for (row, column), each in values(table).items()}
    text = (planned.folder / "result.md").read_text()
    rows = [cell.row for cell in planned.cells]
    assert "PC muPC" not in rows  # which is for residual networks
    assert all(found[row, name][0] > 0 for row in rows for name in ("work", "time", "memory"))
    assert found["BP", "work"] == found["Z-IL", "work"] == found["FA", "work"] == [1.0]
    assert found["BP repeated", "work"] == [5.0]
    assert found["BP last", "work"][0] < found["BP last half", "work"][0] < found["DFA", "work"][0] < 1
    for row in ("BP", "Z-IL", "BP last", "BP repeated"):
        assert found[row, "lowest cosine"] == [pytest.approx(1, abs=1e-5)], row
    assert found["FA", "lowest cosine"][0] < 0.9
    assert found["BP", "accuracy, %"] == [
        100 * planned.evidence().place("cifar10", "BP", "VGG5").values("test_accuracy")[0]
    ]
    assert "- Protocol: " in text
    for row in rows:  # what it is for, and what it costs
        (words,) = re.findall(f"^- {re.escape(row)}: (.*)$", text, re.MULTILINE)
        assert re.fullmatch(r"[A-Z].*\. It costs .*\.", words), words
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deeppc.paper.recipes.rivals.step_cost", lambda *args: pytest.fail("measured again"))
        run([planned], [])


def each_gets_what_its_name_says(planned, content):
    there = {cell.row: cell.config for cell in planned.cells if cell.column == "VGG5"}
    rates = {row: config.lr_w for row, config in there.items()}
    assert rates["BP repeated, lr_w of iPC+S"] == rates["BP, lr_w of iPC+S"] == rates["iPC+S"] != rates["BP"]
    assert {rates[f"{row}, lr_w of BP"] for row in ("PC", "iPC+S", "PC+S+F")} == {rates["BP"]}
    repeats = {row: c.setting("repeats") for row, c in there.items() if c.algorithm == "bp"}
    assert repeats == {row: 5 if "repeated" in row else 1 for row in repeats}
    assert len(repeats) == 4
    accuracies_are_those_of_the_runs(planned, content)


CHECKS = {
    "control": each_gets_what_its_name_says,
    "rivals": every_rival_is_measured_and_said_something_of,
    "deep": the_worst_layer_is_reported,
    "gain": variants_differ_in_what_their_names_say,
    "accuracy": the_better_of_with_and_without_bf_is_chosen_on_held_out_images,
    "depth": accuracies_are_those_of_the_runs,
    "energy": energy_is_what_the_runs_recorded,
    "gap": gap_ratios_are_those_of_the_epoch,
    "robustness": ranges_of_calibration_span_the_corruptions,
    "readings": readings_differ_in_what_they_say,
    "time": a_network_that_was_timed_is_not_timed_again,
}


@pytest.mark.outside
@pytest.mark.parametrize("name", ["accuracy", "energy", "robustness"])
def test_the_page_suits_a_desktop_and_a_phone(name, done, tmp_path):
    planned, _ = done(name)
    check_layout(planned.folder / "report.html", tmp_path)


def test_times_of_another_network_are_measured_anew(tmp_path, monkeypatch):
    @dataclass
    class Measured:
        model: str

    nets = [(0.5, "none"), (0.25, "none"), (0.25, "bf")]
    found = []
    monkeypatch.setattr(bench, "run", lambda now, tell: found.append((now.width, now.norm)) or [Measured("vgg5")])
    for width, norm in [nets[0], *nets]:
        scale = scale_for("smoke", "time", width=width, norm=norm, models=("vgg5",))
        find("time").work(scale, tmp_path, lambda text: None)
    assert found == nets


@pytest.mark.usefixtures("unsaved")
@pytest.mark.parametrize("name", ["depth", "energy", "gap", "robustness", "time"])  # one for each kind of figure
def test_an_empty_result_can_be_shown(name, tmp_path, trained):
    planned = plan(name, "smoke", tmp_path)
    page = render(planned).read_text()
    if planned.cells:
        assert f"0 of {len(planned.cells) * len(planned.scale.seeds)} runs are there" in page
    assert trained == []


def test_the_figure_by_levels_shows_means_where_networks_are_as_deep():
    entries = {("BP", "A"): Entry((50.0, 52.0)), ("BP", "B"): Entry((49.0,)), ("PC", "A"): Entry(())}
    axes = by_levels(Matrix("", "", entries), {"A": 18, "B": 130}, (18, "here"), title="").axes[0]
    (line,) = (bars.lines[0] for bars in axes.containers)  # PC has no result
    assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == ([18, 130], [51.0, 49.0])
    (whisker,) = (segment for segment in axes.collections[0].get_segments() if len(segment))
    assert whisker[:, 1].tolist() == pytest.approx([51 - 2**0.5, 51 + 2**0.5])  # one seed has no deviation
    low, high = axes.get_ylim()
    assert high - low >= 10 - 1e-9  # two points look like little
    assert not by_levels(Matrix("", "", {}), {"A": 18}, (18, "here"), title="").axes


def test_the_figure_of_accuracy_against_work_has_no_panel_without_a_mark():
    accuracy, work = {("BP", "accuracy, %"): Entry((50.0, 52.0))}, {("BP", "work"): Entry((1.0,))}
    tables = {"A": Matrix("A", "", accuracy | work), "B": Matrix("B", "", accuracy), "C": Matrix("C", "", work)}
    (axes,) = against(tables, "work", "accuracy, %").axes
    assert axes.get_title(loc="left") == "A"
    assert not against({"B": tables["B"]}, "work", "accuracy, %").axes
