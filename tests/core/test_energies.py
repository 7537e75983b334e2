"""Energies: what a batch reports of them, and the arithmetic of small numbers."""

import pytest
import torch
from naive import Naive
from nets import batch, mlp, one_hot, parse, residual
from torch import nn

from deeppc import Algorithm, Gaussian, Graph
from deeppc.core.energies import half_square


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(7,), (5, 3), (4, 6, 5, 3), (3, 0)])
def test_half_the_square_is_added_up_in_more_than_the_errors_own_bits(shape, dtype):
    torch.manual_seed(0)
    eps = torch.randn(shape).to(dtype)
    assert float(half_square(eps)) == pytest.approx(float(eps.double().square().sum() / 2), rel=1e-6)


def test_an_energy_that_is_not_a_number_stays_so():
    eps = torch.tensor([[1.0], [float("nan")]])
    assert half_square(eps).isnan()
    assert half_square(torch.tensor([[float("inf")]])).isinf()


def test_energy_is_half_the_squared_error_that_a_node_learns_from():
    net = mlp(3).double()
    x, y = batch(net)
    target = one_hot(net, x, y)
    expected = float((net(x).detach() - target).square().sum() / 2 / len(x))
    for spec in ("bp", "pc+s+f", "pc+f"):
        assert float(Algorithm.parse(spec).gradients(net, x, y).energy["3"]) == pytest.approx(expected)
    nudged = Algorithm.parse("pc+f", beta=0.5).gradients(net, x, y).energy["3"]
    assert float(nudged) == pytest.approx(expected / 4)
    for spec in ("bp", "pc+f"):
        cross = Algorithm.parse(spec, loss="cross_entropy").gradients(net, x, y).energy["3"]
        assert float(cross) == pytest.approx(float(nn.functional.cross_entropy(net(x).detach(), y)))
    algo = Algorithm.parse("pc", lr_x=0.3, T=5)
    errors = Naive(algo, net, x, target).run().errors[5]
    energy = algo.gradients(net, x, y).energy
    for v in net.nodes:
        assert float(energy[v]) == pytest.approx(float(errors[v].square().sum() / 2 / len(x)), rel=1e-9)


def test_backprop_s_energy_is_half_its_squared_backward_error():
    net = mlp(4).double()
    x, y = batch(net)
    values = [x]
    for module in net.nodes.values():
        values.append(module(values[-1]))
        values[-1].retain_grad()
    ((values[-1] - one_hot(net, x, y)).square().sum() / 2).backward()
    energy = Algorithm.parse("bp").gradients(net, x, y).energy
    for v, value in zip(net.nodes, values[1:], strict=True):
        assert float(energy[v]) == pytest.approx(float(value.grad.square().sum() / 2 / len(x)))


def test_nodes_without_weights_have_energy_too_and_those_that_none_reached_have_zero():
    torch.manual_seed(0)
    net = residual(1, aux=True)
    x, y = batch(net, dtype=torch.float32)
    for spec in ("bp", "pc", "pc+s+f", "ipc", "ipc+s"):
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
        energy = parse(spec, lr_x=0.5).step(net, x, y, optimizer).energy
        assert all(float(energy[v]) > 0 for v in net.nodes), spec
    energy = Algorithm.parse("pc+f", T=1).gradients(net, x, y).energy
    assert float(energy["stem"]) == float(energy["m0"]) == 0 < float(energy["n0"]) < float(energy["head"])


def test_a_learnt_precision_has_the_gradient_of_its_mean_energy():
    """By autograd of the same energy, mean over the batch; backprop, whose output is not moved by inference."""
    torch.manual_seed(0)
    net = Graph(
        {"y": (nn.Linear(4, 3), "input")}, energies={"y": Gaussian(torch.full((3,), 2.0), learnt=True)}
    ).double()
    images, target = torch.randn(5, 4).double(), torch.randn(5, 3).double()
    Algorithm.parse("bp").gradients(net, images, target)
    (own,) = net.energies["y"].parameters()
    (expected,) = torch.autograd.grad(net.energies["y"].value(target, net(images)).mean(), [own])
    torch.testing.assert_close(own.grad, expected)
