"""Multiply-adds, by hand."""

import pytest
import torch
from torch import nn

from deeppc import Algorithm, Chain, Graph, Sum
from deeppc.diagnostics.work import multiply_adds, step_cost
from deeppc.models import build


def test_multiply_adds_by_hand():
    net = Chain(
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.MaxPool2d(2)),  # 3*9*4 at 8x8 places
        nn.Sequential(nn.Conv2d(4, 6, 3), nn.Flatten()),  # 4*9*6 at 2x2 places
        nn.Linear(24, 5),
    )
    before = {name: value.clone() for name, value in net.state_dict().items()}
    assert multiply_adds(net, torch.zeros(1, 3, 8, 8)) == {"1": 108 * 64, "2": 216 * 4, "3": 120}
    assert net.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_multiply_adds_of_other_convolutions_by_hand():
    net = Chain(
        nn.Conv1d(2, 4, 3, padding=1),  # 2*3*4 at 8 places
        nn.ConvTranspose1d(4, 6, 2, stride=2, groups=2),  # from 8 places, 4*3*2 from each
        nn.Sequential(nn.Unflatten(2, (4, 2, 2)), nn.Conv3d(6, 1, 2), nn.Flatten()),  # 6*8 at 3x1x1
    )
    assert multiply_adds(net, torch.zeros(1, 2, 8)) == {"1": 24 * 8, "2": 24 * 8, "3": 48 * 3}


class ByName(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose1d(2, 3, 2, stride=2)

    def forward(self, x):
        return self.up(input=x)


def test_multiply_adds_of_what_is_called_by_name_and_of_several_inputs():
    net = Graph({"up": (ByName(), "a"), "y": (Sum(nn.Flatten(), nn.Linear(48, 5)), ["up", "b"])}, inputs=("a", "b"))
    sample = {"a": torch.zeros(1, 2, 8), "b": torch.zeros(1, 3, 16)}
    expected = {"up": 2 * 3 * 2 * 8, "y": 48 * 5}
    assert multiply_adds(net, sample) == multiply_adds(net, tuple(sample.values())) == expected
    for wrong, error in ((torch.zeros(1, 2, 8), ValueError), ({"a": 1, "b": 2}, TypeError)):
        with pytest.raises(error, match="sample"):
            multiply_adds(net, wrong)


def test_a_layer_of_two_nodes_counts_in_each_once():
    shared = nn.Linear(4, 4)
    b = nn.Sequential(shared, shared)
    net = Graph({"a": (shared, "input"), "b": (b, "a"), "y": (nn.Linear(4, 3), ["b"])})
    assert multiply_adds(net, torch.zeros(1, 4)) == {"a": 16, "b": 32, "y": 12}


def test_the_hooks_go_even_after_an_error():
    net = Chain(nn.Linear(4, 3), nn.Linear(2, 3))
    with pytest.raises(RuntimeError):
        multiply_adds(net, torch.zeros(1, 4))
    assert not any(module._forward_hooks for module in net.modules())


def test_the_steps_of_vgg5_by_hand():
    net = build("vgg5", width=0.25).double()  # its numbers resolve all deviations
    inputs, targets = torch.randn(2, 3, 32, 32).double(), torch.tensor([0, 1])
    costs = multiply_adds(net, inputs[:1])
    c1, c2, c3, c4, c5 = costs.values()
    assert (c1, c2, c3, c4, c5) == (27 * 32 * 1024, 288 * 64 * 256, 576 * 128 * 64, 1152 * 128 * 4, 1280)

    def cost(spec, **options):
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
        return step_cost(Algorithm.parse(spec, **options).step(net, inputs, targets, optimizer).work, costs)

    forward = c1 + c2 + c3 + c4 + c5
    assert cost("bp") == 3 * forward - c1  # nothing is pulled back into the images
    assert cost("pc+s+f", alpha=0.0) == cost("ipc+s", alpha=0.0) == cost("bp")
    inference = 3 * c2 + 5 * c3 + 7 * c4 + 9 * c5  # level l: l - 1 new predictions and l pull-backs
    again = c2  # the largest node that stands on another one, made anew for the forward update
    assert cost("pc+s+f", alpha=0.1) == 2 * forward + inference + again
    assert cost("pc") == 3 * forward - c1 + inference
