"""Any energy, several inputs and outputs, shared weights, anything clamped: against engines that share no code.

``relaxed`` holds activities as they are, adds up the whole energy at every step and calls autograd once; backprop is
torch's own on the same loss; linear networks are solved in closed form.
"""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nets import Mix, assert_same, dags
from torch import nn
from torch.nn import functional as F  # noqa: N812

import deeppc
from deeppc import Algorithm, Bernoulli, Chain, CrossEntropy, Energy, Gaussian, Graph, Latent
from deeppc.core.algorithms.bp import BP
from deeppc.core.algorithms.pc import PC


class Huber(Energy):
    """Of one's own, by its value alone."""

    def value(self, x, mu):
        return F.huber_loss(mu, x, reduction="none").flatten(1).sum(1)


def several():
    """Two inputs, two outputs at different levels, and a weight that two nodes share."""
    torch.manual_seed(1)
    shared = nn.Linear(5, 5)
    nodes = {
        "a": (nn.Sequential(nn.Linear(4, 5), nn.Tanh()), "left"),
        "b": (Mix([5, 3], 5, nn.Tanh()), ["a", "right"]),
        "c": (nn.Sequential(shared, nn.Tanh()), "b"),
        "d": (nn.Sequential(shared, nn.GELU()), "c"),
        "early": (nn.Linear(5, 2), "b"),
        "late": (nn.Linear(5, 3), "d"),
    }
    return Graph(nodes, inputs=("left", "right")).double()


def data(n=6):
    g = torch.Generator().manual_seed(0)
    make = lambda *shape: torch.randn(n, *shape, generator=g, dtype=torch.float64)  # noqa: E731
    return {"left": make(4), "right": make(3)}, {"early": make(2), "late": make(3)}


def predicted(net, xs):
    return {v: f(*(xs[p] for p in net.parents[v])) for v, f in net.nodes.items()}


def values(net, xs, mus, energies=None):
    """The energy of each node, summed over the batch, by its definition."""
    energies = energies or {}
    return {v: energies.get(v, lambda x, mu: (x - mu).square().sum() / 2)(xs[v], mus[v]) for v in net.nodes}


def relaxed(net, start, moving, steps, lr, energies=None, masks=None):
    """Gradient descent on the whole energy, all at once."""
    xs = {v: x.clone().requires_grad_(v in moving) for v, x in start.items()}
    optimizer = torch.optim.SGD([xs[v] for v in moving], lr=lr)
    for _ in range(steps):
        energy = sum(values(net, xs, predicted(net, xs), energies).values())
        forces = torch.autograd.grad(energy, [xs[v] for v in moving], materialize_grads=True, allow_unused=True)
        for v, force in zip(moving, forces, strict=True):
            xs[v].grad = force.masked_fill(masks[v], 0) if masks and v in masks else force
        optimizer.step()
    return {v: x.detach() for v, x in xs.items()}


def feed_forward(net, inputs):
    xs = dict(inputs)
    for v, f in net.nodes.items():
        xs[v] = f(*(xs[p] for p in net.parents[v])).detach()
    return xs


def weight_gradients(net, xs, n, energies=None):
    net.zero_grad()
    (sum(values(net, xs, predicted(net, xs), energies).values()) / n).backward()
    return {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}


def grads(net):
    return {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}


def assert_learns_as_by(loss, spec, net, inputs, targets):
    """That spec's gradients are those of ``loss.backward()``; those of ``pc+s+f`` with alpha 0 on a balanced graph
    are less by lr_x^arrival (which depth_gain gives back) and, but for the outputs, by 1 - lr_x."""
    options = {} if spec == "bp" else {"alpha": 0.0, "lr_x": 0.25, "depth_gain": True}
    balanced = net if spec == "bp" else net.balance()
    result = Algorithm.parse(spec, **options).gradients(balanced, inputs, targets)
    ours = grads(net)
    net.zero_grad()
    loss.backward()
    last = tuple(f"nodes.{v}." for v in net.outputs)
    scale = {name: 1.0 if spec == "bp" or name.startswith(last) else 0.75 for name in ours}
    assert_same({name: g / scale[name] for name, g in ours.items()}, grads(net))
    assert float(result.loss) == pytest.approx(float(loss.detach()))
    return result


