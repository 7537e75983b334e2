"""``deeppc paper`` as it is typed."""

from __future__ import annotations

import json

import pytest

from deeppc.cli.main import main


@pytest.mark.usefixtures("unsaved")
def test_run_record_list_and_claims(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ["paper", "run", "ablation", "--scale", "smoke"]
    assert main([*flags, "--only", "*BP VGG5*"]) == 0
    out = capsys.readouterr().out
    assert "ablation, scale smoke: 1 of 21 runs to do" in out
    assert "[1/1] BP VGG5, cifar10, seed 0: test" in out
    assert "(89.43)" in out  # the paper's
    content = json.loads((tmp_path / "paper/ablation-smoke/result.json").read_text())
    assert content["runs"]["over"] == 1

    assert main(["paper", "record"]) == 0
    assert "1 records written, 1 in records" in capsys.readouterr().out
    assert main([*flags, "--out", "elsewhere", "--render"]) == 0
    again = json.loads((tmp_path / "elsewhere/ablation-smoke/result.json").read_text())
    assert again["tables"] == content["tables"]
    capsys.readouterr()

    assert main(["paper", "list"]) == 0
    out = capsys.readouterr().out
    assert "smoke: 1 of 21" in " ".join(out.split())
    assert "Table 1" in out

    assert main(["paper", "claims", "--scale", "smoke", "--markdown", "claims.md"]) == 0
    assert "not enough data" in " ".join(capsys.readouterr().out.split())
    assert "| S alone and F alone" in (tmp_path / "claims.md").read_text()


def test_a_plan_trains_nothing_and_builds_no_network(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("deeppc.models.build", lambda *args, **kwargs: pytest.fail("built a network"))
    assert main(["paper", "run", "depth", "gap", "--scale", "paper", "--plan", "--out", str(tmp_path / "x")]) == 0
    out = capsys.readouterr().out
    assert "depth, scale paper: 195 of 195 runs to do" in out
    assert "gap, scale paper: 3 of 3 runs to do" in out
    assert "198 different runs, roughly" in out  # those of the gap have no patience
    assert not (tmp_path / "x").exists()


@pytest.mark.usefixtures("unsaved")
def test_whoever_trains_only_some_cells_has_no_times_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("deeppc.paper.recipes.rivals.step_cost", lambda *args: pytest.fail("measured a step"))
    flags = ["rivals", "--scale", "smoke", "--only", "cifar10 Z-IL VGG5", "--out", str(tmp_path)]
    assert main(["paper", "run", *flags]) == 0
    assert (tmp_path / "rivals-smoke/result.json").exists()
    assert not (tmp_path / "rivals-smoke/extra.json").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["run", "accuracies"], "did you mean 'accuracy'?"),
        (["run"], "Say which recipe to run"),
        (["run", "gap", "--jobs", "0"], "--jobs is 0"),
        (["run", "gap", "--seeds", "a"], "whole numbers"),
        (["run", "gap", "--models", "vgg5"], "has no cell with these data sets and networks"),
        (["run", "gap", "--width", "0"], "width is 0.0, but must be"),
        (["run", "gap", "--only", "nothing"], "no cell is called so"),
        (["run", "gap", "--models", "vgg11"], "the paper has no vgg11. Choose among vgg5"),
        (["run", "gap", "--datasets", "mnist"], "the paper has no mnist. Choose among cifar10"),
    ],
)
def test_mistakes_are_explained(args, words, tmp_path, capsys):
    assert main(["paper", *args, "--out", str(tmp_path)]) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_damaged_and_missing_results_are_named(tmp_path, capsys):
    (tmp_path / "gap-laptop").mkdir()
    (tmp_path / "gap-laptop" / "result.json").write_text('{"recipe": "gap"}')
    assert main(["paper", "claims", "--results", str(tmp_path)]) == 2
    assert "result.json is damaged" in " ".join(capsys.readouterr().err.split())
    assert main(["paper", "claims", "--results", str(tmp_path / "nothing")]) == 2
    assert "There are no results of a scale above smoke in" in " ".join(capsys.readouterr().err.split())
    assert main(["paper", "record", "--out", str(tmp_path / "nothing"), "--to", str(tmp_path / "records")]) == 2
    assert "There are no runs in" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("name", ["gap", "time"])
def test_a_place_that_cannot_be_written_is_found_before_any_training(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("deeppc.training.pool.run", lambda *args: pytest.fail("trained"))
    (tmp_path / "file").write_text("mine")
    assert main(["paper", "run", name, "--scale", "smoke", "--out", str(tmp_path / "file" / "x")]) == 2
    assert "file/x cannot be written to: Not a directory." in " ".join(capsys.readouterr().err.split())


def test_a_table_that_cannot_be_written_is_said(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("deeppc.paper.claims.gather", lambda results, scale: {})
    (tmp_path / "file").write_text("mine")
    assert main(["paper", "claims", "--markdown", str(tmp_path / "file" / "x.md")]) == 2
    said = capsys.readouterr()
    assert "x.md could not be written" in said.err
    assert not said.out
