"""Precision schedules ``pi_v(t)``: how strongly a node's error counts at inference step ``t``.

A schedule is a function ``(t, arrival, T) -> pi`` of the step, the node's arrival step and the number of steps.
It depends on nothing else, so the whole course of a batch is known in advance; any function of that form will do.
(The paper writes its schedules as variances; with its Sigma, spiking is ``pi = alpha / Sigma``.)
"""

import math
from collections.abc import Callable
from numbers import Real

Schedule = Callable[[int, int, int], float]
MOST = 1e30  # times any learning rate, a precision must not overflow in float32


def fixed(t: int, arrival: int, T: int) -> float:
    """``pi = 1``: plain predictive coding."""
    return 1.0


def spiking(alpha: float) -> Schedule:
    """``1`` at the step when the wave arrives, ``alpha`` at all others (``alpha = 0`` is allowed, and exact)."""
    return lambda t, arrival, T: 1.0 if t == arrival else alpha


def exponential(k: float) -> Schedule:
    """``exp(-k j) / sum_i exp(-k i)``, ``j = t - arrival``: sums to 1 over a node's active steps; 1 before them."""

    def pi(t: int, arrival: int, T: int) -> float:
        if t < arrival:
            return 1.0
        return math.exp(-k * (t - arrival)) / sum(math.exp(-k * i) for i in range(T - arrival))

    return pi


def linear(t: int, arrival: int, T: int) -> float:
    """``(n - j) / (n (n + 1) / 2)``, ``n = T - arrival``, ``j = t - arrival``: also sums to 1; 1 before arrival."""
    if t < arrival:
        return 1.0
    n = T - arrival
    return (n - (t - arrival)) / (n * (n + 1) / 2)


def checked(schedule: Schedule, t: int, arrival: int, T: int) -> float:
    """Return what a user's schedule says, if it is a precision: a plain number from 0 (or a bool)."""
    asked = f"the schedule {getattr(schedule, '__name__', schedule)!r} at t={t}, arrival={arrival}, T={T}"
    try:
        value: object = schedule(t, arrival, T)
    except Exception as error:
        error.add_note(f"(while asking {asked})")
        raise
    if not isinstance(value, Real):
        raise TypeError(f"{asked} gave {value!r}, but must give a plain number, such as float(...) makes")
    if not 0 <= float(value) <= MOST:  # NaN is neither
        raise ValueError(f"{asked} gave {value}, but a precision must be at least 0 and at most {MOST:g}")
    return float(value)
