"""The seven oracles of the specification, in float64: one section each."""

import copy

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from naive import Naive, arrivals
from nets import algorithms, backprop, batch, cosine, dags, gradients, mlp, one_hot, parse, residual, vgg
from torch import nn

from deeppc import Algorithm, Chain, Graph, Sum
from deeppc.core.algorithms.pc import PC
from deeppc.core.state import State

slow_draws = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)

NETS = {
    "chain": lambda: mlp(5),
    "vgg": vgg,
    "residual with auxiliary nodes": lambda: residual(2, aux=True),
    "residual without": lambda: residual(2, aux=False),
    "balanced": lambda: residual(2, aux=False).balance(),
}


def make(name, seed=0):
    torch.manual_seed(seed)
    return NETS[name]().double()


def assert_same(ours, theirs, tolerance=1e-9):
    """To ``tolerance`` of the largest entry: the gradients of deep layers are small numbers."""
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        if expected is None:
            assert ours[name] is None, f"{name}: no energy came, so there must be no gradient"
        else:
            assert ours[name] is not None, name
            scale = float(expected.abs().max())
            torch.testing.assert_close(
                ours[name], expected, rtol=0, atol=tolerance * scale + 1e-15, msg=lambda m, n=name: f"{n}: {m}"
            )


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


@pytest.mark.parametrize("name", NETS)
def test_1_errors_are_exactly_zero_before_the_wave_comes(name):
    net = make(name)
    images, labels = batch(net)
    outcome = Naive(PC(lr_x=0.5), net, images, one_hot(net, images, labels)).run()
    for t, errors in enumerate(outcome.errors):
        for v, eps in errors.items():
            assert bool((eps != 0).any()) == (net.hops[v] <= t), (v, t)


@slow_draws
@given(dags())
def test_1_on_random_graphs_energy_comes_when_the_node_or_a_parent_has_moved(net):
    images, labels = batch(net, shape=(4,))
    outcome = Naive(PC(lr_x=0.5, T=6), net, images, one_hot(net, images, labels)).run()
    reach = first_energy(net)
    for t, errors in enumerate(outcome.errors):
        for v, eps in errors.items():
            if t < reach[v]:
                assert not bool((eps != 0).any()), (v, t)
    assert all(reach[v] <= net.hops[v] for v in net.nodes)


def test_1_hops_is_no_bound_where_a_skip_spans_three_levels():
    """The specification says that energy cannot reach ``v`` before ``hops(v)`` steps. It can: by a moved *parent*.

    ``a`` skips to the output, so it moves at step 0 and changes the prediction of ``b``, two hops away, at step 1.
    """
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3)]
    net = Graph(
        {
            "a": (layers[0], "input"),
            "b": (layers[1], "a"),
            "c": (layers[2], "b"),
            "y": (Sum(nn.Linear(4, 2)), ["c", "a"]),
        }
    ).double()
    images, labels = batch(net)
    outcome = Naive(PC(lr_x=0.5), net, images, one_hot(net, images, labels)).run()
    assert net.hops["b"] == 2
    assert bool((outcome.errors[1]["b"] != 0).any())
    assert first_energy(net)["b"] == 1
    assert_same(gradients(PC(lr_x=0.5), net, images, labels), outcome.gradients)
    balanced = net.balance()
    assert first_energy(balanced) == {v: balanced.hops[v] for v in balanced.nodes}


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("spec", ["pc", "pc+s", "pc+s+f", "pc+d+f", "pc+l"])
@pytest.mark.parametrize("name", NETS)
def test_1_skipping_changes_nothing_bit_for_bit(name, spec, momentum, monkeypatch):
    net = make(name)
    images, labels = batch(net)
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


# 2. pc+s+f with alpha = 0: parallel to BP, scaled by lr_x^a (1 - lr_x).


