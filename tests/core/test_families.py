"""A family of one's own: defined in a test file, known to everything that takes an algorithm by name."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from nets import backprop, batch, gradients, mlp, one_hot, residual
from toy_family import Toy

from deeppc import Algorithm
from deeppc.core.algorithms import describe, families, known_options, option, options_for, register


def test_it_is_found_by_name_with_its_options():
    assert families()["toy"] is Toy
    assert Algorithm.parse("toy", strength=2, reach=3) == Toy(strength=2, reach=3)
    assert str(Algorithm.parse("toy+whole")) == "toy+whole"
    assert "toy" in describe()
    assert "+whole whole network" in describe()
    assert known_options()["strength"].search == "0.5..2 log"
    assert list(options_for("toy")) == ["loss", "strength", "reach"]
    assert list(options_for("toy+whole")) == ["loss", "strength"]
    assert Algorithm.parse("toy").settings() == {"loss": "squared_error", "strength": 1.0, "reach": 1}
    for options, message in [
        ({"strength": 0}, "strength is 0, but must be a number above 0"),
        ({"reach": 2.0}, "reach is 2.0, but must be a whole number at least 1"),
        ({"lr_x": 0.1}, "unknown option 'lr_x' for 'toy'"),
    ]:
        with pytest.raises(ValueError, match=message):
            Algorithm.parse("toy", **options)


@pytest.mark.parametrize("make", [lambda: mlp(4), lambda: residual(1, aux=False)])
@pytest.mark.parametrize("loss", ["squared_error", "cross_entropy"])
def test_its_gradients_are_those_it_defines(make, loss):
    torch.manual_seed(0)
    net = make().double()
    images, labels = batch(net)
    expected = backprop(net, images, one_hot(net, images, labels), loss)
    whole = gradients(Algorithm.parse("toy+whole", strength=2.0, loss=loss), net, images, labels)
    cut = gradients(Algorithm.parse("toy", reach=2, loss=loss), net, images, labels)
    for name, g in expected.items():
        torch.testing.assert_close(whole[name], 2 * g, rtol=1e-10, atol=1e-14)
        if net.arrival[name.split(".")[1]] < 2:
            torch.testing.assert_close(cut[name], g, rtol=1e-10, atol=1e-14)
        else:
            assert cut[name] is None


def test_it_takes_steps():
    torch.manual_seed(0)
    net = mlp(3)
    images, labels = batch(net, n=16, dtype=torch.float32)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.02)
    algo = Algorithm.parse("toy", reach=2)
    first = {n: p.detach().clone() for n, p in net.named_parameters()}
    results = [algo.step(net, images, labels, optimizer) for _ in range(40)]
    assert float(results[-1].energy["3"]) < 0.8 * float(results[0].energy["3"])
    assert float(results[-1].energy["1"]) == 0
    assert results[0].logits.shape == (16, 3)
    assert dict(results[0].work.weight_gradients) == {"2": 1, "3": 1}
    assert torch.equal(first["nodes.1.0.weight"], net.nodes["1"][0].weight)
    assert algo.steps(net) == 0


def test_families_agree_on_the_options_that_they_share():
    with pytest.raises(ValueError, match="option 'lr_x' of 'other' differs from that of another family"):

        @register
        @dataclass(frozen=True)
        class Other(Algorithm):
            family: ClassVar[str] = "other"
            lr_x: int = option(1, "Not the learning rate of the activities.")

            def run(self, batch):
                pass

    assert "other" not in families()
