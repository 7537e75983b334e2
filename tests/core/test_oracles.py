"""The seven oracles of the specification, in float64: one section each."""

import copy

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from naive import Naive, arrivals
from nets import (
    NETS,
    adamw,
    algorithms,
    assert_same,
    backprop,
    case,
    cosine,
    dags,
    gradients,
    learnt,
    mlp,
    parse,
    residual,
    sgd,
)
from torch import nn

from deeppc import Algorithm, Chain, Graph, Sum
from deeppc.core.algorithms.pc import PC
from deeppc.core.state import State

slow_draws = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)

names = [name for name in NETS if name != "vgg with norms"]
every_net = pytest.mark.parametrize("name", names)
where_hops_are_arrivals = pytest.mark.parametrize("name", [n for n in names if n != "residual without"])
both_losses = pytest.mark.parametrize("loss", ["squared_error", "cross_entropy"])


# 1. Errors of nodes that the wave has not reached are exactly zero; skipping them changes nothing, bit for bit.


def first_energy(net):
    """The first step at which a node can have an error: it moved, or a parent did.

    In a graph where every edge joins neighbouring levels this is ``hops``; see ``test_hops_is_no_bound_...``.
    """
    never = 10**6
    moved = dict.fromkeys(["input", *net.nodes], never)
    moved[net.output] = 0
    for _ in range(len(net.nodes) + 1):
        energy = {v: min([moved[v], *(moved[p] for p in net.parents[v])]) for v in net.nodes}
        for v in net.nodes:
            if v != net.output:
                moved[v] = 1 + min([energy[v], *(energy[c] for c in net.successors[v])])
    return energy


@every_net
def test_1_errors_are_exactly_zero_before_the_wave_comes(name):
    net, images, _, target = case(name)
    for t, errors in enumerate(Naive(PC(lr_x=0.5), net, images, target).run().errors):
        for v, eps in errors.items():
            assert bool((eps != 0).any()) == (net.hops[v] <= t), (v, t)


@slow_draws
@given(dags())
def test_1_on_random_graphs_energy_comes_when_the_node_or_a_parent_has_moved(net):
    net, images, _, target = case(net, shape=(4,))
    reach = first_energy(net)
    for t, errors in enumerate(Naive(PC(lr_x=0.5, T=6), net, images, target).run().errors):
        assert not any(bool((eps != 0).any()) for v, eps in errors.items() if t < reach[v]), t
    assert all(reach[v] <= net.hops[v] for v in net.nodes)


def test_1_hops_is_no_bound_where_a_skip_spans_three_levels():
    """``a`` skips to the output, so it moves at step 0 and changes the prediction of ``b``, 2 hops away, at step 1."""
    torch.manual_seed(0)
    a, b, c = [nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3)]
    nodes = {"a": (a, "input"), "b": (b, "a"), "c": (c, "b"), "y": (Sum(nn.Linear(4, 2)), ["c", "a"])}
    net, images, labels, target = case(Graph(nodes).double())
    outcome = Naive(PC(lr_x=0.5), net, images, target).run()
    assert net.hops["b"] == 2
    assert bool((outcome.errors[1]["b"] != 0).any())
    assert first_energy(net)["b"] == 1
    assert_same(gradients(PC(lr_x=0.5), net, images, labels), outcome.gradients)
    balanced = net.balance()
    assert first_energy(balanced) == {v: balanced.hops[v] for v in balanced.nodes}


@pytest.mark.parametrize(
    ("spec", "momentum"), [("pc", 0.5), ("pc+s", 0), ("pc+s+f", 0.5), ("pc+d+f", 0), ("pc+l", 0.5)]
)
@every_net
def test_1_skipping_changes_nothing_bit_for_bit(name, spec, momentum, monkeypatch):
    net, images, labels, _ = case(name)
    algo = parse(spec, lr_x=0.4, momentum_x=momentum, alpha=0.1)
    sparse = gradients(algo, net, images, labels)
    monkeypatch.setattr(State, "undisturbed", lambda self, v: False)
    monkeypatch.setattr(State, "at_rest", lambda self, v: False)
    move = State.move

    def move_and_forget_everything(self, *args):
        move(self, *args)
        self.predictions.clear()

    monkeypatch.setattr(State, "move", move_and_forget_everything)
    dense = gradients(algo, net, images, labels)
    assert all(torch.equal(sparse[n], dense[n]) for n in dense)


