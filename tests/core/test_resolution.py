"""Deviations far below the resolution and the range of the activities' numbers come out as in exact arithmetic."""

import copy
from dataclasses import dataclass

import pytest
import torch
from naive import Naive
from nets import Mix, batch, cosine, gradients, mlp, one_hot, parse, residual
from torch import nn
from torch.func import functional_call, jvp, vjp

from deeppc import Algorithm, Chain, Graph, Sum
from deeppc.core.algorithms.pc import PC
from deeppc.core.energies import Energy, Gaussian
from deeppc.core.wave import Wave, amplitudes
from deeppc.models import build

TINY = 2.0**-20


class Linearised:
    """Plain predictive coding to first order in the output's error, in float64: an engine of nothing but slopes.

    Deviations ``d`` are moved by Jacobian-vector products at the feed-forward state, so that no activity is ever added
    to one. They are kept as they are: float64 reaches down to 1e-308.
    """

    def __init__(self, net, images, target):
        self.net, self.x = copy.deepcopy(net).double(), {"input": images.double()}
        for v, f in self.net.nodes.items():
            self.x[v] = f(*self.parents(v)).detach()
        self.error = target.double() - self.x[net.output]

    def parents(self, v):
        return tuple(self.x[p] for p in self.net.parents[v])

    def gradients(self, lr, T, pi, forward):
        net = self.net
        d = {v: torch.zeros_like(self.x[v]) for v in net.nodes} | {net.output: self.error}
        still = torch.zeros_like(self.x["input"])

        def errors():
            tangents = {v: tuple(d.get(p, still) for p in net.parents[v]) for v in net.nodes}
            return {v: d[v] - jvp(net.nodes[v], self.parents(v), tangents[v])[1] for v in net.nodes}

        for t in range(T):
            eps = {v: pi(t, net.arrival[v]) * e for v, e in errors().items()}
            force = dict(eps)
            for v in net.nodes:
                for p, pull in zip(net.parents[v], vjp(net.nodes[v], *self.parents(v))[1](eps[v]), strict=True):
                    if p != "input":
                        force[p] = force[p] - pull
            d = {v: x if v == net.output else x - lr * force[v] for v, x in d.items()}
        found = {}
        for v, e in (d if forward else errors()).items():
            f, weights = net.nodes[v], dict(net.nodes[v].named_parameters())
            if weights:
                _, pull = vjp(lambda w, f=f, v=v: functional_call(f, w, self.parents(v)), weights)
                found |= {f"nodes.{v}.{n}": -g.detach() / len(e) for n, g in pull(e)[0].items()}
        return found


def deep_chain():
    layers = [nn.Sequential(nn.Linear(12, 12), nn.Tanh()) for _ in range(40)]
    return Chain(*layers, nn.Linear(12, 3))


NETS = {"40 layers": deep_chain, "residual of 34 levels": lambda: residual(16, aux=True, channels=4)}


