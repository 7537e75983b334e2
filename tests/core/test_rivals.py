"""The rivals of predictive coding on the same graph, each held to its oracle, in float64 unless said otherwise."""

import copy
import math
import warnings
from itertools import pairwise

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from naive import Naive
from nets import NETS, adamw, assert_same, backprop, case, cosine, dags, gradients, learnt, mlp, one_hot, sgd
from torch import nn
from torch.nn.utils import parametrize

from deeppc import Algorithm, Bernoulli, Chain, CrossEntropy, Energy, Gaussian, Graph, Sum
from deeppc.core import feedback, spectrum
from deeppc.core.algorithms.pc import PC
from deeppc.core.state import State

draws = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
both_losses = pytest.mark.parametrize("loss", ["squared_error", "cross_entropy"])

names = [name for name in NETS if name != "balanced"]
every_net = pytest.mark.parametrize("name", names)


def assert_backprop(ours, expected):
    """Equal, and exactly 0 where no gradient came."""
    for n, g in expected.items():
        if g is not None:
            torch.testing.assert_close(torch.zeros_like(g) if ours[n] is None else ours[n], g, rtol=1e-9, atol=1e-13)


def buffers(net):
    return {name: b.clone() for name, b in net.named_buffers()}


def counts(algo, L=5):
    """Predictions, pull-backs and weight gradients of a chain, by level."""
    net, images, labels, _ = case(mlp(L).double())
    counted = algo.step(net, images, labels, sgd(net.parameters())).work
    levels = [str(level) for level in range(1, L + 1)]
    return tuple([c[v] for v in levels] for c in (counted.predictions, counted.pull_backs, counted.weight_gradients))


BACKPROP = ([1] * 5, [0, 1, 1, 1, 1], [1] * 5)


# bp with repeats: so many explicit optimiser steps on the same batch.


@pytest.mark.parametrize("repeats", [1, 2, 5])
@pytest.mark.parametrize("name", ["chain", "vgg with norms"])
def test_repeats_are_explicit_steps_on_the_same_batch(name, repeats):
    net, images, labels, _ = case(name)
    other = copy.deepcopy(net)
    optimizer, theirs = adamw(net.parameters()), adamw(other.parameters())
    result = Algorithm.parse("bp", repeats=repeats).step(net, images, labels, optimizer)
    first = copy.deepcopy(other)(images).detach()
    for _ in range(repeats):
        theirs.zero_grad()
        loss = (other(images) - one_hot(other, images, labels)).square().sum() / 2 / len(images)
        loss.backward()
        theirs.step()
    torch.testing.assert_close(result.logits, first, rtol=1e-9, atol=1e-12)  # before anything was learnt
    expected = dict(other.named_parameters())
    assert_same({n: p.detach() for n, p in net.named_parameters()}, {n: p.detach() for n, p in expected.items()}, 1e-6)
    for b, c in zip(buffers(net).values(), buffers(other).values(), strict=True):
        torch.testing.assert_close(b, c, rtol=1e-6, atol=1e-9)


def test_the_work_of_repeats_is_that_of_all():
    assert counts(Algorithm.parse("bp")) == BACKPROP
    assert counts(Algorithm.parse("bp", repeats=3)) == tuple([3 * n for n in column] for column in BACKPROP)


def test_repeats_have_no_single_gradient():
    net, images, labels, _ = case("chain")
    with pytest.raises(ValueError, match=r"repeats is 2, which takes so many steps: call step\(\)"):
        Algorithm.parse("bp", repeats=2).gradients(net, images, labels)


# bp on the last levels: backprop with requires_grad=False below.


@draws
@given(dags(), st.integers(1, 4), st.sampled_from(["squared_error", "cross_entropy"]))
def test_the_last_levels_learn_as_if_the_others_wanted_no_gradient(net, last, loss):
    net, images, labels, target = case(net, shape=(4,))
    ours = gradients(Algorithm.parse("bp", last=last, loss=loss), net, images, labels)
    for v, module in net.nodes.items():
        if net.arrival[v] >= last:
            assert all(ours[f"nodes.{v}.{n}"] is None for n, _ in module.named_parameters())
            module.requires_grad_(False)
    assert_backprop(ours, backprop(net, images, target, loss))


@pytest.mark.parametrize("last", [1, 2, 3, 9])
def test_norms_below_move_their_statistics_and_nothing_else(last):
    net, images, labels, _ = case("vgg with norms")
    other = copy.deepcopy(net)
    for v, module in other.nodes.items():
        module.requires_grad_(other.arrival[v] < last)
    backprop(other, images, one_hot(other, images, labels))
    before = copy.deepcopy(dict(net.named_parameters()))
    Algorithm.parse("bp", last=last).step(net, images, labels, adamw(net.parameters()))
    for b, c in zip(buffers(net).values(), buffers(other).values(), strict=True):
        torch.testing.assert_close(b, c)
    for name, p in net.named_parameters():
        learns = net.arrival[name.split(".")[1]] < last
        assert torch.equal(p, before[name]) != learns, name


def test_the_work_of_the_last_levels_alone_is_done():
    assert counts(Algorithm.parse("bp", last=2)) == ([1] * 5, [0, 0, 0, 0, 1], [0, 0, 0, 1, 1])


# zil: backprop exactly, on every graph in which energy comes down all paths at once.


