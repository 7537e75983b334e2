"""What a batch must be, what a module may do, and what a step returns."""

import copy
import math

import pytest
import torch
from naive import Naive
from nets import assert_same, batch, gradients, mlp, one_hot, parse, residual, vgg
from torch import nn

from deeppc import Algorithm, Chain
from deeppc.core import spectrum
from deeppc.core.algorithms.pc import PC


@pytest.mark.parametrize("spec", ["bp", "pc+s+f", "ipc"])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x, y: (x, y * 0 + 4), "targets must be class indices from 0 to 3"),
        (lambda x, y: (x, y * 0 - 1), "targets must be class indices from 0 to 3"),
        (lambda x, y: (x * math.nan, y), "inputs must be finite"),
        (lambda x, y: (x / 0, y), "inputs must be finite"),
        (lambda x, y: (x, y[:-1]), "expected 5 class indices"),
        (lambda x, y: (x, y.bool()), "expected 5 class indices"),
        (lambda x, y: (x, y.unsqueeze(1)), "class indices need .* one for each sample"),
        (lambda x, y: (x, torch.zeros(5, 3)), r"targets have the shape \(5, 3\), the output \(5, 4\)"),
        (lambda x, y: (x, torch.full((5, 4), math.inf)), "targets must be finite"),
        (lambda x, y: (x[:0], y[:0]), "at least one sample"),
        (lambda x, y: (x[:, :2], y), "channels"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_changed(spec, spoil, message):
    torch.manual_seed(0)
    net = vgg(norm=True)
    net.nodes["3"] = nn.Sequential(nn.Dropout(), nn.Flatten())
    x, y = batch(net, dtype=torch.float32)
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    before = copy.deepcopy(net.state_dict())
    rng = torch.get_rng_state()
    optimizer = torch.optim.AdamW(net.parameters())
    with pytest.raises((ValueError, RuntimeError), match=message):
        Algorithm.parse(spec).step(net, *spoil(x, y), optimizer)
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    assert all(torch.equal(p.grad, torch.ones_like(p)) for p in net.parameters())
    assert not optimizer.state
    assert torch.equal(rng, torch.get_rng_state())


@pytest.mark.parametrize(
    "net", [Chain(nn.Conv2d(3, 4, 3)), Chain(nn.Sequential(nn.Conv2d(3, 2, 8), nn.Flatten(1), nn.Unflatten(1, (1, 2))))]
)
def test_class_indices_need_classes(net):
    with pytest.raises(ValueError, match=r"class indices need an output of \(batch, classes\)"):
        PC().gradients(net, torch.randn(2, 3, 8, 8), torch.tensor([0, 1]))


def test_what_a_module_may_not_do_is_said_with_its_node():
    x, y = torch.randn(2, 4), torch.tensor([0, 1])

    def learn(*modules, **options):
        PC(**options).gradients(Chain(*modules), x, y)

    with pytest.raises(ValueError, match="node '1' changes its input in place"):
        learn(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 2)))
    with pytest.raises(RuntimeError, match="cannot be multiplied") as caught:
        learn(nn.Linear(4, 4), nn.Linear(3, 2))
    assert caught.value.__notes__ == ["(while predicting the node '2')"]
    with pytest.raises(TypeError, match="node '1' must return one tensor, not tuple"):
        learn(nn.GRU(4, 4), nn.Linear(4, 2))
    with pytest.raises(ValueError, match="float16 cannot hold"), torch.autocast("cpu", torch.float16):
        learn(nn.Linear(4, 2))
    with pytest.raises(ValueError, match="inference mode"), torch.inference_mode():
        learn(nn.Linear(4, 2))


def test_under_cross_entropy_a_target_is_a_distribution():
    net, algo = mlp(2), PC(loss="cross_entropy")
    x, _ = batch(net, dtype=torch.float32)
    for good in (torch.full((5, 3), 1 / 3), torch.eye(3)[[0, 1, 2, 0, 1]]):
        assert algo.gradients(net, x, good).logits.shape == good.shape
    for bad in (torch.full((5, 3), 1.0), torch.tensor([[2.0, -1.0, 0.0]]).expand(5, 3)):
        with pytest.raises(ValueError, match="must be a distribution over classes"):
            algo.gradients(net, x, bad)


