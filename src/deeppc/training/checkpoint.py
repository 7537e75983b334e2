"""Where a run stands, in one file that is replaced at once: weights, optimiser, scheduler, random state, progress.

The tensors are safetensors, the rest is JSON in their header: loading a checkpoint runs no code of a stranger's.

    weights.<name>             the network's parameters and buffers
    best.<name>                those of the selected epoch so far
    optimizer.<name>.<key>     the optimiser's tensors for each parameter that it has moved
    rng.cpu, rng.cuda          torch's random state
    sums.<key>                 running sums of an epoch that is under way

The best weights are in here, and not only in ``best.safetensors``, because two files cannot be replaced at once: a
kill between them would pair the weights of one epoch with the score of another.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from deeppc.errors import ConfigError, RunError
from deeppc.files import read_tensors, write_tensors
from deeppc.runs.folder import RunFolder

Tensors = dict[str, Tensor]
_GROUP = ("params", "param_names")  # of a parameter group: what is not a setting


@dataclass
class Progress:
    """How far a run has come. ``epoch`` counts finished epochs, ``batch`` the finished batches of the next."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    lr: float = 0.0  # of the last step
    best_epoch: int = 0  # counted from 1; 0: none yet
    best_score: float | None = None
    epoch_seconds: float = 0.0
    seconds: float = 0.0
    history: str = ""  # of the metrics so far; see runs/folder.py


@dataclass(frozen=True)
class Checkpoint:
    """What :func:`load` found, for :func:`restore`."""

    progress: Progress
    groups: list[dict[str, Any]]
    values: dict[str, dict[str, Any]]
    schedule: dict[str, Any]
    tensors: Tensors

    def part(self, prefix: str) -> Tensors:
        return {name.removeprefix(prefix): t for name, t in self.tensors.items() if name.startswith(prefix)}


def save(
    path: Path,
    net: nn.Module,
    optimizer: Optimizer,
    progress: Progress,
    *,
    best: Tensors,
    sums: Tensors,
    schedule: Mapping[str, Any],
) -> None:
    """Replace the checkpoint. RunError for a state of the optimiser or scheduler that neither format can hold."""
    tensors = {
        **_prefixed("weights.", net.state_dict()),
        **_prefixed("best.", best),
        **_prefixed("sums.", sums),
        "rng.cpu": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        tensors["rng.cuda"] = torch.cuda.get_rng_state()
    values: dict[str, dict[str, Any]] = {}
    for name, parameter in net.named_parameters():
        state = optimizer.state.get(parameter, {})
        tensors |= _prefixed(f"optimizer.{name}.", {k: v for k, v in state.items() if isinstance(v, Tensor)})
        if others := {k: v for k, v in state.items() if not isinstance(v, Tensor)}:
            values[name] = others
    groups = [{k: v for k, v in group.items() if k not in _GROUP} for group in optimizer.param_groups]
    header = {"progress": json.dumps(dataclasses.asdict(progress))}
    for what, content in (("groups", groups), ("values", values), ("schedule", dict(schedule))):
        header[what] = json.dumps(_packed(content, f"{type(optimizer).__name__} or its scheduler"))
    write_tensors(path, tensors, header)


def load(path: Path) -> Checkpoint:
    """Read a checkpoint."""
    tensors, header = read_tensors(path)
    try:
        progress = Progress(**json.loads(header["progress"]))
        groups, values, schedule = (_unpacked(json.loads(header[k])) for k in ("groups", "values", "schedule"))
        return Checkpoint(progress, groups, values, schedule, tensors)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"{path} is no checkpoint of a run ({error!r}): put the run's own back from a copy, or start another run "
            "from these weights with --weights."
        ) from error


