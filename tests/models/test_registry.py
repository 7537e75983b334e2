"""Networks of one's own by name: registered, or a function in a file; what is wrong with it is said in words."""

import sys

import pytest
import torch
from torch import nn

from deeppc import Chain, Graph
from deeppc.models import build, model, names, registry

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
    return deeppc.Chain(nn.Flatten(), nn.Linear(12, 3))

def all(**settings):
    net = fixed()
    net.seen = settings
    return net

def styled(style):
    return deeppc.Chain(nn.Linear(3, style.channels(style.classes)))

def sequence(classes):
    return nn.Sequential(nn.Linear(4, classes))

def broken(classes):
    weight = torch.ones(2, 3) @ torch.ones(2, 3)

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


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mine.py:absent", r"mine\.py has no function 'absent'"),
        ("mine.py:NUMBER", r"mine\.py has no function 'NUMBER'"),
        ("mine.py:sequence", r"mine\.py:sequence returned a Sequential, but a deeppc\.Graph is needed.*Chain"),
        ("mine.py:broken", r"mine\.py:broken raised RuntimeError: .* \(line 27\)"),
        ("nowhere.py:net", r"there is no file .*nowhere\.py"),
        ("bad.py:net", r"bad\.py:net raised SyntaxError: .*line 2"),
        ("raises.py:net", r"raises\.py:net raised ZeroDivisionError: division by zero \(line 2\)"),
    ],
)
def test_a_file_that_builds_no_network(file, spec, message):
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
