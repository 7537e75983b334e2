"""Energy by node: its shares, and its path through a network during the inference of one batch.

trace = EnergyTrace()
result = algorithm.gradients(net, inputs, targets, observe=trace)
trace.energy                 # (nodes, steps), of this batch
trace.shares                 # the same as fractions of each step's total
shares(result.energy)        # what the weights of each node learn from, as a fraction of the whole
report.plots.heat_map(trace) # the wave, as a picture
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from deeppc.core.arguments import checked
from deeppc.core.energies import half_square
from deeppc.core.state import State

FloatArray = NDArray[np.float64]


@checked
def shares(energy: Mapping[str, float | Tensor]) -> dict[str, float]:
    """Return each node's fraction of the total energy; all 0 where there is none.

    A node whose energy has no share gets nan and is left out of the total, so that the others can still be compared:
    one that is not finite (a diverged run), or negative (the cross-entropy of an output nudged away from its target).
    """
    values = {v: float(e) for v, e in energy.items()}
    counted = {v: e for v, e in values.items() if math.isfinite(e) and e >= 0}
    largest = max(counted.values(), default=0.0)
    if largest == 0:
        return {v: 0.0 if v in counted else math.nan for v in values}
    relative = {v: e / largest for v, e in counted.items()}  # by the largest first: the plain total may overflow
    total = math.fsum(relative.values())
    return {v: relative[v] / total if v in counted else math.nan for v in values}


class EnergyTrace:
    """An observer that keeps ``1/2 |eps_v|^2``, mean over the batch, of every node before every inference step.

    Of pc it also keeps the relaxed state, after the last step, which the standard rule learns from.
    Pass it as ``observe=``. It holds the last batch that it looked at. Gradients are the same with and without it, but
    it asks for predictions that the engine would spare: in a training let it look at one batch in ``every``.
    bp has no inference and leaves it empty. The output's energy is that of its error, also under cross-entropy.

    ``nodes``    names, in network order (the output last).
    ``arrival``  of each node: the step at which the wave along the main path reaches it.
    """

    @checked
    def __init__(self, every: int = 1) -> None:
        if every < 1:
            raise ValueError(f"every is {every}: it must be 1 (each batch) or more")
        self._every, self._batches = every, 0
        self.nodes: tuple[str, ...] = ()
        self.arrival: tuple[int, ...] = ()
        self._steps: list[list[Tensor | None]] = []  # left on the device until they are read, so that no step waits

    def __call__(self, t: int, state: State) -> None:
        self._batches += t == 0
        if (self._batches - 1) % self._every:
            return
        if t == 0:
            self.nodes = tuple(state.net.nodes)
            self.arrival = tuple(state.net.arrival[v] for v in self.nodes)
            self._steps = []
        self._steps.append(
            [
                None if state.at_rest(v) else half_square(state.error(v)) * state.unit(v) ** 2 / state.batch
                for v in self.nodes
            ]
        )

    @property
    def energy(self) -> FloatArray:
        """(nodes, steps); exactly 0 where no energy has come yet."""
        steps = [[0.0 if e is None else float(e) for e in step] for step in self._steps]
        return np.array(steps, dtype=np.float64).reshape(len(steps), len(self.nodes)).T

    @property
    def shares(self) -> FloatArray:
        """(nodes, steps): each node's fraction of a step's total, as :func:`shares` has it."""
        columns = [list(shares(dict(zip(self.nodes, step, strict=True))).values()) for step in self.energy.T]
        return np.array(columns, dtype=np.float64).reshape(len(columns), len(self.nodes)).T
