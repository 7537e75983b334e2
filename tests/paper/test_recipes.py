"""Every recipe, run to its end at the smallest scale; the numbers in its tables are those of the runs."""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import dataclass
from functools import cache
from html import escape

import pytest
import torch
from browser import check_layout
from safetensors.torch import load_file

from deeppc.bench import steps as bench
from deeppc.paper.recipe import NAMES, find
from deeppc.paper.run import plan, render, run
from deeppc.paper.scales import scale_for
from deeppc.report import records
from deeppc.runs.folder import BEST, saved_config
from deeppc.training.parts import prepare

VGG10 = ("energy", "gap", "batchnorm")  # which are about this net
CHANGES = {name: {"models": ("vgg10",)} for name in VGG10} | {
    "auxiliary": {"models": ("resnet10",)},
    "vgg15": {"models": ("vgg15",)},
    "time": {"batch_size": 4, "rounds": 1},
}
PART = {"vgg15": "* PC+S+F *", "batchnorm": "* PC+S+F *"}  # enough to see it run
PICTURES = {"energy": 4, "depth": 2, "batchnorm": 2, "robustness": 2, "vgg15": 2}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("paper")


@pytest.fixture(scope="module")
def made(out):
    """Each recipe's plan and its result.json. It is run once; recipes share their cells."""

    @cache
    def make(name):
        changes = {"width": 0.02, "limit": 24, "models": ("vgg5",)} | CHANGES.get(name, {})
        planned = plan(name, "smoke", out, **changes)
        run(planned, planned.jobs(PART.get(name)))
        return planned, json.loads((planned.folder / "result.json").read_text())

    return make


@pytest.mark.parametrize("name", NAMES)
def test_recipe_runs(made, name):
    planned, content = made(name)
    folder = planned.folder
    assert content["runs"]["failed"] == 0
    assert content["runs"]["over"] == content["runs"]["planned"] or name in PART
    assert content["tables"]
    assert any(entry["n"] for table in content["tables"] for entry in table["entries"])
    assert content["provenance"]["versions"]["deeppc"]
    assert content["scale"]["width"] == planned.scale.width
    assert len(list(folder.glob("*.svg"))) == len(list(folder.glob("*.png"))) == PICTURES.get(name, 1)
    page = (folder / "report.html").read_text()
    assert page.count("<figure") == PICTURES.get(name, 1)
    assert not re.search(r"(src|href)=\"https?:", page)
    text = (folder / "result.md").read_text()
    assert all(table["title"] in text and escape(table["title"]) in page for table in content["tables"])
    with (folder / "result.csv").open() as file:
        assert next(csv.reader(file))[:3] == ["table", "row", "column"]


@pytest.mark.parametrize("name", ["accuracy", "energy", "robustness"])
def test_the_page_suits_a_desktop_and_a_phone(made, name, tmp_path):
    planned, _ = made(name)
    check_layout(planned.folder / "report.html", tmp_path)


def test_accuracies_are_those_of_the_runs(made):
    planned, content = made("depth")
    (table,) = content["tables"]
    for place in planned.evidence().places:
        (entry,) = [e for e in table["entries"] if (e["row"], e["column"]) == (place.cell.row, place.cell.column)]
        folder = place.runs[0].folder
        assert entry["values"] == [100 * json.loads((folder / "result.json").read_text())["test_accuracy"]]


def test_the_better_of_with_and_without_bf_is_chosen_on_held_out_images(made):
    planned, content = made("accuracy")
    evidence = planned.evidence()
    for entry in content["tables"][0]["entries"]:
        plain, bf = (evidence.place("cifar10", entry["row"], column).runs[0] for column in ("VGG5", "VGG5 BF"))
        better = bf if bf.result["validation_accuracy"] > plain.result["validation_accuracy"] else plain
        assert entry["values"] == [100 * better.result["test_accuracy"]]
        assert entry["note"] == ("BF" if better is bf else "")


