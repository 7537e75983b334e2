"""A network back from its run folder, to look at it once more."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file

from deeppc.core.graph import Graph
from deeppc.runs.folder import BEST, saved_config
from deeppc.training.parts import Parts, prepare


def load_trained(folder: Path) -> Parts:
    """Network with the weights of the selected epoch, algorithm and data, as they were trained."""
    parts = prepare(saved_config(folder))
    parts.net.load_state_dict(load_file(folder / BEST))
    return parts


def untrained(folder: Path) -> Graph:
    """The network as it was before the first batch."""
    return prepare(saved_config(folder)).net