def resumable(folder: RunFolder) -> Checkpoint | None:
    """Return the checkpoint to resume from; None if the run was ended before its first. Nothing is written.

    Raises RunError unless every file that it needs is there, undamaged and of one run.
    """
    if not folder.checkpoint.exists():
        if folder.status == "starting":
            return None
        raise RunError(f"{folder.checkpoint} is missing: {folder.way_forward}")
    saved = load(folder.checkpoint)
    folder.require_history(saved.progress.epoch, saved.progress.history)
    return saved


def restore(checkpoint: Checkpoint, net: nn.Module, optimizer: Optimizer) -> None:
    """Put everything back, in the memory layout that the network has: another would round differently."""
    require_same_shapes(net, checkpoint.part("weights."), "The checkpoint")
    if len(optimizer.param_groups) != len(checkpoint.groups):
        raise ConfigError(
            f"The optimiser has {len(optimizer.param_groups)} groups of parameters, but the run was begun with "
            f"{len(checkpoint.groups)}: give the one that it was begun with."
        )
    net.load_state_dict(checkpoint.part("weights."))
    optimizer.state.clear()
    on_device = any(group.get("capturable") or group.get("fused") for group in optimizer.param_groups)
    for name, parameter in net.named_parameters():
        state: dict[str, Any] = dict(checkpoint.values.get(name, {}))
        for key, value in checkpoint.part(f"optimizer.{name}.").items():
            if value.shape == parameter.shape and key != "step":
                state[key] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
            else:
                state[key] = value.to(parameter.device) if on_device or key != "step" else value
        if state:
            optimizer.state[parameter] = state
    for group, saved in zip(optimizer.param_groups, checkpoint.groups, strict=True):
        group.update(saved)
    torch.set_rng_state(checkpoint.tensors["rng.cpu"])
    if "rng.cuda" in checkpoint.tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(checkpoint.tensors["rng.cuda"])


def require_same_shapes(net: nn.Module, weights: Tensors, source: str) -> None:
    """Raise ConfigError, which names the first that differs, unless ``weights`` are those of a network like ``net``."""
    own = net.state_dict()
    for name in {**own, **weights}:
        has, wants = (tuple(t[name].shape) if name in t else None for t in (weights, own))
        if has != wants:
            first = f"{name!r} is {has or 'missing'}, and the network's is {wants or 'missing'}"
            raise ConfigError(f"{source} does not fit the network: {first}. Build the network that it was made with.")


def weights_of(net: nn.Module) -> Tensors:
    """Return a copy of the parameters and buffers."""
    return {name: value.detach().clone() for name, value in net.state_dict().items()}


def size_of(net: nn.Module) -> int:
    """Return the bytes of a checkpoint with two moments and a best epoch: four times the weights."""
    return sum(4 * int(value.nbytes) for value in net.state_dict().values())


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> Tensors:
    return {prefix + name: value for name, value in tensors.items()}


def _packed(value: Any, owner: str) -> Any:
    """``value`` for JSON, with a mark on what JSON does not have: tuples, keys that are no text, small tensors."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list():
            return [_packed(item, owner) for item in value]
        case tuple():
            return {"": "tuple", "items": [_packed(item, owner) for item in value]}
        case Mapping():
            kind = "counter" if isinstance(value, Counter) else "dict"
            return {"": kind, "items": [[_packed(k, owner), _packed(v, owner)] for k, v in value.items()]}
        case Tensor() if value.numel() <= 1:
            return {"": "tensor", "items": value.tolist(), "dtype": str(value.dtype).removeprefix("torch.")}
    what = f"it has a {type(value).__name__}. Train without run_dir, or another."
    raise RunError(f"A checkpoint cannot hold the state of {owner}: {what}")


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind, items = value[""], value["items"]
    if kind == "tensor":
        return torch.tensor(items, dtype=getattr(torch, value["dtype"]))
    if kind == "tuple":
        return tuple(_unpacked(item) for item in items)
    made = {_unpacked(k): _unpacked(v) for k, v in items}
    return Counter(made) if kind == "counter" else made
