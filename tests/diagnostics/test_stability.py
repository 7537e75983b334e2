"""The rate that inference bears: on either side of it the naive engine's activities settle, or run away."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from naive import Naive
from nets import batch, dags, mlp
from torch import nn

from deeppc import Algorithm
from deeppc.core.algorithms.pc import PC
from deeppc.core.energies import Gaussian
from deeppc.diagnostics.stability import stability

STEPS, PROBES = 300, 40
DESCENTS = {
    "plain": PC(lr_x=1.0),
    "momentum": PC(lr_x=1.0, momentum_x=0.5, nesterov=False),
    "much": PC(lr_x=1.0, momentum_x=0.9, nesterov=False),
    "nesterov": PC(lr_x=1.0, momentum_x=0.5),
    "much nesterov": PC(lr_x=1.0, momentum_x=0.9),
    "spiking": PC(lr_x=1.0, schedule="spiking", alpha=0.2),
    "softmax": PC(lr_x=1.0, loss="cross_entropy"),
}


def at(part, algo, net, images):
    """The algorithm at a part of the rate that it bears."""
    found = stability(algo, net, images, PROBES)
    return replace(algo, lr_x=part * found.limit / found.curvature, T=STEPS)


def growth(algo, net, images):
    """How much farther the naive engine's activities move in a step at the end than when energy comes.

    The label is so near the answer that every layer is its slope.
    """
    with torch.no_grad():
        out = net(images)
        noise = 1e-9 * torch.randn(out.shape, generator=torch.Generator().manual_seed(0)).double()
        target = (out.softmax(1) if algo.loss == "cross_entropy" else out) + noise
    states = Naive(algo, net, images, target).run().activities
    hidden = [v for v in net.nodes if v != net.output]

    def step(t):
        return math.sqrt(sum(float((states[t + 1][v] - states[t][v]).square().sum()) for v in hidden))

    return step(STEPS - 1) / max(step(t) for t in range(net.L))


@pytest.mark.parametrize("algo", DESCENTS.values(), ids=DESCENTS)
def test_activities_settle_below_the_limit_and_run_away_above_it(algo):
    torch.manual_seed(0)
    net = mlp(4).double()
    images, _ = batch(net)
    below, above = (at(part, algo, net, images) for part in (0.95, 1.05))
    assert stability(below, net, images, PROBES).settles
    assert not stability(above, net, images, PROBES).settles
    assert growth(below, net, images) < 0.5 < 2 < growth(above, net, images)


@settings(max_examples=15, deadline=None)
@given(dags())
def test_on_any_graph(net):
    assume(len(net.nodes) > 1)  # else nothing moves
    images, _ = batch(net, shape=(4,))
    below, above = (at(part, PC(lr_x=1.0), net, images) for part in (0.95, 1.05))
    assert growth(below, net, images) < 0.5 < 2 < growth(above, net, images)


def test_few_probes_estimate_the_curvature_from_above():
    torch.manual_seed(0)
    net = mlp(6).double()
    images, _ = batch(net)
    exact = stability(PC(), net, images, 60).curvature
    assert exact * 0.999 < stability(PC(), net, images).curvature < 1.5 * exact


def test_nothing_is_changed():
    torch.manual_seed(0)
    net = mlp(3)
    net.nodes["1"] = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.3))
    images, _ = batch(net, dtype=torch.float32)
    before, random = {n: x.clone() for n, x in net.state_dict().items()}, torch.get_rng_state()
    stability(PC(), net, images)
    assert all(torch.equal(x, before[n]) for n, x in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(p.grad is None for p in net.parameters())


def test_without_precision_after_the_spike_anything_settles():
    net = mlp(3)
    found = stability(Algorithm.parse("pc+s+f", alpha=0.0), net, batch(net, dtype=torch.float32)[0])
    assert found.settles
    assert found.limit == math.inf


@pytest.mark.parametrize("algo", [Algorithm.parse("bp"), Algorithm.parse("epc"), PC(optimizer_x="adam")], ids=str)
def test_what_does_not_descend_at_one_rate_is_refused(algo):
    net = mlp(3)
    with pytest.raises(ValueError, match="has no rate at which activities descend"):
        stability(algo, net, batch(net, dtype=torch.float32)[0])


def test_precision_that_changes_at_every_step_is_refused():
    net = mlp(3)
    with pytest.raises(ValueError, match="otherwise at every step"):
        stability(Algorithm.parse("pc+d"), net, batch(net, dtype=torch.float32)[0])


def test_energies_of_more_than_the_error_are_refused():
    net = mlp(3)

    class Quartic(Gaussian):
        canonical = False

    net.energies["1"] = Quartic()
    with pytest.raises(ValueError, match="depend on x - mu alone"):
        stability(PC(), net, batch(net, dtype=torch.float32)[0])
