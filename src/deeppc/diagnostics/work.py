"""Count the multiply-adds of a training step: a bound on what it costs that no machine's noise can move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from deeppc.core.arguments import checked
from deeppc.core.graph import Graph
from deeppc.core.inputs import by_name, require_tensor
from deeppc.core.state import Work
from deeppc.diagnostics.contexts import evaluating

TRANSPOSED = nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d
CONVOLUTIONS = nn.Conv1d, nn.Conv2d, nn.Conv3d, *TRANSPOSED


@checked
def multiply_adds(net: Graph, sample: Any) -> dict[str, int]:
    """Count the multiply-adds of predicting each node once for one sample, by its convolutions and linear layers.

    sample (1, ...); for several inputs a dict by name, or a tuple. The network is left as it was.
    """
    values = by_name(sample, net.inputs, "sample")
    for x in values.values():
        require_tensor("sample", x)
        if x.dim() == 0 or not len(x):
            raise ValueError(f"sample has the shape {tuple(x.shape)}: expected a batch of one, (1, ...)")
    counts = dict.fromkeys(net.nodes, 0)

    def count(layer: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Tensor], out: Tensor) -> None:
        assert isinstance(layer.weight, Tensor)
        ends = (*inputs, *named.values())[0] if isinstance(layer, TRANSPOSED) else out
        counts[v] += layer.weight.numel() * (ends[0].numel() // layer.weight.shape[0])  # times its positions

    layers = [layer for layer in net.modules() if isinstance(layer, (nn.Linear, *CONVOLUTIONS))]
    handles = [layer.register_forward_hook(count, with_kwargs=True) for layer in layers]
    try:
        with evaluating(net):
            for v, module in net.nodes.items():  # node by node: some may share a layer
                values[v] = module(*(values[p] for p in net.parents[v]))
    finally:
        for handle in handles:
            handle.remove()
    return counts


def step_cost(work: Work, costs: Mapping[str, int]) -> int:
    """Return the multiply-adds of a step for one sample, given ``Result.work`` and :func:`multiply_adds`.

    A prediction, a pull-back and a weight gradient of a node cost the same.
    """
    return sum(
        macs * (work.predictions[v] + work.pull_backs[v] + work.weight_gradients[v]) for v, macs in costs.items()
    )