def test_energy_is_what_the_runs_recorded(made):
    planned, content = made("energy")
    entries = {(e["row"], e["column"]): e["values"] for e in content["tables"][0]["entries"]}
    run = planned.evidence().place("cifar10", "PC", "VGG10").runs[0]
    energy = records.read_metrics(run.folder / "metrics.jsonl")[-1]["energy"]
    share = energy["conv1"] / sum(energy.values())
    assert 10 ** entries["PC", "first"][0] == pytest.approx(share, rel=1e-9)
    assert entries["BP", "lowest cosine"] == [pytest.approx(1)]
    nodes, wave = run.measured["nodes"], run.measured["energy"]
    assert nodes[-1] == "linear"
    assert [sum(e > 0 for e in row) for row in wave] == list(
        range(2, 12)
    )  # of T + 1 = 11 looks, later ones further down


def test_times_of_another_width_are_measured_anew(tmp_path, monkeypatch):
    @dataclass
    class Measured:
        model: str

    widths = []
    monkeypatch.setattr(bench, "run", lambda setting, tell: widths.append(setting.width) or [Measured("vgg5")])
    for width in (0.5, 0.5, 0.25):
        scale = scale_for("smoke", "time", width=width, models=("vgg5",))
        find("time").work(scale, tmp_path, lambda text: None)
    assert widths == [0.5, 0.25]


def test_how_far_weights_have_moved(made):
    planned, content = made("energy")
    entries = {(e["row"], e["column"]): e["values"] for e in content["tables"][0]["entries"]}
    for row in ("BP", "PC"):
        run = planned.evidence().place("cifar10", row, "VGG10").runs[0]
        before = prepare(saved_config(run.folder)).net.state_dict()
        after = load_file(run.folder / BEST)
        weights = [key for key in before if key.startswith("nodes.conv1.")]
        first, last = (torch.cat([state[key].flatten() for key in weights]).double() for state in (before, after))
        expected = float((last - first).norm() / first.norm())
        assert entries[row, "first moved"] == [pytest.approx(math.log10(expected))]


def test_gap_ratios_are_those_of_the_epoch(made):
    planned, content = made("gap")
    (run,) = planned.evidence().place("cifar10", "with F", "VGG10").runs
    ratios = records.read_metrics(run.folder / "metrics.jsonl")[0]["gap_ratio"]
    table = next(table for table in content["tables"] if table["name"] == "cifar10.with F")
    values = {e["column"]: e["values"][0] for e in table["entries"]}
    assert [values[f"L{i}"] for i in range(1, 11)] == [float(ratio) for ratio in ratios.values()]


def test_ranges_of_calibration_span_the_corruptions(made):
    planned, content = made("robustness")
    (run,) = planned.evidence().place("cifar10", "PC", "VGG5").runs
    table = next(table for table in content["tables"] if table["name"] == "cifar10.VGG5")
    entries = {(e["row"], e["column"]): e["values"] for e in table["entries"]}
    for level in (0.1, 0.5):
        errors = [score["ada_ece"] for score in run.measured["scores"] if score["level"] == level]
        assert len(errors) == 6
        assert entries[str(level), "PC lowest"] == [min(errors)]
        assert entries[str(level), "PC highest"] == [max(errors)]


def test_readings_differ_in_what_they_say(made):
    planned, _ = made("readings")
    kinds = {
        (c.config.precision_on, c.config.presynaptic, c.config.free_steps > 0, c.config.depth_gain)
        for c in planned.cells
    }
    assert len(kinds) == len(planned.cells) == 16


def test_a_network_that_was_timed_is_not_timed_again(made, monkeypatch):
    planned, before = made("time")
    monkeypatch.setattr("deeppc.bench.steps.run", lambda *args: pytest.fail("measured again"))
    run(planned, [])
    assert json.loads((planned.folder / "result.json").read_text())["tables"] == before["tables"]


@pytest.mark.parametrize("name", ["depth", "energy", "gap", "robustness", "time"])  # one for each kind of figure
def test_an_empty_result_can_be_shown(name, tmp_path):
    planned = plan(name, "smoke", tmp_path)
    page = render(planned).read_text()
    if planned.cells:
        assert f"0 of {len(planned.cells) * len(planned.scale.seeds)} runs are there" in page


@pytest.mark.parametrize("name", NAMES)
def test_recipes_say_what_they_are(name):
    recipe = find(name)
    assert recipe.name == name
    assert recipe.shows
    assert recipe.expect
