"""What PC and iPC share: options of the inference, precision, nudging, and the scale of weight gradients."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from deeppc.core import precision
from deeppc.core.algorithms.base import Algorithm
from deeppc.core.algorithms.options import option

if TYPE_CHECKING:
    from deeppc.core.batch import Batch
    from deeppc.core.graph import Graph
    from deeppc.core.inference import Descent, Weight
    from deeppc.core.state import State

# Suffixes by what they set.
PRECISION = {"s": {"schedule": "spiking"}, "d": {"schedule": "exponential"}, "l": {"schedule": "linear"}}
NUDGING = {"cn": {"centred": True}}
FLOAT32_MAX = (2 - 2**-23) * 2.0**127


@dataclass(frozen=True)
class Inferring(Algorithm):
    """An algorithm that relaxes the activities before, or while, its weights learn.

    ``schedule`` may also be a function ``(t, arrival, T) -> pi``.
    """

    searched: ClassVar[Mapping[str, str]] = {"lr_w": "1e-5..3e-2 log"}

    schedule: Literal["fixed", "spiking", "exponential", "linear"] | precision.Schedule = option(  # noqa: RUF009
        "fixed", "precision of a node's error by step"
    )
    centred: bool = option(False, "centre nudging: the sign of beta is drawn for each batch")
    T: int | None = option(None, "Inference steps for each batch (paper: T). None: the network's L levels.", least=1)
    lr_x: float = option(
        0.5, "Learning rate of the activities (paper: α in Eq. 2, lr_x).", above=0, search="5e-3..9e-1 log"
    )
    momentum_x: float = option(
        0.0, "Momentum of the activities' SGD (paper: momentum_x).", least=0, most=1, search="0.0..1.0 step 0.1"
    )
    nesterov: bool = option(
        True, "Nesterov momentum for the activities; without momentum it changes nothing.", unless={"momentum_x": 0.0}
    )
    alpha: float = option(
        0.01,
        "With +s, precision outside the spike (paper: α of its search table, 0.001 to 0.05). 0 comes nearest to bp.",
        least=0,
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
    # without beta, so we take it that beta was searched only where its sign is drawn, too: in centre nudging.
    beta: float = option(
        1.0,
        "Nudging strength in (0, 1] (paper: β). 1 clamps the output to the label; +cn draws its sign.",
        above=0,
        most=1,
        search="0.15..0.9 step 0.15 if algorithm=+cn",
    )
    precision_on: Literal["energy", "node"] = option(
        "energy",
        "What precision weighs: each error, or a node's whole update (paper: Eq. 2; it wants a lower lr_x).",
        unless={"schedule": "fixed"},
    )
    depth_gain: bool = option(
        False, "Give each layer's weight gradient back the factor lr_x^arrival that the wave lost (not in the paper)."
    )

    def steps(self, net: Graph) -> int:
        return self.T or net.L

    def begin(self, batch: Batch, keep: Collection[str] = ()) -> State:
        """Initialise by a feed-forward pass, and clamp the output (or nudge it, by ``beta`` of either sign)."""
        net = batch.net
        if self.depth_gain and -net.L * math.log(self.lr_x) > math.log(FLOAT32_MAX):
            raise ValueError(f"depth_gain is lr_x^-{net.L}, too large for float32: choose a larger lr_x")
        state = batch.initialise(keep)
        batch.gain = {v: float(self.lr_x ** -net.arrival[v]) for v in net.nodes} if self.depth_gain else {}
        batch.clamp(self.beta * batch.random_sign() if self.centred else self.beta)
        return state

    def pi(self, t: int, arrival: int, T: int) -> float:
        """The precision at step ``t`` of a node that the wave reaches at step ``arrival``."""
        schedules = {"spiking": precision.spiking(self.alpha), "exponential": precision.exponential(self.k)}
        schedules |= {"fixed": precision.fixed, "linear": precision.linear}
        schedule = schedules[self.schedule] if isinstance(self.schedule, str) else self.schedule
        return schedule(t, arrival, T)

    def descent(self, state: State, T: int) -> Descent:
        """SGD on the activities, with precision on each sender's error, or on each receiver's whole update.

        The latter (the paper's Eq. 2) spikes one step earlier: when the wave first moves ``x_v``.
        """
        net = state.net
        if self.precision_on == "energy":
            return self._sgd(state, lambda v, t: self.pi(t, net.arrival[v], T), lambda v, t: float(v != net.output))
        return self._sgd(
            state, lambda v, t: 1.0, lambda v, t: 0.0 if v == net.output else self.pi(t, net.arrival[v] - 1, T)
        )

    def free_descent(self, state: State) -> Descent:
        """The same SGD with precision 1 and the output unclamped."""
        return self._sgd(state, lambda v, t: 1.0, lambda v, t: 1.0)

    def _sgd(self, state: State, send: Weight, receive: Weight) -> Descent:
        from deeppc.core.inference import Descent

        return Descent(state, self.lr_x, self.momentum_x, self.nesterov, send, receive)
