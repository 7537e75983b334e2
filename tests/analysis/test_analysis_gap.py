"""The gap ratio, by hand and against the naive engine."""

import math

import numpy as np
import pytest
import torch
from naive import Naive
from nets import batch, mlp, one_hot, residual, vgg
from torch import nn

from deeppc import Algorithm, Chain
from deeppc.diagnostics.gap import gap_ratios

NETS = {"chain": lambda: mlp(4), "skips": lambda: residual(1, aux=False), "images": vgg}


def naive_gaps(algo, net, images, labels):
    """From the activities and errors of the naive engine, in numpy."""
    naive = Naive(algo, net, images, one_hot(net, images, labels))
    x_0 = {v: x.numpy() for v, x in naive.feed_forward().items()}
    outcome = naive.run()
    found = {}
    for v, x in outcome.activities[-1].items():
        drift = x.numpy() - x_0[v]
        forward = algo.forward and naive.a[v] < (algo.forward_last or math.inf)
        error = drift if forward else outcome.errors[-1][v].numpy()
        found[v] = np.sqrt((drift**2).mean()) / ((error**2).sum() / 2 / len(images))
    return {v: found[v] for v, module in net.nodes.items() if list(module.parameters())}


@pytest.mark.parametrize("make", NETS)
@pytest.mark.parametrize(
    ("name", "options"), [("pc", {}), ("pc+s", {}), ("pc+f", {}), ("pc+s+f", {}), ("pc+f", {"forward_last": 2})]
)
def test_it_is_what_the_naive_engine_gives(make, name, options):
    torch.manual_seed(0)
    net = NETS[make]().double()
    images, labels = batch(net)
    algo = Algorithm.parse(name, lr_x=0.3, **options)
    found = gap_ratios(algo, net, images, labels)
    expected = naive_gaps(algo, net, images, labels)
    assert list(found) == list(expected)
    np.testing.assert_allclose(list(found.values()), list(expected.values()), rtol=1e-6)  # the naive one rounds x


def test_by_hand():
    """Output (1, 2), target (1, 0): the output moves by (0, -2); mean square 2, energy 2."""
    net = Chain(nn.Linear(2, 2, bias=False))
    net.nodes["1"].weight.data = torch.eye(2)
    found = gap_ratios(Algorithm.parse("pc"), net, torch.tensor([[1.0, 2.0]]), torch.tensor([0]))
    assert found == {"1": pytest.approx(math.sqrt(2) / 2)}


def test_without_the_forward_update_the_last_layer_has_the_larger_gap():
    """The paper's finding: relaxing moves the output's prediction after its target, so less energy is left.

    Two scalar nodes, the second with weight 3: at the minimum of the energy the output keeps 1 / (1 + 3^2) of its
    error, so the gap ratio is 100 times that of the forward update, which learns from the whole of it.
    """
    net = Chain(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)).double()
    net.nodes["2"].weight.data.fill_(3.0)
    images, target = torch.ones(1, 1, dtype=torch.float64), torch.full((1, 1), 5.0, dtype=torch.float64)
    standard, forward = (
        gap_ratios(Algorithm.parse(name, T=300, lr_x=0.05), net, images, target)["2"] for name in ("pc", "pc+f")
    )
    assert standard == pytest.approx(100 * forward)


def test_a_node_that_the_wave_has_not_reached_has_none():
    net = mlp(4)
    found = gap_ratios(Algorithm.parse("pc", T=1), net, *batch(net, dtype=torch.float32))
    assert [math.isnan(found[v]) for v in "1234"] == [True, True, False, False]


@pytest.mark.parametrize(("name", "why"), [("bp", "bp has no inference"), ("ipc+s", "learns at every inference step")])
def test_others_than_pc_have_none_and_are_told_so(name, why):
    net = mlp(2)
    with pytest.raises(ValueError, match=f"{why}.*choose a pc algorithm"):
        gap_ratios(Algorithm.parse(name), net, *batch(net, dtype=torch.float32))
