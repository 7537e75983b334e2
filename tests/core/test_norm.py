"""BatchNorm freezing, the plain-BN baseline, and dropout: what a module remembers or draws during a batch."""

import copy

import pytest
import torch
from naive import Naive
from nets import assert_same, backprop, batch, gradients, learnt, one_hot, parse, sgd, vgg
from torch import nn

from deeppc import Algorithm, Chain
from deeppc.core.norm import thaw

SPECS = ["bp", "pc", "pc+s+f", "pc+s", "ipc", "ipc+s"]


def normed(affine=True):
    """Norm in both layers, so that the second one's input moves during inference."""
    torch.manual_seed(0)

    def layer(i, o):
        return nn.Sequential(nn.Linear(i, o), nn.BatchNorm1d(o, affine=affine), nn.Tanh())

    return Chain(layer(6, 6), layer(6, 5), nn.Linear(5, 3)).double()


def step(spec, net, lr=0.0, **options):
    images, labels = batch(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    return parse(spec, lr_x=0.3, **options).step(net, images, labels, optimizer)


def batches(net):
    """How often each norm layer has moved its running statistics."""
    return [int(f[1].num_batches_tracked) for f in net.nodes.values() if isinstance(f, nn.Sequential)]


@torch.no_grad()
def assert_moved_once(net, start, inputs):
    """Running statistics after one batch of these inputs to the linear layers, by the definition of BatchNorm."""
    assert batches(net) == [1, 1]
    for v, x in inputs.items():
        z = start.nodes[v][0](x)
        norm = net.nodes[v][1]
        torch.testing.assert_close(norm.running_mean, 0.1 * z.mean(0), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * z.var(0, unbiased=True), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("alpha", "affine", "T"), [(0.0, True, 5), (0.1, False, 5), (0.1, True, 1)])
@pytest.mark.parametrize("spec", SPECS)
def test_running_statistics_move_exactly_once_wherever_energy_comes(spec, alpha, affine, T):
    net = normed(affine)
    step(spec, net, alpha=alpha, T=T)
    assert batches(net) == [1, 1]


@pytest.mark.parametrize(
    ("spec", "options", "place"),
    [
        ("bp", {}, "initial"),
        ("pc+s+f", {}, "initial"),
        ("pc", {}, 4),
        ("pc+s", {}, 4),
        ("pc+s+f", {"presynaptic": "relaxed"}, 4),
        ("pc+s+f", {"free_steps": 2}, -1),
    ],
)
def test_they_move_in_the_pass_that_weights_learn_through(spec, options, place):
    """The initial state, the relaxed one (x_4), or the one in which free relaxation ends."""
    net = normed()
    start = copy.deepcopy(net)
    images, labels = batch(net)
    hidden = start.nodes["1"](images)
    start = copy.deepcopy(net)
    if place != "initial":
        algo = parse(spec, lr_x=0.3, T=4, **options)
        hidden = Naive(algo, net, images, one_hot(net, images, labels)).run().activities[place]["1"]
    step(spec, net, T=4, **options)
    assert_moved_once(net, start, {"1": images, "2": hidden})


@pytest.mark.parametrize(("spec", "alpha"), [("ipc", 0.1), ("ipc+s", 0.0), ("ipc+s", 0.1)])
def test_incremental_learning_moves_them_in_the_last_step(spec, alpha):
    net = normed()
    images, labels = batch(net)
    naive = Naive(parse(spec, lr_x=0.3, T=4, alpha=alpha), net, images, one_hot(net, images, labels))
    before = []  # each step
    weight_step = naive.weight_step

    def recorded(*args):
        before.append(copy.deepcopy(naive.net))
        weight_step(*args)

    naive.weight_step = recorded
    activities = naive.run(lambda ps: torch.optim.SGD(ps, lr=0.05)).activities
    step(spec, net, lr=0.05, T=4, alpha=alpha)
    assert_moved_once(net, before[3], {"1": images, "2": activities[3]["1"]})


def test_thawed_norms_are_the_paper_s_failing_baseline():
    """Every prediction moves them: two layers, T = 4; the second is predicted anew whenever the first has moved."""
    net = thaw(normed())
    out = step("pc", net, T=4)
    assert batches(net) == [1, out.work.predictions["2"]]
    assert out.work.predictions["2"] > 2


@pytest.mark.parametrize("spec", SPECS)
def test_batch_statistics_normalise_every_prediction(spec):
    """The outcome with norm layers equals that of the naive engine or backward(), always in training mode."""
    torch.manual_seed(0)
    net = vgg(norm=True).double()
    images, labels = batch(net)
    target, twin = one_hot(net, images, labels), copy.deepcopy(net)
    algo = parse(spec, lr_x=0.3)
    theirs = backprop(twin, images, target) if spec == "bp" else Naive(algo, net, images, target).learnt(sgd)
    ours = learnt(algo, net, images, labels, sgd)
    for n in theirs:
        torch.testing.assert_close(ours[n], theirs[n], rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("spec", SPECS)
def test_instance_norms_are_frozen_as_well(spec):
    """By their definition: running statistics move by ``momentum`` towards those of one pass."""
    torch.manual_seed(0)
    norm = nn.InstanceNorm2d(4, track_running_stats=True, momentum=1.0)
    layers = [
        nn.Conv2d(3, 4, 3),
        nn.Sequential(nn.Conv2d(4, 4, 3), norm),
        nn.Sequential(nn.Flatten(), nn.Linear(64, 2)),
    ]
    net = Chain(*layers)
    images, labels = batch(net, dtype=torch.float32)
    norm.reset_running_stats()
    seen = []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    algo = parse(spec, lr_x=0.3)
    algo.step(net, images, labels, optimizer, observe=lambda t, state: seen.append(norm.running_mean.clone()))
    if spec != "pc+s+f":
        assert all(torch.equal(m, torch.zeros(4)) for m in seen)
    assert not torch.equal(norm.running_mean, torch.zeros(4))


def test_in_evaluation_mode_nothing_moves():
    net = normed()
    images, labels = batch(net)
    Algorithm.parse("pc+s+f").gradients(net.eval(), images, labels)
    assert batches(net) == [0, 0]


class Dropout(nn.Dropout):
    """Remembers the masks that it drew."""

    def __init__(self):
        super().__init__(0.5)
        self.masks = []

    def forward(self, x):
        self.masks.append(super().forward(torch.ones_like(x)))
        return x * self.masks[-1]


class Homemade(Dropout):
    """Draws random numbers without being a dropout layer."""

    def forward(self, x):
        self.masks.append(torch.rand_like(x))
        return x * self.masks[-1]


@pytest.mark.parametrize("kind", [Dropout, Homemade])
@pytest.mark.parametrize("spec", ["pc", "pc+s+f", "ipc"])
def test_a_batch_sees_one_dropout_mask_and_the_next_another(spec, kind):
    torch.manual_seed(0)
    drops = [kind() for _ in range(2)]
    first, second = (nn.Sequential(nn.Linear(6, 6), nn.Tanh(), drop) for drop in drops)
    net = Chain(first, second, nn.Linear(6, 3)).double()
    images, labels = batch(net)
    seen = []
    for _ in range(2):
        drops[1].masks.clear()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        parse(spec, lr_x=0.3, T=5).step(net, images, labels, optimizer)
        assert len(drops[1].masks) > 1 or spec == "pc+s+f"
        assert all(torch.equal(m, drops[1].masks[0]) for m in drops[1].masks)
        seen.append(drops[1].masks[0])
    assert not torch.equal(*seen)
    assert not torch.equal(drops[0].masks[-1], drops[1].masks[-1])


def test_dropout_learns_as_the_naive_engine_does_with_the_same_masks():
    torch.manual_seed(0)
    drop = Dropout()
    net = Chain(nn.Sequential(nn.Linear(6, 6), nn.Tanh(), drop), nn.Sequential(nn.Linear(6, 3))).double()
    images, labels = batch(net)
    target = one_hot(net, images, labels)
    algo = Algorithm.parse("pc", lr_x=0.3, T=4)
    ours = gradients(algo, net, images, labels)
    twin = copy.deepcopy(net)
    twin.nodes["1"][2].forward = lambda x: x * drop.masks[-1]
    assert_same(ours, Naive(algo, twin, images, target).run().gradients)


def test_backprop_draws_the_masks_that_torch_would():
    torch.manual_seed(0)
    net = Chain(nn.Sequential(nn.Linear(6, 6), nn.Dropout()), nn.Sequential(nn.Dropout(), nn.Linear(6, 3))).double()
    images, labels = batch(net)
    target = one_hot(net, images, labels)
    torch.manual_seed(1)
    theirs = backprop(net, images, target)
    torch.manual_seed(1)
    assert_same(gradients(Algorithm.parse("bp"), net, images, labels), theirs)


def test_dropout_leaves_the_generator_where_one_draw_per_batch_leaves_it():
    """Predicting a node more often must not change what comes after: two T, one stream of random numbers."""
    after = []
    for T in (1, 6):
        torch.manual_seed(0)
        net = Chain(nn.Sequential(nn.Linear(6, 6), nn.Dropout()), nn.Linear(6, 3)).double()
        images, labels = batch(net)
        torch.manual_seed(1)
        Algorithm.parse("pc", T=T, lr_x=0.2).gradients(net, images, labels)
        after.append(torch.rand(3))
    assert torch.equal(*after)
