"""The cosine with backprop: where theory says that it is 1, and elsewhere against the naive engine and numpy."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from naive import Naive
from nets import algorithms, backprop, batch, dags, mlp, one_hot, residual, vgg
from torch import nn

from deeppc import Algorithm, Chain
from deeppc.diagnostics.alignment import alignment, relative_sizes

NETS = {"chain": lambda: mlp(5), "residual": lambda: residual(2, aux=True), "images": vgg}


def with_dropout():
    return Chain(*(nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Dropout(0.4)) for _ in range(3)), nn.Linear(6, 3))


@pytest.mark.parametrize("make", [*NETS.values(), with_dropout], ids=[*NETS, "dropout"])
@pytest.mark.parametrize("loss", ["squared_error", "cross_entropy"])
def test_spiking_precision_and_forward_update_with_alpha_0_are_parallel_to_backprop(make, loss):
    torch.manual_seed(0)
    net = make().double()
    images, labels = batch(net)
    algo = Algorithm.parse("pc+s+f", alpha=0.0, lr_x=0.3, loss=loss)
    found = alignment(algo, net, images, labels)
    assert list(found) == [v for v, module in net.nodes.items() if list(module.parameters())]
    assert list(found.values()) == pytest.approx([1.0] * len(found), abs=1e-12)
    sizes = relative_sizes(algo, net, images, labels)
    expected = {v: 0.3 ** net.arrival[v] * (0.7 if v != net.output else 1.0) for v in found}
    assert sizes == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("make", NETS.values(), ids=NETS)
def test_the_steps_of_ipc_add_up_to_backprop(make):
    torch.manual_seed(0)
    net = make().double()
    images, labels = batch(net)
    algo = Algorithm.parse("ipc+s", alpha=0.0, lr_x=1.0)
    cosines, sizes = (f(algo, net, images, labels) for f in (alignment, relative_sizes))
    assert list(cosines.values()) == pytest.approx([1.0] * len(cosines), abs=1e-12)
    assert list(sizes.values()) == pytest.approx([1.0] * len(sizes), abs=1e-12)


def test_backprop_is_parallel_to_itself():
    net = with_dropout()
    found = alignment(Algorithm.parse("bp"), net, *batch(net, dtype=torch.float32))
    assert found == pytest.approx(dict.fromkeys(net.nodes, 1.0))


@settings(max_examples=25, deadline=None)
@given(net=dags(), algo=algorithms(families=("pc",)))
def test_it_is_what_numpy_makes_of_the_naive_engine_and_of_backward(net, algo):
    images, labels = batch(net, shape=(4,))
    if not any(p.requires_grad for p in net.parameters()):
        return
    target = one_hot(net, images, labels)
    naive = Naive(algo, net, images, target).run().gradients
    bp = backprop(net, images, target, algo.loss)
    net.zero_grad()
    for v, cosine in alignment(algo, net, images, labels).items():
        names = [f"nodes.{v}.{name}" for name, _ in net.nodes[v].named_parameters()]
        a, b = (
            np.concatenate([np.zeros(0) if g[n] is None else g[n].numpy().ravel() for n in names]) for g in (naive, bp)
        )
        if len(a) != len(b) or min(np.linalg.norm(a), np.linalg.norm(b)) < 1e-9:
            continue  # not reached, or rounding noise of the naive engine's activities
        assert cosine == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-5)


def test_a_node_that_the_wave_has_not_reached_has_no_direction():
    net = mlp(4)
    images, labels = batch(net, dtype=torch.float32)
    algo = Algorithm.parse("pc", T=1)
    cosines, sizes = (f(algo, net, images, labels) for f in (alignment, relative_sizes))
    assert [math.isnan(cosines[v]) for v in "1234"] == [True, True, False, False]
    assert [sizes[v] for v in "12"] == [0.0, 0.0]


def test_updates_too_small_for_float32_to_square_have_a_direction():
    torch.manual_seed(0)
    net = mlp(10)
    images, labels = batch(net, dtype=torch.float32)
    algo = Algorithm.parse("pc+s+f", alpha=0.0, lr_x=1e-3)
    assert alignment(algo, net, images, labels)["1"] == pytest.approx(1.0, abs=1e-5)
    assert relative_sizes(algo, net, images, labels)["1"] == pytest.approx(1e-27 * 0.999, rel=1e-3)