# 2. pc+s+f with alpha = 0: parallel to BP, scaled by lr_x^a (1 - lr_x); with depth_gain by (1 - lr_x) only.


@pytest.mark.parametrize(("lr_x", "depth_gain"), [(0.05, False), (0.5, False), (0.9, False), (0.2, True)])
@where_hops_are_arrivals
def test_2_spiking_forward_update_is_parallel_to_backprop(name, lr_x, depth_gain):
    net, images, labels, target = case(name)
    expected = backprop(net, images, target)
    algo = Algorithm.parse("pc+s+f", alpha=0.0, lr_x=lr_x, depth_gain=depth_gain)
    a = arrivals(net)
    for parameter, g in gradients(algo, net, images, labels).items():
        v = parameter.split(".")[1]
        scale = 1.0 if v == net.output else (1 if depth_gain else lr_x ** a[v]) * (1 - lr_x)
        assert abs(cosine(g, expected[parameter]) - 1) < 1e-12, parameter
        torch.testing.assert_close(g, scale * expected[parameter], rtol=1e-9, atol=0)


@where_hops_are_arrivals
def test_2_with_a_small_alpha_it_is_nearly_parallel(name):
    net, images, labels, target = case(name)
    expected = backprop(net, images, target)
    ours = gradients(Algorithm.parse("pc+s+f", alpha=1e-3, lr_x=0.5), net, images, labels)
    assert min(cosine(ours[n], expected[n]) for n in ours) > 0.99999


# 3. ipc+s, lr_x = 1, alpha = 0, weights held still: the gradients of the T steps sum to BP's.


class Summing(torch.optim.Optimizer):
    """Holds weights still and adds up the gradients that it is shown."""

    def __init__(self, params):
        super().__init__(params, {})
        self.total = {p: torch.zeros_like(p) for group in self.param_groups for p in group["params"]}

    def step(self, closure=None):
        for p, total in self.total.items():
            if p.grad is not None:
                total += p.grad


@where_hops_are_arrivals
@both_losses
def test_3_incremental_gradients_sum_to_backprops(name, loss):
    net, images, labels, target = case(name)
    expected = backprop(net, images, target, loss)
    optimizer = Summing(net.parameters())
    Algorithm.parse("ipc+s", lr_x=1.0, alpha=0.0, loss=loss).step(net, images, labels, optimizer)
    for parameter, p in net.named_parameters():
        torch.testing.assert_close(optimizer.total[p], expected[parameter], rtol=1e-10, atol=1e-12)


# 4. The gradient of the output's weights, under the forward update, is always that of BP.


@every_net
@both_losses
@pytest.mark.parametrize(("spec", "beta", "T"), [("pc+f", 1.0, 3), ("pc+s+f", 0.1, 1), ("pc+f+cn", 0.4, 9)])
def test_4_the_output_learns_as_by_backprop(name, loss, spec, beta, T):
    net, images, labels, target = case(name)
    expected = backprop(net, images, target, loss)
    ours = gradients(Algorithm.parse(spec, T=T, beta=beta, loss=loss, lr_x=0.3), net, images, labels)
    for parameter in ours:
        if parameter.split(".")[1] == net.output:
            torch.testing.assert_close(ours[parameter], expected[parameter], rtol=1e-10, atol=1e-14)


# 5. The engine equals the naive one, for every algorithm, schedule and graph.


def check_against_naive(algo, net, images, labels, target):
    tolerance = 1e-6 if algo.updates_weights else 1e-9  # Adam divides by small numbers
    assert_same(learnt(algo, net, images, labels), Naive(algo, net, images, target).learnt(adamw), tolerance)


@settings(slow_draws, max_examples=120)
@given(dags(), algorithms())
def test_5_equals_the_naive_engine_on_random_graphs(net, algo):
    check_against_naive(algo, *case(net, shape=(4,)))


@settings(slow_draws, max_examples=60)
@given(
    dags(),
    st.sampled_from([0.1, 0.5, 1.5]),
    st.sampled_from([None, 2, 7]),
    st.sampled_from(["squared_error", "cross_entropy"]),
)
def test_5_holds_where_weights_learn_while_the_spike_is_pulled_back(net, lr_x, T, loss):
    algo = Algorithm.parse("pc+s+f", alpha=0.0, lr_x=lr_x, T=T, loss=loss)
    check_against_naive(algo, *case(net, shape=(4,)))


