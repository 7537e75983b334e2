"""Checks of a batch, before anything is computed from it, with plain errors."""

from __future__ import annotations

import torch
from torch import Tensor


def check(images: Tensor, labels: Tensor) -> None:
    """Check what can be checked before the network has run."""
    if torch.is_inference_mode_enabled():
        raise ValueError("inference mode keeps no gradients: leave torch.inference_mode() to train")
    n = len(images) if images.dim() else 0
    if n == 0:
        raise ValueError(f"images have the shape {tuple(images.shape)}: expected a batch of at least one sample")
    floats = labels.is_floating_point()
    if labels.dtype == torch.bool or labels.is_complex() or (labels.shape[:1] if floats else labels.shape) != (n,):
        kind = f"labels are {labels.dtype} of the shape {tuple(labels.shape)}"
        raise ValueError(f"{kind}: expected {n} class indices, or a float target for each sample")
    for name, values in (("images", images), ("the target", labels)):
        if values.is_floating_point():  # 0 times NaN or infinity is NaN
            _require((values * 0).sum() == 0, f"{name} must be finite, but contain NaN or infinity: check the data")


def target_for(labels: Tensor, out: Tensor, *, distribution: bool) -> Tensor:
    """Return ``y`` for the output: one-hot for class indices."""
    if labels.is_floating_point():
        if labels.shape != out.shape:
            raise ValueError(f"the target has the shape {tuple(labels.shape)}, the output {tuple(out.shape)}")
        if distribution:
            sums = ((labels.sum(1) - 1).abs() < 1e-4).all() & (labels >= 0).all()
            _require(sums, "under cross-entropy a target must be a distribution over classes (dimension 1)")
        return labels
    if out.dim() != 2 or out.shape[0] != labels.shape[0]:
        raise ValueError(f"class indices need an output of (batch, classes), not {tuple(out.shape)}")
    classes = out.shape[1]
    _require(((labels >= 0) & (labels < classes)).all(), f"labels must be class indices from 0 to {classes - 1}")
    return torch.zeros_like(out).scatter_(1, labels.long().unsqueeze(1), 1.0)


def _require(holds: Tensor, message: str) -> None:
    """Raise on the CPU; on an accelerator the check is queued, so that the step never waits for the device."""
    if holds.device.type == "cpu":
        if not holds:
            raise ValueError(message)
    else:
        torch._assert_async(holds, message)
