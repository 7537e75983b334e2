"""What PC and iPC share: options of the inference, precision, nudging, and the scale of weight gradients."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

from deeppc.core import precision
from deeppc.core.algorithms.base import Algorithm
from deeppc.core.algorithms.options import option

if TYPE_CHECKING:
    from deeppc.core.batch import Batch
    from deeppc.core.energies import Energy
    from deeppc.core.graph import Graph
    from deeppc.core.inference import Descent, Factor
    from deeppc.core.state import Scale, State
    from deeppc.core.wave import Wave

# Suffixes by what they set.
PRECISION = {"s": {"schedule": "spiking"}, "d": {"schedule": "exponential"}, "l": {"schedule": "linear"}}
NUDGING = {"pn": {"nudging": "positive"}, "nn": {"nudging": "negative"}, "cn": {"nudging": "centre"}}


@dataclass(frozen=True)
class Stepping(Algorithm):
    """An algorithm that takes inference steps before, or while, its weights learn."""

    searched: ClassVar[Mapping[str, str]] = {"lr_w": "1e-5..3e-2 log"}

    T: int | None = option(None, "Inference steps for each batch (paper: T). None: the network's L levels.", least=1)

    def horizon(self, net: Graph) -> int:
        """``T``, or as many steps as the wave needs."""
        return self.T or net.L


@dataclass(frozen=True)
class Descending(Stepping):
    """One that descends at a rate of its own."""

    lr_x: float = option(
        0.5, "Learning rate of the activities (paper: α in Eq. 2, lr_x).", above=0, most=1e6, search="5e-3..9e-1 log"
    )


@dataclass(frozen=True)
class Inferring(Descending):
    """An algorithm that relaxes the activities, by a schedule of precision.

    ``schedule`` may also be a function ``(t, arrival, T) -> pi``.
    """

    schedule: Literal["fixed", "spiking", "exponential", "linear"] | precision.Schedule = option(  # noqa: RUF009
        "fixed", "precision of a node's error by step"
    )
    nudging: Literal["none", "positive", "negative", "centre"] = option(
        "none", "sign of beta: + (none and positive), - (negative), or drawn for each batch (centre)"
    )
    momentum_x: float = option(
        0.0, "Momentum of the activities' SGD (paper: momentum_x).", least=0, most=1, search="0.0..1.0 step 0.1"
    )
    optimizer_x: Literal["sgd", "adam"] = option(
        "sgd", "How activities descend: sgd, or adam, which moves every unit at the rate lr_x (not in the paper)."
    )
    nesterov: bool = option(
        True, "Nesterov momentum for the activities; without momentum it changes nothing.", unless={"momentum_x": 0.0}
    )
    alpha: float = option(
        0.01,
        "With +s, precision outside the spike (paper: α of its search table, 0.001 to 0.05). 0 comes nearest to bp.",
        least=0,
        most=1e6,
        needs={"schedule": "spiking"},
        search="0.001, 0.005, 0.01, 0.05",
    )
    k: float = option(
        1.0,
        "With +d, rate of the exponential decay of precision (paper: k in {1, 1.5, 2}).",
        least=0,
        needs={"schedule": "exponential"},
        search="1.0, 1.5, 2.0",
    )
    # The paper's grid begins at 0, where the label has no say and 1/beta no value. Its importance tables sum to 100 %
    # without beta, so we take it that beta was searched only with nudging: by +cn there, by +pn and +nn here.
    beta: float = option(
        1.0,
        "Nudging strength in (0, 1] (paper: β). 1 clamps the output to the label; +nn turns its sign, +cn draws it.",
        above=0,
        most=1,
        search="0.15..0.9 step 0.15 if algorithm=+pn,+nn,+cn",
    )
    precision_on: Literal["energy", "node"] = option(
        "energy",
        "What precision weighs: each error, or a node's whole update (paper: Eq. 2; it wants a lower lr_x).",
        unless={"schedule": "fixed"},
    )
    depth_gain: bool = option(
        False, "Give each layer's weight gradient back the factor lr_x^arrival that the wave lost (not in the paper)."
    )
    resolve: bool = option(
        True, "Resolve what lies below the numbers' range and rounding deep in a network. --no-resolve: for comparison."
    )

    def begin(self, batch: Batch, keep: Collection[str] = ()) -> State:
        """Initialise by a feed-forward pass, and clamp the output (or nudge it, by ``beta`` of either sign)."""
        from deeppc.core.energies import energies_of

        net, energies = batch.net, energies_of(batch.net, batch.loss)
        self.require_fit(net, energies)
        wave = replace(self.wave(net), bounded=batch.bounded(energies))
        if self.depth_gain:  # lr_x^-arrival, of the unit
            gains = {v: wave.exponents.get(v, 0) - net.arrival[v] * math.log2(self.lr_x) for v in net.nodes}
            if max(gains.values()) > 127:
                raise ValueError(f"depth_gain is lr_x^-{net.L}, too large for float32: choose a larger lr_x")
            batch.gain = {v: 2.0**gain for v, gain in gains.items()}
        state = batch.initialise(keep, wave)
        batch.clamp(self.beta * self.sign(batch))
        return state

    def require_fit(self, net: Graph, energies: Mapping[str, Energy]) -> None:
        """Raise ``ValueError`` for a network, or energies, that the options do not suit."""
        for v in net.outputs:
            if (self.nudging in ("negative", "centre") or self.beta != 1) and not energies[v].canonical:
                raise ValueError(f"{type(energies[v]).__name__} has no nudging: leave beta at 1, and +nn and +cn out")

    def sign(self, batch: Batch) -> Scale:
        """The sign of ``beta`` for this batch."""
        if self.nudging == "centre":
            return batch.random_sign()
        return -1.0 if self.nudging == "negative" else 1.0

    def wave(self, net: Graph) -> Wave:
        """What is known in advance: ``lr_x ** arrival`` as the unit, and how large deviations become.

        The clamped outputs have the unit 1, and all nodes under Adam, which moves them all at the same rate. Where the
        estimate does not hold (unbalanced graphs, energies of one's own) units go down to 2^-60.
        """
        from deeppc.core.wave import Wave

        try:  # asks a schedule of the user's for all its precisions, before anything has moved
            sizes, behind = _sizes(self, net.L, self.horizon(net))
        except TypeError:  # it cannot be a key of a cache, or says something that is no number
            sizes, behind = _sizes.__wrapped__(self, net.L, self.horizon(net))
        if self.optimizer_x == "adam" or not self.resolve:
            return Wave()
        amplitudes = {v: sizes[net.hops[v]] for v in net.nodes}
        balanced = all(net.hops[v] == net.arrival[v] for v in net.nodes)
        canonical = all(getattr(energy, "canonical", False) for energy in net.energies.values())

        def exponent(v: str) -> int:
            least = math.frexp(amplitudes[v])[1] - 20 if amplitudes[v] else -math.inf  # not far below what it counts
            unit = max(round(net.arrival[v] * math.log2(self.lr_x)), least)
            return 0 if v in net.outputs else int(min(0, unit))

        exponents = {v: exponent(v) for v in net.nodes}
        wave = Wave(exponents, {v: self.beta * size for v, size in amplitudes.items()}, behind, balanced=balanced)
        return wave if balanced and canonical else wave.coarse()

    def pi(self, t: int, arrival: int, T: int) -> float:
        """The precision at step ``t`` of a node that the wave reaches at step ``arrival``."""
        if not isinstance(self.schedule, str):
            return precision.checked(self.schedule, t, arrival, T)
        named: dict[str, precision.Schedule] = {
            "fixed": precision.fixed,
            "linear": precision.linear,
            "spiking": precision.spiking(self.alpha),
            "exponential": precision.exponential(self.k),
        }
        return named[self.schedule](t, arrival, T)

    def descent(self, state: State) -> Descent:
        """SGD on the activities, with precision on each sender's error, or on each receiver's whole update.

        The latter (the paper's Eq. 2) spikes one step earlier: when the wave first moves ``x_v``.
        """
        net, T = state.net, self.horizon(state.net)
        still = {*net.inputs, *net.outputs}
        if self.precision_on == "energy":
            return self._sgd(state, lambda v, t: self.pi(t, net.arrival[v], T), lambda v, t: float(v not in still))
        return self._sgd(state, lambda v, t: 1.0, lambda v, t: 0.0 if v in still else self.pi(t, net.arrival[v] - 1, T))

    def free_descent(self, state: State) -> Descent:
        """The same SGD with precision 1 and the output unclamped."""
        return self._sgd(state, lambda v, t: 1.0, lambda v, t: float(v not in state.net.inputs))

    def _sgd(self, state: State, send: Factor, receive: Factor) -> Descent:
        from deeppc.core.inference import Descent

        adam = self.optimizer_x == "adam"
        return Descent(state, self.lr_x, self.momentum_x, self.nesterov, send, receive, adam=adam)


@lru_cache(maxsize=64)
def _sizes(algorithm: Inferring, L: int, T: int) -> tuple[list[float], float]:
    """Amplitudes by hops from the output, and what part of them comes from behind the front, at most."""
    from deeppc.core.wave import amplitudes

    def pi(t: int, arrival: int) -> float:
        return algorithm.pi(t, arrival, T)

    lr = algorithm.lr_x / max(1 - algorithm.momentum_x, 0.01)
    behind = lr * max(sum(pi(t, a) for t in range(a + 1, T)) for a in range(L))
    return amplitudes(pi, lr, L, T), min(1.0, behind)
