"""float32 at depth: deviations keep the early layers' errors, activities lose them in rounding."""

import pytest
import torch
from naive import Naive
from nets import backprop, batch, cosine, gradients, one_hot, residual

from deeppc import Algorithm

deep = pytest.mark.parametrize("levels", [18, 34])
ALGO = Algorithm.parse("pc+s+f", alpha=0.0, lr_x=0.5)


def deep_net(levels):
    torch.manual_seed(0)
    net = residual((levels - 2) // 2, aux=True)
    assert levels == net.L
    images, labels = batch(net, dtype=torch.float32)
    target = one_hot(net, images, labels)
    return net, images, labels, target, backprop(net, images, target)


@deep
def test_every_layer_learns_in_the_direction_of_backprop(levels):
    net, images, labels, _, expected = deep_net(levels)
    ours = gradients(ALGO, net, images, labels)
    assert min(cosine(ours[n], expected[n]) for n in ours) > 0.9999


def test_held_as_activities_the_first_layer_learns_from_rounding_noise():
    net, images, _, target, expected = deep_net(18)
    noise = Naive(ALGO, net, images, target).run().gradients["nodes.stem.weight"]
    assert noise is None or cosine(noise, expected["nodes.stem.weight"]) < 0.9


@deep
def test_energies_of_deep_layers_do_not_underflow(levels):
    """Deviations of 0.05^32 have squares far below float32's range."""
    net, images, labels, *_ = deep_net(levels)
    out = Algorithm.parse("pc+s+f", alpha=0.0, lr_x=0.05 if levels == 34 else 0.01).gradients(net, images, labels)
    assert all(float(e) > 0 for e in out.energy.values())


def test_depth_gain_brings_deep_weights_back_to_the_scale_of_backprop():
    net, images, labels, _, expected = deep_net(34)
    algo = Algorithm.parse("pc+s+f", alpha=0.0, lr_x=0.1, depth_gain=True)
    for n, g in gradients(algo, net, images, labels).items():
        scale = 1.0 if n.startswith("nodes.head") else 0.9
        torch.testing.assert_close(g.norm(), scale * expected[n].norm(), rtol=1e-3, atol=0)
