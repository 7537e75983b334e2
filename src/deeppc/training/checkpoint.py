"""Where a run stands, in one file that is replaced at once: weights, optimiser, random state, progress.

The tensors are safetensors, the rest is JSON in their header: loading a checkpoint runs no code of a stranger's.

    weights.<name>             the network's parameters and buffers
    best.<name>                those of the best epoch so far
    optimizer.<name>.<key>     AdamW's state of each parameter that has been reached; others have none
    rng.cpu, rng.cuda          torch's random state
    sums.<key>                 running sums of an epoch that is under way

The best weights are in here, and not only in ``best.safetensors``, because two files cannot be replaced at once: a
kill between them would pair the weights of one epoch with the accuracy of another.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import Tensor, nn

from deeppc.errors import RunError
from deeppc.files import replacing

Tensors = dict[str, Tensor]


@dataclass
class Progress:
    """How far a run has come. ``epoch`` counts finished epochs, ``batch`` the finished batches of the next."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    best_epoch: int = 0  # counted from 1; 0: none yet
    best_accuracy: float = -1.0
    epoch_seconds: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Checkpoint:
    """What :func:`load` found: the weights, optimiser and random state go in by :func:`restore`."""

    progress: Progress
    fingerprint: str
    tensors: Tensors

    def part(self, prefix: str) -> Tensors:
        return {name.removeprefix(prefix): t for name, t in self.tensors.items() if name.startswith(prefix)}


def save(
    path: Path,
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    fingerprint: str,
    *,
    best: Tensors,
    sums: Tensors,
) -> None:
    tensors = {
        **_prefixed("weights.", net.state_dict()),
        **_prefixed("best.", best),
        **_prefixed("sums.", sums),
        "rng.cpu": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        tensors["rng.cuda"] = torch.cuda.get_rng_state()
    for name, parameter in net.named_parameters():
        tensors |= _prefixed(f"optimizer.{name}.", optimizer.state.get(parameter, {}))
    header = {"progress": json.dumps(dataclasses.asdict(progress)), "fingerprint": fingerprint}
    with replacing(path) as temporary:
        _write(tensors, temporary, header)


def load(path: Path) -> Checkpoint:
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
        progress = Progress(**json.loads(header["progress"]))
        return Checkpoint(progress, header["fingerprint"], tensors)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"The checkpoint {path} cannot be read: {error}.") from error


def restore(checkpoint: Checkpoint, net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Put everything back, in the memory layout that the network has: another would round differently."""
    net.load_state_dict(checkpoint.part("weights."))
    optimizer.state.clear()
    for name, parameter in net.named_parameters():
        if state := checkpoint.part(f"optimizer.{name}."):
            optimizer.state[parameter] = {
                key: value if key == "step" else torch.empty_like(parameter, dtype=value.dtype).copy_(value)
                for key, value in state.items()
            }
    torch.set_rng_state(checkpoint.tensors["rng.cpu"])
    if "rng.cuda" in checkpoint.tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(checkpoint.tensors["rng.cuda"])


def save_weights(path: Path, weights: Tensors, header: dict[str, str]) -> None:
    """Weights alone, to load with ``safetensors.torch.load_file`` and ``net.load_state_dict``."""
    with replacing(path) as temporary:
        _write(weights, temporary, header)


def saved_header(path: Path) -> dict[str, str]:
    """The header of a weights file; empty if there is none that can be read."""
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}
    except (OSError, SafetensorError):
        return {}


def weights_of(net: nn.Module) -> Tensors:
    """A copy of the parameters and buffers."""
    return {name: value.detach().clone() for name, value in net.state_dict().items()}


def size_of(net: nn.Module) -> int:
    """Bytes of a checkpoint once the optimiser has moments and there is a best epoch: four times the weights."""
    weights: int = sum(value.nbytes for value in net.state_dict().values())
    return 4 * weights


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> Tensors:
    return {prefix + name: value for name, value in tensors.items()}


def _write(tensors: Tensors, path: Path, header: dict[str, str]) -> None:
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    path.write_bytes(serialize(plain, metadata=header))  # save_file would hide the file from the user's group
