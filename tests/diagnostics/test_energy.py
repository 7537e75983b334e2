"""The energy of a batch by node and step, against the naive engine; and shares, by hand."""

import copy
import math
import subprocess
import sys

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


@pytest.mark.parametrize(
    ("make", "loss"),
    [("chain", "squared_error"), ("skips", "squared_error"), ("images", "squared_error"), ("chain", "cross_entropy")],
)
def test_a_trace_is_what_the_naive_engine_computes(make, loss):
    torch.manual_seed(0)
    net = NETS[make]().double()
    images, labels = batch(net)
    algo = Algorithm.parse("pc+s", lr_x=0.3, alpha=0.2, loss=loss)
    trace = traced(algo, net, images, labels)
    expected = naive_energy(algo, net, images, labels)
    assert trace.nodes == tuple(net.nodes)
    assert trace.energy.shape == (len(net.nodes), net.L + 1)
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


def test_energy_is_0_before_the_wave_and_positive_after():
    net = mlp(5)
    trace = traced(Algorithm.parse("pc", T=7), net, *batch(net, dtype=torch.float32))
    arrived = np.arange(8)[None, :] >= np.array(trace.arrival)[:, None]
    assert trace.arrival == (4, 3, 2, 1, 0)
    assert ((trace.energy > 0) == arrived).all()


def test_energy_too_small_for_float32_is_still_there():
    """With lr_x = 1e-3 the first of 10 layers is moved by some 1e-27; float32 knows no square of that."""
    net = mlp(10)
    trace = traced(Algorithm.parse("pc", lr_x=1e-3), net, *batch(net, dtype=torch.float32))
    assert 0 < trace.energy[0, -1] < torch.finfo(torch.float32).smallest_normal


@settings(max_examples=12, deadline=None)
@given(net=dags(), algo=algorithms(families=("pc",)))
def test_observing_changes_nothing(net, algo):
    images, labels = batch(net, shape=(4,))
    other = copy.deepcopy(net)
    algo.gradients(net, images, labels)
    algo.gradients(other, images, labels, observe=EnergyTrace())
    for a, b in zip(net.parameters(), other.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None)
        assert a.grad is None or torch.equal(a.grad, b.grad)


def test_observing_leaves_running_statistics_alone():
    net = vgg(norm=True)
    images, labels = batch(net, dtype=torch.float32)
    other = copy.deepcopy(net)
    algo = Algorithm.parse("pc+s", alpha=0.0)
    algo.gradients(net, images, labels)
    algo.gradients(other, images, labels, observe=EnergyTrace())
    for a, b in zip(net.buffers(), other.buffers(), strict=True):
        assert torch.equal(a, b)


def test_a_trace_holds_the_last_batch_only():
    net = mlp(3)
    images, labels = batch(net, dtype=torch.float32)
    trace = EnergyTrace()
    for T in (6, 4):
        Algorithm.parse("pc", T=T).gradients(net, images, labels, observe=trace)
    assert trace.energy.shape == (3, 5)


def test_a_trace_of_one_batch_in_three_holds_the_first_and_then_the_fourth():
    net, algo = mlp(3), Algorithm.parse("pc")
    batches = [batch(net, seed=seed, dtype=torch.float32) for seed in range(4)]
    trace, seen = EnergyTrace(every=3), []
    for images, labels in batches:
        algo.gradients(net, images, labels, observe=trace)
        seen.append(trace.energy)
    first, fourth = (traced(algo, net, *batches[i]).energy for i in (0, 3))
    for energy, expected in zip(seen, (first, first, first, fourth), strict=True):
        np.testing.assert_array_equal(energy, expected)
    with pytest.raises(ValueError, match="every is 0"):
        EnergyTrace(every=0)


def test_backprop_leaves_a_trace_empty():
    net = mlp(3)
    assert traced(Algorithm.parse("bp"), net, *batch(net, dtype=torch.float32)).energy.size == 0


def test_the_shares_of_a_trace_are_those_of_each_step():
    net = mlp(4)
    trace = traced(Algorithm.parse("pc"), net, *batch(net, dtype=torch.float32))
    assert trace.shares.shape == trace.energy.shape == (4, 5)
    np.testing.assert_allclose(trace.shares, trace.energy / trace.energy.sum(axis=0), rtol=1e-12)
    assert list(trace.shares[:, 0]) == [0, 0, 0, 1]  # at first the output has it all
    assert EnergyTrace().shares.size == 0


def test_shares_by_hand():
    assert shares({"a": 1.0, "b": torch.tensor(3.0), "c": 0.0}) == {"a": 0.25, "b": 0.75, "c": 0.0}
    assert shares({"a": 0.0, "b": 0.0}) == {"a": 0.0, "b": 0.0}
    assert shares({}) == {}


def test_shares_of_very_large_and_very_small_energies():
    assert shares({"a": 1.5e308, "b": 1.5e308}) == {"a": 0.5, "b": 0.5}
    assert shares({"a": 5e-324, "b": 5e-324}) == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize("odd", [math.nan, math.inf, -1.0])
def test_an_energy_without_a_share_does_not_spoil_the_others(odd):
    found = shares({"a": 1.0, "b": odd, "c": 1.0})
    assert math.isnan(found.pop("b"))
    assert found == {"a": 0.5, "c": 0.5}


def test_the_library_does_not_load_matplotlib():
    code = "import sys, deeppc, deeppc.diagnostics; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