@pytest.mark.slow
@pytest.mark.parametrize("lr", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("spec", ["pc", "pc+f", "pc+s+f", "pc+d+f"])
@pytest.mark.parametrize("name", NETS)
def test_float32_computes_what_an_engine_of_slopes_does(name, spec, lr):
    """The output moves by a millionth, so that all is linear, and everything is below the resolution of activities.

    Deviations fall to 0.01^40, far below float32's range; ``depth_gain`` brings the gradients back into it.
    """
    torch.manual_seed(0)
    net = NETS[name]()
    images, labels = batch(net, dtype=torch.float32)
    algo = parse(spec, lr_x=lr, alpha=0.01, beta=TINY, depth_gain=True)
    ours = gradients(algo, net, images, labels)
    exact = Linearised(net, images, one_hot(net, images, labels))
    expected = exact.gradients(lr, net.L, lambda t, a: algo.pi(t, a, net.L), "+f" in spec)
    for n, g in ours.items():
        scale = lr ** -net.arrival[n.split(".")[1]]
        assert cosine(g, expected[n]) > 0.9999, n
        torch.testing.assert_close(g.double().norm(), scale * expected[n].norm(), rtol=1e-3, atol=0)


@pytest.mark.parametrize("spec", ["pc", "pc+f", "pc+d", "ipc"])
def test_what_rounding_would_lose_takes_no_more_predictions(spec):
    """Each difference is taken by the prediction that its error is pulled back through."""
    torch.manual_seed(0)
    net = deep_chain()
    images, labels = batch(net, dtype=torch.float32)
    still = torch.optim.SGD(net.parameters(), lr=0.0)
    found = [parse(spec, lr_x=0.3, resolve=r).step(net, images, labels, still).work for r in (True, False)]
    resolved, rounded = ([getattr(w, n) for n in ("predictions", "pull_backs", "weight_gradients")] for w in found)
    assert all(ours <= plain for ours, plain in zip(resolved, rounded, strict=True))


def hidden(*layers):
    return nn.Sequential(*layers, nn.GELU())


def few_rows(layer):
    """Images of which one layer reads a part of the rows: the others stand still, then move by far less."""
    convolutions = [hidden(nn.Conv2d(i, 4, 3, padding=1)) for i in (3, 4)]
    head = [hidden(nn.Flatten(), nn.Linear(64, 16)), nn.Linear(16, 3)]
    return Chain(*convolutions, nn.Sequential(layer, nn.ReLU()), *head), torch.randn(5, 3, 16, 16)


def last_token():
    """Sequences of which the end is read."""

    class Last(nn.Module):
        def forward(self, x):
            return x[:, -1]

    net = [*(hidden(nn.Linear(6, 6)) for _ in range(3)), hidden(Last(), nn.Linear(6, 6)), hidden(nn.Linear(6, 6))]
    return Chain(*net, nn.Linear(6, 3)), torch.randn(8, 1024, 6)


SPARSE = {
    "every fourth row": lambda: few_rows(nn.Conv2d(4, 4, 1, stride=4)),
    "of four rows three": lambda: few_rows(nn.Conv2d(4, 4, 3, stride=4, padding=1)),
    "of four rows two": lambda: few_rows(nn.Sequential(nn.AvgPool2d(2, stride=4), nn.Conv2d(4, 4, 1))),
    "the last token": last_token,
}


@pytest.mark.parametrize("spec", ["pc", "pc+f"])
@pytest.mark.parametrize("name", SPARSE)
def test_deviations_of_a_small_part_of_a_node(name, spec):
    """How far a difference may be stretched is a matter of what moves."""
    torch.manual_seed(0)
    net, images = SPARSE[name]()
    labels = torch.randint(0, 3, (len(images),))
    algo = Algorithm.parse(spec, lr_x=0.05, T=8)
    expected = gradients(algo, copy.deepcopy(net).double(), images.double(), labels)
    for n, g in gradients(algo, net, images, labels).items():
        assert cosine(g, expected[n]) > 0.9999, n


@pytest.mark.parametrize("lr", [0.1, 0.2])
@pytest.mark.parametrize("spec", ["pc", "pc+f", "pc+d", "ipc"])
def test_a_node_of_which_only_one_parent_has_moved(spec, lr):
    torch.manual_seed(0)
    nodes = {"a": (nn.Linear(6, 6), "input"), "b": (nn.Linear(6, 6), "input"), "v": (Mix([6, 6], 6, nn.Tanh()), "ab")}
    nodes |= {"w": (hidden(nn.Linear(6, 6)), "v"), "y": (Mix([6, 6], 3, nn.Identity()), "wa")}
    net = Graph({v: (f, list(parents) if len(parents) == 2 else parents) for v, (f, parents) in nodes.items()})
    images, labels = torch.randn(5, 6), torch.randint(0, 3, (5,))
    exact = first_lessons(parse(spec, lr_x=lr), net, images.double(), labels)
    for n, g in first_lessons(parse(spec, lr_x=lr), net, images, labels).items():
        assert cosine(g, exact[n]) > 0.9999, n


@pytest.mark.parametrize(("spec", "least"), [("pc", 0.93), ("pc+f", 0.99), ("hpc", 0.9)])
def test_bfloat16_with_norms_learns_in_the_same_direction(spec, least):
    """Differences are taken along steps of a tenth there, too long to take slopes at their end."""
    torch.manual_seed(1)
    layers = [
        nn.Sequential(nn.Conv2d(i, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.GELU()) for i in (3, *[8] * 5)
    ]
    net = Chain(*layers, nn.Sequential(nn.Flatten(), nn.Linear(8 * 64, 3)))
    images, labels = torch.randn(16, 3, 8, 8), torch.randint(0, 3, (16,))
    algo = Algorithm.parse(spec, **({} if spec == "hpc" else {"lr_x": 0.1}))
    expected = gradients(algo, copy.deepcopy(net).double(), images.double(), labels)
    with torch.autocast("cpu", torch.bfloat16):
        ours = gradients(algo, net, images, labels)
    assert min(cosine(g, expected[n]) for n, g in ours.items()) > least


def test_looking_at_errors_changes_nothing():
    """In bfloat16 every difference is stretched; what an observer has asked for is not used by anybody else."""
    torch.manual_seed(0)
    net = Chain(*(hidden(nn.Linear(6, 6)) for _ in range(3)), nn.Linear(6, 3)).bfloat16()
    images, labels = torch.randn(5, 6).bfloat16(), torch.randint(0, 3, (5,))

    def look(t, state):
        for v in net.nodes:
            state.error(v)

    for spec in ("pc", "pc+f", "epc", "hpc"):
        algo, found = Algorithm.parse(spec, T=4), []
        for observe in (None, look):
            net.zero_grad()
            algo.gradients(net, images, labels, observe=observe)
            found.append([p.grad.clone() for p in net.parameters()])
        assert all(map(torch.equal, *found)), spec


RATES = [("pc", 0.01), ("pc", 0.05), ("pc", 0.2), ("pc+f", 0.01), ("pc+f", 0.05), ("pc+f", 0.2)]
RATES += [("pc+s+f", 0.05), ("pc+s+f", 0.5), ("ipc", 0.05), ("ipc", 0.2)]
DEEPER = [("resnet66", "pc", 0.01), ("resnet66", "pc+f", 0.01), ("resnet66", "pc+s+f", 0.2), ("resnet66", "ipc", 0.2)]
# At 66 levels and larger rates no arithmetic can: with ``lr_x`` 0.05 another last digit of the pixels, 1e-8, turns
# float64's own gradients by a cosine of 0.9997, with 0.2 of 0.995. See benchmarks/resolution.py for all of them.


def first_lessons(algo, net, images, labels):
    """The first gradient of each parameter: all that there are, but for ipc.

    There, once a node's weights have changed, its errors are as large as that makes them, and easily seen.
    """
    net, first = copy.deepcopy(net).to(images.dtype), {}
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)  # weights stay where they are

    def collect(*_):
        for n, p in net.named_parameters():
            if p.grad is not None:
                first.setdefault(n, p.grad.clone())

    optimizer.register_step_pre_hook(collect)
    algo.step(net, images, labels, optimizer)
    assert first.keys() == dict(net.named_parameters()).keys()
    return first


def in_float32(algo, net, images, labels):
    """The lowest cosine of any layer's gradient with float64's."""
    exact, ours = (first_lessons(algo, net, x, labels) for x in (images.double(), images))
    return min(cosine(ours[n], exact[n]) for n in ours if ours[n].dim() > 1)


def drawn(name, trained, seed):
    """A network of the paper and images, by chance."""
    torch.manual_seed(seed)
    net = build(name, width=0.0625, norm="bf", activation="relu")
    n = 2 if name == "resnet66" else 24
    images, labels = torch.randn(n, 3, 32, 32), torch.randint(0, 10, (n,))
    if trained:
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
        for _ in range(15):
            Algorithm.parse("bp").step(net, images, labels, optimizer)
    return net, images, labels


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "spec", "lr"), [(n, *r) for n in ("vgg10", "vgg15", "resnet18") for r in RATES] + DEEPER
)
@pytest.mark.parametrize("trained", [False, True], ids=["untrained", "trained"])
def test_every_layer_of_the_papers_networks_learns_in_float32_as_in_float64(name, spec, lr, trained):
    """In one of three draws: what rounding costs, it costs in all of them.

    Now and then an input of a ReLU, or two of a max-pool, are within rounding of a tie, and another last digit of the
    pixels turns the gradients of float64 itself, backprop's too, to cosines of 0.9995.
    """
    algo = Algorithm.parse(spec, lr_x=lr, depth_gain=True)
    least = 0.9998 if (name, spec, lr) == ("vgg15", "pc", 0.2) else 0.9999
    assert any(in_float32(algo, *drawn(name, trained, seed)) > least for seed in range(3))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("lr", "T"), [(0.012, 9), (0.01, 6)])
