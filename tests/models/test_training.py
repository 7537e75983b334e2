"""Every variant trains, in every memory format, and is an ordinary module to the rest of torch."""

import itertools

import pytest
import torch
from torch import nn

from deeppc import Algorithm
from deeppc.models import ACTIVATIONS, NORMS, build

IMAGES = {"resnet10": 4, "vgg10": 16, "mlp": 4}
VARIANTS = [  # each activation and each width with each net, norm and affine in turns
    (*variant, list(ACTIVATIONS)[i % 4], (0.05, 0.08)[i // 4 % 2])
    for i, variant in enumerate(itertools.product(IMAGES, NORMS, [True, False]))
]


@pytest.mark.parametrize(("name", "norm", "affine", "activation", "width"), VARIANTS)
def test_every_variant_gets_gradients(name: str, norm: str, affine: bool, activation: str, width: float) -> None:
    torch.manual_seed(0)
    size = IMAGES[name]
    net = build(name, 4, (2, size, size), width, activation, norm, affine=affine)
    x, y = torch.randn(3, 2, size, size), torch.tensor([0, 1, 3])
    result = Algorithm.parse("pc+s+f", lr_x=0.5).gradients(net, x, y)
    assert result.logits.shape == (3, 4)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())

    moved = [int(m.num_batches_tracked) for m in net.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    if norm == "bf":
        assert set(moved) == {1}, "statistics move once per batch"
    if norm == "bn":
        assert max(moved) > 1, "statistics move in every prediction"


def test_backprop_does_not_notice_auxiliary_nodes() -> None:
    x, y = torch.randn(3, 2, 8, 8, dtype=torch.float64), torch.tensor([0, 1, 3])
    nets = []
    for aux in (True, False):
        torch.manual_seed(0)
        nets.append(build("resnet10", 4, (2, 8, 8), 0.05, aux=aux).double())
        Algorithm.parse("pc+s+f").gradients(nets[-1], x, y)
        assert all(p.grad is not None for p in nets[-1].parameters())
        nets[-1].zero_grad()
        Algorithm.parse("bp").gradients(nets[-1], x, y)
    for p, q in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize(("name", "size"), [("resnet10", 8), ("vgg10", 16)])
def test_channels_last_gives_the_same_gradients(name: str, size: int) -> None:
    torch.manual_seed(0)
    net = build(name, 4, (2, size, size), 0.05).double()
    twin = build(name, 4, (2, size, size), 0.05).double()
    twin.load_state_dict(net.state_dict())
    twin.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x, y = torch.randn(3, 2, size, size, dtype=torch.float64), torch.tensor([0, 1, 3])
    algorithm = Algorithm.parse("pc+s+f", lr_x=0.5)
    algorithm.gradients(net, x, y)
    algorithm.gradients(twin, x.contiguous(memory_format=torch.channels_last), y)
    for p, q in zip(net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-8, atol=1e-14)


def test_export() -> None:
    net = build("resnet10", width=0.25).eval()
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        exported = torch.export.export(net, (x,)).module()
        torch.testing.assert_close(exported(x), net(x))
