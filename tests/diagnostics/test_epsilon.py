"""What epsilon leaves of a step: torch's own optimisers take that step, and it is so much shorter than without."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nets import batch, mlp
from torch import nn

from deeppc import Algorithm, Chain
from deeppc.diagnostics.epsilon import left_by_epsilon


def stepped(gradient: float, steps: int, kind=torch.optim.AdamW, **settings):
    """A node of one weight after so many steps along the same gradient, the optimiser, and the last step's length."""
    net = Chain(nn.Linear(1, 1, bias=False))
    (weight,) = net.parameters()
    nn.init.zeros_(weight)  # beside which the smallest steps are not rounded
    optimizer = kind(net.parameters(), **{"lr": 1.0, **settings})
    before = weight.detach().clone()
    for _ in range(steps):
        before = weight.detach().clone()
        weight.grad = torch.full_like(weight, gradient)
        optimizer.step()
    return net, optimizer, float((weight.detach() - before).abs())


@given(st.floats(-12, 0), st.floats(-12, -2), st.integers(1, 20), st.booleans())
def test_it_is_the_length_of_the_step_that_torch_takes(gradient, eps, steps, amsgrad):
    """Along one gradient Adam's step is lr long, but for epsilon."""
    net, optimizer, length = stepped(10**gradient, steps, weight_decay=0.0, eps=10**eps, amsgrad=amsgrad)
    expected = 10**gradient / (10**gradient + 10**eps)
    assert left_by_epsilon(net, optimizer) == pytest.approx({"1": expected}, rel=1e-3)
    assert length == pytest.approx(expected, rel=1e-2, abs=1e-5)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.NAdam, torch.optim.RAdam])
def test_of_the_relatives_of_adam(kind):
    net, optimizer, _ = stepped(1e-8, 3, kind, eps=1e-8)
    assert left_by_epsilon(net, optimizer) == pytest.approx({"1": 0.5}, rel=1e-3)


@pytest.mark.parametrize("gradient", [1e-23, 1e-26])
@pytest.mark.parametrize("eps", [1e-8, 1e-20, 1e-30])
def test_it_is_that_length_where_squares_are_too_small_for_float32(gradient, eps):
    """An epsilon of 1e-30 makes steps there too long, by far."""
    net, optimizer, length = stepped(gradient, 3, weight_decay=0.0, eps=eps)
    assert left_by_epsilon(net, optimizer) == pytest.approx({"1": gradient / eps}, rel=1e-2)
    assert length == pytest.approx(gradient / eps, rel=1e-2)
    assert (length > 1000) == (eps == 1e-30)


def test_who_has_no_epsilon_or_no_gradient_has_no_number():
    net, optimizer, _ = stepped(1e-3, 2, torch.optim.SGD, momentum=0.9)
    assert left_by_epsilon(net, optimizer) == {}
    for gradient, steps in ((0.0, 3), (1.0, 0)):
        net, optimizer, _ = stepped(gradient, steps)
        assert left_by_epsilon(net, optimizer) == {}


def test_weights_without_a_gradient_do_not_count():
    net = Chain(nn.Linear(4, 1, bias=False))
    (weight,) = net.parameters()
    optimizer = torch.optim.AdamW(net.parameters(), eps=1e-8)
    weight.grad = torch.tensor([[0.0, 1e-8, 1e-8, 1.0]])
    optimizer.step()
    assert left_by_epsilon(net, optimizer) == pytest.approx({"1": (0.5 + 0.5 + 1.0) / 3})


def test_the_gain_gives_early_layers_their_steps_back():
    """What plain PC's early layers lose to epsilon, and backprop's do not."""
    torch.manual_seed(0)
    left = {}
    for name, settings in {"bp": {}, "pc": {"lr_x": 0.01}, "gain": {"lr_x": 0.01, "depth_gain": True}}.items():
        net = mlp(6)
        optimizer = torch.optim.AdamW(net.parameters())
        algorithm = Algorithm.parse("bp" if name == "bp" else "pc", **settings)
        algorithm.step(net, *batch(net, dtype=torch.float32), optimizer)
        left[name] = left_by_epsilon(net, optimizer)
    first, output = "1", net.output
    assert left["pc"][first] < 0.05 < 0.9 < left["gain"][first]
    assert left["gain"] == pytest.approx(left["bp"], abs=0.05)
    assert all(found[output] > 0.99 for found in left.values())