def test_slopes_are_not_the_initial_ones_where_a_relu_has_switched(lr, T, seed):
    """Weights that are larger than initial ones, as training makes them, move the layer below the output by more."""
    torch.manual_seed(seed)
    net = mlp(4, size=64, classes=10, act=nn.ReLU)
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(2)
    images, labels = torch.randn(24, 64), torch.randint(0, 10, (24,))
    assert in_float32(Algorithm.parse("pc+f", lr_x=lr, T=T), net, images, labels) > 0.99999


def test_ipc_has_the_same_first_lessons_in_float32_as_in_float64():
    torch.manual_seed(0)
    net = residual(16, aux=True, channels=4)
    images, labels = batch(net, dtype=torch.float32)
    algo = Algorithm.parse("ipc", lr_x=0.2, depth_gain=True)
    exact = first_lessons(algo, net, images.double(), labels)
    ours = first_lessons(algo, net, images, labels)
    assert min(cosine(ours[n], exact[n]) for n in ours) > 0.9999


def test_at_300_levels_nothing_under_or_overflows():
    """0.01^299 is below float64's range, too."""
    torch.manual_seed(0)
    layers = [nn.Linear(4, 4, bias=False) for _ in range(300)]
    for f in layers:
        nn.init.orthogonal_(f.weight)
    net = Chain(*layers)
    images, target = torch.randn(3, 4), torch.randn(3, 4)
    ours = gradients(Algorithm.parse("pc+s+f", alpha=0.0, lr_x=0.01, depth_gain=True), net, images, target)
    expected = gradients(Algorithm.parse("bp"), net, images, target)
    for n, g in ours.items():
        scale = 1.0 if n.startswith("nodes.300.") else 0.99
        assert float((g - scale * expected[n]).norm() / expected[n].norm()) < 1e-3


