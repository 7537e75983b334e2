"""Error-based predictive coding: the same energy, descended by its errors instead of its activities.

    x_v = f_v(x_parents) + e_v                  forward, from the input to the output
    lambda_out = y - mu_out,   lambda_p = sum_c J_c^T lambda_c
    e_v -= lr_x (e_v - lambda_v)                all errors at once, from e = 0; T times

``lambda`` is the total derivative of the output's energy, one reverse pass through the whole network: the signal
reaches every layer in the first step, undamped, where that of ``pc`` loses a factor ``lr_x`` a level. The price is that
a step is no longer local. Both have the same equilibria, ``e = lambda``, and weights learn there from the same errors,
at the relaxed state. The first step is backprop's, times ``lr_x``.

Goemaere, Oliviers, Bogacz, Demeester: ePC: Overcoming exponential signal decay in deep predictive coding networks.
arXiv:2505.20137, 2025.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from deeppc.core.algorithms.base import register
from deeppc.core.algorithms.inferring import Descending

if TYPE_CHECKING:
    from torch import Tensor

    from deeppc.core.batch import Batch
    from deeppc.core.state import State


@register
@dataclass(frozen=True)
class EPC(Descending):
    """Weights learn once, after inference, by the standard rule."""

    family: ClassVar[str] = "epc"

    def run(self, batch: Batch) -> None:
        from deeppc.core.energies import energies_of

        net, T = batch.net, self.steps(batch.net)
        if not all(e.canonical for v, e in energies_of(net, batch.loss).items() if v not in net.outputs):
            raise ValueError("epc needs hidden energies that depend on x - mu alone: leave the energy out, or use pc")
        state = batch.initialise()
        batch.clamp()
        errors: dict[str, Tensor] = {}
        for t in range(T):
            if batch.observe is not None:
                batch.observe(t, state)
            _descend(state, errors, self.lr_x)
            _settle(state, errors)
        if batch.observe is not None:
            batch.observe(T, state)
        for v in net.nodes:
            prediction = state.predict(v, moving_statistics=True)
            if v in net.outputs:
                batch.learn(v, state.error(v), prediction)
            elif v in errors:
                batch.learn(v, state.energy[v].weigh(errors[v]), prediction)


def _descend(state: State, errors: dict[str, Tensor], lr: float) -> None:
    """Take one step on all errors, by one reverse pass from the outputs."""
    net = state.net
    carried = {v: state.error(v) for v in net.outputs}
    for v in reversed(list(net.nodes)):
        if v not in carried:
            continue
        message, parents = carried.pop(v), net.hidden_parents(v)
        pulls, _ = state.pull_back(v, message, parents)
        for p, pull in zip(parents, pulls, strict=True):
            if pull is not None:
                carried[p] = carried[p] + pull if p in carried else pull
        if v in errors:
            errors[v] = errors[v] + lr * (message - state.energy[v].weigh(errors[v]))
        elif v not in net.outputs:
            errors[v] = lr * message


def _settle(state: State, errors: Mapping[str, Tensor]) -> None:
    """Run the network with the errors added: ``x_v = f_v(x_parents) + e_v``."""
    for v in state.net.nodes:
        if v in state.net.outputs or (v not in errors and state.undisturbed(v)):
            continue
        change = state.predict(v).mu.detach() - state.mu0[v]
        state.move(v, change + errors[v] if v in errors else change)
