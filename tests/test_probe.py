"""A lesson is a training step that leaves no trace, and what it reports is what the step would have done."""

import copy
import math

import pytest
import torch
from nets import batch, gradients, mlp, vgg
from torch import nn

from deeppc import Algorithm, Chain
from deeppc.core.norm import thaw
from deeppc.diagnostics.updates import Beside, Lesson, backprop_for, beside, gaps, lesson

ALGORITHMS = ["bp", "pc", "pc+s+f+cn", "ipc+s"]


class Counter(nn.Module):
    """Puts another tensor in the place of its buffer, as some modules do."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen = self.seen + 1
        return x


def everything():
    """A net that draws random numbers, tracks statistics (frozen and thawed) and counts."""
    first = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.3))
    second = thaw(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6, affine=False), Counter()))
    return Chain(first, second, nn.Linear(6, 3))


def snapshot(net):
    held = {name: value.clone() for name, value in net.state_dict().items()}
    return held, torch.get_rng_state()


def assert_untouched(net, before):
    held, stood = before
    assert net.state_dict().keys() == held.keys()
    for name, value in net.state_dict().items():
        assert torch.equal(value, held[name]), name
    assert torch.equal(torch.get_rng_state(), stood)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_lesson_leaves_no_trace(name):
    net = everything()
    images, labels = batch(net, dtype=torch.float32)
    marked = next(net.parameters())
    marked.grad = mark = torch.full_like(marked, 7.0)
    buffers = list(net.buffers())
    before = snapshot(net)
    lesson(Algorithm.parse(name), net, images, labels)
    assert_untouched(net, before)
    assert all(a is b for a, b in zip(net.buffers(), buffers, strict=True))
    assert marked.grad is mark
    assert (mark == 7.0).all()
    assert all(p.grad is None for p in net.parameters() if p is not marked)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_refused_batch_leaves_no_trace_either(name):
    net = everything()
    images, labels = batch(net, dtype=torch.float32)
    before = snapshot(net)
    with pytest.raises(ValueError, match="class indices from 0 to 2"):
        lesson(Algorithm.parse(name), net, images, labels + 3)
    assert_untouched(net, before)


@pytest.mark.parametrize("name", ["bp", "pc", "pc+s+f"])
def test_it_is_what_a_training_step_would_have_got(name):
    net = vgg().double()
    images, labels = batch(net)
    algo = Algorithm.parse(name)
    taught = lesson(algo, net, images, labels)
    expected = gradients(algo, copy.deepcopy(net), images, labels)
    for v, updates in taught.updates.items():
        for (weight, _), update in zip(net.nodes[v].named_parameters(), updates, strict=True):
            assert torch.equal(update, expected[f"nodes.{v}.{weight}"])


def test_ipc_is_the_limit_of_sgd_with_a_small_learning_rate():
    torch.manual_seed(0)
    net = mlp(3).double()
    images, labels = batch(net)
    algo = Algorithm.parse("ipc+s", lr_x=0.4, alpha=0.3, T=5)
    taught = lesson(algo, net, images, labels)
    moved, lr = copy.deepcopy(net), 1e-7
    algo.step(moved, images, labels, torch.optim.SGD(moved.parameters(), lr=lr))
    for v, updates in taught.updates.items():
        for before, after, update in zip(net.nodes[v].parameters(), moved.nodes[v].parameters(), updates, strict=True):
            torch.testing.assert_close((before - after) / lr, update, rtol=1e-4, atol=1e-7)


def test_only_nodes_that_learn_are_here():
    net = vgg()  # its third node is a flatten
    net.nodes["1"].requires_grad_(False)
    taught = lesson(Algorithm.parse("pc"), net, *batch(net, dtype=torch.float32))
    assert list(taught.updates) == list(taught.energy) == list(taught.drift) == ["2", "4"]
    for frozen in net.parameters():
        frozen.requires_grad_(False)
    with pytest.raises(ValueError, match="nothing to teach"):
        lesson(Algorithm.parse("pc"), net, *batch(net, dtype=torch.float32))


def test_backprop_has_the_same_loss():
    assert backprop_for(Algorithm.parse("pc+s+f", loss="cross_entropy")) == Algorithm.parse("bp", loss="cross_entropy")


@pytest.mark.parametrize(
    ("drift", "energy", "ratio"),
    [(3.0, 2.0, 1.5), (0.0, 2.0, 0.0), (1.0, 0.0, math.inf), (0.0, 0.0, math.nan), (1.0, -1.0, math.nan)],
)
def test_the_gap_ratio_where_something_is_missing(drift, energy, ratio):
    assert gaps(Lesson({}, {"v": energy}, {"v": drift}))["v"] == pytest.approx(ratio, nan_ok=True)


def compared(mine, theirs):
    return beside(Lesson({"v": mine}, {}, {}), Lesson({"v": theirs}, {}, {}))["v"]


def test_updates_side_by_side_by_hand():
    a, b = [torch.tensor([3.0]), torch.tensor([[0.0], [4.0]])], [torch.tensor([0.0]), torch.tensor([[6.0], [8.0]])]
    assert compared(a, b) == pytest.approx((32 / 50, 0.5))  # (3, 0, 4) and (0, 6, 8)
    assert compared(a, [-2 * x for x in a]) == pytest.approx((-1.0, 0.5))
    assert compared([None, a[1]], b) == pytest.approx((0.8, 0.4))  # (0, 0, 4)


@pytest.mark.parametrize("scale", [1e-44, 1e-30, 1e30])
def test_no_scale_is_too_small_or_too_large_to_compare(scale):
    a = torch.tensor([1.0, 2.0, -3.0])
    found = compared([a * scale], [a])
    assert found.cosine == pytest.approx(1.0, abs=0.2 if scale == 1e-44 else 1e-6)  # 1e-44 is 7 steps of float32
    assert found.size == pytest.approx(scale, rel=0.2 if scale == 1e-44 else 1e-6)


def test_what_has_no_direction():
    one, zero, bad = [torch.ones(2)], [torch.zeros(2)], [torch.tensor([1.0, math.nan])]
    for found, size in (
        (compared(zero, one), 0.0),
        (compared([None], one), 0.0),
        (compared(one, zero), math.nan),
        (compared(zero, zero), math.nan),
        (compared(bad, one), math.nan),
        (compared(one, [torch.tensor([1.0, math.inf])]), math.nan),
    ):
        assert isinstance(found, Beside)
        assert math.isnan(found.cosine)
        assert found.size == pytest.approx(size, nan_ok=True)
