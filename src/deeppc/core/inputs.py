"""Checks of a batch, before anything is computed from it, with plain errors."""

import torch
from torch import Tensor


def check(inputs: Tensor, targets: Tensor) -> None:
    """Check what can be checked before the network has run."""
    if torch.is_inference_mode_enabled():
        raise ValueError("inference mode keeps no gradients: leave torch.inference_mode() to train")
    n = len(inputs) if inputs.dim() else 0
    if n == 0:
        raise ValueError(f"inputs have the shape {tuple(inputs.shape)}: expected a batch of at least one sample")
    floats = targets.is_floating_point()
    if targets.dtype == torch.bool or targets.is_complex() or (targets.shape[:1] if floats else targets.shape) != (n,):
        kind = f"targets are {targets.dtype} of the shape {tuple(targets.shape)}"
        raise ValueError(f"{kind}: expected {n} class indices, or a float target for each sample")
    for name, values in (("inputs", inputs), ("targets", targets)):
        if values.is_floating_point():  # 0 times NaN or infinity is NaN
            _require((values * 0).sum() == 0, f"{name} must be finite, but contain NaN or infinity: check the data")


def target_for(targets: Tensor, out: Tensor, *, distribution: bool) -> Tensor:
    """Return ``y``, of the shape of the output: float targets as they are, one-hot for class indices."""
    if targets.is_floating_point():
        if targets.shape != out.shape:
            raise ValueError(f"targets have the shape {tuple(targets.shape)}, the output {tuple(out.shape)}")
        if distribution:
            sums = ((targets.sum(1) - 1).abs() < 1e-4).all() & (targets >= 0).all()
            _require(sums, "under cross-entropy a target must be a distribution over classes (dimension 1)")
        return targets
    if out.dim() != 2 or out.shape[0] != targets.shape[0]:
        raise ValueError(f"class indices need an output of (batch, classes), not {tuple(out.shape)}")
    classes = out.shape[1]
    _require(((targets >= 0) & (targets < classes)).all(), f"targets must be class indices from 0 to {classes - 1}")
    return torch.zeros_like(out).scatter_(1, targets.long().unsqueeze(1), 1.0)


def _require(holds: Tensor, message: str) -> None:
    """Raise on the CPU; on an accelerator the check is queued, so that the step never waits for the device."""
    if holds.device.type != "cpu":
        torch._assert_async(holds, message)
    elif not holds:
        raise ValueError(message)
