"""Grids: cells that recipes share are trained once, what was stopped is resumed, what fails is a result."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console

from deeppc.data import DataError
from deeppc.files import Lock
from deeppc.paper import progress, store
from deeppc.paper.progress import Display, display
from deeppc.paper.run import jobs, perform, plan, render, run
from deeppc.paper.store import Record
from deeppc.training import config as configs
from deeppc.training.pool import Begun, Done, Failed, PoolInterrupted, Retry

pytestmark = pytest.mark.usefixtures("undrawn")


def result_of(planned):
    return json.loads((planned.folder / "result.json").read_text())


def changed(planned, i, **settings):
    """The plan with other settings in its i-th cell."""
    cells = list(planned.cells)
    cells[i] = dataclasses.replace(cells[i], config=configs.replace(cells[i].config, **settings))
    return dataclasses.replace(planned, cells=tuple(cells))


def test_recipes_share_their_cells(tiny, perform, trained):
    assert len(jobs([tiny("ablation")])) == 7  # the seven algorithms in a VGG5
    assert len(jobs([tiny("ablation"), tiny("depth")])) == 13  # and six with centre nudging
    perform(tiny("ablation"), only="* PC VGG5")
    assert len(jobs([tiny("depth")])) == 12
    assert len(trained) == 1


def test_recipes_run_together_train_and_measure_what_they_share_once(tiny, perform, trained):
    plans = tiny("ablation"), tiny("robustness"), tiny("energy")
    shared = {job.name: set(job.measures) for job in jobs(plans)}
    assert shared["PC VGG5, cifar10, seed 0"] == {"robustness", "energy"}
    assert shared["BP VGG5, cifar10, seed 0"] == {"energy"}
    perform(*plans, only="* PC VGG5")
    assert len(trained) == 1
    assert jobs(plans, "* PC VGG5") == []
    assert set(plans[1].evidence().places[1].runs[0].measured) == {"robustness", "energy"}


def test_what_is_finished_is_not_trained_again(tiny, perform, trained):
    perform(tiny("robustness"))
    tables = result_of(tiny("robustness"))["tables"]
    assert len(trained) == 2
    perform(tiny("robustness"))
    assert len(trained) == 2
    assert result_of(tiny("robustness"))["tables"] == tables


def test_an_interrupted_grid_is_resumed(tiny, perform, trained):
    """Ctrl-C in the second cell: the first is kept, its result is written, and the rest follows on the next run."""
    planned = tiny("robustness", epochs=3)
    begun = []

    def stop_in_the_second(job, message):
        if isinstance(message, Begun):
            begun.append(job)
            if len(begun) == 2:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises((PoolInterrupted, KeyboardInterrupt)):
        run([planned], jobs([planned]), on_message=stop_in_the_second)
    assert result_of(planned)["runs"]["over"] == 1
    perform(planned)
    assert result_of(planned)["runs"]["over"] == result_of(planned)["runs"]["planned"] == 2
    assert trained.count(begun[0].folder.name) == 1


def test_a_diverged_run_is_a_result_and_the_others_are_trained(tiny, perform):
    planned = changed(tiny("robustness"), 0, lr_x=1e4, lr_w=1e3)
    perform(planned)
    content = result_of(planned)
    assert content["runs"] | {"seconds": 0} == {"planned": 2, "over": 2, "diverged": 1, "failed": 0, "seconds": 0}
    (diverged,) = content["cells"][0]["runs"]
    assert "diverged at step" in diverged["reason"]
    assert "diverged at step" in (planned.folder / "result.md").read_text()
    assert jobs([planned]) == []


def test_a_failed_run_says_why_and_is_tried_again(tiny, perform):
    planned = tiny("ablation")
    planned = changed(dataclasses.replace(planned, cells=planned.cells[:2]), 0, model="vgg6")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deeppc.paper.run.SIZES", {"vgg5": (1.0, 1.0), "vgg6": (1.0, 1.0)})
        patch.setattr("deeppc.paper.run.LEVELS", {"vgg5": 5, "vgg6": 6})
        perform(planned)
        content = result_of(planned)
        assert (content["runs"]["failed"], content["runs"]["over"]) == (1, 1)
        assert "vgg6" in content["cells"][0]["runs"][0]["reason"]
        assert [job.config.model for job in jobs([planned])] == ["vgg6"]


def test_large_weights_are_dropped_and_made_again_when_they_are_needed(tiny, perform, trained, monkeypatch):
    monkeypatch.setattr(store, "KEPT_WEIGHTS", 0)
    perform(tiny("ablation"), only="* PC VGG5")
    assert not list(tiny("ablation").out.glob("cells/*/*.safetensors"))
    perform(tiny("robustness"), only="* PC VGG5")  # which wants its weights
    assert len(trained) == 2
    assert tiny("robustness").evidence().places[1].runs[0].measured


def test_what_another_recipe_trained_is_shown_and_still_to_be_measured(tiny, perform):
    """Energy is in every run's metrics; how far weights moved, and all of robustness, are taken from the weights."""
    perform(tiny("ablation"), only="* PC VGG5")
    energy, robustness = tiny("energy"), tiny("robustness")
    evidence = energy.evidence()
    (table,) = energy.recipe.tables(evidence)
    assert {column for (row, column), entry in table.entries.items() if row == "PC" and entry.values} == {
        *("first", "lowest", "lowest cosine", "mean cosine", "train", "test")
    }
    assert len(energy.recipe.plots(evidence, [table])) == 4
    assert not any(e.values for t in robustness.recipe.tables(robustness.evidence()) for e in t.entries.values())
    for planned in (energy, robustness):
        assert "PC VGG5, cifar10, seed 0" in {job.name for job in jobs([planned])}
        render(planned)
        assert result_of(planned)["runs"]["over"] == 0


