"""The work of a step, counted exactly: for a chain of L nodes it follows from the schedule alone."""

from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from nets import algorithms, batch, dags, mlp, parse
from torch.utils._python_dispatch import TorchDispatchMode

from deeppc import Algorithm, Chain, models


def work(spec, L, dtype=torch.float64, **options):
    """Counts by level, 1 to L: predictions, pull-backs, weight gradients; in numbers that resolve all deviations."""
    torch.manual_seed(0)
    net = mlp(L).to(dtype)
    images, labels = batch(net, dtype=dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    counted = parse(spec, **{"lr_x": 0.5, **options}).step(net, images, labels, optimizer).work
    levels = [str(level) for level in range(1, L + 1)]
    return tuple([c[v] for v in levels] for c in (counted.predictions, counted.pull_backs, counted.weight_gradients))


ones = pytest.mark.parametrize("L", [1, 2, 5, 7])


@ones
def test_with_alpha_0_a_step_costs_what_backprop_costs(L):
    """One forward, one backward through activities (none into the input), one through weights.

    The standard rule predicts once more where parents moved.
    """
    for spec in ("bp", "pc+s+f", "ipc+s"):
        assert work(spec, L, alpha=0.0) == ([1] * L, [0] + [1] * (L - 1), [1] * L), spec
    assert work("pc+s", L, alpha=0.0) == ([1] + [2] * (L - 1), [0] + [1] * (L - 1), [1] * L)


class Operations(TorchDispatchMode):
    """How often torch computed what takes time in a network with norms."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name = operation.overloadpacket.__name__
        if name in ("convolution", "convolution_backward", "native_batch_norm", "native_batch_norm_backward"):
            self.counts[name] += 1
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["vgg5", "resnet10"])
def test_with_alpha_0_torch_computes_no_more_than_for_backprop(name):
    """Weights learn by the pull-back that activities are moved by: neither norms nor convolutions go back twice."""
    net = models.build(name, width=0.04, norm="bf")
    images, labels = batch(net, shape=(3, 32, 32), dtype=torch.float32)
    counts = {}
    for spec in ("bp", "pc+s+f"):
        with Operations() as found:
            parse(spec, lr_x=0.5, alpha=0.0).gradients(net, images, labels)
        counts[spec] = found.counts
    layers = [module for module in net.modules() if isinstance(module, torch.nn.Conv2d)]
    assert counts["bp"]["convolution_backward"] == len(layers)
    assert counts["pc+s+f"] == counts["bp"]


@ones
@pytest.mark.parametrize("more", [0, 3])
@pytest.mark.parametrize("spec", ["pc", "pc+s", "pc+d", "pc+f", "pc+s+f", "pc+d+f", "pc+l+f"])
def test_with_energy_everywhere_pc_costs_the_triangle(L, more, spec):
    """Level l carries energy from step L - l on, so l + more steps; at the first, the initial prediction serves.

    The standard rule predicts once more at the end. So does the forward update: all levels are alike in size, so their
    initial predictions are not kept, but made anew for the weights at the end.
    """
    active = [level + more for level in range(1, L + 1)]
    expected = ([1] + [n + 1 for n in active[1:]], [0, *active[1:]], [1] * L)
    assert work(spec, L, alpha=0.1, T=L + more) == expected


def test_only_large_predictions_are_made_anew_for_a_forward_update():
    """Sizes 8 -> 8 -> 8 -> 4 -> 3 -> 3: both ends of a level are 16, 16, 12, 7, 6, and large is more than half of 16.

    Level 1 stands on the input, which does not move, so its prediction stays valid all the time.
    """
    sizes = [8, 8, 8, 4, 3, 3]
    layers = [torch.nn.Linear(a, b) for a, b in pairwise(sizes)]
    net = Chain(*layers)
    out = Algorithm.parse("pc+s+f", alpha=0.1, lr_x=0.5).gradients(net, torch.randn(2, 8), torch.tensor([0, 1]))
    assert [out.work.predictions[str(level)] for level in range(1, 6)] == [1, 3, 4, 4, 5]


@ones
@pytest.mark.parametrize("more", [0, 3])
@pytest.mark.parametrize("spec", ["ipc", "ipc+s"])
def test_incremental_learning_differentiates_weights_at_every_step(L, more, spec):
    """Activities are not read after the last step, so there it pulls back to weights alone."""
    active = [level + more for level in range(1, L + 1)]
    expected = (active, [0] + [n - 1 for n in active[1:]], active)
    assert work(spec, L, T=L + more) == expected


@ones
@pytest.mark.parametrize("more", [0, 3])
def test_activities_that_follow_cost_a_prediction_for_each_lesson_but_the_last(L, more):
    """To predict level 1 anew is to follow it, since the input stands still."""
    active = [level + more for level in range(1, L + 1)]
    expected = ([active[0]] + [2 * n - 1 for n in active[1:]], [0] + [n - 1 for n in active[1:]], active)
    assert work("ipc", L, T=L + more, follow=True) == expected
    if not more:  # where slopes stay, too
        assert work("ipc", L, torch.float32, lr_x=0.05, follow=True)[0][1:] == expected[0][1:]


@pytest.mark.parametrize("spec", ["pc", "pc+s+f", "ipc"])
def test_a_wave_that_stops_half_way_costs_nothing_beyond(spec):
    """T = 2 of L = 5: energy comes to levels 5 and 4; level 3 has moved, but has not acted.

    With the forward update level 5 is predicted once more, from the initial state; level 4 had learnt from its initial
    prediction before level 3 moved.
    """
    predictions, pull_backs, weights = work(spec, 5, T=2)
    assert pull_backs == {"pc": [0, 0, 0, 1, 2], "pc+s+f": [0, 0, 0, 1, 2], "ipc": [0, 0, 0, 0, 1]}[spec]
    assert weights == {"pc": [0, 0, 1, 1, 1], "pc+s+f": [0, 0, 1, 1, 1], "ipc": [0, 0, 0, 1, 2]}[spec]
    assert predictions == {"pc": [1, 1, 1, 2, 3], "pc+s+f": [1, 1, 1, 1, 3], "ipc": [1, 1, 1, 1, 2]}[spec]


def test_frozen_parameters_cost_no_weight_gradient():
    net = mlp(3)
    for p in net.nodes["2"].parameters():
        p.requires_grad_(False)
    images, labels = batch(net, dtype=torch.float32)
    for spec in ("bp", "pc+s+f"):
        out = parse(spec, lr_x=0.5).gradients(net, images, labels)
        assert dict(out.work.weight_gradients) == {"1": 1, "3": 1}
    assert all(p.grad is None for p in net.nodes["2"].parameters())


@settings(max_examples=30, deadline=None, derandomize=True)
@given(dags(), algorithms())
def test_no_graph_costs_more_than_the_dense_engine(net, algo):
    images, labels = batch(net, shape=(4,))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    counted = algo.step(net, images, labels, optimizer).work
    T = algo.steps(net) + getattr(algo, "free_steps", 0)
    for v in net.nodes:
        assert counted.predictions[v] <= T + 3 + (T - 1 if getattr(algo, "follow", False) else 0)
        assert counted.pull_backs[v] <= T
        assert counted.weight_gradients[v] <= (T if algo.family == "ipc" else 1)
