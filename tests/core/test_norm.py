"""BatchNorm freezing, the plain-BN baseline, and dropout: what a module remembers or draws during a batch."""

import copy

import pytest
import torch
from naive import Naive
from nets import backprop, batch, gradients, one_hot, parse, vgg
from torch import nn

from deeppc import Algorithm, Chain
from deeppc.core.norm import thaw

SPECS = ["bp", "pc", "pc+s+f", "pc+s", "ipc", "ipc+s"]


def normed(affine=True, momentum=0.1, seed=0):
    """Norm in both layers, so that the second one's input moves during inference."""
    torch.manual_seed(seed)

    def layer(i, o):
        return nn.Sequential(nn.Linear(i, o), nn.BatchNorm1d(o, affine=affine, momentum=momentum), nn.Tanh())

    return Chain(layer(6, 6), layer(6, 5), nn.Linear(5, 3)).double()


def step(spec, net, lr=0.0, **options):
    images, labels = batch(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    return parse(spec, lr_x=0.3, **options).step(net, images, labels, optimizer)


def norms(net):
    return {v: f[1] for v, f in net.nodes.items() if isinstance(f, nn.Sequential)}


def moved_once(net, inputs, momentum=0.1):
    """Running statistics after one batch of these inputs to the linear layers, by the definition of BatchNorm."""
    expected = {}
    for v, x in inputs.items():
        z = net.nodes[v][0](x)
        expected[v] = (momentum * z.mean(0), 0.9 + momentum * z.var(0, unbiased=True))
    return expected


def assert_statistics(net, expected):
    for v, (mean, var) in expected.items():
        bn = norms(net)[v]
        assert int(bn.num_batches_tracked) == 1
        torch.testing.assert_close(bn.running_mean, mean, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(bn.running_var, var, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 0.1])
@pytest.mark.parametrize("spec", SPECS)
def test_running_statistics_move_exactly_once(spec, alpha, affine):
    net = normed(affine)
    step(spec, net, alpha=alpha, T=5)
    assert [int(bn.num_batches_tracked) for bn in norms(net).values()] == [1, 1]


@pytest.mark.parametrize("spec", ["bp", "pc+s+f"])
def test_with_the_forward_update_they_move_in_the_initial_pass(spec):
    net = normed()
    start = copy.deepcopy(net)
    images, _ = batch(net)
    step(spec, net)
    with torch.no_grad():
        assert_statistics(net, moved_once(start, {"1": images, "2": start.nodes["1"](images)}))


@pytest.mark.parametrize(("spec", "options"), [("pc", {}), ("pc+s", {}), ("pc+s+f", {"presynaptic": "relaxed"})])
def test_otherwise_they_move_in_the_pass_at_the_relaxed_state(spec, options):
    net = normed()
    start = copy.deepcopy(net)
    images, labels = batch(net)
    algo = parse(spec, lr_x=0.3, T=4, **options)
    x_T = Naive(algo, net, images, one_hot(net, images, labels)).run().activities[4]
    step(spec, net, T=4, **options)
    with torch.no_grad():
        assert_statistics(net, moved_once(start, {"1": images, "2": x_T["1"]}))


@pytest.mark.parametrize("spec", ["ipc", "ipc+s"])
@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_incremental_learning_moves_them_in_the_last_step(spec, alpha):
    net = normed()
    images, labels = batch(net)
    algo = parse(spec, lr_x=0.3, T=4, alpha=alpha)
    naive = Naive(algo, net, images, one_hot(net, images, labels))
    weights = []
    record = naive.weight_step

    def recorded(*args):
        weights.append(copy.deepcopy(naive.net))
        record(*args)

    naive.weight_step = recorded
    before_last = naive.run(lambda ps: torch.optim.SGD(ps, lr=0.05)).activities[3]
    step(spec, net, lr=0.05, T=4, alpha=alpha)
    with torch.no_grad():
        assert_statistics(net, moved_once(weights[3], {"1": images, "2": before_last["1"]}))


def test_a_node_that_no_energy_reached_still_gets_its_statistics():
    net = normed()
    for spec in ("pc", "pc+s+f", "ipc"):
        fresh = copy.deepcopy(net)
        step(spec, fresh, T=1)
        assert [int(bn.num_batches_tracked) for bn in norms(fresh).values()] == [1, 1]


def test_thawed_norms_are_the_paper_s_failing_baseline():
    """Every prediction moves them: two layers, T = 4; the second is predicted anew whenever the first has moved."""
    net = thaw(normed())
    out = step("pc", net, T=4)
    assert [int(bn.num_batches_tracked) for bn in norms(net).values()] == [1, out.work.predictions["2"]]
    assert out.work.predictions["2"] > 2


@pytest.mark.parametrize("spec", SPECS)
def test_batch_statistics_normalise_every_prediction(spec):
    """The outcome with norm layers equals that of the naive engine or backward(), always in training mode."""
    torch.manual_seed(0)
    net = vgg(norm=True).double()
    images, labels = batch(net)
    target = one_hot(net, images, labels)
    algo = parse(spec, lr_x=0.3)

    def optimizer(params):
        return torch.optim.SGD(params, lr=0.1)

    if spec.startswith("ipc"):
        theirs = Naive(algo, net, images, target).run(optimizer).weights
        algo.step(net, images, labels, optimizer(net.parameters()))
        ours = {n: p.detach() for n, p in net.named_parameters()}
    else:
        twin = copy.deepcopy(net)
        theirs = backprop(twin, images, target) if spec == "bp" else Naive(algo, net, images, target).run().gradients
        ours = gradients(algo, net, images, labels)
    for n in theirs:
        torch.testing.assert_close(ours[n], theirs[n], rtol=1e-7, atol=1e-10)


def test_after_free_relaxation_they_move_in_the_settled_pass():
    net = normed()
    start = copy.deepcopy(net)
    images, labels = batch(net)
    algo = Algorithm.parse("pc+s+f", lr_x=0.3, T=4, free_steps=2)
    settled = Naive(algo, net, images, one_hot(net, images, labels)).run().activities[-1]
    step("pc+s+f", net, T=4, free_steps=2)
    with torch.no_grad():
        assert_statistics(net, moved_once(start, {"1": images, "2": settled["1"]}))


@pytest.mark.parametrize("spec", SPECS)
def test_instance_norms_are_frozen_as_well(spec):
    """By their definition: running statistics move by ``momentum`` towards those of one pass."""
    torch.manual_seed(0)
    norm = nn.InstanceNorm2d(4, track_running_stats=True, momentum=1.0)
    net = Chain(
        nn.Conv2d(3, 4, 3), nn.Sequential(nn.Conv2d(4, 4, 3), norm), nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    )
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
    net.eval()
    Algorithm.parse("pc+s+f").gradients(net, images, labels)
    assert [int(bn.num_batches_tracked) for bn in norms(net).values()] == [0, 0]


def test_other_norms_work_too():
    net = Chain(nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Tanh()), nn.Linear(6, 3)).double()
    images, labels = batch(net)
    algo = Algorithm.parse("pc", lr_x=0.3)
    theirs = Naive(algo, net, images, one_hot(net, images, labels)).run().gradients
    ours = gradients(algo, net, images, labels)
    for n in theirs:
        torch.testing.assert_close(ours[n], theirs[n])


