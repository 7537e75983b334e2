"""The commands: flags, protocols, resuming, JSON, pages, and help that waits for neither torch nor Optuna."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from browser import check_layout
from rich.console import Console

from deeppc.cli.common import given_flags
from deeppc.cli.main import _parse, main
from deeppc.cli.search import Search
from deeppc.search import plan as plans
from deeppc.search.display import View, line, opening
from deeppc.search.plan import Plan
from deeppc.search.space import build
from deeppc.search.trials import Progress, Trial
from deeppc.training import TrainConfig
from deeppc.training.config import flag, settings

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


def test_help_waits_for_neither_torch_nor_optuna() -> None:
    code = (
        "import sys; from deeppc.cli.main import main\n"
        "for words in (['search'], ['search', 'importance'], ['search', 'transfer']):\n"
        "    try: main([*words, '--help'])\n"
        "    except SystemExit: pass\n"
        "slow = {'torch', 'numpy', 'optuna', 'sqlalchemy', 'matplotlib'} & sys.modules.keys()\n"
        "sys.exit(f'imported {slow}' if slow else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for words in ("deeppc search [", "deeppc search importance [", "deeppc search transfer ["):
        assert f"usage: {words}" in done.stdout


def test_every_setting_is_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["search", "--help"])
    out = capsys.readouterr().out
    own = [f.name for f in dataclasses.fields(Search) if f.name != "settings"]
    for name in (*own, *settings()):
        assert f"{flag(name)} " in out or f"{flag(name)}," in out, name


def test_a_trial_has_25_epochs_and_is_judged_on_held_out_images() -> None:
    _, plan = parsed()
    assert (plan.config.epochs, plan.config.select, plan.pruner, plan.trials) == (25, "validation", "median", 40)


def test_the_papers_protocol() -> None:
    own, plan = parsed("--protocol", "paper")
    assert (plan.trials, plan.pruner, own["seeds"], own["final_epochs"]) == (200, "none", "0,1,2,3,4", 50)
    assert (plan.config.epochs, plan.config.select, plan.config.batch_size) == (25, "test", 128)
    own, plan = parsed("--protocol", "paper", "--trials", "7", "--epochs", "3", "--seeds", "0")
    assert (plan.trials, plan.config.epochs, own["seeds"], plan.pruner) == (7, 3, "0", "none")


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
        (["--trials", "0"], "--trials is 0"),
        (["--dataset", "cifar10", "--data-dir", "nowhere"], "is not in nowhere"),
        (["--space-file", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["--preset", "nothing"], "There is no preset 'nothing'"),
        (["--algorithm", "pc", "--alpha", "0.1"], "--alpha means nothing to pc"),
    ],
)
def test_mistakes_end_in_a_sentence(
    args: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from deeppc.data import load

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


@pytest.mark.usefixtures("undrawn")
def test_json_on_stdout_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", *TINY, "--json"]) == 0
    records = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert [record["event"] for record in records] == ["trial", "trial", "search"]
    assert records[-1]["best"]["value"] == max(record["value"] for record in records[:2])


@pytest.fixture
def drawn_search(capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["search", *TINY, "--json"]) == 0
    assert f"pictures: {DEFAULT / 'search.html'}" in capsys.readouterr().err
    return DEFAULT


def test_page_and_importance(drawn_search: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (drawn_search / "search.html").read_text()
    assert main(["search", "plot", str(drawn_search)]) == 0
    assert (drawn_search / "search.html").read_text() == page
    for words in (
        "fANOVA",
        "Trials were judged on held-out images",
        "only 2 trials",
        "weight_decay",
        "1e-05..0.01 log",
    ):
        assert words in page
    assert "http" not in page
    assert "<script" not in page
    pictures = {path.stem for path in (drawn_search / "pictures").glob("*.svg")}
    assert pictures == {"history", "learning", "slices", "parallel", "importance"}
    capsys.readouterr()

    assert main(["search", "importance", str(drawn_search), "--out", "tables/importance.md"]) == 0
    assert "weight_decay" in capsys.readouterr().out
    assert Path("tables/importance.md").read_text().startswith("Importance of each hyper-parameter")
    assert main(["search", "importance", str(drawn_search), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"] == 2
    assert main(["search", "importance"]) == 2
    assert "Say which search" in capsys.readouterr().err


@pytest.mark.outside
def test_page_in_a_browser(drawn_search: Path, tmp_path: Path) -> None:
    check_layout(drawn_search / "search.html", tmp_path)


def test_page_of_every_kind_of_trial(tmp_path: Path) -> None:
    """Of a search with nothing yet, with settings that only some trials have, and with errors for scores."""
    from deeppc.search import page
    from deeppc.search.importance import importance

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


@pytest.mark.usefixtures("undrawn")
def test_transfer(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--algorithm", "bp", "--space", "lr_w=1e-3", "--trials", "1", "--epochs", "1", "--limit", "30", "--json"]
    for model in ("mlp", "vgg5"):
        assert main(["search", *TINY, *small, "--model", model, "--run-dir", model]) == 0
    capsys.readouterr()
    assert main(["search", "transfer", "mlp", "vgg5", "--seeds", "0", "--run-dir", "out"]) == 0
    out = capsys.readouterr().out
    assert "2 of 2: digits-vgg5-bp with the settings of digits-mlp-bp" in out
    assert "Across depths, digits" in out
    assert Path("out/transfer.md").exists()
    assert main(["search", "transfer", "mlp"]) == 2
    assert "nothing to transfer" in capsys.readouterr().err


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
    assert "lost, to be replaced: its worker died" in line(a_trial(7, "lost", None, reason="its worker died"), progress)
    assert "best" not in line(a_trial(7), dataclasses.replace(progress, trials=[]))


def test_opening_says_what_is_searched(progress: Progress) -> None:
    text = opening(progress)
    assert "40 trials of pc on digits, vgg5 at width 0.25, 4,000 images, 10 epochs" in text
    assert "held-out images" in text
    assert "lr_x          0.005..0.9 log" in text
    assert "alpha is not drawn: it means nothing with pc" in text
    assert "resuming: 6 of 40" in text


def test_live_view(progress: Progress) -> None:
    with Path("out.txt").open("w") as file:
        console = Console(force_terminal=True, width=100, record=True, file=file)
        view = View(console)
        view(progress)
        assert view._live is not None
        console.print(view._live.renderable)
        view.stop()
        view.stop()
    text = console.export_text()
    for words in ("6 of 40", "about 7 min left", "3 complete, 2 pruned, 1 diverged, 1 running", "best so far 50.00%"):
        assert words in text
    assert "trial 6 in epoch 3, 50.00%: lr_x=0.123 T=5" in text
