"""The benchmark counts right; what it times is not tested, for machines are noisy."""

import json
import math

import pytest
import torch

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
    cases = [scaling.Case("images", size, 0, batch_size=size, width=0.02) for size in (1, 2)]
    monkeypatch.setattr(scaling, "CASES", cases)
    monkeypatch.setattr(scaling, "ALGORITHMS", ("bp", "pc"))
    args = ["bench", "--scaling", "--rounds", "1", "--threads", "1", "--out", str(tmp_path / "b")]
    assert cli.main(args) == 0
    points = json.loads((tmp_path / "b" / "scaling.json").read_text())["points"]
    assert [(p["x"], p["algorithm"]) for p in points] == [(x, a) for x in (1, 2) for a in scaling.ALGORITHMS]
    assert all(p["milliseconds"] > 0 and p["megabytes"] > 0 for p in points)
    assert {p.name for p in (tmp_path / "b").iterdir()} == {f"scaling.{suffix}" for suffix in SUFFIXES}


def test_a_run_from_the_command_line(tmp_path, capsys):
    args = ["bench", "--models", "vgg5", "--width", "0.02", "--batch-size", "2", "--rounds", "2"]
    assert cli.main([*args, "--threads", "1", "--out", str(tmp_path / "b")]) == 0
    record = json.loads((tmp_path / "b" / "bench.json").read_text())
    cells = {cell["algorithm"]: cell for cell in record["cells"]}
    assert list(cells) == ["torch", *SPECS]
    assert cells["bp"]["ratio"] == cells["bp"]["bound"] == cells["bp"]["memory"] == 1
    assert cells["torch"]["bound"] is None
    assert cells["pc+s+f, alpha=0"]["bound"] == 1
    assert {p.name for p in (tmp_path / "b").iterdir()} == {f"bench.{suffix}" for suffix in SUFFIXES}
    assert "vgg5" in (tmp_path / "b" / "bench.md").read_text()


@pytest.mark.parametrize("measure", [lambda out: steps.bench(steps.Setting(), out), scaling.bench])
def test_a_folder_that_cannot_be_written_is_noticed_before_measuring(tmp_path, measure, monkeypatch):
    monkeypatch.setattr("torch.set_num_threads", lambda n: pytest.fail("something is measured"))
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be written to"):
        measure(tmp_path / "file" / "out")


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