def test_modules_of_many_kinds_learn_what_the_naive_engine_learns():
    """Integers in and in place at the end, a net of its own, a layer norm, a weight that is used twice."""
    torch.manual_seed(0)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(6, 6)

        def forward(self, x):
            return self.f(self.f(x).tanh())

    net = Chain(
        nn.Sequential(nn.Embedding(9, 6), nn.Flatten(), nn.Linear(12, 6), nn.ReLU(inplace=True)),
        Chain(nn.Linear(6, 6), nn.Sequential(nn.LayerNorm(6), nn.Tanh())),
        Twice(),
        nn.Linear(6, 3),
    ).double()
    x, y = torch.randint(0, 9, (5, 2)), torch.randint(0, 3, (5,))
    algo = Algorithm.parse("pc", lr_x=0.3, T=6)
    ours = gradients(algo, net, x, y)
    assert_same(ours, Naive(algo, net, x, nn.functional.one_hot(y, 3).double()).run().gradients)


def test_ipc_and_lbfgs_say_what_to_do_instead():
    net = mlp(2)
    x, y = batch(net, dtype=torch.float32)
    with pytest.raises(ValueError, match="call step"):
        Algorithm.parse("ipc").gradients(net, x, y)
    with pytest.raises(ValueError, match="LBFGS needs a loss"):
        Algorithm.parse("pc").step(net, x, y, torch.optim.LBFGS(net.parameters()))


@pytest.mark.parametrize("spec", ["bp", "pc", "pc+s+f"])
def test_gradients_are_the_mean_over_the_batch_and_activities_see_their_own(spec):
    """A batch given twice over teaches the same; so does the mean of its halves (trap: averaged activity gradients)."""
    net = mlp(4).double()
    x, y = batch(net, n=6)
    algo = parse(spec, lr_x=0.3)
    whole = gradients(algo, net, x, y)
    twice = gradients(algo, net, torch.cat([x, x]), torch.cat([y, y]))
    halves = [gradients(algo, net, x[i : i + 3], y[i : i + 3]) for i in (0, 3)]
    for n in whole:
        torch.testing.assert_close(twice[n], whole[n])
        torch.testing.assert_close((halves[0][n] + halves[1][n]) / 2, whole[n])


def test_gradients_accumulate_as_backward_does_and_nothing_else_is_carried_on():
    net = mlp(4).double()
    x, y = batch(net)
    algo = Algorithm.parse("pc", lr_x=0.3, momentum_x=0.9, T=6)
    first = gradients(algo, net, x, y)
    gradients(algo, net, *batch(net, seed=7))
    again = gradients(algo, net, x, y)
    assert all(torch.equal(first[n], again[n]) for n in first)
    algo.gradients(net, x, y)
    assert_same({n: p.grad for n, p in net.named_parameters()}, {n: 2 * g for n, g in first.items()})


@pytest.mark.parametrize("spec", ["pc", "pc+s+f", "ipc", "ipc+s"])
def test_unreached_nodes_are_left_wholly_alone(spec):
    """Adam with weight decay and moments from an earlier batch: neither may touch them."""
    net = mlp(5)
    x, y = batch(net, dtype=torch.float32)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.5)
    Algorithm.parse("bp").step(net, x, y, optimizer)
    before = copy.deepcopy(net.state_dict())
    moments = {p: copy.deepcopy(s) for p, s in optimizer.state.items()}
    parse(spec, T=2, lr_x=0.5).step(net, x, y, optimizer)
    for name, p in net.named_parameters():
        unreached = name.startswith(("nodes.1", "nodes.2") + (("nodes.3",) if spec.startswith("ipc") else ()))
        assert torch.equal(before[name], p) == unreached, name
        assert (moments[p]["step"] == optimizer.state[p]["step"]) == unreached, name


def test_what_comes_back():
    torch.manual_seed(0)
    net = residual(1, aux=True)
    x, y = batch(net, dtype=torch.float32)
    for spec in ("bp", "pc", "pc+s+f", "ipc+s"):
        expected = net.train()(x).detach()
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
        out = parse(spec, lr_x=0.5).step(net, x, y, optimizer)
        torch.testing.assert_close(out.logits, expected)
        assert not out.logits.requires_grad
        assert list(out.energy) == list(net.nodes)
        assert set(out.work.predictions) == set(net.nodes)


