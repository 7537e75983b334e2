"""Find activities of least energy with anything clamped, and no learning: ``deeppc.infer``.

test-time inference   ``infer(net, {"input": images})``, which for a feed-forward start is the feed-forward pass
generation            ``infer(net, {"y": labels}, free={"input": start})``
completion            ``infer(net, {"image": (images, known)})``: clamped where ``known``, free elsewhere
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from deeppc.core.arguments import checked
from deeppc.core.energies import CrossEntropy
from deeppc.core.graph import Graph
from deeppc.core.inference import Descent, relax
from deeppc.core.inputs import require_tensor, same_shape
from deeppc.core.state import Observer, State

Clamped = Tensor | tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Inferred:
    """What inference came to.

    ``activities``   by node, inputs included. ``energy``: by node, of each sample.
    ``predictions``  by node, of the activities that it ended in.
    ``trace``        the total energy, mean over the batch, before each step and after the last.
    """

    activities: dict[str, Tensor]
    predictions: dict[str, Tensor]
    energy: dict[str, Tensor]
    trace: list[float]


@checked
def infer(
    net: Graph,
    clamp: Mapping[str, Clamped],
    *,
    free: Mapping[str, Tensor] | Sequence[str] | None = None,
    start: Mapping[str, Tensor] | None = None,
    steps: int = 100,
    lr_x: float = 0.1,
    momentum_x: float = 0.0,
    optimizer_x: Literal["sgd", "adam"] = "sgd",
    noise: float = 0.0,
    tolerance: float | None = None,
    loss: Literal["squared_error", "cross_entropy"] = "squared_error",
    observe: Observer | None = None,
) -> Inferred:
    """Let all activities that are not clamped descend on the energy, and return where they end.

    ``clamp``      by node, the activity that it is held at, (batch, ...); or ``(activity, mask)``: held where the mask
                   (of the activity's shape, or one that broadcasts to it) is true. Outputs also take class indices.
    ``free``       inputs that are not clamped, and where they start; or their names alone, if ``start`` has that, or
                   they are clamped in part. (Other nodes are free unless they are clamped.)
    ``start``      by node, where it starts; the others start from the feed-forward pass.
    ``steps``      of descent, at the rate ``lr_x``; fewer if in one of them the total energy changes by no more than
                   ``tolerance`` of itself.
    ``noise``      temperature of Langevin dynamics, to sample activities instead.
    ``loss``       energy of outputs to which the network gives none.

    Weights and running statistics stay as they are. ``net.eval()`` first for BatchNorm and dropout as at test time.
    Raises ``TypeError`` and ``ValueError`` for what does not fit.
    """
    for name, value, fits, range_ in (
        ("steps", steps, steps >= 0, "0 or more"),
        ("lr_x", lr_x, 0 < lr_x < math.inf, "above 0"),
        ("momentum_x", momentum_x, 0 <= momentum_x < 1, "from 0 to below 1"),
        ("noise", noise, 0 <= noise < math.inf, "0 or more"),
        ("momentum_x", momentum_x, not (noise and momentum_x), "0 with noise, which it would amplify"),
        ("optimizer_x", optimizer_x, not noise or optimizer_x == "sgd", "sgd with noise, which it would rescale"),
        ("tolerance", tolerance, tolerance is None or tolerance >= 0, "0 or more, or None"),
    ):
        if not fits:
            raise ValueError(f"{name} is {value}, but must be {range_}")
    held = {v: given if isinstance(given, tuple) else (given, None) for v, given in clamp.items()}
    free, start = _split(net, held, free or {}, dict(start or {}))
    _check(net, held, free, start)
    inputs = {v: free[v] if v in free else held[v][0] for v in net.inputs}
    with torch.no_grad():
        state = State(net, inputs, loss=loss, free=list(free))
        for v, energy in state.energy.items():
            if not isinstance(energy, CrossEntropy) or energy.weight is None:
                continue
            if v not in held:  # class weights are those of targets: without, it follows its prediction
                state.energy[v] = CrossEntropy()
            elif held[v][1] is not None:
                raise ValueError(f"{v!r} has class weights, and so can be clamped as a whole only")
        for v, x in start.items():
            state.move(v, _fitting("start", v, x, state) - state.response0(v))
        still, pinned = {v for v in net.inputs if v not in free}, dict[str, tuple[Tensor, Tensor]]()
        for v, (x, mask) in held.items():
            if v in still:
                continue
            x = state.energy[v].target(x, state.mu0[v]) if v in net.outputs else _fitting("clamp", v, x, state)
            if mask is None and v in net.outputs:
                state.clamp(v, x)
            else:
                d = x - (state.response0(v) if v in net.nodes else state.mu0[v])
                if mask is not None:
                    pinned[v] = _mask(v, mask, x), d
                    d = torch.where(pinned[v][0], d, state.d.get(v, torch.zeros_like(d)))
                state.move(v, d)
            if mask is None:
                still.add(v)
        descent = Descent(
            state,
            lr_x,
            momentum_x,
            True,
            lambda v, t: 1.0,
            lambda v, t: float(v not in still),
            adam=optimizer_x == "adam",
            noise=noise,
            pinned=pinned,
        )
        trace: list[float] = []

        def settled(t: int, state: State) -> bool:
            trace.append(float(sum(each.sum() for each in state.energies().values())) / state.batch)
            if not math.isfinite(trace[-1]):
                raise ValueError(f"the energy is {trace[-1]} after {t} steps: choose a lower lr_x (now {lr_x})")
            if observe is not None:
                observe(t, state)
            return tolerance is not None and t > 0 and abs(trace[-2] - trace[-1]) <= tolerance * abs(trace[-2])

        relax(descent, steps, observe=settled)
        activities = {v: state.mu0[v] + state.d[v] if v in state.d else state.mu0[v] for v in net.inputs}
        activities |= {v: state.value(v) for v in net.nodes}
        predictions = {v: state.predict(v).mu.detach() for v in net.nodes}
        return Inferred(activities, predictions, state.energies(), trace)


def _split(
    net: Graph,
    held: Mapping[str, tuple[Tensor, Tensor | None]],
    free: Mapping[str, Tensor] | Sequence[str],
    start: dict[str, Tensor],
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return where free inputs start, and where nodes do."""
    if isinstance(free, Mapping):
        return dict(free), start
    partly = {v: x for v, (x, mask) in held.items() if mask is not None}
    for v in free:
        if v not in net.inputs and v not in net.nodes:
            raise ValueError(f"free names {v!r}: choose among {', '.join([*net.inputs, *net.nodes])}")
        if v in held and v not in partly:
            raise ValueError(f"{v!r} is free and clamped: choose one, or clamp it in part, by a mask")
        if v in net.inputs and v not in start and v not in partly:
            raise ValueError(f"the input {v!r} is free, but nothing says where it starts: give it in start")
    inputs = {v: start.get(v, partly.get(v)) for v in free if v in net.inputs}
    return inputs, {v: x for v, x in start.items() if v not in inputs}  # type: ignore[return-value]


def _check(
    net: Graph,
    held: Mapping[str, tuple[Tensor, Tensor | None]],
    free: Mapping[str, Tensor],
    start: Mapping[str, Tensor],
) -> None:
    if torch.is_inference_mode_enabled():
        raise ValueError("inference mode keeps no gradients, by which activities descend: leave torch.inference_mode()")
    clamped = {v: x for v, (x, _) in held.items()}
    samples: dict[int, str] = {}
    for what, table, known in (
        ("clamp", clamped, [*net.inputs, *net.nodes]),
        ("free", free, net.inputs),
        ("start", start, net.nodes),
    ):
        for v, x in table.items():
            if v not in known:
                raise ValueError(f"{what} names {v!r}: choose among {', '.join(known)}")
            name = f"the values of {v!r} in {what}"
            require_tensor(name, x)
            if x.dim() == 0 or len(x) == 0:
                raise ValueError(f"{name} have the shape {tuple(x.shape)}: expected a batch of at least one sample")
            whole = what == "clamp" and (v in net.inputs or v in net.outputs)  # tokens, classes
            if x.dtype == torch.bool or x.is_complex() or not (whole or x.is_floating_point()):
                raise ValueError(f"{name} are {x.dtype}, but must be floats{' or whole numbers' if whole else ''}")
            if not x.isfinite().all():
                raise ValueError(f"{name} must be finite, but contain NaN or infinity: check the data")
            if what == "start" and v in held and held[v][1] is None:
                raise ValueError(f"{v!r} is clamped, so that its start means nothing: leave it out of one of the two")
            if v in net.inputs or v in net.outputs:
                samples[len(x)] = name
    if len(samples) > 1:
        (m, first), (n, second), *_ = samples.items()
        raise ValueError(f"{first} have {m} samples, and {second} {n}: expected as many of each")
    for v in net.inputs:
        if (v in held and held[v][1] is None) == (v in free):
            raise ValueError(
                f"the input {v!r} must be clamped, or have its start in free (and be clamped in part, at most)"
            )


def _fitting(what: str, v: str, x: Tensor, state: State) -> Tensor:
    return same_shape(x, state.mu0[v], (f"the values of {v!r} in {what}", "the node"))


def _mask(v: str, mask: Tensor, x: Tensor) -> Tensor:
    require_tensor(f"the mask of {v!r}", mask)
    if mask.dtype != torch.bool:
        raise TypeError(f"the mask of {v!r} is {mask.dtype}, but must be torch.bool: true where it is clamped")
    try:
        return mask.expand(x.shape)
    except RuntimeError:
        raise ValueError(f"the mask of {v!r} is {tuple(mask.shape)}, the activity {tuple(x.shape)}") from None