def test_several_inputs_and_outputs_and_shared_weights_equal_the_naive_engine():
    net, (inputs, targets) = several(), data()
    start = {**feed_forward(net, inputs), **targets}
    xs = relaxed(net, start, ["a", "b", "c", "d"], 5, 0.3)
    expected = weight_gradients(copy.deepcopy(net), xs, 6)
    result = PC(lr_x=0.3, T=5).gradients(net, inputs, targets)
    assert_same(grads(net), expected)
    assert result.logits.keys() == {"early", "late"}
    net.zero_grad()
    PC(lr_x=0.3, T=5).gradients(net, tuple(inputs.values()), tuple(targets.values()))
    assert_same(grads(net), expected)


@pytest.mark.parametrize("spec", ["bp", "pc+s+f"])
def test_they_learn_as_by_backprop(spec):
    net, (inputs, targets) = several(), data()
    outs = net(*inputs.values())
    loss = sum((outs[v] - y).square().sum() for v, y in targets.items()) / 2 / 6
    result = assert_learns_as_by(loss, spec, net, inputs, targets)
    assert result.logits.keys() == {"early", "late"}


def test_ipc_knows_that_a_shared_weight_changes_for_both_nodes():
    net, (inputs, targets) = several(), data()
    other = copy.deepcopy(net)
    Algorithm.parse("ipc", lr_x=0.3, T=6).step(net, inputs, targets, torch.optim.SGD(net.parameters(), lr=0.1))
    xs = {**feed_forward(other, inputs), **targets}
    owners = {}
    for v, f in other.nodes.items():
        for p in f.parameters():
            owners.setdefault(p, []).append(v)
    for _ in range(6):
        xs = {v: x.detach().requires_grad_(v in "abcd") for v, x in xs.items()}
        terms = values(other, xs, predicted(other, xs))
        hidden = [xs[v] for v in "abcd"]
        forces = torch.autograd.grad(sum(terms.values()), hidden, retain_graph=True)
        learnt = torch.autograd.grad(sum(terms.values()) / 6, list(owners), allow_unused=True)
        with torch.no_grad():
            for p, g in zip(owners, learnt, strict=True):
                if g is not None:
                    p -= 0.1 * g
            xs |= {v: x - 0.3 * g for v, x, g in zip("abcd", hidden, forces, strict=True)}
    assert_same(net.state_dict(), other.state_dict())


def unrolled(steps=4):
    """A recurrence in time: one cell, ``steps`` nodes."""
    torch.manual_seed(0)
    cell = Mix([4, 3], 4, nn.Tanh())
    nodes = {"h1": (cell, ["state", "x1"])}
    nodes |= {f"h{t}": (cell, [f"h{t - 1}", f"x{t}"]) for t in range(2, steps + 1)}
    nodes["y"] = (nn.Linear(4, 2), f"h{steps}")
    return Graph(nodes, inputs=("state", *(f"x{t}" for t in range(1, steps + 1)))).double()


def test_an_unrolled_recurrence_learns_as_by_backprop_through_time():
    net = unrolled()
    assert len(list(net.parameters())) == len(list(net.nodes["h1"].parameters())) + 2
    xs = (torch.zeros(5, 4).double(), *torch.randn(4, 5, 3).double())
    y = torch.randn(5, 2).double()
    assert_learns_as_by((net(*xs) - y).square().sum() / 10, "pc+s+f", net, xs, y)


LABELS = torch.tensor([0, 2, 1, 2, 0, 1])
WEIGHT = torch.tensor([0.2, 1.0, 3.0], dtype=torch.float64)
LOSSES = {
    "cross-entropy": (CrossEntropy(), LABELS, lambda out: F.cross_entropy(out, LABELS, reduction="sum")),
    "smoothed": (
        CrossEntropy(label_smoothing=0.2),
        LABELS,
        lambda out: F.cross_entropy(out, LABELS, reduction="sum", label_smoothing=0.2),
    ),
    "weighted": (CrossEntropy(WEIGHT), LABELS, lambda out: F.cross_entropy(out, LABELS, WEIGHT, reduction="sum")),
    "weighted and smoothed": (
        CrossEntropy(WEIGHT, label_smoothing=0.3),
        LABELS,
        lambda out: F.cross_entropy(out, LABELS, WEIGHT, reduction="sum", label_smoothing=0.3),
    ),
    "ignored": (
        CrossEntropy(ignore_index=2),
        LABELS,
        lambda out: F.cross_entropy(out, LABELS, reduction="sum", ignore_index=2),
    ),
    "several labels": (
        Bernoulli(),
        F.one_hot(LABELS, 3).double(),
        lambda out: F.binary_cross_entropy_with_logits(out, F.one_hot(LABELS, 3).double(), reduction="sum"),
    ),
    "precision": (Gaussian(WEIGHT), LABELS, lambda out: (WEIGHT * (out - F.one_hot(LABELS, 3)) ** 2).sum() / 2),
    "one's own": (Huber(), LABELS, lambda out: F.huber_loss(out, F.one_hot(LABELS, 3).double(), reduction="sum")),
}


