"""The rate that inference bears: on either side of it the naive engine's activities settle, or run away."""

import functools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from naive import Naive
from nets import batch, dags, mlp
from torch import nn

from deeppc import Algorithm, Graph, Sum, fit
from deeppc.core.algorithms.pc import PC
from deeppc.core.energies import Gaussian
from deeppc.diagnostics.stability import stability
from deeppc.diagnostics.updates import diagnose
from deeppc.errors import DivergedError

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


@pytest.mark.parametrize("seed", range(6))
def test_few_probes_tell_the_curvature_to_some_percent(seed):
    torch.manual_seed(seed)
    net = mlp(6).double()
    images, _ = batch(net)
    exact = stability(PC(), net, images, 60).curvature
    assert 0.9 * exact < stability(PC(), net, images).curvature < 1.5 * exact


class Constant(nn.Module):
    """A learnt constant without samples of its own."""

    def __init__(self, *shape):
        super().__init__()
        self.b = nn.Parameter(torch.randn(shape))

    def forward(self, x):
        return self.b * 1.0


@pytest.mark.parametrize("shape", [(6,), (1, 6), (5, 6)])
def test_constants_count_once(shape):
    """Of y = W (h + c), c the same for all 5 samples: the Hessian by autograd, whose output is held."""
    torch.manual_seed(0)
    hidden, constant, out = nn.Linear(4, 6), Constant(*shape), Sum(nn.Linear(6, 3))
    net = Graph({"h": (hidden, "input"), "c": (constant, "input"), "out": (out, ["h", "c"])}).double()
    images = torch.randn(5, 4).double()
    with torch.no_grad():
        start = [hidden(images), constant(images)]
        y = out(*start)

    def energy(h, c):
        return sum((a - b).square().sum() / 2 for a, b in ((h, start[0]), (c, start[1]), (y, out(h, c))))

    blocks = torch.autograd.functional.hessian(energy, tuple(start))
    n, m = (x.numel() for x in start)
    rows = [torch.cat([block.reshape(k, -1) for block in line], 1) for k, line in zip((n, m), blocks, strict=True)]
    largest = float(torch.linalg.eigvalsh(torch.cat(rows))[-1])
    assert stability(PC(), net, images, PROBES).curvature == pytest.approx(largest, rel=1e-3)


@pytest.mark.parametrize("weight", [math.nan, math.inf, 1e30])
def test_of_a_network_that_is_not_finite_there_is_no_number(weight):
    net = mlp(3)
    with torch.no_grad():
        net.nodes["2"][0].weight[0, 0] = weight
        net.nodes["2"][1] = nn.ReLU()
    inputs, targets = batch(net, dtype=torch.float32)
    found = stability(PC(), net, inputs)
    assert math.isnan(found.curvature) or weight == 1e30
    assert not found.settles
    assert diagnose(PC(), net, inputs, targets)["stability"]["curvature"] in ("nan", found.curvature)


def test_a_training_that_diverges_says_so_with_diagnostics_too():
    torch.manual_seed(0)
    net = mlp(3, act=nn.ReLU)
    inputs, targets = batch(net, n=20, dtype=torch.float32)
    huge = functools.partial(torch.optim.SGD, lr=1e12)
    given = {"epochs": 3, "batch_size": 16, "validation": 0.2, "diagnostics": True, "show": False}
    with pytest.raises(DivergedError):
        fit(net, (inputs, targets), PC(), optimizer=huge, **given)


def test_without_hidden_nodes_nothing_moves():
    net = mlp(1)
    found = stability(PC(lr_x=3.0), net, batch(net, dtype=torch.float32)[0])
    assert (found.curvature, found.settles) == (0.0, True)


def test_momentum_1_swings_for_ever():
    net = mlp(3)
    images, _ = batch(net, dtype=torch.float32)
    assert stability(PC(momentum_x=1.0, nesterov=False), net, images).limit == 0
    assert stability(PC(lr_x=1.0, momentum_x=1.0), net, images).limit == pytest.approx(4 / 3)


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
    with pytest.raises(ValueError, match="changes precision from step to step"):
        stability(Algorithm.parse("pc+d"), net, batch(net, dtype=torch.float32)[0])


@pytest.mark.parametrize(("name", "value"), [("free_steps", 3), ("strides", 1), ("tolerance", 0.1)])
def test_what_is_more_than_single_steps_to_a_clamped_output_is_refused(name, value):
    net = mlp(3)
    with pytest.raises(ValueError, match=f"leave {name} out"):
        stability(Algorithm.parse("pc+s+f", **{name: value}), net, batch(net, dtype=torch.float32)[0])


@pytest.mark.parametrize("probes", [0, -1])
def test_no_probes_are_refused(probes):
    net = mlp(3)
    with pytest.raises(ValueError, match=f"probes is {probes}"):
        stability(PC(), net, batch(net, dtype=torch.float32)[0], probes)


def test_energies_of_more_than_the_error_are_refused():
    net = mlp(3)

    class Quartic(Gaussian):
        canonical = False

    net.energies["1"] = Quartic()
    with pytest.raises(ValueError, match="depend on x - mu alone"):
        stability(PC(), net, batch(net, dtype=torch.float32)[0])
