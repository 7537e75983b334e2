"""The networks are the paper's: counts and levels of SPEC section 5, and passes written by hand with plain torch."""

import itertools

import pytest
import torch
from torch import Tensor, nn

from deeppc.models import ACTIVATIONS, NORMS, Style, build, names
from deeppc.models.mlp import mlp
from deeppc.models.resnet import _projection
from deeppc.models.vgg import vgg

TABLE = {  # levels, parameters at 10 classes, 32x32, no norm
    "vgg5": (5, 3_843_850),
    "vgg7": (7, 4_581_514),
    "vgg10": (10, 3_636_874),
    "vgg15": (15, 16_856_906),
    "resnet10": (10, 4_897_482),
    "resnet18": (18, 11_164_362),
}
SMALLEST = {"vgg5": 32, "vgg7": 32, "vgg10": 16, "vgg15": 32, "resnet10": 1, "resnet18": 1}


def parameters(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def load_by_position(target: nn.Module, source: nn.Module) -> None:
    target.load_state_dict(dict(zip(target.state_dict(), source.state_dict().values(), strict=True)))


# --- the table


@pytest.mark.parametrize("name", TABLE)
def test_levels_and_parameters_are_the_papers(name: str) -> None:
    for aux in (True, False) if name.startswith("resnet") else (True,):
        net = build(name, aux=aux)
        assert (net.L, parameters(net)) == TABLE[name]


def test_a_chain_has_one_value_node_per_layer_with_weights_named_for_people() -> None:
    nodes = {}
    for name in ("mlp", "vgg5", "vgg7", "vgg10", "vgg15"):
        net = build(name, width=0.02)
        for v, module in net.nodes.items():
            assert sum(isinstance(m, nn.Conv2d | nn.Linear) for m in module.modules()) == 1, v
        assert net.hops == net.arrival
        nodes[name] = list(net.nodes)
    assert nodes["mlp"] == ["hidden1", "hidden2", "hidden3", "linear"]
    assert nodes["vgg5"] == ["conv1", "conv2", "conv3", "conv4", "linear"]
    assert nodes["vgg15"][-3:] == ["conv13", "hidden1", "linear"]


# --- passes written by hand


def c(before: int, after: int, padding: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, 3, padding=padding)


def by_hand(name: str) -> nn.Sequential:
    act, pool = nn.GELU(approximate="tanh"), nn.MaxPool2d(2)
    return {
        "vgg5": lambda: nn.Sequential(
            *(c(3, 128), act, pool, c(128, 256), act, pool, c(256, 512), act, pool),
            *(c(512, 512, 0), act, pool, nn.Flatten(), nn.Linear(512, 10)),
        ),
        "vgg7": lambda: nn.Sequential(
            *(c(3, 128), act, pool, c(128, 128), act, c(128, 256), act, pool, c(256, 256, 0), act),
            *(c(256, 512), act, pool, c(512, 512, 0), act, nn.Flatten(), nn.Linear(512, 10)),
        ),
        "vgg10": lambda: nn.Sequential(
            *(c(3, 64), act, c(64, 128), act, c(128, 128), act, pool, c(128, 128), act, c(128, 256), act, pool),
            *(c(256, 256), act, c(256, 256), act, pool, c(256, 256), act, c(256, 512), act, pool),
            *(nn.Flatten(), nn.Linear(512 * 4, 10)),
        ),
        "vgg15": lambda: nn.Sequential(
            *(c(3, 64), act, c(64, 64), act, pool, c(64, 128), act, c(128, 128), act, pool),
            *(c(128, 256), act, c(256, 256), act, c(256, 256), act, pool),
            *(c(256, 512), act, c(512, 512), act, c(512, 512), act, pool),
            *(c(512, 512), act, c(512, 512), act, c(512, 512), act, pool),
            *(nn.Flatten(), nn.Linear(512, 4096), act, nn.Linear(4096, 10)),
        ),
    }[name]()


@pytest.mark.parametrize("name", ["vgg5", "vgg7", "vgg10", "vgg15"])
def test_vgg_is_the_plain_sequence(name: str) -> None:
    net, reference = build(name), by_hand(name)
    load_by_position(reference, net)
    x = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(net(x), reference(x))


@pytest.mark.parametrize("norm", ["none", "bf"])
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_a_layer_pools_what_its_activation_makes_to_the_same_bit(activation: str, norm: str) -> None:
    net = vgg("8M 16vM", Style(activation=activation, norm=norm, in_shape=(3, 12, 12)))
    act, pool = ACTIVATIONS[activation](), nn.MaxPool2d(2)
    norms = [nn.BatchNorm2d(n) if norm == "bf" else nn.Identity() for n in (8, 16)]
    reference = nn.Sequential(
        *(c(3, 8), norms[0], act, pool, c(8, 16, 0), norms[1], act, pool, nn.Flatten(), nn.Linear(64, 10))
    )
    load_by_position(reference, net)
    x = 3 * torch.randn(5, 3, 12, 12)  # so that some units are saturated, and all of some windows
    losses = [each(x).square().sum() for each in (net, reference)]
    assert torch.equal(*losses)
    for loss in losses:
        loss.backward()
    for own, expected in zip(net.parameters(), reference.parameters(), strict=True):
        assert torch.equal(own.grad, expected.grad)


class Block(nn.Module):
    """A pre-activation block as one writes it in plain torch."""

    def __init__(self, before: int, after: int, stride: int, norm: bool) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(before) if norm else nn.Identity()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(after) if norm else nn.Identity()
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.shortcut = (
            nn.Conv2d(before, after, 1, stride, bias=False) if stride > 1 or before != after else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(torch.relu(self.norm1(x)))
        return self.conv2(torch.relu(self.norm2(h))) + self.shortcut(x)


class PlainResNet(nn.Module):
    def __init__(self, per_stage: int, norm: bool) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        blocks = []
        for before, after, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2), (64, 128, 2)):
            blocks += [Block(before, after, stride, norm)]
            blocks += [Block(after, after, 1, norm) for _ in range(per_stage - 1)]
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(128) if norm else nn.Identity()
        self.linear = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.blocks(self.stem(x))))
        return self.linear(x.mean((2, 3)))