def chain(energy=None, depth=3):
    torch.manual_seed(0)
    net = Chain(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(depth - 1)), nn.Linear(4, 3)).double()
    if energy is not None:
        net.energies[net.output] = energy.double()
    return net


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("spec", ["bp", "pc+s+f"])
def test_an_output_of_any_energy_learns_as_by_backprop(name, spec):
    energy, targets, loss = LOSSES[name]
    net, (inputs, _) = chain(energy), data()
    assert_learns_as_by(loss(net(inputs["left"])) / 6, spec, net, inputs["left"], targets)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("spec", ["pc", "ipc"])
def test_an_output_of_any_energy_is_inferred_as_by_the_naive_engine(name, spec):
    energy, targets, loss = LOSSES[name]
    net, (inputs, _) = chain(energy), data()
    other, x = copy.deepcopy(net), inputs["left"]
    energies = {"3": lambda target, mu: loss(mu)}
    start = {**feed_forward(other, {"input": x})}
    if spec == "pc":
        xs = relaxed(other, start, ["1", "2"], 4, 0.2, energies)
        PC(lr_x=0.2, T=4).gradients(net, x, targets)
        assert_same(grads(net), weight_gradients(other, xs, 6, energies))
        return
    sgd = torch.optim.SGD(other.parameters(), lr=0.1)
    for _ in range(4):
        xs = relaxed(other, start, ["1", "2"], 1, 0.2, energies)
        weight_gradients(other, start, 6, energies)
        for v in ("1", "2"):  # what has no error yet has no gradient
            for p in other.nodes[v].parameters():
                p.grad = None if not p.grad.any() else p.grad
        sgd.step()
        start = xs
    Algorithm.parse("ipc", lr_x=0.2, T=4).step(net, x, targets, torch.optim.SGD(net.parameters(), lr=0.1))
    assert_same(net.state_dict(), other.state_dict())


def test_labels_at_every_position_are_those_of_torch():
    torch.manual_seed(0)
    net = Chain(nn.Sequential(nn.Conv1d(2, 4, 3, padding=1), nn.Tanh()), nn.Conv1d(4, 3, 1)).double()
    net.energies["2"] = CrossEntropy(ignore_index=-1)
    x, y = torch.randn(5, 2, 7).double(), torch.randint(-1, 3, (5, 7))
    assert_learns_as_by(F.cross_entropy(net(x), y, ignore_index=-1, reduction="sum") / 5, "pc+s+f", net, x, y)


@pytest.mark.parametrize("spec", ["pc", "pc+f", "ipc"])
@pytest.mark.parametrize("energy", [Gaussian(torch.tensor([0.5, 1.0, 2.0, 3.0])), Huber()])
def test_a_hidden_node_of_any_energy_equals_the_naive_engine(spec, energy):
    net, (inputs, targets) = chain(), data()
    net.energies["1"] = copy.deepcopy(energy).double()
    x, y = inputs["left"], targets["late"]
    other = copy.deepcopy(net)
    by_definition = {"1": lambda a, mu: other.energies["1"].value(a, mu).sum()}
    if isinstance(energy, Gaussian):
        precision = energy.precision
        by_definition = {"1": lambda a, mu: (precision * (a - mu) ** 2).sum() / 2}
    start = {**feed_forward(other, {"input": x}), "3": y}
    if spec == "ipc":
        sgd = torch.optim.SGD(other.parameters(), lr=0.1)
        for _ in range(5):
            xs = relaxed(other, start, ["1", "2"], 1, 0.2, by_definition)
            weight_gradients(other, start, 6, by_definition)
            sgd.step()
            start = xs
        Algorithm.parse("ipc", lr_x=0.2, T=5).step(net, x, y, torch.optim.SGD(net.parameters(), lr=0.1))
        assert_same(net.state_dict(), other.state_dict())
        return
    xs = relaxed(other, start, ["1", "2"], 5, 0.2, by_definition)
    if spec == "pc+f":  # through the initial parents, from the initial predictions
        first = feed_forward(other, {"input": x})
        net_values = values(other, xs, predicted(other, first), by_definition)
        other.zero_grad()
        (sum(net_values.values()) / 6).backward()
        expected = grads(other)
    else:
        expected = weight_gradients(other, xs, 6, by_definition)
    Algorithm.parse(spec, lr_x=0.2, T=5).gradients(net, x, y)
    assert_same(grads(net), expected)