@pytest.mark.parametrize("lr_x", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("name", [n for n in NETS if n != "residual without"])
def test_2_spiking_forward_update_is_parallel_to_backprop(name, lr_x):
    net = make(name)
    images, labels = batch(net)
    expected = backprop(net, images, one_hot(net, images, labels))
    ours = gradients(Algorithm.parse("pc+s+f", alpha=0.0, lr_x=lr_x), net, images, labels)
    a = arrivals(net)
    for parameter, g in ours.items():
        v = parameter.split(".")[1]
        scale = 1.0 if v == net.output else lr_x ** a[v] * (1 - lr_x)
        assert abs(cosine(g, expected[parameter]) - 1) < 1e-12, parameter
        torch.testing.assert_close(g, scale * expected[parameter], rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", [n for n in NETS if n != "residual without"])
def test_2_with_a_small_alpha_it_is_nearly_parallel(name):
    net = make(name)
    images, labels = batch(net)
    expected = backprop(net, images, one_hot(net, images, labels))
    ours = gradients(Algorithm.parse("pc+s+f", alpha=1e-3, lr_x=0.5), net, images, labels)
    assert min(cosine(ours[n], expected[n]) for n in ours) > 0.99999


@pytest.mark.parametrize("name", [n for n in NETS if n != "residual without"])
def test_2_depth_gain_puts_every_layer_on_the_scale_of_backprop(name):
    net = make(name)
    images, labels = batch(net)
    expected = backprop(net, images, one_hot(net, images, labels))
    ours = gradients(Algorithm.parse("pc+s+f", alpha=0.0, lr_x=0.2, depth_gain=True), net, images, labels)
    for parameter, g in ours.items():
        scale = 1.0 if parameter.split(".")[1] == net.output else 0.8
        torch.testing.assert_close(g, scale * expected[parameter], rtol=1e-9, atol=0)


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


@pytest.mark.parametrize("name", [n for n in NETS if n != "residual without"])
@pytest.mark.parametrize("loss", ["squared_error", "cross_entropy"])
def test_3_incremental_gradients_sum_to_backprops(name, loss):
    net = make(name)
    images, labels = batch(net)
    expected = backprop(net, images, one_hot(net, images, labels), loss)
    optimizer = Summing(net.parameters())
    Algorithm.parse("ipc+s", lr_x=1.0, alpha=0.0, loss=loss).step(net, images, labels, optimizer)
    for parameter, p in net.named_parameters():
        torch.testing.assert_close(optimizer.total[p], expected[parameter], rtol=1e-10, atol=1e-12)


# 4. The output's weights, under the forward update, always learn what BP teaches them.


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("loss", ["squared_error", "cross_entropy"])
@pytest.mark.parametrize("T", [1, 3, 9])
@pytest.mark.parametrize(("spec", "beta"), [("pc+f", 1.0), ("pc+s+f", 0.1), ("pc+f+cn", 0.4)])
def test_4_the_output_learns_what_backprop_teaches(name, loss, T, spec, beta):
    net = make(name)
    images, labels = batch(net)
    expected = backprop(net, images, one_hot(net, images, labels), loss)
    ours = gradients(Algorithm.parse(spec, T=T, beta=beta, loss=loss, lr_x=0.3), net, images, labels)
    for parameter in ours:
        if parameter.split(".")[1] == net.output:
            torch.testing.assert_close(ours[parameter], expected[parameter], rtol=1e-10, atol=1e-14)


# 5. The engine equals the naive one, for every algorithm, schedule and graph.


def check_against_naive(algo, net, images, labels):
    target = one_hot(net, images, labels)
    if algo.family == "pc":
        assert_same(gradients(algo, net, images, labels), Naive(algo, net, images, target).run().gradients)
        return

    def optimizer(params):
        return torch.optim.AdamW(params, lr=0.01, weight_decay=0.1)

    expected = Naive(algo, net, images, target).run(optimizer).weights
    ours = copy.deepcopy(net)
    algo.step(ours, images, labels, optimizer(ours.parameters()))
    assert_same({n: p.detach() for n, p in ours.named_parameters()}, expected, tolerance=1e-6)


@settings(slow_draws, max_examples=120)
@given(dags(), algorithms())
def test_5_equals_the_naive_engine_on_random_graphs(net, algo):
    images, labels = batch(net, shape=(4,))
    check_against_naive(algo, net, images, labels)


@pytest.mark.parametrize("spec", ["pc", "pc+s", "pc+f", "pc+s+f", "pc+d+f", "pc+l", "ipc", "ipc+s", "ipc+d"])
@pytest.mark.parametrize("name", NETS)
def test_5_equals_the_naive_engine_on_images(name, spec):
    net = make(name)
    images, labels = batch(net)
    check_against_naive(Algorithm.parse(spec, lr_x=0.3, momentum_x=0.3), net, images, labels)


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
    net = make(name)
    images, labels = batch(net)
    check_against_naive(PC(forward=True, lr_x=0.3, **options), net, images, labels)


def test_5_holds_for_a_float_target_and_for_a_node_that_takes_a_parent_twice():
    torch.manual_seed(0)
    net = Graph({"h": (nn.Linear(4, 3), "input"), "y": (nn.Bilinear(3, 3, 2), ["h", "h"])}).double()
    images, target = torch.randn(5, 4).double(), torch.randn(5, 2).double()
    algo = PC(lr_x=0.2, T=4)
    assert_same(gradients(algo, net, images, target), Naive(algo, net, images, target).run().gradients)


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
    images, labels = batch(net, shape=(4,))
    for momentum in (0.0, 0.4):
        for nesterov in (True, False):
            algo = Algorithm.parse(spec, lr_x=0.2, T=6, momentum_x=momentum, nesterov=nesterov)
            check_against_naive(algo, net, images, labels)


@pytest.mark.parametrize("spec", ["pc+cn", "pc+s+f+cn", "ipc+cn"])
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_5_centre_nudging_is_nudging_with_either_sign(seed, spec):
    net = make("chain")
    images, labels = batch(net)
    algo = Algorithm.parse(spec, beta=0.4, lr_x=0.3)
    naives = [Naive(algo, net, images, one_hot(net, images, labels), beta=b) for b in (0.4, -0.4)]

    def optimizer(params):
        return torch.optim.SGD(params, lr=0.1)

    torch.manual_seed(seed)
    if algo.family == "ipc":
        algo.step(net, images, labels, optimizer(net.parameters()))
        ours = {n: p.detach() for n, p in net.named_parameters()}
        both = [naive.run(optimizer).weights for naive in naives]
    else:
        ours = gradients(algo, net, images, labels)
        both = [naive.run().gradients for naive in naives]
    matches = [all(torch.allclose(ours[n], g[n], rtol=1e-9, atol=1e-12) for n in ours) for g in both]
    assert sum(matches) == 1


def test_5_centre_nudging_draws_both_signs():
    net = make("chain")
    images, labels = batch(net)
    torch.manual_seed(0)
    algo = Algorithm.parse("pc+cn", beta=0.4, lr_x=0.3)
    drawn = {float(gradients(algo, net, images, labels)["nodes.1.0.weight"].sum()) for _ in range(20)}
    assert len(drawn) == 2


@settings(slow_draws, max_examples=25)
@given(dags(), st.sampled_from(["squared_error", "cross_entropy"]))
def test_5_backprop_over_the_graph_is_backprop(net, loss):
    images, labels = batch(net, shape=(4,))
    expected = backprop(net, images, one_hot(net, images, labels), loss)
    ours = gradients(Algorithm.parse("bp", loss=loss), net, images, labels)
    for n, g in expected.items():
        if g is not None:
            torch.testing.assert_close(torch.zeros_like(g) if ours[n] is None else ours[n], g, rtol=1e-9, atol=1e-14)


# 6. Linear networks: the relaxed state is the closed-form minimum of a quadratic energy.


def test_6_a_linear_net_relaxes_to_the_closed_form():
    torch.manual_seed(0)
    net = Chain(nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 3)).double()
    images, labels = batch(net)
    y = one_hot(net, images, labels)
    (W1, b1), (W2, b2), (W3, b3) = [(f.weight.detach(), f.bias.detach()) for f in net.nodes.values()]
    # E = 1/2 |x1 - W1 x0 - b1|^2 + 1/2 |x2 - W2 x1 - b2|^2 + 1/2 |y - W3 x2 - b3|^2; set both derivatives to 0.
    eye = torch.eye(5).double()
    A = torch.cat([torch.cat([eye + W2.T @ W2, -W2.T], 1), torch.cat([-W2, eye + W3.T @ W3], 1)])
    rhs = torch.cat([images @ W1.T + b1 - b2 @ W2, b2 + (y - b3) @ W3], 1)
    x1, x2 = torch.linalg.solve(A, rhs.T).T.split(5, 1)

    seen = {}
    algo = PC(lr_x=0.3, T=300)

    def observe(t, state):
        seen.update({v: state.activity(v).detach().clone() for v in ("1", "2")})

    net.zero_grad()
    algo.gradients(net, images, labels, observe=observe)
    torch.testing.assert_close(seen["1"], x1, rtol=0, atol=1e-10)
    torch.testing.assert_close(seen["2"], x2, rtol=0, atol=1e-10)
    expected = -(x1 - images @ W1.T - b1).T @ images / len(images)
    torch.testing.assert_close(net.nodes["1"].weight.grad, expected, rtol=0, atol=1e-10)


def test_6_free_relaxation_settles_in_the_feed_forward_state():
    """So the forward update with a long free relaxation is the one with stored predictions."""
    torch.manual_seed(0)
    net = mlp(3).double()
    images, labels = batch(net)
    stored = gradients(Algorithm.parse("pc+s+f", lr_x=0.3), net, images, labels)
    settled = gradients(Algorithm.parse("pc+s+f", lr_x=0.3, free_steps=300), net, images, labels)
    for n in stored:
        torch.testing.assert_close(settled[n], stored[n], rtol=1e-6, atol=1e-12)


# 7. Without auxiliary nodes the first block moves before its arrival step; with them, never.


def first_moves(net):
    images, labels = batch(net)
    moved = {}

    def observe(t, state):
        for v in state.d:
            moved.setdefault(v, t)

    PC(lr_x=0.5, T=net.L + 1).gradients(net, images, labels, observe=observe)
    return moved


def test_7_auxiliary_nodes_keep_energy_from_arriving_early():
    torch.manual_seed(0)
    without, built, balanced = residual(3, False), residual(3, True), residual(3, False).balance()
    early = first_moves(without.double())
    assert early["stem"] < without.arrival["stem"]
    for net in (built.double(), balanced.double()):
        assert net.L == without.L
        assert first_moves(net) == {v: net.arrival[v] for v in net.nodes}


@slow_draws
@given(dags())
def test_7_balancing_any_graph_makes_hops_and_arrival_agree_and_keeps_the_function(net):
    balanced = net.balance()
    assert balanced.hops == balanced.arrival
    assert all(balanced.level[v] == balanced.level[p] + 1 for v in balanced.nodes for p in balanced.parents[v])
    x = torch.randn(3, 4, dtype=torch.float64)
    assert torch.equal(net(x), balanced(x))
    assert {v: balanced.level[v] for v in net.nodes} == {v: net.level[v] for v in net.nodes}
