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

from deeppc.cli import main as cli
from deeppc.cli.search import Search
from deeppc.search import plan as plans
from deeppc.search.display import Lines, LiveView, duration, line, opening
from deeppc.search.events import Began, Looked, TrialEnded
from deeppc.search.plan import Plan
from deeppc.search.records import Progress, Trial
from deeppc.search.space import build
from deeppc.training import TrainConfig
from deeppc.training.config import flag

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


def parsed(*args: str) -> Search:
    """The command after its defaults have been found."""
    command = cli._parse(["search", *args])
    base = command.base()
    found = command if base is None else cli._parse(["search", *args], base)
    assert isinstance(found, Search)
    return found


# --- flags ---------------------------------------------------------------------------------------------------------


def test_help_waits_for_neither_torch_nor_optuna() -> None:
    code = (
        "import sys, deeppc.cli.main\n"
        "for words in (['search'], ['search', 'importance'], ['search', 'transfer'], ['presets']):\n"
        "    try: deeppc.cli.main([*words, '--help'])\n"
        "    except SystemExit: pass\n"
        "slow = {'torch', 'numpy', 'optuna', 'sqlalchemy', 'matplotlib'} & sys.modules.keys()\n"
        "sys.exit(f'imported {slow}' if slow else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for words in ("deeppc search [", "deeppc search importance [", "deeppc search transfer [", "deeppc presets ["):
        assert f"usage: {words}" in done.stdout


def test_every_setting_is_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["search", "--help"])
    out = capsys.readouterr().out
    own = (
        "trials",
        "jobs",
        "space",
        "space_file",
        "pruner",
        "protocol",
        "storage",
        "seeds",
        "preset",
        "config",
        "json",
    )
    for name in (*own, *(f.name for f in dataclasses.fields(TrainConfig))):
        assert f"{flag(name)} " in out or f"{flag(name)}," in out, name


def test_a_trial_has_25_epochs_and_is_judged_on_held_out_images() -> None:
    found = parsed()
    assert (found.settings.epochs, found.settings.select, found.pruner) == (25, "validation", "median")


def test_the_papers_protocol() -> None:
    found = parsed("--protocol", "paper")
    assert (found.trials, found.pruner, found.seeds, found.final_epochs) == (200, "none", "0,1,2,3,4", 50)
    assert (found.settings.epochs, found.settings.select, found.settings.batch_size) == (25, "test", 128)
    flags = parsed("--protocol", "paper", "--trials", "7", "--epochs", "3", "--seeds", "0")
    assert (flags.trials, flags.settings.epochs, flags.seeds, flags.pruner) == (7, 3, "0", "none")


def test_space_flags_may_be_repeated() -> None:
    plan = parsed("--space", "lr_x=0.01..0.5", "--space", "beta=0.5", "--algorithm", "pc").plan()
    assert plan.space.table()["lr_x"] == "0.01..0.5 log"
    assert plan.config.beta == 0.5


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
    ],
)
def test_mistakes_end_in_a_sentence(
    args: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from deeppc.data import load

    monkeypatch.setattr("deeppc.training.parts.load", load)
    assert cli.main(["search", *args]) == 2
    assert says in capsys.readouterr().err
    assert not Path("searches").exists()


# --- from end to end -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("undrawn")
def test_search_again_and_with_seeds(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_try_report", lambda *args: None)
    assert cli.main(["search", *TINY]) == 0
    out = capsys.readouterr().out
    assert "[2/2] trial 1" in out
    assert f"train it:  deeppc train --config {DEFAULT / 'best.toml'}" in out
    assert "only 2 trials; below 40" in out

    assert cli.main(["search", "--resume", "--run-dir", str(DEFAULT), "--trials", "3", "--seeds", "0,1"]) == 0
    assert "going on: 2 of 3 trials are settled" in capsys.readouterr().out
    runs = json.loads((DEFAULT / "seeds" / "comparison.json").read_text())["rows"][0]["runs"]
    assert runs == ["pc+s+f-0", "pc+s+f-1"]
    assert cli.main(["search", *TINY, "--epochs", "3"]) == 2
    assert "--epochs is 3, but the search in" in capsys.readouterr().err
    assert cli.main(["train", "--config", str(DEFAULT / "best.toml"), "--epochs", "1", "--run-dir", "again"]) == 0


@pytest.mark.usefixtures("undrawn")
def test_json_on_stdout_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["search", *TINY, "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["event"] for record in records] == ["trial", "trial", "search"]
    assert records[-1]["best"]["value"] == max(record["value"] for record in records[:2])


def test_page_and_importance(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as undrawn:
        undrawn.setattr("deeppc.search.page.write", lambda plan, trials, found: None)
        assert cli.main(["search", *TINY, "--json"]) == 0
    assert cli.main(["search", "plot", str(DEFAULT)]) == 0
    page = (DEFAULT / "search.html").read_text()
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
    pictures = {path.stem for path in (DEFAULT / "pictures").glob("*.svg")}
    assert pictures == {"history", "learning", "slices", "parallel", "importance"}
    capsys.readouterr()

    assert cli.main(["search", "importance", str(DEFAULT), "--out", "tables/importance.md"]) == 0
    assert "weight_decay" in capsys.readouterr().out
    assert Path("tables/importance.md").read_text().startswith("Importance of each hyper-parameter")
    assert cli.main(["search", "importance", str(DEFAULT), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"] == 2
    assert cli.main(["search", "importance"]) == 2
    assert "Say which search" in capsys.readouterr().err
    check_layout(DEFAULT / "search.html", tmp_path)


@pytest.mark.usefixtures("undrawn")
def test_transfer(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--algorithm", "bp", "--space", "lr_w=1e-3", "--trials", "1", "--epochs", "1", "--limit", "30", "--json"]
    for model in ("mlp", "vgg5"):
        assert cli.main(["search", *TINY, *small, "--model", model, "--run-dir", model]) == 0
    capsys.readouterr()
    assert cli.main(["search", "transfer", "mlp", "vgg5", "--seeds", "0", "--run-dir", "out"]) == 0
    out = capsys.readouterr().out
    assert "2 of 2: digits-vgg5-bp with the settings of digits-mlp-bp" in out
    assert "Across depths, digits" in out
    assert Path("out/transfer.md").exists()
    assert cli.main(["search", "transfer", "mlp"]) == 2
    assert "nothing to transfer" in capsys.readouterr().err


# --- what it looks like --------------------------------------------------------------------------------------------


def a_trial(number: int, state: Any = "complete", value: float | None = 0.5, **rest: Any) -> Trial:
    return Trial(number, state, value, {"lr_x": 0.12345, "T": 5}, {1: 0.4, 2: 0.5}, 12.0, **rest)


def a_progress(**changes: Any) -> Progress:
    counts = {"complete": 3, "pruned": 2, "failed": 1, "running": 1, "lost": 0}
    progress = Progress(40, counts, [a_trial(6, "running")], a_trial(2), 3600.0)  # type: ignore[arg-type]
    return dataclasses.replace(progress, **changes)


def test_lines() -> None:
    assert (
        line(a_trial(7), a_progress())
        == "[6/40] trial 7   50.0 %  complete  12 s  best 50.0 % (trial 2)  lr_x=0.123 T=5"
    )
    assert "pruned at epoch 2" in line(a_trial(7, "pruned"), a_progress())
    assert "failed: diverged at step 3" in line(a_trial(7, "failed", None, reason="diverged at step 3"), a_progress())
    assert "lost, to be replaced: its worker died" in line(
        a_trial(7, "lost", None, reason="its worker died"), a_progress()
    )
    assert "best" not in line(a_trial(7), a_progress(best=None))


def test_opening_says_what_is_searched(tmp_path: Path) -> None:
    space = build(TrainConfig(algorithm="pc", limit=4000), ["alpha=0.1,0.2"])
    text = opening(Plan(tmp_path, space, trials=9), a_progress())
    assert "9 trials of pc on digits, vgg5 at width 0.25, 4,000 images, 10 epochs" in text
    assert "held-out images" in text
    assert "lr_x          0.005..0.9 log" in text
    assert "alpha is not drawn: it needs algorithm=+s" in text
    assert "going on: 6 of 9" in text


def test_live_view(tmp_path: Path) -> None:
    console = Console(force_terminal=True, width=100, record=True, file=open("out.txt", "w"))  # noqa: SIM115
    view = LiveView(console)
    assert isinstance(view, Lines)
    view(Began(Plan(tmp_path, build(TrainConfig())), a_progress(best=None, seconds_left=None)))
    view(Looked(a_progress()))
    view(TrialEnded(a_trial(7), a_progress()))
    assert view._live is not None
    console.print(view._live.renderable)
    view.stop()
    view.stop()
    console.file.close()
    text = console.export_text()
    for words in (
        "6 of 40",
        "about 60 min left",
        "3 complete, 2 pruned, 1 failed, 1 running",
        "best so far 50.0 %, trial 2",
    ):
        assert words in text
    assert "trial 6 in epoch 3, 50.0 %: lr_x=0.123 T=5" in text


@pytest.mark.parametrize(
    ("seconds", "words"), [(3.21, "3.2 s"), (59, "59 s"), (600, "10 min"), (3 * 3600, "3.0 h"), (7201, "2.0 h")]
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words