def test_activities_that_descend_by_adam_do_so_as_torch_s():
    """A node's moments begin when its first force arrives."""
    net, (inputs, targets) = chain(), data()
    other, x, y = copy.deepcopy(net), inputs["left"], targets["late"]
    xs = {**feed_forward(other, {"input": x}), "3": y}
    moving = {v: xs[v].requires_grad_() for v in ("1", "2")}
    adam = torch.optim.Adam(moving.values(), lr=0.05)
    for _ in range(5):
        energy = sum(values(other, xs, predicted(other, xs)).values())
        for a, force in zip(moving.values(), torch.autograd.grad(energy, [*moving.values()]), strict=True):
            a.grad = force if force.abs().max() > 1e-12 else None
        adam.step()
    PC(optimizer_x="adam", lr_x=0.05, T=5).gradients(net, x, y)
    assert_same(grads(net), weight_gradients(other, {v: a.detach() for v, a in xs.items()}, 6))


def test_a_learnt_precision_finds_the_inverse_of_the_variance():
    torch.manual_seed(0)
    net = Chain(nn.Linear(1, 2))
    net.energies["1"] = Gaussian(torch.ones(2), learnt=True)
    x = torch.randn(4000, 1)
    y = torch.cat([x, -x], 1) + torch.randn(4000, 2) * torch.tensor([0.5, 2.0])
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(300):
        PC(T=1).step(net, x, y, optimizer)
    precision = net.energies["1"].log_precision.detach().exp()
    torch.testing.assert_close(precision, torch.tensor([4.0, 0.25]), rtol=0.05, atol=0.0)
    noise = (y - net(x)).detach().var(0, correction=0)
    torch.testing.assert_close(precision, 1 / noise, rtol=0.01, atol=0.0)


@pytest.mark.parametrize("spec", ["bp", "pc", "pc+s+f", "ipc"])
def test_sample_weights_are_as_many_copies_of_a_sample(spec):
    """Samples do not meet, so a weight of 2 is a sample that is there twice, and a weight of 0 one that is not."""
    net, (inputs, targets) = chain(), data()
    x, y = inputs["left"], targets["late"]
    counts = torch.tensor([2.0, 0.0, 1.0, 1.0, 0.0, 2.0], dtype=torch.float64)
    index = torch.arange(6).repeat_interleave(counts.long())
    learnt = []
    for a, b, weights in ((x, y, counts), (x[index], y[index], None)):
        copied = copy.deepcopy(net)
        optimizer = torch.optim.SGD(copied.parameters(), lr=0.1)
        result = Algorithm.parse(spec).step(copied, a, b, optimizer, sample_weights=weights)
        learnt.append((copied.state_dict(), float(result.loss)))
    assert_same(*(weights for weights, _ in learnt))
    assert learnt[0][1] == pytest.approx(learnt[1][1])


@pytest.mark.parametrize(
    ("weights", "error"),
    [
        (torch.ones(5), ValueError),
        (-torch.ones(6), ValueError),
        (torch.ones(6).long(), ValueError),
        ([1] * 6, TypeError),
    ],
)
def test_sample_weights_that_are_none(weights, error):
    inputs, targets = data()
    with pytest.raises(error, match="sample_weights"):
        BP().gradients(chain(), inputs["left"], targets["late"], sample_weights=weights)


