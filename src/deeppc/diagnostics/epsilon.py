"""Does the optimiser's epsilon swallow what a layer learns?

    left_by_epsilon(net, optimizer)  # {"conv1": 0.02, ..., "linear": 1.0}

Adam divides the mean of a weight's gradients by ``s + eps``, where ``s`` is the root of their mean square. That makes a
step ``s / (s + eps)`` times as long as without epsilon: nearly 1 where gradients are far above it, next to nothing
where they are far below, as those of early layers are when the wave of energy loses much on its way. Their direction
does not matter then, nor the learning rate.

An epsilon may be too small as well. In float32 squares of gradients below 1e-22 are 0, so that a step is the gradient
by epsilon alone: with 1e-30 as much as 1e8 times too long. With 1e-20 it never is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from deeppc.core.graph import Graph


@torch.no_grad()
def left_by_epsilon(net: Graph, optimizer: Optimizer) -> dict[str, float]:
    """Return, by node, how long its next step is relative to one without epsilon, mean over its weights.

    From 0, nothing is left, to 1; above 1 where squares underflow before epsilon counts. For Adam and its variants,
    after the first step; others have no such epsilon, and the result is empty. Weights that never had a gradient do not
    count, and nodes without others are left out. Costs a look at the optimiser's state.
    """
    found = {}
    for group in optimizer.param_groups:
        for weight in group["params"]:
            if "exp_avg_sq" in (state := optimizer.state.get(weight, {})):
                found[weight] = _lengths(state, group)
    by_node = {v: [found[p] for p in node.parameters() if p in found] for v, node in net.nodes.items()}
    means = {v: float(torch.cat(parts).mean()) for v, parts in by_node.items() if parts}
    return {v: mean for v, mean in means.items() if not math.isnan(mean)}


def _lengths(state: Mapping[str, Tensor], group: Mapping[str, Any]) -> Tensor:
    """``s / (s + eps)`` of each weight that has had a gradient; where its square is 0, the gradient by epsilon."""
    squares = state["max_exp_avg_sq"] if group.get("amsgrad") else state["exp_avg_sq"]
    (beta1, beta2), steps, eps = group["betas"], float(state["step"]), float(group["eps"])
    mean, s = (state["exp_avg"] / (1 - beta1**steps)).abs(), (squares / (1 - beta2**steps)).sqrt()
    lengths = torch.where(squares > 0, s / (s + eps), mean / eps)
    return lengths[(squares > 0) | (mean > 0)]