def test_the_observer_sees_the_state_before_each_step_and_the_last_one():
    net = mlp(3).double()
    x, y = batch(net)
    algo = Algorithm.parse("pc", lr_x=0.3, T=4)
    seen = []
    algo.gradients(net, x, y, observe=lambda t, state: seen.append((t, state.activity("2").detach().clone())))
    expected = Naive(algo, net, x, one_hot(net, x, y)).run().activities
    assert [t for t, _ in seen] == [0, 1, 2, 3, 4]
    for t, activity in seen:
        torch.testing.assert_close(activity, expected[t]["2"])


@pytest.mark.parametrize(
    ("spec", "optimizer"),
    [("bp", torch.optim.SGD), ("pc", torch.optim.AdamW), ("pc+s+f", torch.optim.RMSprop), ("ipc", torch.optim.SGD)],
)
def test_every_algorithm_learns_with_any_optimiser(spec, optimizer):
    torch.manual_seed(0)
    net = mlp(3, act=nn.GELU)
    x, y = batch(net, n=32, dtype=torch.float32)
    optimise = optimizer(net.parameters(), lr=0.02 if optimizer is not torch.optim.SGD else 0.2)
    algo, target = parse(spec, lr_x=0.3), one_hot(net, x, y)

    def loss():
        return float((net(x).detach() - target).square().sum())

    before = loss()
    for _ in range(20):
        algo.step(net, x, y, optimise)
    assert loss() < 0.9 * before


def test_a_step_asks_the_device_nothing():
    """On the meta device tensors have no values: any ``.item()`` or data-dependent branch would raise."""
    with torch.device("meta"):
        net = residual(1, aux=True)
        x, y = torch.randn(4, 3, 8, 8), torch.zeros(4, dtype=torch.long)
    for spec in ("bp", "pc", "pc+s+f", "pc+s+f+cn", "ipc+s"):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        assert parse(spec, lr_x=0.5).step(net, x, y, optimizer).logits.shape == (4, 5)


@pytest.mark.parametrize("spec", ["pc+s+f", "ipc"])
def test_bfloat16_stays_near_float32(spec):
    """Autocast must not keep a copy of weights that iPC has changed; a net in bfloat16 throughout works too.

    Deviations are float32 in each case.
    """
    torch.manual_seed(0)
    net = mlp(4)
    x, y = batch(net, dtype=torch.float32)
    algo = Algorithm.parse(spec, T=6, lr_x=0.3)
    start = copy.deepcopy(net)

    kinds = set()

    def learnt(net, x):
        optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
        algo.step(net, x, y, optimizer, observe=lambda t, state: kinds.update(d.dtype for d in state.d.values()))
        moves = zip(net.parameters(), start.parameters(), strict=True)
        return torch.cat([(p.float() - q).detach().flatten() for p, q in moves])

    expected = learnt(copy.deepcopy(net), x)
    with torch.autocast("cpu", torch.bfloat16):
        near = learnt(copy.deepcopy(net), x)
    throughout = learnt(copy.deepcopy(net).bfloat16(), x.bfloat16())
    assert float((near - expected).norm() / expected.norm()) < 0.05
    assert float((throughout - expected).norm() / expected.norm()) < 0.2
    assert kinds == {torch.float32}


class Others:
    """Stands in for other workers: notes what it is told, and says that the whole batch has twice our samples."""

    def __init__(self, optimizer, samples):
        self.samples, self.heard = samples, []
        optimizer.register_step_pre_hook(lambda *_: self.heard.append("step"))

    def learnt(self, v):
        self.heard.append(v)

    def wait(self):
        self.heard.append("wait")

    def agree(self, drawn):
        return torch.full_like(drawn, -1)

    def total(self, part):
        return 2 * part