def test_amplitudes_are_those_of_a_chain_of_numbers():
    """Two layers and one step by hand: the output's error of 1 moves the layer below it by lr, and no other."""
    assert amplitudes(lambda t, a: 1.0, 0.1, 3, 1) == [1.0, 0.1, 0.0]
    second = 0.1 - 0.1 * (0.1 - (1 - 0.1))  # it falls back by its own error, and is pulled by what is left above it
    assert amplitudes(lambda t, a: 1.0, 0.1, 3, 2) == pytest.approx([1.0, second, 0.01])


def test_units_are_powers_of_two_and_relative_to_one_another():
    wave = Wave({"a": -3, "b": -5})
    assert (wave.unit("a"), wave.unit("b"), wave.unit("a", "b"), wave.unit("b", "a"), wave.unit("c")) == (
        *(2**-3, 2**-5, 4, 0.25, 1.0),
    )
    assert Wave({"deep": -5000}).unit("deep") == 0.0
    assert Wave({"deep": -5000, "deeper": -5003}).unit("deeper", "deep") == 0.125


def test_a_small_deviation_costs_a_prediction_but_no_pull_back_more():
    """Where deviations are small, a difference is taken along a longer step, beside the prediction."""
    net = mlp(12)
    images, labels = batch(net, dtype=torch.float32)
    small = Algorithm.parse("pc", lr_x=0.05).gradients(net, images, labels).work
    double = Algorithm.parse("pc", lr_x=0.05).gradients(net.double(), images.double(), labels).work
    assert small.pull_backs == double.pull_backs
    assert small.weight_gradients == double.weight_gradients
    assert all(small.predictions[v] <= 2 * double.predictions[v] for v in net.nodes)


