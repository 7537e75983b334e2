"""Precision schedules."""

import math

import pytest
import torch
from nets import batch, gradients, mlp

from deeppc import Algorithm
from deeppc.core import precision
from deeppc.core.algorithms.pc import PC


@pytest.mark.parametrize("schedule", [precision.exponential(1.0), precision.exponential(2.0), precision.linear])
@pytest.mark.parametrize(("arrival", "T"), [(0, 1), (0, 5), (3, 7), (6, 7)])
def test_decays_sum_to_one_over_the_active_steps(schedule, arrival, T):
    values = [schedule(t, arrival, T) for t in range(T)]
    assert values[:arrival] == [1.0] * arrival
    assert sum(values[arrival:]) == pytest.approx(1)
    assert values[arrival:] == sorted(values[arrival:], reverse=True)


def test_schedules_by_hand():
    assert [precision.spiking(0.01)(t, 2, 5) for t in range(5)] == [0.01, 0.01, 1.0, 0.01, 0.01]
    assert [precision.fixed(t, 2, 5) for t in range(5)] == [1.0] * 5
    assert [precision.linear(t, 2, 5) for t in range(5)] == [1, 1, 3 / 6, 2 / 6, 1 / 6]
    e = math.exp(-1.5)
    total = 1 + e + e * e
    expected = [1, 1, 1 / total, e / total, e * e / total]
    assert [precision.exponential(1.5)(t, 2, 5) for t in range(5)] == pytest.approx(expected)


def test_a_schedule_of_your_own():
    net = mlp(4).double()
    x, y = batch(net)
    mine = PC(schedule=lambda t, arrival, T: 1.0 if t == arrival else 0.1, forward=True, lr_x=0.4)
    ours, same = gradients(mine, net, x, y), Algorithm.parse("pc+s+f", alpha=0.1, lr_x=0.4)
    assert all(torch.equal(ours[n], g) for n, g in gradients(same, net, x, y).items())
