"""Where an option meets another, or a batch an earlier one: each of these was once silently wrong."""

import copy
import math

import pytest
import torch
from nets import batch, gradients, mlp
from torch import nn

import deeppc
from deeppc import Algorithm, Chain, Gaussian, Graph
from deeppc.core.algorithms.pc import PC
from deeppc.core.energies import Energy


class Huber(Energy):
    def value(self, x, mu):
        return nn.functional.huber_loss(mu, x, reduction="none").flatten(1).sum(1)


@pytest.mark.parametrize(("option", "value"), [("momentum_x", 0.9), ("optimizer_x", "adam")])
def test_noise_has_its_temperature_under_plain_sgd_alone(option, value):
    with pytest.raises(ValueError, match=f"{option}.*with noise"):
        deeppc.infer(mlp(2), {"input": torch.zeros(2, 6)}, noise=0.1, **{option: value})


def test_under_autocast_each_batch_sees_the_weights_of_its_time():
    """Two batches in one autocast context learn what they learn in two."""
    learnt = []
    for contexts in (1, 2):
        torch.manual_seed(1)
        net = mlp(3)
        optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
        images, labels = batch(net, dtype=torch.float32)
        for _ in range(contexts):
            with torch.autocast("cpu", torch.bfloat16):
                for _ in range(2 // contexts):
                    Algorithm.parse("pc").step(net, images, labels, optimizer)
        learnt.append(net.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(*(state.values() for state in learnt), strict=True))


def test_under_autocast_weights_learn_after_an_evaluation_in_the_same_context():
    net = mlp(3)
    images, labels = batch(net, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        with torch.no_grad():
            net(images)
        Algorithm.parse("pc").gradients(net, images, labels)
    assert all(p.grad is not None and bool(p.grad.any()) for p in net.parameters())


def test_under_autocast_weights_learn_after_a_difference_was_taken_without_a_graph():
    """In the last step of iPC every node is predicted anew; deep in the network differences come first."""
    net = mlp(9)
    images, labels = batch(net, dtype=torch.float32)
    before = copy.deepcopy(net)
    with torch.autocast("cpu", torch.bfloat16):
        algo = Algorithm.parse("ipc+s", alpha=0.0, lr_x=0.02, precision_on="node")
        algo.step(net, images, labels, torch.optim.SGD(net.parameters(), lr=1e30))
    pairs = zip(net.parameters(), before.parameters(), strict=True)
    assert all(not torch.equal(new, old) for new, old in pairs)


@pytest.mark.parametrize("spec", ["pc", "ipc"])
def test_a_precision_is_learnt_where_no_weight_is(spec):
    """``dE/dlog pi = (pi |eps|^2 - n) / 2``, of a hidden node whose module has no weights."""
    nodes = {"a": (nn.Linear(3, 2), "input"), "b": (nn.Tanh(), "a"), "y": (nn.Linear(2, 2), "b")}
    energy = Gaussian(1.0, learnt=True)
    net = Graph(nodes, energies={"b": energy}).double()
    images, target = torch.randn(4, 3).double(), torch.randn(4, 2).double()
    errors = []

    def look(t, state):
        if not state.at_rest("b"):
            errors.append(state.error("b").detach() * state.unit("b"))

    optimizer = torch.optim.SGD(energy.parameters(), lr=1.0)
    Algorithm.parse(spec, T=2, lr_x=0.1).step(net, images, target, optimizer, observe=look)
    expected = (errors[-1].square().sum() - errors[-1].numel()) / 2 / len(images)
    assert -energy.log_precision.item() == pytest.approx(float(expected))


def test_under_free_relaxation_a_precision_learns_from_what_the_weights_learn_from():
    """That is how far the clamped state is from the free one, here found by autograd on the energy itself."""
    net = mlp(3).double()
    energy = net.energies["2"] = Gaussian(2.0, learnt=True).double()
    images, labels = batch(net)
    result = Algorithm.parse("pc+f", free_steps=2, T=4, lr_x=0.1).gradients(net, images, labels)

    f1, f2, f3 = net.nodes.values()
    x1 = f1(images).detach()
    x2 = f2(x1).detach()
    y = nn.functional.one_hot(labels, 3).double()

    def steps(number, moving, still=()):
        for _ in range(number):
            x1, x2, y = xs = [x.detach().requires_grad_() for x in (*moving, *still)]
            errors = (x1 - f1(images), 2.0**0.5 * (x2 - f2(x1)), y - f3(x2))
            slopes = torch.autograd.grad(sum(e.square().sum() for e in errors) / 2, xs[: len(moving)])
            moving = [x - 0.1 * slope for x, slope in zip(moving, slopes, strict=True)]
        return moving

    relaxed = steps(4, [x1, x2], [y])
    free = steps(2, [*relaxed, y])
    square = 2.0 * (relaxed[1] - free[1]).square().sum() / len(images)
    assert float(energy.log_precision.grad) == pytest.approx(float(square - 6) / 2)
    assert float(result.energy["2"]) == pytest.approx(float(square) / 2 - 6 * math.log(2.0) / 2)


def test_the_energy_of_a_deep_node_is_that_of_its_error_and_not_of_rounding():
    """float32 against float64, 12 hops from the output, where deviations are 1e-12 of activities."""
    torch.manual_seed(3)
    net = mlp(14).double()
    net.energies["2"] = Gaussian(3.0).double()
    images, labels = batch(net)
    algo = Algorithm.parse("pc", lr_x=0.1)
    exact = float(algo.gradients(net, images, labels).energy["2"])
    ours = float(algo.gradients(net.float(), images.float(), labels).energy["2"])
    assert 0 < exact < 1e-20
    assert ours == pytest.approx(exact, rel=1e-3)


def test_adam_with_momentum_takes_steps_without_a_force():
    net = mlp(4)
    images, labels = batch(net, dtype=torch.float32)
    algo = Algorithm.parse("pc+s", alpha=0.0, optimizer_x="adam", momentum_x=0.5, T=8)
    assert all(torch.isfinite(p) for p in [algo.gradients(net, images, labels).loss])


def test_a_schedule_is_asked_for_arrivals_that_there_are():
    net = mlp(4)
    table = [[1.0] * 6 for _ in range(net.L)]
    images, labels = batch(net, dtype=torch.float32)
    ours = gradients(Algorithm.parse("pc", schedule=lambda t, arrival, T: table[arrival][t], T=6), net, images, labels)
    plain = gradients(Algorithm.parse("pc", T=6), net, images, labels)
    assert all(torch.equal(g, plain[n]) for n, g in ours.items())


def test_in_bfloat16_the_strength_of_nudging_is_not_rounded():
    net = mlp(2).bfloat16()
    images, labels = batch(net, dtype=torch.bfloat16)
    seen = []
    algo = Algorithm.parse("pc+cn", beta=0.3)
    torch.manual_seed(0)
    algo.gradients(net, images, labels, observe=lambda t, state: seen.append(state.d["2"].clone()))
    target = nn.functional.one_hot(labels, 3).float()
    moved = target - net(images).detach().float()
    ratio = float((seen[0] / moved).abs().mean())
    assert ratio == pytest.approx(0.3, rel=1e-6)


@pytest.mark.parametrize(
    ("options", "energies", "words"),
    [
        ({"free_steps": 1, "forward": True}, {"1": Huber()}, "free_steps needs"),
        ({"beta": 0.5}, {"3": Huber()}, "no nudging"),
        ({"strides": 1, "schedule": "spiking"}, {"1": Gaussian(2.0)}, "strides .* need"),
    ],
)
def test_what_is_refused_leaves_no_trace(options, energies, words):
    layers = [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), nn.Linear(4, 4), nn.Linear(4, 2)]
    net = Chain(*layers)
    net.energies.update(energies)
    before = copy.deepcopy(net.state_dict())
    gradient = net.nodes["2"].weight.grad = torch.ones(4, 4)
    images, target = torch.randn(3, 4), torch.rand(3, 2)
    drawn = torch.get_rng_state()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    with pytest.raises(ValueError, match=words):
        PC(**options).step(net, images, target, optimizer)
    assert all(torch.equal(a, before[n]) for n, a in net.state_dict().items())
    assert net.nodes["2"].weight.grad is gradient
    assert torch.equal(torch.get_rng_state(), drawn)