@pytest.mark.parametrize("spec", ["bp", "pc", "pc+s+f", "ipc"])
def test_workers_hear_of_every_lesson_and_are_waited_for_before_each_update(spec):
    """Nodes in the order of their lessons; in ipc those that have energy at a step, from the output on."""
    torch.manual_seed(0)
    net = mlp(3).double()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    others = Others(optimizer, 10)
    parse(spec, lr_x=0.3, T=3).step(net, *batch(net), optimizer, workers=others)
    end = ["wait", "step"]
    expected = {
        "bp": ["3", "2", "1", *end],
        "pc": ["1", "2", "3", *end],
        "pc+s+f": ["3", "2", "1", *end],
        "ipc": ["3", *end, "3", "2", *end, "3", "2", "1", *end],
    }
    assert others.heard == expected[spec]


@pytest.mark.parametrize("spec", ["bp", "pc+s+f", "pc"])
def test_our_part_of_a_batch_is_weighed_by_the_samples_of_the_whole(spec):
    """Half of the samples of a batch: half the gradient, energy and loss that a batch of them alone has."""
    torch.manual_seed(0)
    net = mlp(3).double()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    algo, (images, labels) = parse(spec, lr_x=0.3), batch(net)
    alone = algo.step(net, images, labels, optimizer)
    gradients = [p.grad.clone() for p in net.parameters()]
    ours = algo.step(net, images, labels, optimizer, workers=Others(optimizer, 2 * len(images)))
    for p, gradient in zip(net.parameters(), gradients, strict=True):
        torch.testing.assert_close(2 * p.grad, gradient)
    torch.testing.assert_close(2 * ours.loss, alone.loss)
    for v in net.nodes:
        torch.testing.assert_close(2 * ours.energy[v], alone.energy[v])


def test_a_node_that_does_not_learn_is_not_spoken_of():
    """With alpha 0, ipc+s teaches each node once, at its own step."""
    torch.manual_seed(0)
    net = mlp(3).double()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    others = Others(optimizer, 5)
    parse("ipc+s", lr_x=0.3, alpha=0.0).step(net, *batch(net), optimizer, workers=others)
    assert others.heard == ["3", "wait", "step", "2", "wait", "step", "1", "wait", "step"]


def test_workers_agree_on_the_sign_of_beta():
    """Nudged away from the target, the output moves by minus what beta = 1 would move it."""
    torch.manual_seed(0)
    net = mlp(3).double()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    moved = []

    def observe(t, state):
        moved.append(state.d["3"].clone())

    images, labels = batch(net)
    for spec in ("pc", *["pc+cn"] * 8):
        parse(spec, T=1).step(net, images, labels, optimizer, observe=observe, workers=Others(optimizer, 5))
    assert all(torch.equal(d, -moved[0]) for d in moved[2::2])


def test_hpc_begins_with_the_same_change_of_a_sample_whoever_has_it(monkeypatch):
    """The second to the fourth of five samples: their rows of what the whole begins with, but for its length."""
    torch.manual_seed(0)
    net = mlp(3).double()
    images, labels = batch(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    others, changes, curvature = Others(optimizer, 5), [], spectrum.curvature

    def note(state, u):
        changes.append({v: x.clone() for v, x in u.items()})
        return curvature(state, u)

    monkeypatch.setattr(spectrum, "curvature", note)
    parse("hpc", probes=2).step(net, images, labels, optimizer)
    whole = {v: x[1:4] for v, x in changes[0].items()}
    changes.clear()
    parse("hpc", probes=2).step(net, images[1:4], labels[1:4], optimizer, workers=others)
    length = (2 * sum(x.square().sum() for x in whole.values())).sqrt()  # the other workers have as much again
    assert changes[0].keys() == {"1", "2"}
    for v, x in changes[0].items():
        torch.testing.assert_close(x, whole[v] / length)


def test_only_workers_may_have_no_samples():
    torch.manual_seed(0)
    net = mlp(2).double()
    images, labels = batch(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    for spec in ("bp", "pc+s+f", "ipc+s"):
        with pytest.raises(ValueError, match="at least one sample"):
            parse(spec).step(net, images[:0], labels[:0], optimizer)
        before = [p.clone() for p in net.parameters()]
        result = parse(spec).step(net, images[:0], labels[:0], optimizer, workers=Others(optimizer, 5))
        assert all(map(torch.equal, before, net.parameters()))
        assert float(result.loss) == 0.0
    with pytest.raises(ValueError, match="at least one sample"):
        parse("bp").step(net, torch.zeros(()).double(), labels, optimizer, workers=Others(optimizer, 5))