@pytest.mark.parametrize("aux", [True, False])
@pytest.mark.parametrize("norm", ["none", "bf"])
@pytest.mark.parametrize(("name", "per_stage"), [("resnet10", 1), ("resnet18", 2)])
def test_resnet_is_the_plain_residual_pass(name: str, per_stage: int, norm: str, aux: bool) -> None:
    net = build(name, width=0.25, activation="relu", norm=norm, aux=aux).double()
    reference = PlainResNet(per_stage, norm == "bf").double()
    x = torch.randn(3, 3, 16, 16, dtype=torch.float64)
    net(x)  # running statistics that are not the default ones
    load_by_position(reference, net)
    for mode in (True, False):
        net.train(mode)
        reference.train(mode)
        torch.testing.assert_close(net(x), reference(x), rtol=1e-12, atol=1e-12)


def test_mlp_is_the_plain_sequence() -> None:
    net = mlp((20, 30), Style(classes=5, in_shape=(2, 3, 4), activation="hard_tanh"))
    reference = nn.Sequential(
        *(nn.Flatten(), nn.Linear(24, 20), nn.Hardtanh(), nn.Linear(20, 30), nn.Hardtanh(), nn.Linear(30, 5))
    )
    load_by_position(reference, net)
    x = torch.randn(2, 2, 3, 4)
    torch.testing.assert_close(net(x), reference(x))


@pytest.mark.parametrize("name", names())
def test_a_network_takes_other_images_and_classes(name: str) -> None:
    net = build(name, classes=7, in_shape=(1, 32, 40), width=0.05)
    assert net(torch.zeros(2, 1, 32, 40)).shape == (2, 7)


def test_value_nodes_stand_after_the_pool() -> None:
    x, shapes = torch.zeros(1, 3, 32, 32), []
    for module in build("vgg7").nodes.values():
        x = module(x)
        shapes.append(tuple(x.shape[1:]))
    assert shapes == [(128, 16, 16), (128, 16, 16), (256, 8, 8), (256, 6, 6), (512, 3, 3), (512, 1, 1), (10,)]


# --- auxiliary nodes


def test_with_auxiliary_nodes_energy_comes_when_it_should_and_without_takes_the_short_cut() -> None:
    net, plain = (build("resnet18", width=0.05, aux=aux) for aux in (True, False))
    assert net.hops == net.arrival
    assert all(net.level[v] == net.level[p] + 1 for v, parents in net.parents.items() for p in parents)
    assert (plain.hops["stem"], plain.arrival["stem"]) == (9, 17)  # one hop per block, and the head


def test_block_with_auxiliary_nodes_is_wired_as_in_the_spec() -> None:
    net = build("resnet18", width=0.05)
    assert list(net.nodes)[:3] + list(net.nodes)[-1:] == ["stem", "s1b1_m1", "s1b1_m2", "head"]
    assert {v: net.parents[v] for v in ("s1b2_m1", "s1b2_m2", "s1b2_a1", "s1b2_a2", "s2b1_m1")} == {
        "s1b2_m1": ("s1b1_m2", "s1b1_a2"),
        "s1b2_m2": ("s1b2_m1",),
        "s1b2_a1": ("s1b1_m2", "s1b1_a2"),
        "s1b2_a2": ("s1b2_a1",),
        "s2b1_m1": ("s1b2_m2", "s1b2_a2"),
    }
    assert [v for v in net.nodes if v.endswith("a1") and parameters(net.nodes[v])] == ["s2b1_a1", "s3b1_a1", "s4b1_a1"]


