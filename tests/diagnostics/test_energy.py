"""The energy of a batch by node and step, against the naive engine; and shares, by hand."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from naive import Naive
from nets import algorithms, batch, dags, mlp, one_hot, residual, vgg

from deeppc import Algorithm
from deeppc.diagnostics import EnergyTrace, shares


def naive_energy(algo, net, images, labels, make_optimizer=None):
    errors = Naive(algo, net, images, one_hot(net, images, labels)).run(make_optimizer).errors
    return np.array([[float(e.square().sum()) / 2 / len(images) for e in step.values()] for step in errors]).T


def traced(algo, net, images, labels):
    trace = EnergyTrace()
    algo.gradients(net, images, labels, observe=trace)
    return trace


NETS = {"chain": lambda: mlp(4), "skips": lambda: residual(1, aux=False), "images": vgg}


@pytest.mark.parametrize(("make", "loss"), [*((make, "squared_error") for make in NETS), ("chain", "cross_entropy")])
def test_a_trace_is_what_the_naive_engine_computes(make, loss):
    torch.manual_seed(0)
    net = NETS[make]().double()
    images, labels = batch(net)
    algo = Algorithm.parse("pc+s", lr_x=0.3, alpha=0.2, loss=loss)
    trace = traced(algo, net, images, labels)
    assert trace.nodes == tuple(net.nodes)
    expected = naive_energy(algo, net, images, labels)
    np.testing.assert_allclose(trace.energy, expected, rtol=1e-7, atol=1e-25)  # the naive one rounds x


def test_the_weights_that_ipc_moves_are_seen():
    net = mlp(3).double()
    images, labels = batch(net)
    algo = Algorithm.parse("ipc+s", lr_x=0.5, alpha=0.3, T=5)

    def sgd(parameters):
        return torch.optim.SGD(parameters, lr=0.05)

    expected = naive_energy(algo, net, images, labels, sgd)
    trace = EnergyTrace()
    algo.step(net, images, labels, sgd(net.parameters()), observe=trace)
    np.testing.assert_allclose(trace.energy, expected, rtol=1e-7, atol=1e-25)


def test_energy_is_0_before_the_wave_and_positive_after_however_small():
    """With lr_x = 1e-3 the first of 10 layers is moved by some 1e-27; float32 knows no square of that."""
    net = mlp(10)
    trace = traced(Algorithm.parse("pc", lr_x=1e-3), net, *batch(net, dtype=torch.float32))
    assert trace.arrival == tuple(range(9, -1, -1))
    assert ((trace.energy > 0) == (np.arange(11)[None, :] >= np.array(trace.arrival)[:, None])).all()
    assert trace.energy[0, -1] < torch.finfo(torch.float32).smallest_normal


def assert_unseen(algo, net, images, labels):
    """Gradients and buffers are the same bits with and without a trace."""
    other = copy.deepcopy(net)
    algo.gradients(net, images, labels)
    algo.gradients(other, images, labels, observe=EnergyTrace())
    for a, b in zip(net.parameters(), other.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None)
        assert a.grad is None or torch.equal(a.grad, b.grad)
    assert all(torch.equal(a, b) for a, b in zip(net.buffers(), other.buffers(), strict=True))


@settings(max_examples=12, deadline=None)
@given(net=dags(), algo=algorithms(families=("pc",)))
def test_observing_changes_nothing(net, algo):
    assert_unseen(algo, net, *batch(net, shape=(4,)))


def test_observing_leaves_running_statistics_alone():
    net = vgg(norm=True)
    assert_unseen(Algorithm.parse("pc+s", alpha=0.0), net, *batch(net, dtype=torch.float32))


def test_a_trace_of_one_batch_in_three_holds_the_first_and_then_the_fourth():
    net, algo = mlp(3), Algorithm.parse("pc")
    batches = [batch(net, seed=seed, dtype=torch.float32) for seed in range(4)]
    trace, seen = EnergyTrace(every=3), []
    for images, labels in batches:
        algo.gradients(net, images, labels, observe=trace)
        seen.append(trace.energy)
    first, fourth = (traced(algo, net, *batches[i]).energy for i in (0, 3))
    np.testing.assert_array_equal(seen, [first, first, first, fourth])
    with pytest.raises(ValueError, match="every is 0"):
        EnergyTrace(every=0)


def test_the_shares_of_a_trace_are_those_of_each_step_and_backprop_has_none():
    net = mlp(4)
    data = batch(net, dtype=torch.float32)
    trace = traced(Algorithm.parse("pc"), net, *data)
    np.testing.assert_allclose(trace.shares, trace.energy / trace.energy.sum(axis=0), rtol=1e-12)
    assert list(trace.shares[:, 0]) == [0, 0, 0, 1]  # at first the output has it all
    empty = traced(Algorithm.parse("bp"), net, *data)
    assert empty.energy.size == empty.shares.size == 0


@pytest.mark.parametrize(
    ("energy", "expected"),
    [
        ({"a": 1.0, "b": torch.tensor(3.0), "c": 0.0}, {"a": 0.25, "b": 0.75, "c": 0.0}),
        ({"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 0.0}),
        ({}, {}),
        ({"a": 1.5e308, "b": 1.5e308}, {"a": 0.5, "b": 0.5}),
        ({"a": 5e-324, "b": 5e-324}, {"a": 0.5, "b": 0.5}),
        *(({"a": 1.0, "b": odd, "c": 1.0}, {"a": 0.5, "b": math.nan, "c": 0.5}) for odd in (math.nan, math.inf, -1.0)),
    ],
)
def test_shares_by_hand(energy, expected):
    assert shares(energy) == pytest.approx(expected, rel=0, abs=0, nan_ok=True)