def chain(n, act=nn.Tanh):
    return Chain(*(nn.Sequential(nn.Linear(8, 8), act()) for _ in range(n)), nn.Linear(8, 3))


def assert_finite_and_exact(algo, net, least=0.999, images=None):
    """Float32 gives finite gradients, in the directions of float64's where these are within its range."""
    torch.manual_seed(1)
    images = torch.randn(5, 8) if images is None else images
    labels = torch.randint(0, 3, (5,))
    exact = gradients(algo, copy.deepcopy(net).double(), images.double(), labels)
    ours = gradients(algo, net, images, labels)
    assert all(g is None or g.isfinite().all() for g in ours.values())
    seen = {n: g for n, g in exact.items() if g is not None and g.norm() > 1e-35}
    assert seen
    assert min(cosine(ours[n], g) for n, g in seen.items()) > least


@pytest.mark.parametrize(("spec", "lr"), [("pc+s+f", 0.5), ("pc", 0.05)])
def test_dead_layers_have_no_size(spec, lr):
    """Two layers in a row that answer 0 and do not move: 0 over 0."""
    torch.manual_seed(0)
    net = chain(8, nn.ReLU)
    for layer in ("4", "5"):
        nn.init.constant_(net.nodes[layer][0].bias, -50.0)
    assert_finite_and_exact(Algorithm.parse(spec, lr_x=lr), net)


def test_images_of_nothing():
    net = Chain(*(nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU()) for _ in range(9)), nn.Linear(8, 3))
    assert_finite_and_exact(Algorithm.parse("pc", lr_x=0.05), net, images=torch.zeros(5, 8))


@pytest.mark.parametrize(
    "options",
    [
        {"lr_x": 0.05, "T": 150},
        {"lr_x": 0.05, "forward": True, "free_steps": 2},
        {"lr_x": 0.1, "momentum_x": 0.9},
        {"lr_x": 0.05, "schedule": lambda t, arrival, T: 20.0},
    ],
    ids=["T=150", "free steps", "momentum", "schedule"],
)
def test_units_do_not_overflow_where_deviations_are_larger_than_the_wave(options):
    """Some are as large as activities' numbers can see, and no better: the rounding of these is left."""
    torch.manual_seed(0)
    assert_finite_and_exact(PC(**options), chain(40), least=0.8)


def test_units_do_not_overflow_where_energy_takes_short_cuts():
    torch.manual_seed(0)
    layers = {f"h{i}": (nn.Sequential(nn.Linear(8, 8), nn.Tanh()), f"h{i - 1}" if i else "input") for i in range(40)}
    skipping = Graph({**layers, "y": (Mix([8, 8], 3, nn.Identity()), ["h39", "h1"])})
    assert_finite_and_exact(Algorithm.parse("pc", lr_x=0.05), skipping)
    net = residual(16, aux=False, channels=4)
    ours = gradients(Algorithm.parse("pc", lr_x=0.01), net, *batch(net, dtype=torch.float32))
    assert all(g.isfinite().all() for g in ours.values())


def test_units_do_not_overflow_under_an_energy_of_ones_own():
    class Huber(Energy):
        settles = True

        def value(self, x, mu):
            return nn.functional.huber_loss(mu, x, reduction="none").flatten(1).sum(1)

    torch.manual_seed(0)
    plain = chain(40)
    table = {v: (plain.nodes[v], plain.parents[v]) for v in plain.nodes}
    net = Graph(table, energies={"3": Huber()})
    ours = gradients(Algorithm.parse("pc", lr_x=0.05), net, torch.randn(5, 8), torch.randint(0, 3, (5,)))
    assert all(g.isfinite().all() for g in ours.values())