@pytest.mark.parametrize("spec", ["pc", "pc+s", "pc+f", "pc+s+f", "pc+d+f", "pc+l", "ipc", "ipc+s", "ipc+d"])
@every_net
def test_5_equals_the_naive_engine_on_images(name, spec):
    check_against_naive(Algorithm.parse(spec, lr_x=0.3, momentum_x=0.3), *case(name))


@pytest.mark.parametrize("spec", ["ipc", "ipc+s"])
@every_net
def test_5_equals_the_naive_engine_where_activities_follow(name, spec):
    check_against_naive(Algorithm.parse(spec, lr_x=0.3, momentum_x=0.3, follow=True), *case(name))


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "spiking", "alpha": 0.0, "momentum_x": 0.6},  # moves on by momentum when all are silent
        {"schedule": lambda t, arrival, T: float(arrival == 0)},  # pulled to the end, without a word of its own
        {"schedule": lambda t, arrival, T: float(t < 2)},  # all stand still long before the end
        {"T": 1, "free_steps": 3},  # some move only when the output is let go
    ],
)
@pytest.mark.parametrize("name", ["chain", "residual without"])
def test_5_a_node_learns_only_when_it_is_relaxed(name, options):
    check_against_naive(PC(forward=True, lr_x=0.3, **options), *case(name))


def test_5_holds_for_a_float_target_and_for_a_node_that_takes_a_parent_twice():
    torch.manual_seed(0)
    net = Graph({"h": (nn.Linear(4, 3), "input"), "y": (nn.Bilinear(3, 3, 2), ["h", "h"])}).double()
    images, target = torch.randn(5, 4).double(), torch.randn(5, 2).double()
    check_against_naive(PC(lr_x=0.2, T=4), net, images, target, target)


class Total(nn.Module):
    """What autograd pulls back through a sum is one number, repeated without memory of its own."""

    def forward(self, x, more):
        return x.sum(dim=1, keepdim=True) + 3 * more


class Joined(nn.Module):
    """Here a part of the error is repeated, as often as it fills the memory of the whole."""

    def forward(self, x, more):
        return torch.cat([x.sum(dim=1, keepdim=True), more], dim=1)


VIEWS = {
    # two parents of a sum and one behind an identity are pulled by the same memory; u moves first, so that t has an
    # error of its own to pull s by
    "sum": {
        "a": (nn.Linear(4, 3), "input"),
        "b": (nn.Linear(4, 3), "input"),
        "c": (nn.Identity(), "b"),
        "s": (Sum(), ["a", "c"]),
        "u": (nn.Linear(4, 1), "input"),
        "t": (Total(), ["s", "u"]),
        "y": (Sum(nn.Linear(1, 2)), ["t", "u"]),
    },
    "joined": {
        "a": (nn.Linear(4, 3), "input"),
        "b": (nn.Linear(4, 2), "input"),
        "g": (Joined(), ["a", "b"]),
        "y": (nn.Bilinear(3, 2, 2), ["g", "b"]),
    },
}


@pytest.mark.parametrize("spec", ["pc", "pc+s+f", "ipc"])
@pytest.mark.parametrize("nodes", VIEWS.values(), ids=VIEWS)
def test_5_holds_where_pulls_are_views_and_where_nodes_get_the_same(nodes, spec):
    torch.manual_seed(0)
    net = copy.deepcopy(Graph(nodes)).double()
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.5)
    for options in ({}, {"momentum_x": 0.4}, {"momentum_x": 0.4, "nesterov": False}):
        check_against_naive(Algorithm.parse(spec, lr_x=0.2, T=6, **options), *case(net, shape=(4,)))


@pytest.mark.parametrize("spec", ["pc+cn", "pc+s+f+cn", "ipc+cn"])
def test_5_centre_nudging_is_nudging_with_either_sign(spec):
    net, images, labels, target = case("chain")
    algo = Algorithm.parse(spec, beta=0.4, lr_x=0.3)
    both = [Naive(algo, net, images, target, beta=b).learnt(sgd) for b in (0.4, -0.4)]
    drawn = set()
    for seed in range(6):
        torch.manual_seed(seed)
        ours = learnt(algo, net, images, labels, sgd)
        (sign,) = [i for i, g in enumerate(both) if all(torch.allclose(ours[n], g[n], 1e-9, 1e-12) for n in ours)]
        drawn.add(sign)
    assert drawn == {0, 1}


