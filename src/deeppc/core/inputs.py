"""Checks of what a training step is given, before anything is computed from it, with plain errors.

The wrong kind of thing raises ``TypeError``, a wrong value ``ValueError``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import LBFGS, Optimizer

from deeppc.core.graph import Graph


class UntaughtWarning(UserWarning):
    """Some nodes have weights, but the energy does not reach them in the inference steps that there are."""


def check_parts(net: object, optimizer: object, observe: object) -> None:
    """Check the objects that a step works with; ``optimizer`` and ``observe`` may be None."""
    if not isinstance(net, Graph):
        advice = "build it as a deeppc.Graph, or as a deeppc.Chain of layers; deeppc.from_torch converts torch modules"
        for wrapped in ("module", "_orig_mod"):  # of DataParallel, of torch.compile
            if isinstance(getattr(net, wrapped, None), Graph):
                advice = f"give the network that it wraps, net.{wrapped}"
        raise TypeError(f"net is {_kind(net)}, but must be a deeppc.Graph: {advice}")
    if isinstance(optimizer, LBFGS):
        raise ValueError("LBFGS needs a loss to evaluate again; predictive coding gives gradients only")
    if optimizer is not None and not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer is {_kind(optimizer)}, but must be a torch optimiser of the network's parameters")
    own = {id(weight) for weight in net.parameters()}
    if optimizer is not None and own.isdisjoint(id(w) for group in optimizer.param_groups for w in group["params"]):
        raise ValueError("optimizer has no weight of this network: make it of net.parameters()")
    if observe is not None and not callable(observe):
        raise TypeError(f"observe is {_kind(observe)}, but must be a function of the step and the state")


def check(
    inputs: Mapping[str, Tensor], targets: Mapping[str, Tensor], sample_weights: Tensor | None = None, least: int = 1
) -> None:
    """Check what can be checked of a batch before the network has run: inputs and targets by node.

    ``least``: the fewest samples; 0 where other workers may have them all.
    """
    if torch.is_inference_mode_enabled():
        raise ValueError("inference mode keeps no gradients: leave torch.inference_mode() to train")
    n = None
    for name, thing in (*(("inputs", x) for x in inputs.values()), *(("targets", y) for y in targets.values())):
        require_tensor(name, thing)
        if n is None:
            n = len(thing) if thing.dim() else -1
        if n < least:
            raise ValueError(f"inputs have the shape {tuple(thing.shape)}: expected a batch of at least one sample")
        if name == "inputs" and thing.shape[:1] != (n,):
            raise ValueError(
                f"inputs have {n} and {len(thing) if thing.dim() else 0} samples: expected as many of each"
            )
        if name == "targets" and (thing.dtype == torch.bool or thing.is_complex() or thing.shape[:1] != (n,)):
            kind = f"targets are {thing.dtype} of the shape {tuple(thing.shape)}"
            raise ValueError(f"{kind}: expected {n} class indices, or a float target for each sample")
        if thing.is_floating_point():  # 0 times NaN or infinity is NaN
            require((thing * 0).sum() == 0, f"{name} must be finite, but contain NaN or infinity: check the data")
    if sample_weights is not None:
        require_tensor("sample_weights", sample_weights)
        if sample_weights.shape != (n,) or not sample_weights.is_floating_point():
            raise ValueError(
                f"sample_weights must be {n} floats, not {sample_weights.dtype} {tuple(sample_weights.shape)}"
            )
        sound = ((sample_weights >= 0) & sample_weights.isfinite()).all()
        require(sound, "sample_weights must be finite and at least 0")


def require_tensor(name: str, thing: object) -> None:
    if not isinstance(thing, Tensor):
        advice = "torch.from_numpy makes one" if type(thing).__module__ == "numpy" else "torch.as_tensor may help"
        raise TypeError(f"{name} are {_kind(thing)}, but must be a tensor, with an entry for each sample: {advice}")


def by_name(given: Any, names: Sequence[str], what: str) -> dict[str, Tensor]:
    """Return tensors by node: one for the only node, or a dict, or a tuple in the order of ``names``."""
    if len(names) == 1 and not (isinstance(given, Mapping) and given.keys() == set(names)):
        return {names[0]: given}
    several = isinstance(given, tuple | list) and len(given) == len(names)
    found = dict(given) if isinstance(given, Mapping) else dict(zip(names, given, strict=True)) if several else {}
    if found.keys() != set(names):
        raise ValueError(
            f"{what} must be given for {', '.join(names)}: a dict by these names, or a tuple in this order"
        )
    return {v: found[v] for v in names}


def same_shape(targets: Tensor, out: Tensor, names: tuple[str, str] = ("targets", "the output")) -> Tensor:
    """Return targets that have the shape of the output; of one number for each sample, (batch,) is also (batch, 1)."""
    if targets.shape == out.shape:
        return targets
    if {targets.shape, out.shape} == {out.shape[:1], (*out.shape[:1], 1)}:
        return targets.reshape(out.shape)
    raise ValueError(f"{names[0]} have the shape {tuple(targets.shape)}, {names[1]} {tuple(out.shape)}")


def one_hot(targets: Tensor, out: Tensor) -> Tensor:
    """Return class indices (batch, positions...) as vectors in the output's shape (batch, classes, positions...)."""
    if out.dim() < 2 or targets.shape != out.shape[:1] + out.shape[2:]:
        shapes = f"targets have the shape {tuple(targets.shape)}, the output {tuple(out.shape)}"
        advice = "; values, or a row for each sample, are floats: targets.float()" if targets.shape == out.shape else ""
        raise ValueError(f"class indices need an output of (batch, classes), and one for each sample: {shapes}{advice}")
    classes = out.shape[1]
    require(((targets >= 0) & (targets < classes)).all(), f"targets must be class indices from 0 to {classes - 1}")
    return torch.zeros_like(out).scatter_(1, targets.long().unsqueeze(1), 1.0)


def check_output(v: str, out: Tensor, batch: int) -> None:
    """Check that the network answers a row for each sample."""
    if out.dim() == 0 or out.shape[0] != batch:
        shape = tuple(out.shape)
        raise ValueError(f"the output {v!r} has the shape {shape}, but must have an entry for each of {batch} samples")


def _kind(thing: object) -> str:
    if thing is None or isinstance(thing, type):
        return "None" if thing is None else f"the class {thing.__name__}"
    home = type(thing).__module__.partition(".")[0].replace("builtins", "")
    return f"a {home} {type(thing).__name__}".replace("  ", " ")


def require(holds: Tensor, message: str) -> None:
    """Raise on the CPU; on an accelerator the check is queued, so that the step never waits for the device."""
    if holds.device.type != "cpu":
        torch._assert_async(holds, message)
    elif not holds:
        raise ValueError(message)
