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


def freely(net, images, y, steps):
    """The state of a chain with half squared errors, the output's twice, after inference and so many free steps."""
    xs = [images]
    for f in net.nodes.values():
        xs.append(f(xs[-1]).detach())
    xs = [*xs[1:-1], y]
    for t in range(4 + steps):
        xs = [x.detach().requires_grad_() for x in xs]
        pairs = zip(xs, [images, *xs], net.nodes.values(), [1.0] * (len(xs) - 1) + [2.0], strict=False)
        energy = sum(weight * (x - f(p)).square().sum() / 2 for x, p, f, weight in pairs)
        slopes = torch.autograd.grad(energy, xs)
        moving = len(xs) if t >= 4 else len(xs) - 1
        xs = [x - 0.1 * slope if i < moving else x for i, (x, slope) in enumerate(zip(xs, slopes, strict=True))]
    return [x.detach() for x in xs]


@pytest.mark.parametrize("presynaptic", ["initial", "relaxed"])
@pytest.mark.parametrize("free_steps", [0, 3])
def test_an_outputs_precision_learns_from_what_the_weights_learn_from(presynaptic, free_steps):
    """With +f that is how far it is from its initial prediction, or from where it settles freely."""
    net = mlp(3).double()
    images, labels = batch(net)
    y = nn.functional.one_hot(labels, 3).double()
    origin = freely(net, images, y, free_steps)[-1] if free_steps else net(images).detach()
    energy = net.energies["3"] = Gaussian(2.0, learnt=True).double()
    algo = Algorithm.parse("pc+f", T=4, lr_x=0.1, presynaptic=presynaptic, free_steps=free_steps)
    result = algo.gradients(net, images, labels)

    error = y - origin
    assert torch.allclose(net.nodes["3"].bias.grad, -2.0 * error.mean(0), atol=1e-12)
    square = 2.0 * float(error.square().sum()) / len(images)
    assert float(energy.log_precision.grad) == pytest.approx((square - 3) / 2)
    assert float(result.energy["3"]) == pytest.approx(square / 2 - 3 * math.log(2.0) / 2)
    counts = algo.gradients(mlp(3).double(), images, labels).work.predictions
    assert result.work.predictions == counts  # no more than for half the squared error


@pytest.mark.parametrize("presynaptic", ["initial", "relaxed"])
def test_the_energy_of_a_forward_update_is_that_of_the_first_answer(presynaptic):
    """Whatever activities the weights learn through: under cross-entropy it is the loss."""
    net = mlp(3).double()
    images, labels = batch(net)
    algo = Algorithm.parse("pc+f", T=4, lr_x=0.1, presynaptic=presynaptic, loss="cross_entropy")
    result = algo.gradients(net, images, labels)
    expected = nn.functional.cross_entropy(net(images), labels).detach()
    assert float(result.energy["3"]) == pytest.approx(float(expected))


def test_the_energy_under_free_relaxation_does_not_depend_on_what_weights_learn_through():
    found = []
    for presynaptic in ("initial", "relaxed"):
        torch.manual_seed(0)
        net = mlp(3).double()
        options = {"presynaptic": presynaptic, "free_steps": 3, "loss": "cross_entropy"}
        found.append(Algorithm.parse("pc+f", T=4, lr_x=0.1, **options).gradients(net, *batch(net)).energy["3"])
    assert found[0] == pytest.approx(found[1])


@pytest.mark.parametrize(("spec", "beta"), [("pc", 1.0), ("pc", 0.3), ("pc+nn", 0.4), ("pc+f+pn", 0.5), ("ipc", 0.3)])
def test_the_precision_of_a_nudged_output_is_that_of_the_whole_error(spec, beta):
    """Else it would find ``1 / (beta^2 variance)``."""
    net = Chain(nn.Linear(4, 3)).double()
    energy = net.energies["1"] = Gaussian(2.0, learnt=True).double()
    images, y = torch.randn(5, 4).double(), torch.randn(5, 3).double()
    error = y - net(images).detach()
    optimizer = torch.optim.SGD(energy.parameters(), lr=1.0)
    Algorithm.parse(spec, beta=beta, T=1).step(net, images, y, optimizer)
    expected = (2.0 * error.square().sum() / 5 - 3) / 2
    assert math.log(2.0) - energy.log_precision.item() == pytest.approx(float(expected))


def test_sample_weights_weigh_what_a_precision_learns():
    torch.manual_seed(0)
    net = Chain(nn.Linear(4, 3)).double()
    energy = net.energies["1"] = Gaussian(2.0, learnt=True).double()
    images, y, weights = torch.randn(5, 4).double(), torch.randn(5, 3).double(), torch.rand(5).double()
    Algorithm.parse("pc").gradients(net, images, y, sample_weights=weights)
    each = (2.0 * (y - net(images).detach()).square().sum(1) - 3) / 2
    assert float(energy.log_precision.grad) == pytest.approx(float((weights * each).sum() / 5))


class Full(Energy):
    """A whole matrix of precisions: the message of an error is more than a product of its entries."""

    canonical = settles = True

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor([[1.5, 0.0, 0.0], [-0.5, 1.0, 0.0], [0.0, -1.0, 2.0]]))

    def weigh(self, eps):
        return eps @ (self.factor @ self.factor.T)

    def value(self, x, mu):
        return (self.weigh(x - mu) * (x - mu)).sum(1) / 2


@pytest.mark.parametrize(("spec", "options"), [("bp", {}), ("pc", {}), ("pc+f", {"presynaptic": "relaxed"})])
def test_an_output_may_have_a_matrix_of_precisions(spec, options):
    torch.manual_seed(0)
    net = Chain(nn.Linear(4, 3)).double()
    energy = net.energies["1"] = Full().double()
    images, y = torch.randn(5, 4).double(), torch.randn(5, 3).double()
    result = Algorithm.parse(spec, **options).gradients(net, images, y)
    mine, energy.factor.grad = energy.factor.grad, None
    loss = energy.value(y, net(images).detach()).mean()
    loss.backward()
    assert float(result.energy["1"]) == pytest.approx(loss.item())
    assert torch.allclose(mine, energy.factor.grad, atol=1e-12)


class Learnt(Energy):
    """What ``Gaussian(learnt=True)`` is, by its value alone: nobody knows that it settles."""

    def __init__(self):
        super().__init__()
        self.log_precision = nn.Parameter(torch.zeros(()))

    def value(self, x, mu):
        own = self.log_precision
        return (own.exp() * (x - mu).square()).flatten(1).sum(1) / 2 - own * x[0].numel() / 2


@pytest.mark.parametrize("spec", ["bp", "fa", "dfa", "tp"])
def test_errors_that_are_carried_to_a_node_are_none_of_its_energy(spec):
    """A hidden node's own energy plays no part where nothing is inferred: its precision must not run away."""
    energies = []
    for own in (None, Learnt().double()):
        torch.manual_seed(0)
        net = mlp(3).double()
        if own is not None:
            net.energies["2"] = own
        energies.append(Algorithm.parse(spec).gradients(net, *batch(net)).energy["2"])
        assert own is None or own.log_precision.grad is None
    assert energies[0] == pytest.approx(energies[1])
    assert energies[0] > 0


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