@pytest.mark.parametrize("norm", NORMS)
def test_auxiliary_nodes_change_nothing_in_the_feed_forward_pass(norm: str) -> None:
    torch.manual_seed(0)
    net = build("resnet18", width=0.1, norm=norm)
    torch.manual_seed(0)
    plain = build("resnet18", width=0.1, norm=norm, aux=False)
    x = torch.randn(2, 3, 16, 16)
    assert torch.equal(net(x), plain(x)), "one seed, one network"
    for p in net.parameters():
        nn.init.normal_(p, std=0.1)
    load_by_position(plain, net)
    assert torch.equal(net(x), plain(x)), "state dicts convert by position"


# --- width, activation, norm


def test_width_scales_every_layer_but_the_output() -> None:
    for width, channels in ((0.3, [19, 38, 38, 38, 77]), (1e-3, [1, 1, 1, 1, 1])):
        net = build("vgg10", width=width)
        assert [m.out_channels for m in net.modules() if isinstance(m, nn.Conv2d)][:5] == channels
    assert [m.out_features for m in build("vgg15", width=0.25).modules() if isinstance(m, nn.Linear)] == [1024, 10]
    assert [m.out_features for m in build("mlp", width=0.5).modules() if isinstance(m, nn.Linear)] == [128] * 3 + [10]


def test_activations_are_what_they_are_called() -> None:
    x = torch.linspace(-3, 3, 13)
    inner = (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)
    expected = {
        "gelu": 0.5 * x * (1 + torch.tanh(inner)),
        "relu": x.clamp(min=0),
        "leaky_relu": torch.where(x > 0, x, 0.01 * x),
        "hard_tanh": x.clamp(-1, 1),
    }
    assert expected.keys() == ACTIVATIONS.keys()
    for name, make in ACTIVATIONS.items():
        torch.testing.assert_close(make()(x), expected[name])
        assert not getattr(make(), "inplace", False)


@pytest.mark.parametrize(("name", "layers"), [("vgg5", 4), ("vgg15", 13), ("resnet10", 9), ("mlp", 3)])
def test_norm_layers(name: str, layers: int) -> None:
    plain = parameters(build(name, width=0.05))
    for norm, affine in itertools.product(("bn", "bf"), (True, False)):
        net = build(name, width=0.05, norm=norm, affine=affine)
        norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
        assert len(norms) == layers
        assert all(getattr(m, "thawed", False) == (norm == "bn") for m in norms)
        assert (parameters(net) > plain) == affine


def test_vgg_norm_stands_between_convolution_and_activation() -> None:
    ends = {"gelu": [nn.GELU, nn.MaxPool2d], "relu": [nn.MaxPool2d, nn.ReLU]}
    for activation, last in ends.items():
        net = build("vgg5", width=0.05, norm="bf", activation=activation)
        assert [type(m) for m in net.nodes["conv1"].children()] == [nn.Conv2d, nn.BatchNorm2d, *last]


# --- what cannot be built


@pytest.mark.parametrize(("name", "n"), SMALLEST.items())
def test_the_smallest_image_that_fits(name: str, n: int) -> None:
    net = build(name, in_shape=(3, n, n), width=0.02)
    assert net(torch.zeros(1, 3, n, n)).shape == (1, 10)
    if n > 1:
        with pytest.raises(ValueError, match=rf"{n - 1}x64 are too small .* the smallest that fit are {n}x{n}"):
            build(name, in_shape=(3, n - 1, 64))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "resnet81"}, "unknown model 'resnet81': did you mean 'resnet18'"),
        ({"name": "transformer"}, "unknown model 'transformer': choose mlp, vgg5, vgg7"),
        ({"activation": "GELU"}, "unknown activation 'GELU': did you mean 'gelu'"),
        ({"norm": "batch"}, "unknown norm 'batch': choose none, bn, bf"),
        ({"width": 0}, "width is 0, but must be positive"),
        ({"width": float("nan")}, "width is nan"),
        ({"classes": 0}, "classes is 0"),
        ({"in_shape": (32, 32)}, r"needs \(channels, height, width\)"),
        ({"in_shape": (3, 32, 0)}, "expected the sizes of one sample"),
        ({"in_shape": ()}, "expected the sizes of one sample"),
    ],
)
def test_what_cannot_be_built_is_refused_with_reasons(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**{"name": "resnet10", **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("plan", ["", "128X", "128M  256", "4096L", "128 4096L 128", "128Mv"])
def test_a_plan_that_cannot_be_read_is_refused(plan: str) -> None:
    with pytest.raises(ValueError, match="cannot read the plan"):
        vgg(plan)


def test_a_narrow_projection_takes_every_second_pixel():
    """Narrow ones take the pixels first (torch's own strided way crashes there): the same numbers."""
    torch.manual_seed(0)
    narrow, images = _projection(6, 13, 2), torch.randn(2, 6, 9, 9)
    (weight,) = narrow.parameters()
    assert torch.allclose(narrow(images), nn.functional.conv2d(images, weight, stride=2), atol=1e-6)
    assert isinstance(_projection(8, 13, 2), nn.Conv2d)