@settings(slow_draws, max_examples=25)
@given(dags(), st.sampled_from(["squared_error", "cross_entropy"]))
def test_5_backprop_over_the_graph_is_backprop(net, loss):
    net, images, labels, target = case(net, shape=(4,))
    expected = backprop(net, images, target, loss)
    ours = gradients(Algorithm.parse("bp", loss=loss), net, images, labels)
    for n, g in expected.items():
        if g is not None:
            torch.testing.assert_close(torch.zeros_like(g) if ours[n] is None else ours[n], g, rtol=1e-9, atol=1e-14)


# 6. Linear networks: the relaxed state is the closed-form minimum of a quadratic energy.


def test_6_a_linear_net_relaxes_to_the_closed_form():
    torch.manual_seed(0)
    net, images, labels, y = case(Chain(nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 3)).double())
    (W1, b1), (W2, b2), (W3, b3) = [(f.weight.detach(), f.bias.detach()) for f in net.nodes.values()]
    # E = 1/2 |x1 - W1 x0 - b1|^2 + 1/2 |x2 - W2 x1 - b2|^2 + 1/2 |y - W3 x2 - b3|^2; set both derivatives to 0.
    eye = torch.eye(5).double()
    A = torch.cat([torch.cat([eye + W2.T @ W2, -W2.T], 1), torch.cat([-W2, eye + W3.T @ W3], 1)])
    rhs = torch.cat([images @ W1.T + b1 - b2 @ W2, b2 + (y - b3) @ W3], 1)
    x1, x2 = torch.linalg.solve(A, rhs.T).T.split(5, 1)

    seen = {}

    def observe(t, state):
        seen.update({v: state.activity(v).detach().clone() for v in ("1", "2")})

    PC(lr_x=0.3, T=300).gradients(net, images, labels, observe=observe)
    torch.testing.assert_close(seen["1"], x1, rtol=0, atol=1e-10)
    torch.testing.assert_close(seen["2"], x2, rtol=0, atol=1e-10)
    expected = -(x1 - images @ W1.T - b1).T @ images / len(images)
    torch.testing.assert_close(net.nodes["1"].weight.grad, expected, rtol=0, atol=1e-10)


def test_6_free_relaxation_settles_in_the_feed_forward_state():
    """So the forward update with a long free relaxation is the one with stored predictions, energy included."""
    torch.manual_seed(0)
    net, images, labels, _ = case(mlp(3).double())
    options = {"lr_x": 0.3, "loss": "cross_entropy"}
    stored = gradients(Algorithm.parse("pc+s+f", **options), net, images, labels)
    settled = Algorithm.parse("pc+s+f", **options, free_steps=300)
    assert_same(gradients(settled, net, images, labels), stored, 1e-6)
    expected = float(nn.functional.cross_entropy(net(images).detach(), labels))
    assert float(settled.gradients(net, images, labels).energy["3"]) == pytest.approx(expected, rel=1e-6)


# 7. Without auxiliary nodes the first block moves before its arrival step; with them, never.


def first_moves(net):
    net, images, labels, _ = case(net.double())
    moved = {}

    def observe(t, state):
        for v in state.d:
            moved.setdefault(v, t)

    PC(lr_x=0.5, T=net.L + 1).gradients(net, images, labels, observe=observe)
    return moved


def test_7_auxiliary_nodes_keep_energy_from_arriving_early():
    torch.manual_seed(0)
    without = residual(3, aux=False)
    assert first_moves(without)["stem"] < without.arrival["stem"]
    for net in (residual(3, aux=True), residual(3, aux=False).balance()):
        assert net.L == without.L
        assert first_moves(net) == {v: net.arrival[v] for v in net.nodes}


@slow_draws
@given(dags())
def test_7_balancing_any_graph_makes_hops_and_arrival_agree_and_keeps_the_function(net):
    balanced = net.balance()
    assert all(balanced.hops[v] == balanced.arrival[v] for v in balanced.nodes)
    assert all(balanced.level[v] == balanced.level[p] + 1 for v in balanced.nodes for p in balanced.hidden_parents(v))
    x = torch.randn(3, 4, dtype=torch.float64)
    assert torch.equal(net(x), balanced(x))
    assert {v: balanced.level[v] for v in net.nodes} == {v: net.level[v] for v in net.nodes}