def test_what_does_not_fit_is_said():
    inputs, targets = data()
    with pytest.raises(ValueError, match="inputs must be given for left, right"):
        PC().gradients(several(), inputs["left"], targets)
    with pytest.raises(ValueError, match="targets must be given for early, late"):
        PC().gradients(several(), inputs, {"late": targets["late"]})
    with pytest.raises(ValueError, match="several outputs, early, late"):
        several().output  # noqa: B018
    with pytest.raises(TypeError, match="this network has the inputs left, right"):
        several()(inputs["left"])
    with pytest.raises(ValueError, match="right predicts nothing"):
        Graph({"a": (nn.Linear(1, 1), "left")}, inputs=("left", "right"))
    with pytest.raises(ValueError, match="Huber has no nudging"):
        PC(beta=0.5).gradients(chain(Huber()), inputs["left"], targets["late"])
    net = chain()
    net.energies["1"] = Bernoulli()
    with pytest.raises(ValueError, match="Bernoulli is for outputs, but node '1'"):
        PC().gradients(net, inputs["left"], targets["late"])
    with pytest.raises(ValueError, match="from 0 to 1"):
        PC().gradients(chain(Bernoulli()), inputs["left"], targets["late"])
    with pytest.raises(ValueError, match="precision is"):
        Gaussian(-1.0)
    with pytest.raises(ValueError, match="energies name 'h'"):
        Graph({"a": (nn.Linear(1, 1), "input")}, energies={"h": Gaussian()})
    net = chain()
    net.energies["out"] = CrossEntropy()
    with pytest.raises(ValueError, match="energies name 'out': the nodes are 1, 2"):
        PC().gradients(net, inputs["left"], targets["late"])


@pytest.mark.parametrize("spec", ["bp", "pc", "pc+s+f", "zil", "fa", "dfa", "tp", "epc", "hpc"])
def test_an_output_may_be_one_number_for_each_sample(spec):
    """(batch,), as ``squeeze(1)`` makes it, is what (batch, 1) is; so are targets."""
    torch.manual_seed(0)
    hidden, last = nn.Sequential(nn.Linear(4, 5), nn.Tanh()), nn.Linear(5, 1)
    x, y = torch.randn(6, 4), torch.randn(6)
    weights, found = [*hidden.parameters(), *last.parameters()], []
    for form in (nn.Identity(), nn.Flatten(0)):
        for targets in (y, y.unsqueeze(1)):
            result = Algorithm.parse(spec).gradients(Chain(hidden, nn.Sequential(last, form)), x, targets)
            assert float(result.loss) == pytest.approx(
                0.5 * float((last(hidden(x))[:, 0].detach() - y).square().mean())
            )
            found.append([weight.grad for weight in weights])
            for weight in weights:
                weight.grad = None
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])


# Anything clamped


def linear():
    torch.manual_seed(3)
    nodes = {
        "a": (nn.Linear(3, 4), "input"),
        "b": (nn.Linear(4, 3), "a"),
        "y": (Mix([3, 4], 2, nn.Identity()), ["b", "a"]),
    }
    return Graph(nodes).double()


def solved(net, known, unknown):
    """The stationary point of the quadratic energy, by Newton's one step with autograd's Hessian, sample by sample."""
    names, sizes = list(unknown), [unknown[v].shape[1] for v in unknown]
    found = []
    for i in range(len(next(iter(unknown.values())))):

        def energy(flat, i=i):
            parts = dict(zip(names, flat.split(sizes), strict=True))
            xs = {v: x[i : i + 1] for v, x in known.items()} | {v: x.unsqueeze(0) for v, x in parts.items()}
            return sum(values(net, xs, predicted(net, xs)).values())

        zero = torch.zeros(sum(sizes), dtype=torch.float64)
        hessian = torch.autograd.functional.hessian(energy, zero)
        gradient = torch.autograd.functional.jacobian(energy, zero)
        found.append(torch.linalg.solve(hessian, -gradient))
    return dict(zip(names, torch.stack(found).split(sizes, 1), strict=True))


@pytest.mark.parametrize("clamped", ["input,y", "input,b", "input"])
@pytest.mark.parametrize("optimizer_x", ["sgd", "adam"])
def test_linear_networks_settle_where_the_closed_form_says(clamped, optimizer_x):
    net = linear()
    start = feed_forward(net, {"input": torch.randn(4, 3).double()})
    clamped = {v: torch.randn_like(start[v]) for v in clamped.split(",")}
    rate = {"sgd": {"lr_x": 0.2, "steps": 800}, "adam": {"lr_x": 0.01, "steps": 1500}}[optimizer_x]
    found = deeppc.infer(net, clamped, optimizer_x=optimizer_x, **rate)
    expected = solved(net, clamped, {v: x for v, x in start.items() if v not in clamped})
    for v, x in {**expected, **clamped}.items():
        torch.testing.assert_close(found.activities[v], x, rtol=1e-3, atol=1e-4)


