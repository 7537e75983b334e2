"""Learning rules of PC: the error of each node that its weights learn from, once the activities are relaxed.

    standard rule     x_T - f_v(x_T,parents)
    forward update    x_T - mu0_v, through the prediction from the initial parents or from the relaxed ones

With free relaxation the state that the unclamped network settles in stands in for the initial one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from deeppc.core.batch import Batch
from deeppc.core.inference import Descent, infer
from deeppc.core.state import Prediction


def standard_rule(batch: Batch, nodes: Iterable[str]) -> None:
    """Learn from the errors at the present state, which is the relaxed one."""
    state = batch.state
    for v in nodes:
        prediction = state.predict(v, moving_statistics=True)
        if not state.at_rest(v):
            batch.learn(v, state.error(v), prediction)


def forward_update(
    batch: Batch, nodes: Iterable[str], relaxed: Mapping[str, Tensor], origin: Mapping[str, Tensor]
) -> None:
    """Learn from how far ``nodes`` have moved, from the deviations ``origin`` to ``relaxed``, through predictions at
    the present state."""
    for v in nodes:
        prediction = batch.state.predict(v, moving_statistics=True)
        eps = relaxed.get(v, 0) - origin[v] if v in origin else relaxed.get(v)
        if eps is not None:
            batch.learn(v, eps, prediction)


def forward_update_from_start(batch: Batch, v: str) -> None:
    """Learn from how far ``v`` has moved, through its initial prediction (kept since, or made anew)."""
    state = batch.state
    if v in state.d:
        prediction = state.initial(v) if batch.parameters[v] else Prediction(state.mu0[v], {})
        batch.learn(v, state.d[v], prediction)


def relax_freely(descent: Descent, steps: int) -> dict[str, Tensor]:
    """Run inference on copies of the deviations, so that those of before stay as they are; return where it ends."""
    state = descent.state
    state.move_all({v: d.clone() for v, d in state.d.items()})
    infer(descent, steps)
    return state.d
