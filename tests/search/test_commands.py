"""The commands: flags, protocols, resuming, JSON, pages, and what it looks like."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import check_layout
from rich.console import Console

from deeppc import presets
from deeppc.cli.common import given_flags
from deeppc.cli.main import _parse, main
from deeppc.cli.search import Search
from deeppc.core.algorithms import options_for
from deeppc.data import load
from deeppc.errors import RunError
from deeppc.files import write_json
from deeppc.search import page
from deeppc.search import plan as plans
from deeppc.search.display import display, line, panel
from deeppc.search.importance import importance
from deeppc.search.plan import Plan
from deeppc.search.provenance import preset_of
from deeppc.search.space import build
from deeppc.search.study import search
from deeppc.search.trials import Progress, Trial, score
from deeppc.training import TrainConfig
from deeppc.training.config import FIELDS, flag

MakePlan = Callable[..., Plan]
TINY = [
    *("--model", "mlp", "--width", "0.05", "--limit", "60", "--batch-size", "24"),
    *("--epochs", "2", "--device", "cpu", "--trials", "2"),
]
DEFAULT = Path("searches/digits-mlp-pc+s+f")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take seconds."""
    monkeypatch.setattr("deeppc.search.page.write", lambda plan, trials, found: plan.folder / plans.PAGE)
    monkeypatch.setattr("deeppc.report.pages.write_run", lambda folder: folder)
    monkeypatch.setattr("deeppc.report.pages.write_comparison", lambda folder: folder)


def parsed(*args: str) -> tuple[dict[str, Any], Plan]:
    """The command's own flags and its plan."""
    command = _parse(["search", *args])
    assert isinstance(command, Search)
    given = given_flags(args)
    return command.own(given), command.plan(given)


# --- flags ---------------------------------------------------------------------------------------------------------


def test_every_setting_is_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "--help"]) == 0
    out = capsys.readouterr().out
    own = [f.name for f in dataclasses.fields(Search) if f.name != "settings"]
    for name in (*own, *FIELDS, *options_for("pc+s+f")):
        assert f"{flag(name)} " in out or f"{flag(name)}," in out, name


def test_protocols() -> None:
    _, plan = parsed()
    assert (plan.config.epochs, plan.config.select, plan.pruner, plan.trials) == (25, "validation", "median", 40)
    own, plan = parsed("--protocol", "paper")
    assert (plan.trials, plan.pruner, own["seeds"], own["final_epochs"]) == (200, "none", "0,1,2,3,4", 50)
    assert (plan.config.epochs, plan.config.select, plan.config.batch_size) == (25, "test", 128)
    own, plan = parsed("--protocol", "paper", "--trials", "7", "--epochs", "3", "--seeds", "0")
    assert (plan.trials, plan.config.epochs, own["seeds"], plan.pruner) == (7, 3, "0", "none")


def test_presets_that_are_tried_first() -> None:
    Path("mine.toml").write_text("# mine\nlr_w = 0.003\nmodel = 'vgg5'\n")
    _, plan = parsed("--algorithm", "bp", "--space", "lr_w=1e-4..1e-2", "--first", "mine.toml")
    assert plan.first == ({"lr_w": 0.003},)  # the network is no part of the space
    assert parsed("--algorithm", "bp")[1].first == ()