@pytest.mark.parametrize(("lr", "beta"), [(0.5, 0.01), (0.1, 0.05)])
def test_small_errors_of_a_softmax_are_differences_of_softmax(lr, beta):
    torch.manual_seed(0)
    algo = Algorithm.parse("pc", lr_x=lr, beta=beta, loss="cross_entropy")
    assert_finite_and_exact(algo, chain(6), least=0.9999)


def test_a_branch_that_begins_at_zero_does_not_hide_its_neighbour():
    """A residual branch whose last weights are 0, as is common: the other parent says how long a step may be."""
    torch.manual_seed(0)
    net = residual(8, aux=True, channels=4)
    for b in range(8):
        nn.init.zeros_(net.nodes[f"n{b}"][1].weight)
    images, labels = batch(net, dtype=torch.float32)
    for lr in (0.05, 0.2):
        algo = Algorithm.parse("pc", lr_x=lr, depth_gain=True)
        exact = gradients(algo, copy.deepcopy(net).double(), images.double(), labels)
        ours = gradients(algo, net, images, labels)
        assert min(cosine(ours[n], g) for n, g in exact.items() if g.norm() > 0) > 0.999


def test_a_gain_beyond_float32_is_refused():
    """Where units stop at 1 (Adam) or at 2^-60, the gain has to make up for all the rest."""
    x, y = torch.randn(2, 8), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="choose a larger lr_x"):
        PC(lr_x=0.01, optimizer_x="adam", depth_gain=True).gradients(chain(60), x, y)
    net = chain(60)
    with pytest.raises(ValueError, match="choose a larger lr_x"):
        Algorithm.parse("ipc", lr_x=0.01, depth_gain=True).step(net, x, y, torch.optim.SGD(net.parameters(), lr=0.1))


def test_a_schedule_need_not_be_hashable():
    @dataclass
    class Falling:
        rate: float

        def __call__(self, t, arrival, T):
            return self.rate**t

    assert_finite_and_exact(PC(schedule=Falling(0.9), lr_x=0.2), chain(3))


def test_a_module_derived_from_identity_is_no_identity():
    class Half(nn.Identity):
        def forward(self, x):
            return x / 2

    torch.manual_seed(0)
    plain = chain(9)
    table = {v: (plain.nodes[v], plain.parents[v]) for v in plain.nodes}
    assert_finite_and_exact(Algorithm.parse("pc", lr_x=0.05), Graph({**table, "5": (Half(), "4")}), least=0.9999)


def test_a_sum_of_parents_that_are_repeated_to_its_shape():
    """A node without a module whose parents differ in shape: their changes cannot be added as they are."""
    torch.manual_seed(0)
    nodes = {
        "wide": (nn.Conv2d(3, 4, 3, padding=1), "input"),
        "narrow": (nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, 4, 1)), "input"),
        "sum": (Sum(), ["narrow", "wide"]),
        "out": (nn.Sequential(nn.Flatten(), nn.Linear(4 * 25, 3)), "sum"),
    }
    net, images, labels = Graph(nodes), torch.randn(6, 3, 5, 5), torch.randint(0, 3, (6,))
    algo = parse("pc", lr_x=0.01, T=5)
    single = gradients(algo, net, images, labels)
    double = gradients(algo, copy.deepcopy(net).double(), images.double(), labels)
    for name, found in single.items():
        assert cosine(found.double(), double[name]) > 0.9999, name


