"""The benchmark counts right; what it times is not tested, for machines are noisy."""

import io
import json
import math
import subprocess
import sys
import warnings
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from deeppc.bench import scaling, steps
from deeppc.bench.timing import SPECS, profiled
from deeppc.cli import main as cli
from deeppc.errors import RunError

SUFFIXES = ("json", "md", "svg", "png")


def test_peak_memory_sees_what_is_held_at_once():
    def step():
        a = torch.ones(1000, 1000)
        b = a + 1
        del a
        return b * 2

    assert profiled(step).peak == pytest.approx(8e6, rel=0.01)


def test_the_share_of_convolutions():
    image, weight = torch.randn(1, 8, 16, 16), torch.randn(8, 8, 3, 3)
    assert profiled(lambda: image + 1).convolutions == 0
    assert 0 < profiled(lambda: torch.conv2d(image, weight).exp()).convolutions < 1


def test_exponents_of_exact_powers():
    points = [scaling.Point("T", x, "pc", 5 * x**1.5, 2.0 * x**2) for x in (1, 2, 4, 10)]
    assert scaling.exponent(points, "milliseconds") == pytest.approx(1.5)
    assert scaling.exponent(points, "megabytes") == pytest.approx(2)
    assert math.isnan(scaling.exponent(points[:1] * 2, "megabytes"))
    assert scaling.as_table(points).rows == [("T", "pc", "1 - 10", "5 - 158", "2 - 200", "1.50", "2.00")]
    falling = [scaling.Point("T", x, "pc", 1 + 1e-14 / x, 1) for x in (1, 2)]
    assert scaling.as_table(falling).rows[0][-2:] == ("0.00", "0.00")


def test_scaling_from_the_command_line(tmp_path, monkeypatch):
    tiny = {"width": 0.02, "algorithms": ("bp", "pc")}
    monkeypatch.setattr(scaling, "CASES", [scaling.Case("images", n, 0, batch_size=n, **tiny) for n in (1, 2)])
    args = ["bench", "--scaling", "--rounds", "1", "--threads", "1", "--out", str(tmp_path / "b")]
    assert cli.main(args) == 0
    points = json.loads((tmp_path / "b" / "scaling.json").read_text())["points"]
    assert [(p["x"], p["algorithm"]) for p in points] == [(x, a) for x in (1, 2) for a in ("bp", "pc")]
    assert all(p["milliseconds"] > 0 and p["megabytes"] > 0 for p in points)
    assert {p.name for p in (tmp_path / "b").iterdir()} == {f"scaling.{suffix}" for suffix in SUFFIXES}


@pytest.mark.parametrize("norm", ["none", "bf"])
def test_a_run_from_the_command_line(tmp_path, capsys, norm):
    """With norms ipc predicts once more: running statistics move in the last step."""
    args = ["bench", "--models", "vgg5", "--width", "0.02", "--batch-size", "2", "--rounds", "2", "--norm", norm]
    assert cli.main([*args, "--threads", "1", "--out", str(tmp_path / "b")]) == 0
    record = json.loads((tmp_path / "b" / "bench.json").read_text())
    cells = {cell["algorithm"]: cell for cell in record["cells"]}
    assert record["origin"]["versions"]["torch"] == torch.__version__
    assert list(cells) == ["torch", *SPECS]
    assert cells["bp"]["ratio"] == cells["bp"]["bound"] == cells["bp"]["memory"] == 1
    assert cells["torch"]["bound"] is None
    assert cells["pc+s+f, alpha=0"]["bound"] == 1
    assert (cells["ipc+s, alpha=0"]["bound"] > 1) == (norm == "bf")
    assert {p.name for p in (tmp_path / "b").iterdir()} == {f"bench.{suffix}" for suffix in SUFFIXES}
    assert "vgg5" in (tmp_path / "b" / "bench.md").read_text()


TINY = steps.Setting(("vgg5",), algorithms=("bp",), width=0.02, batch_size=1, rounds=1, threads=1)


@pytest.mark.parametrize("measure", [lambda out: steps.bench(TINY, out), scaling.bench])
@pytest.mark.parametrize("place", ["file", "file/out", "/proc/out"])
def test_a_folder_that_cannot_be_written_is_noticed_before_measuring(tmp_path, measure, place, monkeypatch):
    monkeypatch.setattr("torch.set_num_threads", lambda n: pytest.fail("something is measured"))
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be written to"):
        measure(tmp_path / place)


def test_a_folder_that_is_lost_while_measuring_does_not_take_the_table_along(tmp_path):
    (tmp_path / "bench.json").mkdir()
    with pytest.raises(RunError, match=r"(?s)bench.json could not be written: .*\| vgg5 \| bp \| \d+ \| 1.00 \|"):
        steps.bench(TINY, tmp_path)


def test_the_profiler_is_quiet():
    """Its library writes to the process's own stderr, and reads its settings once."""
    code = "import torch\nfrom deeppc.bench.timing import profiled\nprofiled(lambda: torch.ones(3) + 1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""


COST = steps.StepCost("resnet18", "pc+s+f, alpha=0", 1234.5, 1.394, 1.301, 2.504, 1.0, 1.141, 0.335, 1.34)
POINTS = [scaling.Point("levels L of a ResNet, T = L", x, "pc+s+f, alpha=0", 100.0 * x, 50.0 * x) for x in (10, 34)]


@pytest.mark.parametrize("table", [steps.as_table([COST]), scaling.as_table(POINTS)], ids=["steps", "scaling"])
def test_80_columns_hold_every_word_of_the_table(table):
    out = io.StringIO()
    Console(file=out, width=80).print(table.rich())
    printed = out.getvalue().split()
    for cell in (*table.columns, *table.rows[0]):
        assert all(word in printed for word in str(cell).split()), cell


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"models": ()}, "there are no networks to measure"),
        ({"models": ("vgg6",)}, "unknown model 'vgg6'"),
        ({"algorithms": ("pc",)}, "bp is missing"),
        ({"algorithms": ("bp", "pcs")}, "unknown algorithm 'pcs': did you mean 'pc'"),
        ({"rounds": 0}, "rounds is 0, but must be at least 1"),
    ],
)
def test_a_setting_that_cannot_be_measured_is_refused_and_leaves_nothing_behind(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        steps.bench(replace(TINY, **change), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_steps_fewer_than_levels_are_measured_without_a_warning(tmp_path, monkeypatch):
    case = scaling.Case("T", 2, 0, batch_size=1, T=2, width=0.02, algorithms=("pc+s",))
    monkeypatch.setattr(scaling, "CASES", [case])
    monkeypatch.setitem(SPECS, "pc+s", {"lr_x": 0.1, "alpha": 0.0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaling.bench(tmp_path, rounds=1, threads=1)


@pytest.mark.parametrize("draw", [steps.draw, scaling.draw])
def test_a_picture_of_nothing_says_so(draw):
    assert "Nothing has been measured." in [text.get_text() for text in draw([]).texts]


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--models", "vgg6", "unknown model 'vgg6'"),
        *((flag, "0", f"{flag} is 0, but must be at least 1") for flag in ("--rounds", "--threads", "--batch-size")),
    ],
)
def test_what_cannot_be_measured_is_refused_in_words(tmp_path, capsys, flag, value, message):
    assert cli.main(["bench", flag, value, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