def test_space_flags_may_be_repeated() -> None:
    _, plan = parsed("--space", "lr_x=0.01..0.5", "--space", "beta=0.5", "--algorithm", "pc")
    assert plan.space.table()["lr_x"] == "0.01..0.5 log"
    assert plan.config.setting("beta") == 0.5


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--space", "lr_y=1..2"], "did you mean 'lr_x'"),
        (["--resume"], "--resume needs --run-dir"),
        (["--resume", "--run-dir", "nowhere"], "There is no search in nowhere"),
        (["--seeds", "one"], "--seeds is 'one'"),
        ([*TINY, "--seeds", "-1"], "seed is -1, but must be"),
        ([*TINY, "--seeds", "1", "--final-epochs", "0"], "epochs is 0, but must be"),
        (["--trials", "0"], "--trials is 0"),
        (["--dataset", "cifar10", "--data-dir", "nowhere"], "is not in nowhere"),
        (["--space-file", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["--preset", "nothing"], "There is no preset 'nothing'"),
        (["--algorithm", "pc", "--alpha", "0.1"], "--alpha means nothing to pc"),
        (["importance"], "Say which search"),
    ],
)
def test_mistakes_end_in_a_sentence(
    args: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deeppc.training.builder.load", load)
    assert main(["search", *args]) == 2
    assert says in capsys.readouterr().err.replace("\n", " ")
    assert not Path("searches").exists()


# --- from end to end -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("undrawn")
def test_search_again_and_with_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", *TINY]) == 0
    out = capsys.readouterr().out
    assert "[2/2] trial 1" in out
    assert f"train it:  deeppc train --config {DEFAULT / 'best.toml'}" in out
    assert "only 2 trials" in out

    assert main(["search", "--resume", "--run-dir", str(DEFAULT), "--trials", "3", "--seeds", "0,1"]) == 0
    assert "resuming: 2 of 3 trials have ended" in capsys.readouterr().out
    runs = json.loads((DEFAULT / "seeds" / "comparison.json").read_text())["rows"][0]["runs"]
    assert runs == ["pc+s+f-0", "pc+s+f-1"]
    assert main(["search", *TINY, "--epochs", "3"]) == 2
    assert "--epochs is 3, but the search in" in capsys.readouterr().err
    assert main(["train", "--config", str(DEFAULT / "best.toml"), "--epochs", "1", "--run-dir", "again"]) == 0


@pytest.fixture
def drawn_search(capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["search", *TINY, "--json"]) == 0
    out, err = capsys.readouterr()
    assert f"pictures: {DEFAULT / 'search.html'}" in err
    records = [json.loads(text) for text in out.splitlines()]
    assert [record["event"] for record in records] == ["trial", "trial", "search"]
    assert records[-1]["best"]["value"] == max(record["value"] for record in records[:2])
    return DEFAULT


def test_page_and_importance(drawn_search: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (drawn_search / "search.html").read_text()
    assert main(["search", "plot", str(drawn_search)]) == 0
    assert (drawn_search / "search.html").read_text() == page
    for words in ("fANOVA", "judged on held-out images", "only 2 trials", "weight_decay", "1e-05..0.01 log"):
        assert words in page
    assert "http" not in page
    assert "<script" not in page
    pictures = {path.stem for path in (drawn_search / "pictures").glob("*.svg")}
    assert pictures == {"history", "learning", "slices", "importance"}
    capsys.readouterr()

    assert main(["search", "importance", str(drawn_search), "--out", "tables/importance.md"]) == 0
    assert "weight_decay" in capsys.readouterr().out
    assert Path("tables/importance.md").read_text().startswith("Importance of each hyper-parameter")
    assert main(["search", "importance", str(drawn_search), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"] == 2


@pytest.mark.outside
def test_page_in_a_browser(drawn_search: Path, tmp_path: Path) -> None:
    check_layout(drawn_search / "search.html", tmp_path)


def test_page_of_every_kind_of_trial(tmp_path: Path) -> None:
    """Of a search with nothing yet, with settings that only some trials have, and with errors for scores."""
    config = TrainConfig.of(algorithm="pc", run_dir=tmp_path, select="test")
    plan = Plan(tmp_path, build(config, ["norm=none,bf", "affine=true,false", "lr_x=0.1..0.5"]), trials=9)
    states: list[Any] = ["complete", "pruned", "failed", "running", "lost", "complete"]
    params: list[dict[str, Any]] = [{"lr_x": 0.2, "norm": "none"}, {"lr_x": 0.3, "norm": "bf", "affine": True}]
    for sign in (1, -1):
        trials = [
            Trial(n, s, None if s == "failed" else sign * (0.5 + n / 10), params[n % 2], {1: sign * 0.4}, 1.0, "why")
            for n, s in enumerate(states)
        ]
        text = page.write(plan, trials, importance(plan, trials)).read_text()
        assert "Unfinished: 4 of 9 trials have ended." in text
        assert "judged on the test set, as in the paper" in text
        assert ("100.00%" if sign > 0 else "error 0.5") in text
    assert "Unfinished: 0 of 9" in page.write(plan, [], importance(plan, [])).read_text()


# --- presets ------------------------------------------------------------------------------------------------------


def test_preset_made_from_a_search(
    tiny: MakePlan, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tiny(trials=1, beta=0.5, schedule_epochs=2)
    result = search(plan)
    assert main(["search", "preset", str(plan.folder), "--out", str(tmp_path / "made")]) == 0
    assert capsys.readouterr().out.strip().endswith("made/digits-mlp-pc+s+f.toml")
    monkeypatch.setattr(presets, "SHIPPED", tmp_path / "made")
    made = presets.load("digits-mlp-pc+s+f")
    task = {"dataset": "digits", "model": "mlp", "algorithm": "pc+s+f", "width": 0.05}
    # and what the plan fixed otherwise than by default, but no budget and no place
    assert made.table == {**task, **result.best.params, "beta": 0.5, "batch_size": 24}
    assert "Search 'study': 1 trials by TPE with seed 0, 1 complete, 0 pruned, 0 diverged." in made.provenance
    assert "2 epochs on 60 images" in made.provenance
    assert f"held-out images: {score(result.best.value)}" in made.provenance


def test_seeds_trained_afterwards_are_told(tiny: MakePlan) -> None:
    plan = tiny()
    with pytest.raises(RunError, match="there is no best one to keep"):
        preset_of(plan, [])
    rows = [{"test_accuracy": [0.5, 0.52, 0.54]}]
    write_json(plan.folder / "seeds" / "comparison.json", {"rows": rows})
    _, text = preset_of(plan, [Trial(0, "complete", 0.5, {"lr_w": 0.01}, {}, None)])
    assert "Test accuracy over 3 seeds: 52.00 ± 2.00 %." in text  # the sample deviation of 50, 52, 54


# --- what it looks like --------------------------------------------------------------------------------------------


def a_trial(number: int, state: Any = "complete", value: float | None = 0.5, **rest: Any) -> Trial:
    return Trial(number, state, value, {"lr_x": 0.12345, "T": 5}, {1: 0.4, 2: 0.5}, 12.0, **rest)


@pytest.fixture
def progress(tmp_path: Path) -> Progress:
    space = build(TrainConfig.of(algorithm="pc", limit=4000), ["alpha=0.1,0.2"])
    states: list[Any] = ["complete", "complete", "complete", "pruned", "pruned", "failed", "running"]
    return Progress(Plan(tmp_path, space, trials=40), [a_trial(n, s) for n, s in enumerate(states)], [a_trial(5)])


def test_lines(progress: Progress) -> None:
    said = "[6/40] trial 7   50.00%  complete  12 s  best 50.00% (trial 0)  lr_x=0.123 T=5"
    assert line(a_trial(7), progress).split() == said.split()
    assert "pruned at epoch 2" in line(a_trial(7, "pruned"), progress)
    assert "failed: diverged at step 3" in line(a_trial(7, "failed", None, reason="diverged at step 3"), progress)
    assert "lost: its worker died" in line(a_trial(7, "lost", None, reason="its worker died"), progress)
    assert "best" not in line(a_trial(7), dataclasses.replace(progress, trials=[]))


def test_live_view(progress: Progress) -> None:
    with Path("out.txt").open("w") as file:
        console = Console(force_terminal=True, width=200, record=True, file=file)
        with display(as_json=False, console=console) as show:
            show(progress)
            show(dataclasses.replace(progress, news=[]))
        console.print(panel(progress))
    text = console.export_text()
    assert text.count("40 trials of pc on digits") == text.count("[6/40] trial 5") == 1
    for words in (
        "vgg5 at width 0.25, 10 epochs on 4,000 images",
        "held-out images",
        "lr_x          0.005..0.9 log",
        "alpha is not drawn: it means nothing with pc",
        "resuming: 6 of 40",
        "6 of 40",
        "about 7 min left",
        "3 complete, 2 pruned, 1 diverged, 1 running",
        "best so far 50.00%",
        "trial 6 in epoch 3, 50.00%: lr_x=0.123 T=5",
    ):
        assert words in text
