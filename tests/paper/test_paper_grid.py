"""Grids: cells that recipes share are trained once, what stopped goes on, what fails is a result, workers may die."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from deeppc.data import DataError
from deeppc.errors import ConfigError
from deeppc.paper import grid, pool
from deeppc.paper.grid import Began, Crew, Done, GridInterrupted, Job, Went
from deeppc.paper.pool import Run, folder_of
from deeppc.paper.run import plan, render, run
from deeppc.training.config import TrainConfig


def test_recipes_share_their_cells(tiny, perform, trained):
    perform(tiny("ablation"))
    assert len(trained) == len(set(trained)) == 7  # the seven algorithms in a VGG5
    perform(tiny("depth"))
    assert len(trained) == 13  # and six with centre nudging


def test_what_is_finished_is_not_trained_again(tiny, perform, trained):
    planned = tiny("robustness")
    first = perform(planned).parent / "result.json"
    assert len(trained) == 2
    tables = json.loads(first.read_text())["tables"]
    assert planned.jobs() == []
    perform(planned)
    assert len(trained) == 2
    assert json.loads(first.read_text())["tables"] == tables


def test_a_cell_is_known_by_what_decides_its_outcome(tmp_path):
    one = TrainConfig(seed=0)
    same = dataclasses.replace(one, data_dir=tmp_path, device="cpu", diagnostics=True, checkpoint_every=1.0)
    assert folder_of(tmp_path, one) == folder_of(tmp_path, same)
    others = [{"seed": 1}, {"epochs": 11}, {"lr_x": 0.4}, {"norm": "bf"}, {"limit": 5}]
    folders = {folder_of(tmp_path, dataclasses.replace(one, **other)) for other in others}
    assert len(folders | {folder_of(tmp_path, one)}) == 6


def test_an_interrupted_grid_goes_on(tiny, perform, trained):
    """Ctrl-C in the second cell: the first is kept, its result is written, and the rest follows on the next run."""
    planned = tiny("ablation", epochs=3)
    begun = []

    def stop_in_the_second(event):
        if isinstance(event, Began):
            begun.append(event.job)
            if len(begun) == 2:
                signal.raise_signal(signal.SIGINT)

    interrupting = pytest.raises((GridInterrupted, KeyboardInterrupt))
    with interrupting:
        run(planned, planned.jobs(), listener=stop_in_the_second)
    content = json.loads((planned.folder / "result.json").read_text())
    assert content["runs"]["over"] == 1
    perform(planned)
    content = json.loads((planned.folder / "result.json").read_text())
    assert content["runs"]["over"] == content["runs"]["planned"] == 7
    assert trained.count(begun[0].config.run_dir.name) == 1


def test_a_diverged_run_is_a_result_and_the_others_go_on(tiny, perform, trained):
    planned = tiny("robustness")
    first, *rest = planned.cells
    wild = dataclasses.replace(first, config=dataclasses.replace(first.config, lr_x=1e4, lr_w=1e3))
    planned = dataclasses.replace(planned, cells=(wild, *rest))
    perform(planned)
    content = json.loads((planned.folder / "result.json").read_text())
    assert content["runs"] | {"seconds": 0} == {"planned": 2, "over": 2, "diverged": 1, "failed": 0, "seconds": 0}
    (diverged,) = content["cells"][0]["runs"]
    assert "diverged at step" in diverged["reason"]
    assert "diverged at step" in (planned.folder / "result.md").read_text()
    assert planned.jobs() == []


def test_a_failed_run_says_why_and_is_tried_again(tiny, perform):
    planned = tiny("ablation")
    first, *rest = planned.cells
    wrong = dataclasses.replace(first, config=dataclasses.replace(first.config, algorithm="bp", depth_gain=True))
    planned = dataclasses.replace(planned, cells=(wrong, *rest[:1]))
    perform(planned)
    content = json.loads((planned.folder / "result.json").read_text())
    assert (content["runs"]["failed"], content["runs"]["over"]) == (1, 1)
    assert "bp loses nothing" in content["cells"][0]["runs"][0]["reason"]
    assert [job.config.depth_gain for job in planned.jobs()] == [True]


def test_large_weights_are_dropped_and_made_again_when_they_are_needed(tiny, perform, trained, monkeypatch):
    monkeypatch.setattr(pool, "KEPT_WEIGHTS", 0)
    perform(tiny("ablation"))
    assert not list(tiny("ablation").out.glob("cells/*/*.safetensors"))
    before = len(trained)
    perform(tiny("robustness"))  # PC and PC+F of the ablation, whose weights it wants
    assert len(trained) == before + 2
    assert all(run.measured for place in tiny("robustness").evidence().places for run in place.runs)


def test_missing_data_are_said_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.undo()
    planned = plan("gap", "laptop", tmp_path, tmp_path / "nothing")
    with pytest.raises(DataError, match="deeppc data fetch cifar10"):
        run(planned, planned.jobs())
    assert not (tmp_path / "cells").exists()


def test_only_some_cells(tiny):
    assert {job.name for job in tiny("depth").jobs("*ipc+s vgg5*")} == {
        "iPC+S VGG5, cifar10, seed 0",
        "iPC+S VGG5 CN, cifar10, seed 0",
    }
    with pytest.raises(ConfigError, match="no cell is called so"):
        tiny("depth").jobs("*VGG99*")


def test_all_cells_of_the_first_seed_come_first(tiny):
    seeds = [job.config.seed for job in tiny("ablation", seeds=(3, 5)).jobs()]
    assert seeds == [3] * 7 + [5] * 7


def test_two_at_one_cell_take_turns(tiny):
    (job, *_) = tiny("ablation").jobs()
    with pool._held(job.config.run_dir) as ours:
        assert ours
        busy = pool.perform(job.config, job.recipe, job.scale, lambda event: None)
    assert busy.status == "busy"
    assert pool.perform(job.config, job.recipe, job.scale, lambda event: None).status == "finished"


# The crew, with workers that are forked (quick) and a stand-in for the work.


@pytest.fixture
def crew(monkeypatch):
    """Run jobs with two workers whose work is ``work(job's name)``; returns the events."""
    monkeypatch.setattr(grid.multiprocessing, "get_context", lambda _, real=multiprocessing.get_context: real("fork"))
    monkeypatch.setattr(grid, "PATIENCE", 0.05)
    monkeypatch.setattr(grid, "SAVING", 1.0)  # a worker that was only just forked may still have our signal handlers

    def start(jobs, work):
        def perform(config, recipe, scale, on_event):
            return Run(config.seed, config.run_dir, work(config.run_dir), {"test_accuracy": 0.5, "seconds": 1.0})

        monkeypatch.setattr(grid, "perform", perform)
        events = []
        Crew(2, events.append).run(jobs)
        return events

    return start


def some_jobs(folder, n):
    return [Job(f"job {i}", TrainConfig(seed=i, run_dir=folder / str(i)), "ablation", None, 1.0) for i in range(n)]


forked = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@forked
def test_workers_do_all_jobs(crew, tmp_path):
    events = crew(some_jobs(tmp_path, 5), lambda folder: "finished")
    assert sorted(e.job.config.seed for e in events if isinstance(e, Done)) == [0, 1, 2, 3, 4]
    assert all(e.run.status == "finished" for e in events if isinstance(e, Done))


@forked
def test_a_job_whose_worker_is_killed_is_done_by_another(crew, tmp_path):
    def work(folder):
        if folder.name == "1" and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "finished"

    events = crew(some_jobs(tmp_path, 3), work)
    assert [e.run.status for e in events if isinstance(e, Done)] == ["finished"] * 3
    assert sum(isinstance(e, Began) and e.job.config.seed == 1 for e in events) == 2


@forked
def test_a_job_that_kills_every_worker_has_failed(crew, tmp_path):
    def work(folder):
        if folder.name == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        return "finished"

    events = crew(some_jobs(tmp_path, 3), work)
    ends = {e.job.config.seed: e.run for e in events if isinstance(e, Done)}
    assert {seed: run.status for seed, run in ends.items()} == {0: "finished", 1: "failed", 2: "finished"}
    assert "killed by signal 9" in ends[1].reason


@forked
def test_a_cell_that_another_process_has_is_tried_again(crew, tmp_path):
    def work(folder):
        if folder.name == "0" and not (tmp_path / "seen").exists():
            (tmp_path / "seen").touch()
            return "busy"
        return "finished"

    events = crew(some_jobs(tmp_path, 2), work)
    assert sorted(e.job.config.seed for e in events if isinstance(e, Done)) == [0, 1]


@forked
def test_interrupted_workers_save_first(tiny, monkeypatch):
    monkeypatch.setattr(grid.multiprocessing, "get_context", lambda _, real=multiprocessing.get_context: real("fork"))
    monkeypatch.setattr(grid.os, "cpu_count", lambda: 2)  # a forked torch must not use threads
    monkeypatch.setattr(grid, "BEAT", 0.0)
    jobs = tiny("ablation", epochs=1000).jobs()[:2]
    seen = set()

    def stop_when_both_are_at_work(event):
        if isinstance(event, Went):
            seen.add(event.job)
            if len(seen) == 2:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(GridInterrupted, match="Give the same command again"):
        Crew(2, stop_when_both_are_at_work).run(jobs)
    manifests = [json.loads((job.config.run_dir / "manifest.json").read_text()) for job in jobs]
    assert [manifest["status"] for manifest in manifests] == ["interrupted", "interrupted"]


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
    planned = dataclasses.replace(straight, out=out)
    jobs = planned.jobs(only)
    assert jobs, "it was over before it was killed: give it more epochs"
    while not all(_is_free(job) for job in jobs) and time.monotonic() < deadline:
        time.sleep(0.05)
    run(planned, jobs)
    run(straight, straight.jobs(only))
    assert _results(planned) == _results(straight)


def _is_free(job):
    with pool._held(job.config.run_dir) as ours:
        return ours


def _results(planned):
    """By folder, without what depends on the clock."""
    found = {run.folder.name: run.result for place in planned.evidence().places for run in place.runs if run.finished}
    assert len(found) == 2
    return {name: {k: v for k, v in result.items() if k != "seconds"} for name, result in found.items()}


def test_rendering_trains_nothing(tiny, trained):
    assert render(tiny("depth")).exists()
    assert trained == []