def test_a_free_input_settles_in_the_least_squares():
    """With node a clamped, the input x minimises |a - W x - b|^2, and all that follows has no error."""
    net = linear()
    a = torch.randn(4, 4).double()
    found = deeppc.infer(
        net, {"a": a}, free={"input": torch.zeros(4, 3).double()}, lr_x=0.5, steps=3000, momentum_x=0.9
    )
    w, b = net.nodes["a"].weight.detach(), net.nodes["a"].bias.detach()
    torch.testing.assert_close(
        found.activities["input"], torch.linalg.lstsq(w, (a - b).T).solution.T, rtol=1e-4, atol=1e-5
    )
    assert float(found.energy["b"].sum() + found.energy["y"].sum()) < 1e-12


@settings(max_examples=25, deadline=None, derandomize=True)
@given(net=dags(), seed=st.integers(0, 100))
def test_on_random_graphs_inference_equals_the_naive_engine(net, seed):
    """With any nodes clamped, whole or in part, the input free or not."""
    g = torch.Generator().manual_seed(seed)
    images = torch.randn(3, 4, generator=g, dtype=torch.float64)
    start = feed_forward(net, {"input": images})
    draw = lambda x: torch.randn(x.shape, generator=g, dtype=torch.float64)  # noqa: E731
    pick = lambda: int(torch.randint(0, 3, (), generator=g))  # noqa: E731
    clamp, masks, moving, free = {}, {}, [], {}
    for v, x in start.items():
        kind = pick()
        if v == "input" and kind:
            free[v] = x
            moving.append(v)
        elif v == "input":
            clamp[v] = x
        elif kind == 0:
            clamp[v] = draw(x)
        else:
            moving.append(v)
        if v in moving and kind == 1:
            masks[v] = draw(x) > 0
            clamp[v] = (draw(x), masks[v])
    begin = dict(start)
    for v, given_ in clamp.items():
        begin[v] = torch.where(masks[v], given_[0], start[v]) if v in masks else given_
    expected = relaxed(net, begin, moving, 7, 0.1, masks=masks) if moving else begin
    found = deeppc.infer(net, clamp, free=free, steps=7, lr_x=0.1)
    for v, x in expected.items():
        torch.testing.assert_close(found.activities[v], x, rtol=1e-9, atol=1e-11)
    total = sum(values(net, expected, predicted(net, expected)).values()) / 3
    assert found.trace[-1] == pytest.approx(float(total.detach()), rel=1e-9, abs=1e-12)
    assert len(found.trace) == 8


def test_energies_never_rise_at_a_small_rate():
    net, (inputs, targets) = chain(), data()
    found = deeppc.infer(net, {"input": inputs["left"], "3": targets["late"]}, steps=200, lr_x=0.02)
    assert all(b <= a + 1e-12 for a, b in zip(found.trace, found.trace[1:], strict=False))
    assert found.trace[-1] < found.trace[0]


def test_without_a_target_inference_is_the_feed_forward_pass_and_stops_at_once():
    net, (inputs, _) = chain(), data()
    found = deeppc.infer(net, {"input": inputs["left"]}, tolerance=1e-9)
    assert torch.equal(found.activities["3"], net(inputs["left"]))
    assert found.trace == [0.0, 0.0]


RESPONSES = {
    "weights": (CrossEntropy(WEIGHT), lambda mu: mu.softmax(1)),
    "ignored": (CrossEntropy(ignore_index=1), lambda mu: mu.softmax(1)),
    "cross-entropy": (CrossEntropy(), lambda mu: mu.softmax(1)),
    "Bernoulli": (Bernoulli(), torch.sigmoid),
    "Huber": (Huber(), lambda mu: mu),
}


@pytest.mark.parametrize("name", RESPONSES)
def test_an_output_without_a_target_follows_its_prediction_under_any_energy(name):
    """So the network says at test time what it says in one pass; and with a node clamped, what follows from it."""
    energy, respond = RESPONSES[name]
    net, (inputs, _) = chain(energy), data()
    found = deeppc.infer(net, {"input": inputs["left"]}, steps=30)
    torch.testing.assert_close(found.activities["3"], respond(net(inputs["left"])).detach())
    held = torch.randn(6, 4).double()
    found = deeppc.infer(net, {"input": inputs["left"], "2": held}, steps=500)
    torch.testing.assert_close(found.activities["3"], respond(net.nodes["3"](held)).detach())
    start, seen = torch.full((6, 3), 0.25).double(), []
    deeppc.infer(
        net, {"input": inputs["left"]}, start={"3": start}, steps=0, observe=lambda t, s: seen.append(s.value("3"))
    )
    torch.testing.assert_close(seen[0], start)


