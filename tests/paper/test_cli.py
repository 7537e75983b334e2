"""``deeppc paper`` as it is typed."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from deeppc.cli.main import main
from deeppc.paper.grid import Began, Done, Went
from deeppc.paper.pool import Run
from deeppc.paper.progress import Bars, Clock, Lines, duration


def test_run_list_and_claims(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["paper", "run", "ablation", "--scale", "smoke", "--only", "*BP VGG5*"]) == 0
    out = capsys.readouterr().out
    assert "1 of 21 runs to do" in out
    assert "[1/1] BP VGG5, cifar10, seed 0: test" in out
    assert "(89.43)" in out  # the paper's
    assert json.loads((tmp_path / "paper/ablation-smoke/result.json").read_text())["runs"]["over"] == 1

    assert main(["paper", "list"]) == 0
    out = capsys.readouterr().out
    assert "smoke: 1 of 21" in out.replace("\n", " ")
    assert "Table 1" in out

    assert main(["paper", "claims", "--scale", "smoke", "--markdown", "claims.md"]) == 0
    assert "not enough data" in capsys.readouterr().out
    assert "| S alone and F alone" in (tmp_path / "claims.md").read_text()


def test_a_plan_trains_nothing(tmp_path, capsys):
    assert main(["paper", "run", "depth", "gap", "--scale", "paper", "--plan", "--out", str(tmp_path / "x")]) == 0
    out = capsys.readouterr().out
    assert "195 of 195 runs to do, roughly" in out
    assert "3 of 3 runs to do" in out
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["run", "accuracies"], "did you mean 'accuracy'?"),
        (["run"], "Say which recipe to run"),
        (["run", "gap", "--jobs", "0"], "--jobs is 0"),
        (["run", "gap", "--seeds", "a"], "whole numbers"),
        (["run", "gap", "--models", "vgg5"], "has no cell with these data sets and networks"),
        (["run", "gap", "--width", "0"], "width is 0.0, but must be positive"),
        (["run", "gap", "--only", "nothing"], "no cell is called so"),
        (["run", "gap", "--models", "vgg11"], "the paper has no vgg11"),
    ],
)
def test_mistakes_are_explained(args, words, tmp_path, capsys):
    assert main(["paper", *args[:1], *args[1:], *(["--out", str(tmp_path)])]) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_a_damaged_result_is_named(tmp_path, capsys):
    (tmp_path / "gap-laptop").mkdir()
    (tmp_path / "gap-laptop" / "result.json").write_text('{"recipe": "gap"}')
    assert main(["paper", "claims", "--results", str(tmp_path)]) == 2
    assert "result.json is damaged" in " ".join(capsys.readouterr().err.split())


@pytest.fixture
def jobs(tiny):
    return tiny("ablation").jobs()


def done(job):
    return Done(job, Run(0, job.config.run_dir, "finished", {"test_accuracy": 0.5, "seconds": 65.0}))


def test_the_clock_weighs_jobs_by_their_cost(jobs, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("deeppc.paper.progress.time.monotonic", lambda: now[0])
    clock = Clock(jobs)
    assert clock.left is None
    now[0] += 10.0
    clock.hear(Went(jobs[1], 0.5))
    clock.hear(done(jobs[0]))
    share = (jobs[0].cost + 0.5 * jobs[1].cost) / sum(job.cost for job in jobs)
    assert clock.share == pytest.approx(share)
    assert clock.left == pytest.approx(10.0 / share - 10.0)
    for job in jobs[1:]:
        clock.hear(done(job))
    assert clock.left == 0


@pytest.mark.parametrize("kind", [Lines, Bars])
def test_progress_of_a_grid(jobs, kind):
    text = io.StringIO()
    show = kind(Console(file=text, width=120, force_terminal=kind is Bars), jobs)
    for job in jobs:
        show(Began(job))
        show(Went(job, 0.5))
        show(done(job))
    lines = text.getvalue().splitlines()
    assert lines[0].startswith("[1/7] BP VGG5, cifar10, seed 0: test 50.0 %, 1 min; about")
    assert lines[-1] == "[7/7] PC+S+F VGG5, cifar10, seed 0: test 50.0 %, 1 min"


@pytest.mark.parametrize(("seconds", "text"), [(3, "3 s"), (65, "1 min"), (3600, "1 h 00 min"), (7500, "2 h 05 min")])
def test_durations(seconds, text):
    assert duration(seconds) == text