class Recording(nn.Dropout):
    """Remembers the masks that it drew."""

    def __init__(self):
        super().__init__(0.5)
        self.masks = []

    def forward(self, x):
        self.masks.append(super().forward(torch.ones_like(x)))
        return x * self.masks[-1]


class Functional(Recording):
    """Draws random numbers without being made of dropout layers."""

    def forward(self, x):
        self.masks.append(nn.functional.dropout(torch.ones_like(x), 0.5, self.training))
        return x * self.masks[-1]


class Homemade(nn.Module):
    def __init__(self):
        super().__init__()
        self.masks = []

    def forward(self, x):
        self.masks.append(torch.rand_like(x))
        return x * self.masks[-1]


@pytest.mark.parametrize("kind", [Recording, Functional, Homemade])
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


def test_dropout_learns_what_the_same_masks_teach_by_the_naive_engine():
    torch.manual_seed(0)
    drop = Recording()
    net = Chain(nn.Sequential(nn.Linear(6, 6), nn.Tanh(), drop), nn.Sequential(nn.Linear(6, 3))).double()
    images, labels = batch(net)
    target = one_hot(net, images, labels)
    algo = Algorithm.parse("pc", lr_x=0.3, T=4)
    ours = gradients(algo, net, images, labels)

    class Masked(nn.Module):
        def forward(self, x, mask=drop.masks[-1]):
            return x * mask

    twin = copy.deepcopy(net)
    twin.nodes["1"][2] = Masked()
    theirs = Naive(algo, twin, images, target).run().gradients
    for n in theirs:
        torch.testing.assert_close(ours[n], theirs[n])


def test_backprop_draws_the_masks_that_torch_would():
    torch.manual_seed(0)
    net = Chain(nn.Sequential(nn.Linear(6, 6), nn.Dropout()), nn.Sequential(nn.Dropout(), nn.Linear(6, 3))).double()
    images, labels = batch(net)
    target = one_hot(net, images, labels)
    torch.manual_seed(1)
    theirs = backprop(net, images, target)
    torch.manual_seed(1)
    ours = gradients(Algorithm.parse("bp"), net, images, labels)
    for n in theirs:
        torch.testing.assert_close(ours[n], theirs[n])


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
