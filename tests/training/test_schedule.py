"""The learning rate against values worked out by hand from SPEC §6."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeppc.training.schedule import learning_rate


@pytest.mark.parametrize(
    ("step", "factor"),
    [
        (0, 1.0),  # begins at lr,
        (5, 1.05),  # half of the warm-up
        (10, 1.1),  # the peak, after 10 % of 100 steps
        (40, 0.85),  # a third of the way down: 0.1 + (1 + cos 60°) / 2
        (55, 0.6),  # half-way: the mean of 1.1 and 0.1
        (70, 0.35),  # two thirds: 0.1 + (1 + cos 120°) / 2
        (100, 0.1),  # the horizon
        (5000, 0.1),  # and for ever
    ],
)
def test_at_chosen_steps(step: int, factor: float) -> None:
    assert learning_rate(3e-4, step, 100) == pytest.approx(3e-4 * factor, rel=1e-12)


@given(st.integers(1, 10_000), st.integers(0, 20_000))
def test_stays_between_floor_and_peak_and_falls_after_warming(horizon: int, step: int) -> None:
    now, then = learning_rate(1.0, step, horizon), learning_rate(1.0, step + 1, horizon)
    assert 0.1 - 1e-12 <= now <= 1.1 + 1e-12
    if step >= 0.1 * horizon:
        assert then <= now + 1e-12
    elif step + 1 <= 0.1 * horizon:
        assert then > now