@draws
@given(dags(), st.sampled_from(["squared_error", "cross_entropy"]))
def test_zero_divergence_learning_is_backprop_on_any_balanced_graph(net, loss):
    net, images, labels, target = case(net.balance(), shape=(4,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a constant stops the energy: nodes below learn nothing, as in backprop
        ours = gradients(Algorithm.parse("zil", loss=loss), net, images, labels)
    assert_backprop(ours, backprop(net, images, target, loss))


@pytest.mark.parametrize("name", [n for n in names if n != "residual without"])
def test_zero_divergence_learning_is_backprop_on_images_statistics_included(name):
    net, images, labels, target = case(name)
    other = copy.deepcopy(net)
    assert_backprop(gradients(Algorithm.parse("zil"), net, images, labels), backprop(other, images, target))
    for b, c in zip(buffers(net).values(), buffers(other).values(), strict=True):
        torch.testing.assert_close(b, c)


def test_zero_divergence_learning_is_what_dense_predictive_coding_has_at_arrival():
    """Plain PC with lr_x = 1 that skips nothing: a node's error at t = arrival is what its weights learn from."""
    net, images, labels, target = case("residual with auxiliary nodes")
    errors = Naive(PC(lr_x=1.0), net, images, target).run().errors
    energy = Algorithm.parse("zil").gradients(net, images, labels).energy
    for v, a in net.arrival.items():
        if v in net.nodes:
            assert float(energy[v]) == pytest.approx(float(errors[a][v].square().sum()) / 2 / len(images), rel=1e-9)


def test_zero_divergence_learning_refuses_graphs_where_it_would_diverge():
    net, images, labels, target = case("residual without")
    with pytest.raises(ValueError, match=r"zil needs a balanced graph.*net\.balance\(\)"):
        gradients(Algorithm.parse("zil"), net, images, labels)
    expected = list(backprop(net, images, target).values())
    ours = gradients(Algorithm.parse("zil"), net.balance(), images, labels)
    for g, e in zip(ours.values(), expected, strict=True):
        torch.testing.assert_close(g, e, rtol=1e-9, atol=1e-13)


def test_the_work_of_zero_divergence_learning_is_backprops():
    assert counts(Algorithm.parse("zil")) == BACKPROP
    seen = []
    net, images, labels, _ = case("chain")

    def observe(t, state):
        seen.append((t, {v for v, d in state.d.items() if v != "5" and d.any()}, len(state.d)))

    Algorithm.parse("zil").gradients(net, images, labels, observe=observe)
    # one node more has moved at each step, and those before it have fallen back
    assert seen == [(t, {str(5 - t)} if t else set(), t + 1) for t in range(5)]
    assert Algorithm.parse("zil").steps(net) == 5


# epc: the same gradients as an engine of leaf errors and one backward pass, and the same equilibria as pc.


def naive_errors(net, images, target, loss, T, lr):
    """Errors as leaves of one autograd graph through the whole network; SGD; then each node's own weight gradient."""
    values = {}

    def run(errors):
        values.clear()
        values["input"] = images
        for v, f in net.nodes.items():
            mu = f(*(values[p] for p in net.parents[v]))
            values[v] = mu + errors[v] if v in errors else mu
        out = values[net.output]
        last = (target - out).square().sum() / 2 if loss == "squared_error" else -(target * out.log_softmax(1)).sum()
        return last + sum(e.square().sum() for e in errors.values()) / 2

    run({})
    errors = {v: torch.zeros_like(values[v]).requires_grad_() for v in net.nodes if v != net.output}
    optimizer = torch.optim.SGD([*errors.values(), torch.zeros(1, requires_grad=True)], lr=lr)
    for _ in range(T):
        optimizer.zero_grad()
        energy = run(errors)
        if energy.requires_grad:
            energy.backward()
        optimizer.step()
    run(errors)
    found, x = {}, {v: value.detach() for v, value in values.items()}
    for v, f in net.nodes.items():
        mu = f(*(x[p] for p in net.parents[v]))
        response = mu.softmax(1) if v == net.output and loss == "cross_entropy" else mu
        eps = errors[v].detach() if v in errors else (target - response).detach()
        for name, p in f.named_parameters(prefix=f"nodes.{v}"):
            wanted = p.requires_grad and bool((eps != 0).any())
            found[name] = (
                torch.autograd.grad(-(eps * mu).sum() / len(images), p, retain_graph=True)[0] if wanted else None
            )
    return found, x


@draws
@given(
    dags(), st.sampled_from([1, 2, 5]), st.sampled_from([0.1, 1.0]), st.sampled_from(["squared_error", "cross_entropy"])
)
def test_error_based_inference_is_that_of_one_backward_pass(net, T, lr, loss):
    net, images, labels, target = case(net, shape=(4,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = gradients(Algorithm.parse("epc", T=T, lr_x=lr, loss=loss), net, images, labels)
    assert_same(ours, naive_errors(copy.deepcopy(net), images, target, loss, T, lr)[0])


@every_net
@both_losses
def test_error_based_inference_on_images(name, loss):
    net, images, labels, target = case(name)
    expected = naive_errors(copy.deepcopy(net), images, target, loss, net.L, 0.3)[0]
    assert_same(gradients(Algorithm.parse("epc", lr_x=0.3, loss=loss), net, images, labels), expected)


@settings(draws, max_examples=12)
@given(dags(), st.sampled_from(["squared_error", "cross_entropy"]))
def test_error_based_inference_ends_where_no_activity_wants_to_move(net, loss):
    """The force dE/dx of plain predictive coding, by autograd on its energy, vanishes in the state that epc ends in."""
    net, images, labels, target = case(net, shape=(4,))
    seen = {}

    def observe(t, state):
        seen.update({v: state.activity(v).detach().clone() for v in net.nodes if v != net.output})

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Algorithm.parse("epc", T=150, lr_x=0.2, loss=loss).gradients(net, images, labels, observe=observe)
    xs = {**{v: x.requires_grad_() for v, x in seen.items()}, net.output: target}
    naive = Naive(PC(loss=loss), net, images, target)
    energy = sum(naive.terms(xs, naive.predict(xs)).values())
    for force in torch.autograd.grad(energy, list(seen.values()), allow_unused=True) if seen else ():
        assert force is None or float(force.abs().max()) < 1e-6


def linear_chain(seed=0, sizes=(4, 5, 5, 5, 3)):
    torch.manual_seed(seed)
    return Chain(*(nn.Linear(a, b) for a, b in pairwise(sizes))).double()


def minimum(net, images, target):
    """Hidden activities of least energy of a linear chain, and the Hessian of it for one sample, in closed form.

    E = 1/2 sum |x_l - W_l x_(l-1) - b_l|^2: with r = A x + c the vector of all errors, H = A^T A and H x = -A^T c.
    """
    weights = [(f.weight.detach(), f.bias.detach()) for f in net.nodes.values()]
    hidden = [W.shape[0] for W, _ in weights[:-1]]
    rows = []
    for i, (W, _) in enumerate(weights):
        blocks = [torch.zeros(W.shape[0], n).double() for n in hidden]
        if i < len(hidden):
            blocks[i] = torch.eye(W.shape[0]).double()
        if i > 0:
            blocks[i - 1] = -W
        rows.append(torch.cat(blocks, 1))
    A = torch.cat(rows)
    constant = [-b.expand(len(images), -1) for _, b in weights]
    constant[0] = constant[0] - images @ weights[0][0].T
    constant[-1] = constant[-1] + target
    c = torch.cat(constant, 1)
    H = A.T @ A
    x = torch.linalg.solve(H, -A.T @ c.T).T
    return dict(zip(net.nodes, x.split(hidden, 1), strict=False)), H


def relaxed(algo, net, images, labels):
    """The hidden activities by step."""
    seen = []

    def observe(t, state):
        seen.append({v: state.activity(v).detach().clone() for v in net.nodes if v != net.output})

    algo.gradients(net, images, labels, observe=observe)
    return seen


def test_error_based_inference_of_a_linear_net_ends_in_the_closed_form():
    net, images, labels, target = case(linear_chain())
    expected, _ = minimum(net, images, target)
    ours = relaxed(Algorithm.parse("epc", T=100, lr_x=0.4), net, images, labels)[-1]
    for v, x in expected.items():
        torch.testing.assert_close(ours[v], x, rtol=0, atol=1e-10)
    long = gradients(Algorithm.parse("pc", T=600, lr_x=0.4), net, images, labels)
    assert_same(gradients(Algorithm.parse("epc", T=100, lr_x=0.4), net, images, labels), long, 1e-8)


def test_both_ways_of_inference_teach_a_nonlinear_net_the_same_in_the_end():
    net, images, labels, _ = case(mlp(4).double())
    long = gradients(Algorithm.parse("pc", T=600, lr_x=0.4), net, images, labels)
    assert_same(gradients(Algorithm.parse("epc", T=100, lr_x=0.4), net, images, labels), long, 1e-6)


def test_precisions_of_hidden_nodes_weigh_errors():
    """The equilibrium e = lambda / precision is that of pc, with the same energies."""
    torch.manual_seed(0)
    nodes = {"h": (nn.Linear(4, 5), "input"), "g": (nn.Sequential(nn.Linear(5, 5), nn.Tanh()), "h")}
    nodes["y"] = (nn.Linear(5, 3), "g")
    net = Graph(nodes, energies={"g": Gaussian(3.0), "h": Gaussian(0.5)}).double()
    net, images, labels, _ = case(net)
    long = gradients(Algorithm.parse("pc", T=600, lr_x=0.2), net, images, labels)
    assert_same(gradients(Algorithm.parse("epc", T=150, lr_x=0.2), net, images, labels), long, 1e-6)


def test_the_work_of_error_based_inference_is_a_pass_in_both_directions_for_each_step():
    """Level 1 stands on the input, so its prediction stays valid; the last pass is the one that weights learn from."""
    assert counts(Algorithm.parse("epc", T=3)) == ([1, 4, 4, 4, 4], [0, 3, 3, 3, 3], [1] * 5)
    assert counts(Algorithm.parse("epc")) == ([1, 6, 6, 6, 6], [0, 5, 5, 5, 5], [1] * 5)


def test_error_based_inference_moves_statistics_once():
    net, images, labels, _ = case("vgg with norms")
    Algorithm.parse("epc", T=3).gradients(net, images, labels)
    assert {int(b) for name, b in net.named_buffers() if name.endswith("num_batches_tracked")} == {1}


class Huber(Energy):
    def value(self, x, mu):
        return nn.functional.huber_loss(mu, x, reduction="none").flatten(1).sum(1)


@pytest.mark.parametrize("spec", ["epc", "hpc"])
def test_energies_that_are_no_function_of_the_error_are_refused(spec):
    net = Graph({"h": (nn.Linear(4, 3), "input"), "y": (nn.Linear(3, 2), "h")}, energies={"h": Huber()})
    with pytest.raises(ValueError, match=f"{spec} needs .*energies that depend on x - mu alone"):
        Algorithm.parse(spec).gradients(net, torch.randn(2, 4), torch.tensor([0, 1]))


def test_error_based_inference_takes_any_energy_of_the_output():
    energies = {"y": CrossEntropy(torch.tensor([1.0, 2.0, 3.0]).double()), "z": Bernoulli()}
    torch.manual_seed(0)
    nodes = {"h": (nn.Sequential(nn.Linear(4, 5), nn.Tanh()), "input"), "y": (nn.Linear(5, 3), "h")}
    net = Graph({**nodes, "z": (nn.Linear(5, 2), "h")}, energies=energies).double()
    targets = {"y": torch.tensor([0, 2, 1]), "z": torch.rand(3, 2).double()}
    images = torch.randn(3, 4).double()
    found = []
    for algo in (Algorithm.parse("pc", T=100, lr_x=0.4), Algorithm.parse("epc", T=100, lr_x=0.3)):
        net.zero_grad()
        algo.gradients(net, images, targets)
        found.append({n: p.grad.clone() for n, p in net.named_parameters()})
    assert_same(found[1], found[0], 1e-6)


# hpc: rate and momentum of the closed-form spectrum, and the speed that it predicts.


def slope_state(net, images):
    with torch.no_grad():
        return State(net, {"input": images}, wave=spectrum.slopes(net))


def test_the_products_are_those_with_the_hessian():
    net, images, _, target = case(linear_chain())
    _, H = minimum(net, images, target)
    state, g = slope_state(net, images), torch.Generator().manual_seed(1)
    u = {v: torch.randn(5, 5, generator=g).double() for v in ("1", "2", "3")}
    with torch.no_grad():
        found = spectrum.curvature(state, u)
    expected = (torch.cat(list(u.values()), 1) @ H).split(5, 1)
    for v, product in zip(u, expected, strict=True):
        torch.testing.assert_close(found[v], product, rtol=1e-4, atol=1e-5)


@draws
@given(dags())
def test_the_products_are_those_of_the_linearised_energy_on_any_graph(net):
    """B by the jacobians of each node at the feed-forward pass, which autograd gives in full."""
    net, images, _, _ = case(net, shape=(4,))
    images = images[:1]
    state = slope_state(net, images)
    g = torch.Generator().manual_seed(2)
    hidden = [v for v in net.nodes if v != net.output]
    u = {v: torch.randn(state.mu0[v].shape, generator=g).double() for v in hidden}
    x = {**state.mu0}
    errors = {}
    for v, f in net.nodes.items():
        _, change = torch.func.jvp(
            f, tuple(x[p] for p in net.parents[v]), tuple(u.get(p, torch.zeros_like(x[p])) for p in net.parents[v])
        )
        errors[v] = u.get(v, 0) - change
    expected = {v: errors[v].clone() for v in hidden}
    for v, f in net.nodes.items():
        _, pull = torch.func.vjp(f, *(x[p] for p in net.parents[v]))
        for p, back in zip(net.parents[v], pull(errors[v]), strict=True):
            if p in expected:
                expected[p] = expected[p] - back
    with torch.no_grad():
        found = spectrum.curvature(state, u)
    for v in hidden:
        torch.testing.assert_close(found[v], expected[v].detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_extreme_eigenvalues_are_those_of_the_closed_form(seed):
    net, images, _, target = case(linear_chain(seed))
    _, H = minimum(net, images, target)
    exact = torch.linalg.eigvalsh(H)
    with torch.no_grad():
        least, largest = spectrum.extremes(slope_state(net, images), 40)
    assert least == pytest.approx(float(exact[0]), rel=1e-3)
    assert largest == pytest.approx(float(exact[-1]), rel=1e-3)
    with torch.no_grad():  # a few products: from above, and from above
        least, largest = spectrum.extremes(slope_state(net, images), 5)
    assert float(exact[0]) <= least < 2 * float(exact[0])
    assert float(exact[-1]) * 0.999 <= largest < 1.5 * float(exact[-1])


def test_few_products_give_what_the_krylov_space_holds():
    """Ritz values of the span of u, Hu, HHu, ... by dense algebra, and |H y - h y|, which is added to the largest."""
    net, images, _, target = case(linear_chain())
    _, H = minimum(net, images, target)
    H = torch.kron(torch.eye(len(images)).double(), H)  # of all samples, one after the other
    state = slope_state(net, images)
    span = [torch.cat(list(spectrum.random_change(state, ["1", "2", "3"]).values()), 1).flatten()]
    for _ in range(3):
        span.append(H @ span[-1])
    Q, _ = torch.linalg.qr(torch.stack(span, 1))
    values, vectors = torch.linalg.eigh(Q.T @ H @ Q)
    y = Q @ vectors[:, -1]
    with torch.no_grad():
        least, largest = spectrum.extremes(state, 4)
    assert least == pytest.approx(float(values[0]), rel=1e-4)
    assert largest == pytest.approx(float(values[-1] + (H @ y - values[-1] * y).norm()), rel=1e-4)


def test_the_change_to_begin_with_is_a_samples_own():
    """So that workers measure what one process would; and it is no mean, which norms take away."""
    torch.manual_seed(0)
    nodes = {"h": (nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), "a"), "g": (nn.Embedding(7, 5), "b")}
    net = Graph({**nodes, "y": (Sum(nn.Linear(5, 3)), ["h", "g"])}, inputs=("a", "b"))
    inputs = {"a": torch.randn(6, 3, 2, 2), "b": torch.arange(6)}

    def change(rows):
        with torch.no_grad():
            state = State(net, {v: x[rows] for v, x in inputs.items()}, wave=spectrum.slopes(net))
        return spectrum.random_change(state, ["h", "g"])

    whole = change(slice(0, 6))
    for rows in (slice(0, 2), slice(2, 6), slice(6, 6)):
        for v, part in change(rows).items():
            torch.testing.assert_close(part, whole[v][rows])
    assert not torch.allclose(whole["h"], whole["g"], atol=0.1)
    for u in whole.values():
        assert float((u - u.mean(0)).norm()) > 0.1 * float(u.norm())


def test_rate_and_momentum_are_polyaks():
    """Of a quadratic with eigenvalues from 1 to 9: kappa 9, momentum ((3 - 1) / (3 + 1))^2, rate 4 / (3 + 1)^2."""
    assert spectrum.heavy_ball(1.0, 9.0) == (0.25, 0.25)
    lr, momentum = spectrum.heavy_ball(2.0, 2.0)
    assert (lr, momentum) == (pytest.approx(0.5), 0.0)
    assert spectrum.heavy_ball(-1e-9, 4.0) == spectrum.heavy_ball(4e-6, 4.0)  # rounding has made it negative


def test_inference_falls_by_the_root_of_the_momentum():
    """A chain of 9 rotations: its condition by eigvalsh, the speed by the states that inference passes."""
    torch.manual_seed(0)
    net = Chain(*(nn.Linear(3, 3, bias=False) for _ in range(9))).double()
    for p in net.parameters():
        nn.init.orthogonal_(p)
    net, images, labels, target = case(net)
    for f in net.nodes.values():
        f.bias = nn.Parameter(torch.zeros(len(f.weight)).double(), requires_grad=False)
    expected, H = minimum(net, images, target)
    eigenvalues = torch.linalg.eigvalsh(H)
    root = math.sqrt(float(eigenvalues[-1] / eigenvalues[0]))
    steps = math.ceil(12 * root)
    states = relaxed(Algorithm.parse("hpc", T=steps, probes=40), net, images, labels)
    distance = [math.sqrt(sum(float((s[v] - x).square().sum()) for v, x in expected.items())) for s in states]
    half = steps // 2
    speed = (distance[-1] / distance[half]) ** (1 / (steps - half))
    assert speed == pytest.approx((root - 1) / (root + 1), abs=0.02)
    plain = relaxed(PC(T=steps, lr_x=2 / float(eigenvalues[0] + eigenvalues[-1])), net, images, labels)[-1]
    left = math.sqrt(sum(float((plain[v] - x).square().sum()) for v, x in expected.items()))
    assert distance[-1] < 1e-6 * distance[0] < 0.01 * left  # which plain descent at its best rate is far from


def test_the_heavy_ball_ends_where_pc_does_and_learns_the_same():
    net, images, labels, _ = case(mlp(4).double())
    long = gradients(Algorithm.parse("pc", T=600, lr_x=0.4), net, images, labels)
    assert_same(gradients(Algorithm.parse("hpc", T=100, probes=20), net, images, labels), long, 1e-6)


@draws
@given(dags())
def test_the_heavy_ball_is_that_of_the_naive_engine(net):
    """With the rate and the momentum that it has measured, every step is pc's with plain momentum."""
    net, images, labels, target = case(net, shape=(4,))
    with torch.no_grad():
        lr, momentum = spectrum.heavy_ball(*spectrum.extremes(slope_state(net, images), 8))
    algo = PC(T=6, lr_x=lr, momentum_x=momentum, nesterov=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = gradients(Algorithm.parse("hpc", T=6), net, images, labels)
    assert_same(ours, Naive(algo, net, images, target).learnt(sgd), 1e-7)


def test_the_work_of_measuring_the_spectrum_is_counted():
    """PC's triangle and its last prediction; and a pass, and 4 products of a prediction and a pull-back each.

    Level 1 stands on the input: nothing changes its prediction.
    """
    predictions, pull_backs, weights = counts(Algorithm.parse("hpc", probes=4))
    assert (predictions, pull_backs) == (
        [2, 3 + 1 + 4, 4 + 1 + 4, 5 + 1 + 4, 6 + 1 + 4],
        [0, 2 + 4, 3 + 4, 4 + 4, 5 + 4],
    )
    assert weights == [1] * 5


def test_a_network_without_hidden_nodes_has_no_spectrum():
    net, images, labels, target = case(Chain(nn.Linear(4, 3)).double())
    assert_backprop(gradients(Algorithm.parse("hpc"), net, images, labels), backprop(net, images, target))
    assert spectrum.extremes(slope_state(net, images), 3) == (1.0, 1.0)


# fa and dfa: backprop where the feedback is the weights, and an independent implementation where it is not.


@pytest.fixture
def weights_as_feedback(monkeypatch):
    """Let the feedback of a matrix be the matrix."""

    def use(net):
        known = {name: p.detach().clone() for name, p in net.named_parameters()}
        used = set()
        monkeypatch.setattr(feedback, "draw", lambda seed, name, *rest: used.add(name) or known[name])
        return used

    return use


@draws
@given(dags(), st.sampled_from(["squared_error", "cross_entropy"]))
def test_feedback_alignment_by_the_weights_themselves_is_backprop_on_any_graph(net, loss):
    net, images, labels, target = case(net, shape=(4,))
    known = {name: p.detach().clone() for name, p in net.named_parameters()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feedback, "draw", lambda seed, name, *rest: known[name])
        ours = gradients(Algorithm.parse("fa", loss=loss), net, images, labels)
    assert_backprop(ours, backprop(net, images, target, loss))


@every_net
def test_feedback_alignment_by_the_weights_themselves_is_backprop_on_images(name, weights_as_feedback):
    net, images, labels, target = case(name)
    used = weights_as_feedback(net)
    for layout in (torch.contiguous_format, torch.channels_last):
        other = copy.deepcopy(net).to(memory_format=layout)
        images = images.to(memory_format=layout) if images.dim() == 4 else images
        ours = gradients(Algorithm.parse("fa"), other, images, labels)
        assert_backprop(ours, backprop(copy.deepcopy(net), images, target))
    matrices = {n for n, p in net.named_parameters() if p.dim() > 1}
    passed = {n for n in matrices if net.hidden_parents(n.split(".")[1])}
    assert passed <= used <= matrices  # all that errors pass through, but neither norms nor biases


def test_feedback_lies_as_the_weight_does(weights_as_feedback):
    """A weight may be a part of a larger memory."""
    net, images, labels, target = case(mlp(3).double())
    memory = torch.randn(100).double()
    memory[7:43] = net.nodes["2"][0].weight.detach().flatten()
    net.nodes["2"][0].weight.data = memory[7:43].view(6, 6)
    weights_as_feedback(net)
    assert_backprop(gradients(Algorithm.parse("fa"), net, images, labels), backprop(net, images, target))


def given_feedback(net, seed=0):
    return {n: feedback.draw(seed, n, tuple(p.shape), p.dtype, p.device) for n, p in net.named_parameters()}


def by_hand(net, images, target, B, direct=False):
    """Both alignments of a tanh MLP, in the formulas of their papers; ``B`` by the name of a layer's weight."""
    layers = [(f[0] if isinstance(f, nn.Sequential) else f) for f in net.nodes.values()]
    x = [images]
    for layer in layers[:-1]:
        x.append(torch.tanh(x[-1] @ layer.weight.T + layer.bias))
    error = target - (x[-1] @ layers[-1].weight.T + layers[-1].bias)
    found, delta = {}, error
    for i in reversed(range(len(layers))):
        name = next(n for n, p in net.named_parameters() if p is layers[i].weight)
        found[name] = -(delta.T @ x[i]).detach() / len(images)
        found[name.replace("weight", "bias")] = -delta.sum(0).detach() / len(images)
        if i > 0:
            carried = error @ B[str(i)].T if direct else delta @ B[name]
            delta = carried * (1 - x[i].square())
    return found


def test_feedback_alignment_of_an_mlp_by_hand():
    net, images, labels, target = case("chain")
    for seed in (0, 3):
        expected = by_hand(net, images, target, given_feedback(net, seed))
        assert_same(gradients(Algorithm.parse("fa", feedback_seed=seed), net, images, labels), expected)
    assert cosine(expected["nodes.1.0.weight"], backprop(net, images, target)["nodes.1.0.weight"]) < 0.9


@pytest.mark.parametrize("norm", [nn.LayerNorm((2, 3)), nn.RMSNorm((2, 3))])
def test_feedback_alignment_leaves_norms_as_they_are(norm):
    """A norm over two dimensions has a scale of two, which is no matrix."""
    torch.manual_seed(0)
    a, y = nn.Linear(6, 6), nn.Linear(6, 3)
    nn.init.uniform_(norm.weight, 0.5, 2.0)
    net = Chain(nn.Sequential(a, nn.Tanh()), nn.Sequential(nn.Unflatten(1, (2, 3)), norm, nn.Flatten(), y)).double()
    images, target = torch.randn(5, 6).double(), torch.randn(5, 3).double()
    Algorithm.parse("fa").gradients(net, images, target)
    B = feedback.draw(0, "nodes.2.3.weight", (3, 6), torch.float64, images.device)
    h = torch.tanh(a(images)).detach().requires_grad_()
    z = norm(h.view(5, 2, 3)).flatten(1)
    (carried,) = torch.autograd.grad(z, h, (y(z) - target).detach() @ B)
    assert torch.allclose(a.bias.grad, (carried * (1 - h.square())).mean(0).detach(), atol=1e-12)


def test_direct_feedback_alignment_of_an_mlp_by_hand():
    net, images, labels, target = case("chain")
    B = {str(i): feedback.draw(2, str(i), (6, 3), torch.float64, images.device) for i in range(1, 5)}
    expected = by_hand(net, images, target, B, direct=True)
    assert_same(gradients(Algorithm.parse("dfa", feedback_seed=2), net, images, labels), expected)


def test_direct_feedback_by_the_product_of_the_weights_is_backprop_in_a_linear_net(monkeypatch):
    net, images, labels, target = case(linear_chain())
    W = [f.weight.detach() for f in net.nodes.values()]
    whole = {"1": W[3] @ W[2] @ W[1], "2": W[3] @ W[2], "3": W[3]}
    monkeypatch.setattr(feedback, "draw", lambda seed, name, *rest: whole[name].T)
    for loss in ("squared_error", "cross_entropy"):
        ours = gradients(Algorithm.parse("dfa", loss=loss), net, images, labels)
        assert_backprop(ours, backprop(net, images, target, loss))


def test_direct_feedback_to_images_and_from_several_outputs():
    torch.manual_seed(0)
    conv = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.GELU())
    nodes = {"h": (conv, "input"), "flat": (nn.Flatten(), "h"), "y": (nn.Linear(256, 3), "flat")}
    net = Graph({**nodes, "z": (nn.Linear(256, 2), "flat")}).double()
    images, targets = (
        torch.randn(5, 3, 8, 8).double(),
        {"y": torch.randn(5, 3).double(), "z": torch.randn(5, 2).double()},
    )
    work = Algorithm.parse("dfa").gradients(net, images, targets).work
    out = net(images)
    error = torch.cat([targets["y"] - out["y"], targets["z"] - out["z"]], 1).detach()
    delta = error @ feedback.draw(0, "h", (256, 5), torch.float64, images.device).T
    expected = torch.autograd.grad(-(conv(images).flatten(1) * delta).sum() / 5, conv[0].weight)[0]
    torch.testing.assert_close(conv[0].weight.grad, expected, rtol=1e-9, atol=1e-13)
    assert not work.pull_backs
    assert dict(work.weight_gradients) == {"h": 1, "y": 1, "z": 1}
    assert set(work.predictions.values()) == {1}


def test_feedback_is_of_the_size_of_torchs_weights_and_the_same_every_time():
    B = feedback.draw(0, "a", (64, 25, 2, 2), torch.float64, torch.device("cpu"))
    assert float(B.abs().max()) <= 0.1
    assert float(B.std()) == pytest.approx(0.1 / math.sqrt(3), rel=0.05)
    assert abs(float(B.mean())) < 0.005
    assert B.dtype == torch.float64
    feedback.draw.cache_clear()
    torch.manual_seed(5)
    assert torch.equal(B, feedback.draw(0, "a", (64, 25, 2, 2), torch.float64, torch.device("cpu")))
    for seed, name in ((1, "a"), (0, "b")):
        assert not torch.equal(B, feedback.draw(seed, name, (64, 25, 2, 2), torch.float64, torch.device("cpu")))


@pytest.mark.parametrize("spec", ["fa", "dfa"])
def test_weights_align_with_their_feedback(spec):
    """What the methods are named for: from small weights, the updates of a linear network turn towards backprop's."""
    torch.manual_seed(0)
    net = Chain(nn.Linear(20, 30), nn.Linear(30, 10)).double()
    for p in net.parameters():
        p.data.mul_(0.1)
    teacher = torch.randn(10, 20).double() / math.sqrt(20)
    optimizer, algo = torch.optim.SGD(net.parameters(), lr=0.02), Algorithm.parse(spec)

    def angle():
        images = torch.randn(200, 20).double()
        ours = gradients(algo, net, images, images @ teacher.T)["nodes.1.weight"]
        return cosine(ours, backprop(net, images, images @ teacher.T)["nodes.1.weight"])

    assert abs(angle()) < 0.2
    for _ in range(60):
        images = torch.randn(50, 20).double()
        algo.step(net, images, images @ teacher.T, optimizer)
    assert angle() > 0.7


def test_the_work_of_the_alignments():
    assert counts(Algorithm.parse("fa")) == BACKPROP
    assert counts(Algorithm.parse("dfa")) == ([1] * 5, [0] * 5, [1] * 5)


def test_feedback_cannot_stand_in_for_copies():
    net, images, labels, _ = case("vgg")
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match="autocast or a parametrization copies"):
        Algorithm.parse("fa").gradients(net.float(), images.float(), labels)
    parametrize.register_parametrization(net.nodes["1"][0], "weight", nn.Tanh())
    with pytest.raises(ValueError, match="autocast or a parametrization copies"):
        Algorithm.parse("fa").gradients(net.float(), images.float(), labels)


# Nudging: to first order the linear response of the network, from either side; to second order from both.


def linear_response(net, images, target, loss):
    """What relaxed predictive coding teaches as beta goes to 0, in closed form.

    By first order errors are carried as backprop's, eps_v = A_v^T eps_out with A_v = dmu_out / dx_v. Hidden nodes then
    move the output's prediction by G eps_out, G = sum_v A_v A_v^T, so that of y - mu0 there is (1 + S G)^-1 (y - mu0)
    left, with S the slope of the output's response (1, or that of softmax): backprop of another error.
    """
    xs, out = {"input": images}, None
    for v, f in net.nodes.items():
        out = xs[v] = f(*(xs[p] for p in net.parents[v]))
    hidden = [xs[v] for v in net.nodes if v != net.output]
    rows = [torch.autograd.grad(out[:, c].sum(), hidden, retain_graph=True) for c in range(out.shape[1])]
    A = torch.stack([torch.cat([x.flatten(1) for x in row], 1) for row in rows], 1)
    p = out.softmax(1).detach() if loss == "cross_entropy" else out.detach()
    S = torch.eye(out.shape[1]).double().expand(len(out), -1, -1)
    if loss == "cross_entropy":
        S = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
    eps = torch.linalg.solve(torch.eye(out.shape[1]).double() + S @ A @ A.transpose(1, 2), target - p)
    parameters = dict(net.named_parameters())
    found = torch.autograd.grad(-(eps * out).sum() / len(images), list(parameters.values()))
    return dict(zip(parameters, found, strict=True))


@both_losses
def test_small_nudges_are_linear_to_first_order_and_both_signs_together_to_second(loss):
    torch.manual_seed(0)
    net, images, labels, target = case(mlp(3).double())
    expected = linear_response(net, images, target, loss)

    def nudged(spec, beta):
        return gradients(Algorithm.parse(spec, beta=beta, T=150, lr_x=0.4, loss=loss), net, images, labels)

    def distance(found):
        return math.sqrt(sum(float((found[n] - g).square().sum()) for n, g in expected.items()))

    left = {}
    for beta in (0.1, 0.05):
        plus, minus = nudged("pc+pn", beta), nudged("pc+nn", beta)
        left[beta] = [distance(found) for found in (plus, minus, {n: (plus[n] + minus[n]) / 2 for n in plus})]
    ratios = [a / b for a, b in zip(left[0.1], left[0.05], strict=True)]
    assert ratios == [pytest.approx(2, rel=0.1), pytest.approx(2, rel=0.1), pytest.approx(4, rel=0.1)]
    assert left[0.05][2] < left[0.05][0] / 5
    assert left[0.05][0] < 0.1 * math.sqrt(sum(float(g.square().sum()) for g in expected.values()))
    backward = backprop(net, images, target, loss)  # which it is not, but for the direction of the error
    assert distance(backward) > 5 * left[0.05][0]


@pytest.mark.parametrize("spec", ["pc", "pc+s+f", "ipc"])
def test_negative_nudging_is_the_naive_engines_with_the_sign_turned(spec):
    net, images, labels, target = case("chain")
    algo = Algorithm.parse(f"{spec}+nn", beta=0.4, lr_x=0.3)
    assert_same(learnt(algo, net, images, labels, sgd), Naive(algo, net, images, target, beta=-0.4).learnt(sgd))
    algo = Algorithm.parse(f"{spec}+pn", beta=0.4, lr_x=0.3)
    assert_same(learnt(algo, net, images, labels, sgd), Naive(algo, net, images, target, beta=0.4).learnt(sgd))


@pytest.mark.parametrize("spec", ["pc+nn", "ipc+cn"])
def test_what_cannot_be_nudged_is_refused(spec):
    nodes = {"h": (nn.Linear(4, 5), "input"), "y": (nn.Linear(5, 3), "h")}
    net = Graph(nodes, energies={"y": CrossEntropy(torch.tensor([1.0, 2.0, 3.0]))})
    with pytest.raises(ValueError, match=r"CrossEntropy has no nudging: leave beta at 1, and \+nn and \+cn out"):
        Algorithm.parse(spec).step(net, torch.randn(2, 4), torch.tensor([0, 1]), sgd(net.parameters()))
    Algorithm.parse("pc+pn").gradients(net, torch.randn(2, 4), torch.tensor([0, 1]))  # beta is 1


def test_one_nudge_at_a_time():
    with pytest.raises(ValueError, match=r"'pc\+nn\+cn' sets nudging twice: choose one of \+pn \+nn \+cn"):
        Algorithm.parse("pc+nn+cn")


# tp: damped inverses of the layers, against dense ones.


def dense_targets(net, images, target, damping):
    """Gradients of target propagation with the inverse of each layer's whole Jacobian, samples and units in one."""
    (pixels,), (output,) = net.inputs, net.outputs
    x = {pixels: images}
    for v, f in net.nodes.items():
        x[v] = f(*(x[p] for p in net.parents[v])).detach()
    delta, out = {output: target - x[output]}, {}
    for v in reversed(list(net.nodes)):
        f, given = net.nodes[v], [x[p] for p in net.parents[v]]
        own = [(n, p) for n, p in net.named_parameters() if n.startswith(f"nodes.{v}.") and p.requires_grad]
        if v not in delta:
            continue
        error = delta.pop(v)
        if own:
            energy = -(f(*given) * error).sum() / len(images)
            found = torch.autograd.grad(energy, [p for _, p in own], allow_unused=True)
            out |= dict(zip([n for n, _ in own], found, strict=True))
        jacobians = torch.autograd.functional.jacobian(f, tuple(given))
        matrix = {p: j.reshape(error.numel(), -1) for p, j in zip(net.parents[v], jacobians, strict=True)}
        matrix.pop(pixels, None)
        if matrix:
            squares = sum(j @ j.T for j in matrix.values()) + damping * torch.eye(error.numel(), dtype=error.dtype)
            solved = torch.linalg.solve(squares, error.flatten())
            for p, j in matrix.items():
                pull = (1 + damping) * (j.T @ solved).view_as(x[p])
                delta[p] = delta[p] + pull if p in delta else pull
    return out


@draws
@given(dags(), st.sampled_from([0.1, 1.0, 30.0]))
def test_target_propagation_is_that_of_dense_inverses_on_any_graph(net, damping):
    net, images, labels, target = case(net, shape=(4,))
    ours = gradients(Algorithm.parse("tp", damping=damping, iterations=60), net, images, labels)
    assert_backprop(ours, dense_targets(net, images, target, damping))


def test_few_iterations_minimise_over_the_krylov_space():
    """After k steps the error of the solution is the least of all in the space, in the norm of the matrix."""
    net, images, labels, target = case("chain")
    exact = dense_targets(net, images, target, 0.5)["nodes.4.0.weight"]
    ours = [
        gradients(Algorithm.parse("tp", damping=0.5, iterations=k), net, images, labels)["nodes.4.0.weight"]
        for k in range(1, 8)
    ]
    errors = [float((g - exact).norm() / exact.norm()) for g in ours]
    assert all(later <= max(earlier, 1e-12) for earlier, later in pairwise(errors))
    assert errors[0] > 1e-3 > 1e-9 > errors[-1]


@draws
@given(dags())
def test_with_much_damping_target_propagation_is_backprop(net):
    net, images, labels, target = case(net, shape=(4,))
    ours = gradients(Algorithm.parse("tp", damping=1e12, iterations=1), net, images, labels)
    assert_backprop(ours, backprop(net, images, target))


@pytest.mark.parametrize("name", names)
def test_so_it_is_on_images_statistics_included(name):
    net, images, labels, target = case(name)
    other = copy.deepcopy(net)
    ours = gradients(Algorithm.parse("tp", damping=1e12, iterations=1), net, images, labels)
    assert_backprop(ours, backprop(other, images, target))
    for b, c in zip(buffers(net).values(), buffers(other).values(), strict=True):
        torch.testing.assert_close(b, c)


def test_targets_of_an_invertible_net_meet_the_label():
    net, images, labels, target = case(linear_chain(sizes=(5, 5, 5, 5)), shape=(5,))
    ours = gradients(Algorithm.parse("tp", damping=1e-9, iterations=80), net, images, labels)
    x = [images]
    for f in net.nodes.values():
        x.append(f(x[-1]).detach())
    delta = target - x[-1]
    for i, f in reversed([*enumerate(net.nodes.values())]):
        torch.testing.assert_close(ours[f"nodes.{i + 1}.weight"], -delta.T @ x[i] / len(images), rtol=1e-4, atol=1e-6)
        delta = delta @ torch.linalg.inv(f.weight.detach()).T


def test_target_propagation_reaches_layers_whose_squares_underflow():
    """Each layer passes on a ten-thousandth, so that squares at the first are far below what float32 holds."""
    net, images, labels, _ = case(mlp(8).double())
    for f in net.nodes.values():
        (f if isinstance(f, nn.Linear) else f[0]).weight.data.mul_(1e-4)
    ours = gradients(Algorithm.parse("tp"), net, images, labels)
    assert 0 < float(ours["nodes.1.0.weight"].norm()) < 1e-24
    single = gradients(Algorithm.parse("tp"), net.float(), images.float(), labels)
    for name, g in ours.items():
        assert cosine(single[name].double(), g) > 0.9999


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return 2 * gradient


class Doubled(nn.Linear):
    def forward(self, x):
        return Twice.apply(super().forward(x))


class Attending(nn.Linear):
    def forward(self, x):
        x = super().forward(x).view(-1, 1, 2, 3)
        return nn.functional.scaled_dot_product_attention(x, x, x).flatten(1)


@pytest.mark.parametrize(
    ("module", "error"), [(Doubled(6, 6), ValueError), (Attending(6, 6), RuntimeError)], ids=["once", "attention"]
)
def test_modules_that_cannot_be_differentiated_twice_are_named(module, error):
    net = Chain(nn.Linear(4, 6), module, nn.Linear(6, 3))
    images, labels = torch.randn(5, 4), torch.randint(0, 3, (5,))
    Algorithm.parse("bp").gradients(net, images, labels)
    with pytest.raises(error) as caught:
        Algorithm.parse("tp").gradients(net, images, labels)
    assert "node '2'" in f"{caught.value} {getattr(caught.value, '__notes__', '')}"


def test_the_work_of_target_propagation():
    expected = ([1, 4, 4, 4, 4], [0, 5, 5, 5, 5], [1] * 5)
    assert counts(Algorithm.parse("tp", iterations=3)) == expected


# What all of them have in common.


@pytest.mark.parametrize("spec", ["epc", "hpc", "zil", "fa", "dfa", "tp"])
def test_names_options_and_a_step(spec):
    algo = Algorithm.parse(spec)
    assert str(algo) == spec
    assert spec != "hpc" or algo == Algorithm.parse("hpc", probes=8) != Algorithm.parse("hpc", probes=2)
    assert spec != "tp" or algo == Algorithm.parse("tp", damping=1.0, iterations=5)
    net, images, labels, target = case(Chain(nn.Linear(4, 6), Sum(nn.Tanh(), nn.Linear(6, 3))).double())
    before = float((net(images).detach() - target).square().sum())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(30):
        algo.step(net, images, labels, optimizer)
    assert float((net(images).detach() - target).square().sum()) < 0.7 * before


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("bp", {"repeats": 0}, "repeats is 0, but must be a whole number at least 1"),
        ("bp", {"last": 0}, "last is 0, but must be a whole number at least 1 or None"),
        ("epc", {"lr_x": 0.0}, "lr_x is 0.0"),
        ("epc", {"T": 0}, "T is 0"),
        ("epc", {"alpha": 0.1}, "unknown option 'alpha' for 'epc'"),
        ("hpc", {"lr_x": 0.1}, "unknown option 'lr_x' for 'hpc': .*probes"),
        ("hpc", {"probes": 1}, "probes is 1, but must be a whole number at least 2"),
        ("fa", {"feedback_seed": -1}, "feedback_seed is -1"),
        ("tp", {"damping": 0.0}, "damping is 0.0"),
        ("zil+s", {}, r"zil has no \+s"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec, options, message):
    with pytest.raises(ValueError, match=message):
        Algorithm.parse(spec, **options)
