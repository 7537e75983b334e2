"""muPC: activities and updates that do not depend on depth, as its paper predicts, where torch's own weights do."""

import copy
import math

import pytest
import torch
from torch import nn

from deeppc import Algorithm
from deeppc.models import Style, build
from deeppc.models.mupc import mupc, residual_mlp

DEPTHS = (8, 32, 128)
SIZE = 256
STYLE = Style(in_shape=(20,), classes=10, activation="relu")


def network(branches, scaled, size=SIZE):
    torch.manual_seed(0)
    net = residual_mlp(branches, size, STYLE).double()
    return mupc(net, [v for v in net.nodes if v.startswith("branch")]) if scaled else net


def batch():
    g = torch.Generator().manual_seed(1)
    return torch.randn(64, 20, generator=g).double(), torch.randint(0, 10, (64,), generator=g)


def rms(x):
    return float(x.detach().square().mean().sqrt())


def activities(net, x):
    """Root mean square of each node of a chain, the output apart."""
    sizes = []
    for f in net.nodes.values():
        x = f(x)
        sizes.append(rms(x))
    return sizes[:-1], sizes[-1]


def change(net, spec, lr, **options):
    """How far one step of SGD moves the output on the batch that it learns from."""
    net, (x, y) = copy.deepcopy(net), batch()
    before = net(x).detach()
    Algorithm.parse(spec, **options).step(net, x, y, torch.optim.SGD(net.parameters(), lr=lr))
    return rms(net(x) - before)


def test_activities_do_not_depend_on_depth():
    """At any level of any depth they are near 1: a_1 makes the first so, and K branches add at most as much."""
    for branches in DEPTHS:
        hidden, out = activities(network(branches, scaled=True), batch()[0])
        assert 0.8 < min(hidden) <= max(hidden) < 1.7, branches
        assert 0.3 / math.sqrt(SIZE) < out < 3 / math.sqrt(SIZE)  # 1 / N times a sum of N independent terms


def test_as_torch_starts_them_they_grow_with_depth():
    sizes = [max(activities(network(branches, scaled=False), batch()[0])[0]) for branches in DEPTHS]
    assert sizes[0] < 3
    assert sizes[1] > 3 * sizes[0]
    assert sizes[2] > 1000 * sizes[1]


@pytest.mark.parametrize(("spec", "options"), [("bp", {}), ("zil", {}), ("epc", {"T": 6, "lr_x": 0.3})])
def test_updates_do_not_depend_on_depth(spec, options):
    changes = [change(network(branches, scaled=True), spec, 1e-3 * SIZE, **options) for branches in DEPTHS]
    assert max(changes) < 1.4 * min(changes)


def test_as_torch_starts_them_updates_depend_on_depth():
    changes = [change(network(branches, scaled=False), "bp", 1e-9) for branches in DEPTHS]
    assert changes[1] > 30 * changes[0]
    assert changes[2] > 1000 * changes[1]


def test_updates_do_not_depend_on_width_at_a_rate_that_grows_with_it():
    changes = [change(network(16, True, size), "bp", 1e-3 * size) for size in (128, 256, 512)]
    assert max(changes) < 1.6 * min(changes)


def test_the_scales_are_those_of_the_paper():
    net = network(9, scaled=True)
    factors = {v: f.linear.parametrizations.weight[0].factor for v, f in net.nodes.items()}
    assert factors["first"] == pytest.approx(20**-0.5)
    assert factors["branch3"] == pytest.approx((256 * 9) ** -0.5)
    assert factors["linear"] == pytest.approx(1 / 256)
    drawn = net.nodes["branch3"].linear.parametrizations.weight.original
    assert rms(drawn) == pytest.approx(1, rel=0.05)
    torch.testing.assert_close(net.nodes["branch3"].linear.weight, factors["branch3"] * drawn)


def test_a_resnet_by_name():
    """Four branches of two convolutions: the depth counts once in each."""
    net = build("resnet10-mupc", width=0.125)
    layers = {name: m for name, m in net.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)}
    factors = {name: m.parametrizations.weight[0].factor for name, m in layers.items()}
    assert factors["nodes.s1b1_m1.conv"] == pytest.approx((8 * 9) ** -0.5)
    assert factors["nodes.s1b1_m2.conv"] == pytest.approx((8 * 9 * 4) ** -0.5)
    assert factors["nodes.stem"] == pytest.approx(27**-0.5)
    assert factors["nodes.head.linear"] == pytest.approx(1 / 64)
    assert not layers["nodes.head.linear"].bias.any()
    plain = build("resnet10", width=0.125)
    assert net.L == plain.L
    assert sum(p.numel() for p in net.parameters()) == sum(p.numel() for p in plain.parameters())
    assert list(build("resnet10-mupc", width=0.125, aux=False).nodes) == list(build("resnet10", aux=False).nodes)
    images, labels = torch.randn(4, 3, 32, 32), torch.randint(0, 10, (4,))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    losses = [float(Algorithm.parse("pc", lr_x=0.1).step(net, images, labels, optimizer).loss) for _ in range(8)]
    assert losses[-1] < 0.9 * losses[0]
