"""A network back from its run folder, to look at it once more."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file

from deeppc.runs.folder import RunFolder
from deeppc.training.builder import Parts, build, saved_config


def untrained(folder: Path) -> Parts:
    """Return network, algorithm and data as they were before the first batch."""
    return build(saved_config(folder))


def trained(folder: Path) -> Parts:
    """Return them with the weights of the selected epoch."""
    parts = untrained(folder)
    parts.net.load_state_dict(load_file(RunFolder(folder).best))
    return parts