@pytest.mark.parametrize("size", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize(
    ("spec", "lr", "T", "act"),
    [("pc+s+f", 0.2, 20, nn.ReLU), ("pc+s+f", 0.1, None, nn.GELU), ("pc", 0.05, None, nn.ReLU)],
)
def test_values_may_be_of_any_size(spec, lr, T, act, size):
    """How far an output moves is not known in advance then, and large deviations leave the initial slopes behind."""
    torch.manual_seed(1)
    net = Chain(*[nn.Sequential(nn.Linear(8, 8), act()) for _ in range(5)], nn.Linear(8, 1))
    x, y = torch.randn(16, 8), size * torch.randn(16, 1)
    algo = Algorithm.parse(spec, lr_x=lr, T=T)
    exact = Naive(algo, copy.deepcopy(net).double(), x.double(), y.double()).run().gradients
    algo.gradients(net, x, y)
    for name, weight in net.named_parameters():
        assert (weight.grad - exact[name]).norm() < 1e-3 * exact[name].norm()


def test_precisions_may_be_of_any_size():
    torch.manual_seed(0)
    net = Chain(*[nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(4)], nn.Linear(8, 3))
    net.energies["5"] = Gaussian(100.0)
    (x, y), found = (torch.randn(16, 8), torch.randint(0, 3, (16,))), []
    for dtype in (torch.float64, torch.float32):
        copied = copy.deepcopy(net).to(dtype)
        Algorithm.parse("pc+s+f", lr_x=0.1, T=12).gradients(copied, x.to(dtype), y)
        found.append([weight.grad.double() for weight in copied.nodes.parameters()])
    assert all((a - b).norm() < 1e-3 * a.norm() for a, b in zip(*found, strict=True))


def shortcuts(n):
    """A chain of ``n`` levels and an output, with a shortcut over three of them wherever it fits: not balanced."""
    nodes = {}
    for i in range(n):
        parents = [f"h{j}" for j in (i - 1, i - 3) if j >= 0] or ["input"]
        nodes[f"h{i}"] = (Mix([6] * len(parents), 6, nn.Tanh()), parents)
    return Graph(nodes | {"y": (Mix([6], 3, nn.Identity()), [f"h{n - 1}"])})


@pytest.mark.parametrize("spec", ["pc+s+f", "pc+s", "pc+f"])
@pytest.mark.parametrize("alpha", [0.0, 0.001])
@pytest.mark.parametrize("lr_x", [0.1, 0.5])
@pytest.mark.parametrize("n", [6, 10])
def test_float32_holds_where_parents_move_first(n, lr_x, alpha, spec):
    """In a graph that is not balanced a parent may move before the node spikes, and more than it."""
    for seed in range(3):
        torch.manual_seed(seed)
        net = shortcuts(n)
        for parameter in net.parameters():
            parameter.data *= 1.7
        whole = copy.deepcopy(net).double()
        images, labels = batch(whole, n=8, shape=(6,), seed=seed)
        exact = gradients(parse(spec, lr_x=lr_x, alpha=alpha, resolve=False), whole, images, labels)
        ours = gradients(parse(spec, lr_x=lr_x, alpha=alpha), net, images.float(), labels)
        for name, expected in exact.items():
            assert float((ours[name].double() - expected).norm() / expected.norm()) < 2e-3, name


@pytest.mark.parametrize("options", [{"spec": "pc+s+f", "alpha": 1e-7, "lr_x": 0.5}, {"spec": "pc", "lr_x": 0.05}])
def test_an_observer_is_told_the_energy_of_the_present_state(options):
    """Also where errors are pulled back through the initial prediction: half the square of x - f(x of the parents)."""
    torch.manual_seed(0)
    net = mlp(8).double()
    images, labels = batch(net)
    compared = []

    def observe(t, state):
        for v, energy in state.energies().items():
            parents = [state.mu0[p] if p in net.inputs else state.value(p) for p in net.parents[v]]
            by_definition = (state.value(v) - net.nodes[v](*parents)).square().sum(1) / 2
            torch.testing.assert_close(energy, by_definition.detach(), rtol=1e-3, atol=1e-24)
            compared.append(energy.max() > 1e-21)

    parse(**options).gradients(net, images, labels, observe=observe)
    assert sum(compared) > 20  # far more than the rounding of float64 leaves