def test_missing_data_are_said_before_anything_is_trained(tmp_path):
    planned = plan("gap", "laptop", tmp_path, tmp_path / "nothing")
    with pytest.raises(DataError, match="deeppc data fetch cifar10"):
        run([planned], jobs([planned]))
    assert not (tmp_path / "cells").exists()


def test_only_some_cells(tiny):
    assert {job.name for job in jobs([tiny("depth")], "*ipc+s vgg5*")} == {
        "iPC+S VGG5, cifar10, seed 0",
        "iPC+S VGG5 CN, cifar10, seed 0",
    }


def test_all_of_the_first_seed_comes_first_and_cheap_runs_before_others(tiny):
    found = jobs([tiny("ablation", seeds=(0, 1), models=("vgg5", "vgg10")), tiny("gap", models=("vgg10",))])
    seeds = [job.config.seed for job in found]
    assert seeds == [0] * 15 + [1] * 14  # seven algorithms in two networks; the gap adds one, with one seed
    costs = [job.cost for job in found[:15]]
    assert costs == sorted(costs)
    assert found[0].name == "BP VGG5, cifar10, seed 0"


def test_two_at_one_cell_take_turns(tiny):
    (job, *_) = jobs([tiny("ablation")])
    with Lock(_lock(job)), pytest.raises(Retry):
        perform(job, print)
    assert perform(job, lambda message: None).status == "finished"


@pytest.mark.slow
def test_killed_by_force_and_resumed_to_the_same_numbers(tmp_path, tiny):
    """SIGKILL of the whole command in mid-grid: its workers end by themselves, and the rest gives the same numbers."""
    out, only = tmp_path / "killed", "* PC+? VGG5"
    flags = ["--width", "0.02", "--limit", "24", "--models", "vgg5", "--epochs", "8", "--only", only, "--out", str(out)]
    command = [sys.executable, "-m", "deeppc", "paper", "run", "ablation", "--scale", "smoke", "--jobs", "2", *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 60
    while not list(out.glob("cells/*/metrics.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait()
    straight = tiny("ablation", epochs=8)
    planned = plan("ablation", "smoke", out, width=0.02, limit=24, models=("vgg5",), epochs=8)
    todo = jobs([planned], only)
    assert todo, "it was over before it was killed: give it more epochs"
    run([planned], todo)  # tries again where a worker has not ended yet
    run([straight], jobs([straight], only))
    assert _results(planned) == _results(straight)


def _lock(job):
    return job.folder.parent / f".{job.folder.name}.lock"


def _results(planned):
    """By folder, without what depends on the clock."""
    found = {run.folder.name: run.result for place in planned.evidence().places for run in place.finished}
    assert len(found) == 2
    return {name: {k: v for k, v in result.items() if k != "seconds"} for name, result in found.items()}


# Progress.


@pytest.fixture
def todo(tiny):
    return jobs([tiny("ablation")])


def done(job):
    return Done(Record(job.folder, "finished", {"test_accuracy": 0.5, "seconds": 65.0}))


def test_the_time_left_is_weighed_by_cost(todo, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    shown = Display(todo, Console(file=io.StringIO()))
    for job in todo[:2]:
        shown(job, Begun())
    now[0] += 10.0
    shown(todo[1], 0.5)
    shown(todo[0], done(todo[0]))
    share = (todo[0].cost + 0.5 * todo[1].cost) / sum(job.cost for job in todo)
    assert shown.share == pytest.approx(share)
    assert shown.left == pytest.approx(10.0 / share - 10.0)


@pytest.mark.parametrize("terminal", [False, True])
def test_a_line_for_each_run_that_is_over(todo, terminal):
    text = io.StringIO()
    with display(todo, Console(file=text, width=120, force_terminal=terminal)) as show:
        for job in todo:
            show(job, Begun())
            show(job, 0.5)
            show(job, Failed("no room") if job is todo[1] else done(job))
    lines = [line for line in text.getvalue().replace("\x1b[2K", "").splitlines() if "[" in line and "/7]" in line]
    assert "[1/7] BP VGG5, cifar10, seed 0: test 50.00%, 1 min; about" in lines[0]
    assert f"[2/7] {todo[1].name}: failed: no room; about" in lines[1]
    assert lines[-1].rstrip().endswith(f"[7/7] {todo[-1].name}: test 50.00%, 1 min")
