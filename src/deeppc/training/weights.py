"""Start from given weights: those of another run, or of any program that writes safetensors or torch files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from deeppc.errors import ConfigError
from deeppc.files import read_tensors
from deeppc.training.checkpoint import require_same_shapes
from deeppc.training.config import weights_file

PREFIX = "weights."  # of the network's own among the tensors of a checkpoint


def load_weights(net: nn.Module, weights: Path) -> None:
    """Give ``net`` the weights in a file. ConfigError if they are others than were asked for, or do not fit."""
    path, wanted = weights_file(weights)
    if weights_file(path)[1] != wanted:
        raise ConfigError(f"The weights in {path} are others than in {weights}: put those back, or start another run.")
    found = read_weights(path)
    require_same_shapes(net, found, str(path))
    net.load_state_dict(found)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights in a file: best.safetensors, a checkpoint, or what ``torch.save(net.state_dict())`` wrote."""
    if path.suffix == ".safetensors":
        tensors, _ = read_tensors(path, foreign=True)
        own = {name.removeprefix(PREFIX): value for name, value in tensors.items() if name.startswith(PREFIX)}
        return own or tensors
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a file that is none makes of the unpickler
        raise ConfigError(
            f"{path} holds no weights that are safe to load: give a best.safetensors, or a file that "
            "torch.save(net.state_dict(), ...) wrote."
        ) from error
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ConfigError(f"{path} holds {type(content).__name__}: save the weights by torch.save(net.state_dict()).")
    return dict(content)