def test_free_inputs_may_be_named_alone():
    net = linear()
    zero, a = torch.zeros(4, 3).double(), torch.randn(4, 4).double()
    known, mask = torch.randn(4, 3).double(), torch.tensor([True, False, False])
    for clamp, by_name, by_start in (
        ({"a": a}, {"free": {"input": zero}}, {"free": ["input", "b"], "start": {"input": zero}}),
        ({"a": a, "input": (known, mask)}, {"free": {"input": known}}, {"free": ["input"]}),
    ):
        expected, found = (deeppc.infer(net, clamp, steps=5, **how) for how in (by_name, by_start))
        assert_same(found.activities, expected.activities)


def test_langevin_noise_samples_the_gaussian_that_a_linear_network_is():
    """One node x with mu = 0 and temperature 0.5: its variance is 0.5, up to the step's own error lr_x / 2."""
    torch.manual_seed(0)
    net = Chain(nn.Linear(1, 1)).double()
    nn.init.zeros_(net.nodes["1"].weight)
    nn.init.zeros_(net.nodes["1"].bias)
    found = deeppc.infer(net, {"input": torch.zeros(20000, 1).double()}, steps=120, lr_x=0.05, noise=0.5)
    assert float(found.activities["1"].var()) == pytest.approx(0.5, rel=0.06)
    assert found.activities["1"].abs().max() > 0


IN = torch.zeros(2, 4).double()


def test_inference_starts_where_it_is_told_and_changes_no_weight():
    net, (inputs, _) = chain(), data()
    before = copy.deepcopy(net.state_dict())
    start = torch.randn(6, 4).double()
    seen = []
    deeppc.infer(
        net,
        {"input": inputs["left"]},
        start={"2": start},
        steps=3,
        observe=lambda t, state: seen.append(state.value("2").clone()),
    )
    torch.testing.assert_close(seen[0], start)
    assert len(seen) == 4
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


@pytest.mark.parametrize(
    ("clamp", "more", "error", "message"),
    [
        ({}, {}, ValueError, "the input 'input' must be clamped, or have its start in free"),
        ({"nowhere": torch.zeros(2, 4)}, {}, ValueError, "clamp names 'nowhere': choose among input, 1, 2, 3"),
        ({"input": [1.0]}, {}, TypeError, r"clamp is {'input': \[1.0\]}"),
        ({"input": torch.zeros(2, 4).double(), "2": torch.zeros(2, 5)}, {}, ValueError, "shape"),
        (
            {"input": torch.zeros(2, 4).double(), "2": (torch.zeros(2, 4), torch.ones(2, 4))},
            {},
            TypeError,
            "mask of '2' is torch.float32, but must be torch.bool",
        ),
        (
            {"input": torch.zeros(2, 4).double(), "2": (torch.zeros(2, 4), torch.ones(3, 4) > 0)},
            {},
            ValueError,
            r"mask of '2' is \(3, 4\), the activity \(2, 4\)",
        ),
        ({"3": torch.zeros(2, 3)}, {"free": {"1": torch.zeros(2, 4)}}, ValueError, "free names '1'"),
        ({"3": torch.zeros(2, 3)}, {"free": ["x"]}, ValueError, "free names 'x': choose among input, 1, 2, 3"),
        ({"3": torch.zeros(2, 3)}, {"free": ["input"]}, ValueError, "nothing says where it starts"),
        ({"3": torch.zeros(2, 3)}, {"free": ["3"]}, ValueError, "'3' is free and clamped"),
        ({"input": torch.tensor(1.0)}, {}, ValueError, r"shape \(\): expected a batch"),
        ({"input": torch.zeros(0, 4)}, {}, ValueError, r"shape \(0, 4\): expected a batch"),
        ({"input": torch.full((2, 4), math.nan)}, {}, ValueError, "'input' in clamp must be finite"),
        ({"input": IN, "3": torch.full((2, 3), math.inf)}, {}, ValueError, "'3' in clamp must be finite"),
        ({"input": IN, "3": torch.ones(2, 3) > 0}, {}, ValueError, "torch.bool, but must be floats or whole numbers"),
        ({"input": IN, "1": torch.zeros(2, 4).long()}, {}, ValueError, "torch.int64, but must be floats$"),
        ({"3": torch.zeros(2, 3)}, {"free": {"input": IN.long()}}, ValueError, "'input' in free are torch.int64"),
        ({"input": IN}, {"start": {"1": IN[:1]}}, ValueError, r"'1' in start have the shape \(1, 4\), the node"),
        ({"input": IN, "1": IN}, {"start": {"1": IN}}, ValueError, "'1' is clamped, so that its start means nothing"),
        (
            {"input": IN, "3": torch.zeros(3, 3)},
            {},
            ValueError,
            "'input' in clamp have 2 samples, and .*'3' in clamp 3",
        ),
        ({"input": IN, "3": IN[:, :3] + 1}, {"lr_x": 1e30}, ValueError, "choose a lower lr_x"),
    ],
)
def test_what_cannot_be_inferred_is_said(clamp, more, error, message):
    with pytest.raises(error, match=message):
        deeppc.infer(chain(), clamp, **more)


