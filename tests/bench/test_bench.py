"""The benchmark counts right; what it times is not tested, for machines are noisy."""

import json
import math

import pytest
import torch
from torch import nn

from deeppc import Algorithm, Chain
from deeppc.bench import scaling
from deeppc.bench import steps as bench
from deeppc.cli import main as cli
from deeppc.models import build


def test_multiply_adds_by_hand():
    net = Chain(
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.GELU(), nn.MaxPool2d(2)),  # 3*9*4 at 8x8 places
        nn.Sequential(nn.Conv2d(4, 6, 3), nn.Flatten()),  # 4*9*6 at 2x2 places
        nn.Linear(24, 5),
    )
    assert bench.multiply_adds(net, torch.zeros(1, 3, 8, 8)) == {"1": 108 * 64, "2": 216 * 4, "3": 120}


def test_the_bound_of_vgg5_by_hand():
    """Multiply-adds of one image in millions at width 1: 3.539, 75.497, 75.497, 9.437, 0.005."""
    net = build("vgg5")
    images, labels = torch.randn(2, 3, 32, 32), torch.tensor([0, 1])
    costs = bench.multiply_adds(net, images[:1])
    c1, c2, c3, c4, c5 = costs.values()
    assert (c1, c2, c3, c4, c5) == (27 * 128 * 1024, 1152 * 256 * 256, 2304 * 512 * 64, 4608 * 512 * 4, 5120)

    def cost(spec, **options):
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
        work = Algorithm.parse(spec, lr_x=0.1, **options).step(net, images, labels, optimizer).work
        return bench.cost(work, costs)

    forward = c1 + c2 + c3 + c4 + c5
    assert cost("bp") == 3 * forward - c1  # nothing is pulled back into the images
    assert cost("pc+s+f", alpha=0.0) == cost("ipc+s", alpha=0.0) == cost("bp")
    inference = 3 * c2 + 5 * c3 + 7 * c4 + 9 * c5  # level l: l - 1 new predictions and l pull-backs
    again = c2  # the largest node that stands on another one, made anew for the forward update
    assert cost("pc+s+f", alpha=0.1) == 2 * forward + inference + again
    assert cost("pc") == 3 * forward - c1 + inference


def test_peak_memory_sees_what_is_held_at_once():
    def step():
        a = torch.ones(1000, 1000)
        b = a + 1
        del a
        return b * 2

    assert bench.profiled(step).peak == pytest.approx(8e6, rel=0.01)


def test_the_share_of_convolutions():
    image, weight = torch.randn(1, 8, 16, 16), torch.randn(8, 8, 3, 3)
    assert bench.profiled(lambda: image + 1).convolutions == 0
    assert 0 < bench.profiled(lambda: torch.conv2d(image, weight).exp()).convolutions < 1


def test_exponents_of_exact_powers():
    xs = [1, 2, 4, 10]
    assert scaling.exponent(xs, [3 * x**2 for x in xs]) == pytest.approx(2)
    assert scaling.exponent(xs, [7] * 4) == pytest.approx(0)
    assert math.isnan(scaling.exponent([2, 2], [1, 3]))
    points = [scaling.Point("T", x, "pc", 5 * x**1.5, 2.0 * x) for x in xs]
    assert scaling.exponents(points)["T", "pc"] == (pytest.approx(1.5), pytest.approx(1))
    assert "| T | pc | 1 - 10 |" in scaling.as_markdown(points)


def test_scaling_from_the_command_line(tmp_path, monkeypatch):
    cases = [scaling.Case("images", size, 0, batch_size=size, width=0.02) for size in (1, 2)]
    monkeypatch.setattr(scaling, "CASES", cases)
    args = ["bench", "--scaling", "--rounds", "1", "--threads", "1", "--out", str(tmp_path / "b")]
    assert cli.main(args) == 0
    points = json.loads((tmp_path / "b" / "scaling.json").read_text())["points"]
    assert [(p["x"], p["algorithm"]) for p in points] == [(x, a) for x in (1, 2) for a in scaling.ALGORITHMS]
    assert all(p["milliseconds"] > 0 and p["megabytes"] > 0 for p in points)
    assert {"scaling.md", "scaling.svg", "scaling.png"} < {p.name for p in (tmp_path / "b").iterdir()}


def test_a_run_from_the_command_line(tmp_path, capsys):
    args = ["bench", "--models", "vgg5", "--width", "0.02", "--batch-size", "2", "--rounds", "2"]
    assert cli.main([*args, "--threads", "1", "--out", str(tmp_path / "b")]) == 0
    record = json.loads((tmp_path / "b" / "bench.json").read_text())
    cells = {cell["algorithm"]: cell for cell in record["cells"]}
    assert list(cells) == ["torch", *bench.SPECS]
    assert cells["bp"]["ratio"] == cells["bp"]["bound"] == cells["bp"]["memory"] == 1
    assert cells["torch"]["bound"] is None
    assert cells["pc+s+f, alpha=0"]["bound"] == 1
    assert {"bench.json", "bench.md", "bench.svg", "bench.png"} == {p.name for p in (tmp_path / "b").iterdir()}
    assert "vgg5" in (tmp_path / "b" / "bench.md").read_text()


def test_an_unknown_network_is_refused_in_words(capsys):
    assert cli.main(["bench", "--models", "vgg6"]) == 2
    assert "unknown model 'vgg6'" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--rounds", "--threads", "--batch-size"])
def test_nothing_is_measured_in_no_rounds(flag, capsys):
    assert cli.main(["bench", flag, "0"]) == 2
    assert f"{flag} is 0, but must be at least 1" in capsys.readouterr().err
