"""Networks of one's own by name: registered, or a function in a file; what is wrong with it is said in words."""

import sys

import pytest
import torch
from torch import nn

from deeppc import Chain, Graph
from deeppc.models import Style, build, model, names, registry, takes, vgg

GOOD = """
import torch
from torch import nn
import deeppc
from neighbour import act

def net(classes, in_shape, width=1.0):
    size = round(8 * width)
    hidden = nn.Sequential(nn.Flatten(), nn.Linear(in_shape[0] * in_shape[1], size), act())
    return deeppc.Chain(hidden, nn.Linear(size, classes))

def fixed():
    return deeppc.Chain(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)))

def all(**settings):
    net = fixed()
    net.seen = settings
    return net

def styled(style):
    return deeppc.Chain(nn.Linear(3, style.channels(style.classes)))

def sequence(classes):
    return nn.Sequential(nn.Linear(4, classes))

class Skips(nn.Module):
    def __init__(self, classes, in_shape):
        super().__init__()
        self.conv, self.body = nn.Conv2d(in_shape[0], 4, 3), nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, classes)

    def forward(self, x):
        x = self.conv(x)
        return self.head((x + self.body(x.relu())).mean((2, 3)))

class Branches(Skips):
    def forward(self, x):
        if x.sum() > 0:
            x = -x
        return super().forward(x)

def broken(classes):
    weight = torch.ones(2, 3) @ torch.ones(2, 3)

def nothing():
    pass

NUMBER = 5
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "neighbour.py").write_text("from torch.nn import ReLU as act\n")
    (tmp_path / "mine.py").write_text(GOOD)
    return tmp_path / "mine.py"


def test_a_function_in_a_file_gets_the_settings_it_accepts(file):
    path = list(sys.path)
    net = build(f"{file}:net", classes=5, in_shape=(3, 4), width=0.5)
    assert isinstance(net, Graph)
    assert net(torch.zeros(2, 3, 4)).shape == (2, 5)
    assert net.nodes["1"][1].out_features == 4
    assert sys.path == path
    assert build(f"{file}:fixed", activation="one of its own")(torch.zeros(2, 3, 4)).shape == (2, 3)


def test_a_function_that_takes_all_settings_gets_them(file):
    seen = build(f"{file}:all", classes=7, norm="bf", aux=False).seen
    assert (seen["classes"], seen["in_shape"], seen["norm"], seen["aux"]) == (7, (3, 32, 32), "bf", False)
    assert seen.keys() == {"classes", "in_shape", "width", "activation", "norm", "aux", "affine"}
    assert build(f"{file}:styled", width=0.5).nodes["1"].out_features == 5


def test_a_file_may_return_any_torch_module(file):
    torch.manual_seed(0)
    net = build(f"{file}:Skips", classes=5, in_shape=(1, 9, 9))
    plain = build(f"{file}:Skips", classes=5, in_shape=(1, 9, 9), aux=False)
    assert isinstance(net, Graph)
    assert len(net.nodes) == len(plain.nodes) + 1, "balanced, unless aux is off"
    images = torch.randn(3, 1, 9, 9)
    assert torch.equal(net(images), net.original(images))
    torch.manual_seed(0)
    first = net.state_dict()["conv.weight"]
    assert torch.equal(first, build(f"{file}:Skips", classes=5, in_shape=(1, 9, 9)).state_dict()["conv.weight"])
    with pytest.raises(ValueError, match=r"aux=False means nothing to .*fixed: it has no argument aux"):
        build(f"{file}:fixed", aux=False)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mine.py:absent", r"mine\.py has no function 'absent'"),
        ("mine.py:", r"mine\.py has no function ''"),
        ("mine.py", r"mine\.py is a file: name the function that builds the network, too, as in .*mine\.py:function"),
        ("leaves.py:net", r"leaves\.py:net raised SystemExit: 0 \(line 1\)"),
        ("mine.py:NUMBER", r"mine\.py has no function 'NUMBER'"),
        (
            "mine.py:nothing",
            r"mine\.py:nothing returned a NoneType, but a torch\.nn\.Module or deeppc\.Graph is needed",
        ),
        (
            "mine.py:sequence",
            r"mine\.py:sequence, for samples of 3x32x32: Sequential cannot be called with the example",
        ),
        ("mine.py:Branches", r"Branches: line \d+ of .*mine\.py, `if x\.sum\(\) > 0:`, cannot be traced"),
        ("mine.py:broken", r"mine\.py:broken raised RuntimeError: .* \(line 43\)"),
        ("nowhere.py:net", r"there is no file .*nowhere\.py"),
        ("bad.py:net", r"bad\.py:net raised SyntaxError: .*line 2"),
        ("raises.py:net", r"raises\.py:net raised ZeroDivisionError: division by zero \(line 2\)"),
    ],
)
def test_a_file_that_builds_no_network(file, spec, message):
    (file.parent / "leaves.py").write_text("raise SystemExit(0)\n")
    (file.parent / "bad.py").write_text("import torch\ndef net(:\n")
    (file.parent / "raises.py").write_text("\n1 / 0\n")
    with pytest.raises(ValueError, match=message):
        build(f"{file.parent}/{spec}")


def test_a_registered_name(monkeypatch):
    monkeypatch.setattr(registry, "_BUILDERS", dict(registry._BUILDERS))

    @model("tiny")
    def tiny(classes: int, in_shape: tuple[int, ...]) -> Graph:
        return Chain(nn.Linear(in_shape[0], classes))

    assert names()[-1] == "tiny"
    assert build("tiny", classes=3, in_shape=(4,), width=0.5)(torch.zeros(1, 4)).shape == (1, 3)
    with pytest.raises(ValueError, match="did you mean 'tiny'"):
        build("tinny")


def test_which_settings_a_network_takes(file):
    every = {"classes", "in_shape", "width", "activation", "norm", "aux", "affine"}
    assert takes("resnet10") == takes(f"{file}:all") == every
    assert takes("mlp") == takes("vgg5") == every - {"aux"}
    assert takes(f"{file}:styled") == every
    assert takes(f"{file}:net") == {"classes", "in_shape", "width", "aux"}
    assert takes(f"{file}:fixed") == {"aux"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 1e6}, r"vgg5 at width 1e\+06 has weights of .* GB, but this machine has"),
        ({"width": 1e30}, r"width is 1e\+30: layers of more than"),
        ({"classes": 10**9}, "vgg5 at width 1 has weights of"),
        ({"classes": 10**30}, "classes is 1000000000000000000000000000000, but"),
        ({"in_shape": (3, 10**9, 10**9)}, "in_shape is"),
    ],
)
def test_a_network_larger_than_the_machine_is_refused_at_once(settings, message):
    with pytest.raises(ValueError, match=message):
        build("vgg5", **settings)


def test_the_look_at_its_size_draws_no_random_numbers():
    torch.manual_seed(0)
    first = vgg.vgg(vgg.PLANS["vgg5"], Style(width=0.1)).state_dict()
    torch.manual_seed(0)
    for name, weight in build("vgg5", width=0.1).state_dict().items():
        assert torch.equal(weight, first[name])


def test_a_name_that_no_file_could_have_is_an_unknown_one():
    with pytest.raises(ValueError, match="aaa': choose mlp, vgg5"):
        build("a" * 3000)
    with pytest.raises(ValueError, match="there is no file aaa"):
        build(f"{'a' * 3000}.py:net")