class Turned(nn.Module):
    """Positions first, as transformers may have them, and then their mean."""

    def __init__(self, first):
        super().__init__()
        self.layer, self.first = nn.Linear(3, 3), first

    def forward(self, x):
        return self.layer(x.transpose(0, 1) if self.first else x.mean(0))


def test_activities_may_be_given_back_whatever_their_layout():
    net = Graph({"a": (Turned(True), "input"), "y": (Turned(False), "a")})
    inputs = {"input": torch.randn(2, 5, 3)}
    activities = deeppc.infer(net, inputs, steps=1).activities
    assert activities["a"].shape == (5, 2, 3)
    again = deeppc.infer(net, inputs, start={"a": activities["a"]}, steps=0)
    assert torch.allclose(again.activities["a"], activities["a"])


def test_classes_with_weights_are_not_clamped_in_part():
    net, (inputs, _) = chain(CrossEntropy(WEIGHT)), data()
    part = (torch.full((6, 3), 1 / 3).double(), torch.tensor([True, False, False]))
    with pytest.raises(ValueError, match="'3' has class weights, and so can be clamped as a whole only"):
        deeppc.infer(net, {"input": inputs["left"], "3": part})


def test_inference_wants_gradients():
    with torch.inference_mode(), pytest.raises(ValueError, match=r"leave torch\.inference_mode"):
        deeppc.infer(chain(), {"input": torch.zeros(2, 4).double()})


def test_a_latent_node_learns_to_predict_without_inputs():
    """Principal components: a linear generator with two latents explains what the best two directions do."""
    torch.manual_seed(0)
    basis = torch.linalg.qr(torch.randn(6, 2))[0]
    images = torch.randn(256, 2) * torch.tensor([2.0, 1.0]) @ basis.T + 0.05 * torch.randn(256, 6)
    net = Graph({"z": (Latent(2), "input"), "image": (nn.Linear(2, 6), "z")})
    optimizer = torch.optim.Adam(net.parameters(), lr=0.03)
    algorithm = PC(T=30, lr_x=0.2)
    for _ in range(200):
        algorithm.step(net, torch.zeros(256, 1), images, optimizer)
    span = torch.linalg.qr(net.nodes["image"].weight.detach())[0]
    assert float((span.T @ basis).square().sum()) == pytest.approx(2.0, abs=0.01)
    found = deeppc.infer(net, {"input": torch.zeros(256, 1), "image": images}, steps=200, lr_x=0.1)
    probe = torch.linalg.lstsq(found.activities["z"], images @ basis).solution
    assert float((found.activities["z"] @ probe - images @ basis).square().mean()) < 0.15  # of a variance of 2.5


def test_inference_ends_when_a_step_changes_the_energy_by_no_more_than_the_tolerance():
    """The energy falls, so that no step changes it by more than the whole of itself."""
    torch.manual_seed(0)
    net = Chain(nn.Linear(4, 4), nn.Linear(4, 3))
    clamp = {"input": torch.randn(5, 4), "2": torch.randn(5, 3)}
    assert len(deeppc.infer(net, clamp, steps=20, tolerance=1.0).trace) == 2
    assert len(deeppc.infer(net, clamp, steps=20, tolerance=0.0).trace) == 21
