"""Hyper-parameters of a cell: those of the nearest preset, else of a table.

Presets are what ``deeppc search`` left behind for (data set, net, normalisation, algorithm). Where a cell has none of
its own it takes, as the paper does, that without normalisation; then that of the same algorithm in the net of the
nearest depth, with T = max(T, L); then that of another data set; then that of the algorithm it is most like. The result
of a recipe says for each cell which.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from deeppc import presets
from deeppc.core.algorithms import known_options

# Where no search has been made. The activities' rate is safe rather than best; spiking precision bears a larger one.
DEFAULTS: dict[str, dict[str, Any]] = {
    "bp": {"lr_w": 1e-3},
    "pc": {"lr_x": 0.1, "lr_w": 1e-3},
    "pc+s": {"lr_x": 0.5, "lr_w": 1e-3, "alpha": 0.01},
    "pc+d": {"lr_x": 0.5, "lr_w": 1e-3},
    "pc+f": {"lr_x": 0.1, "lr_w": 1e-3},
    "pc+l+f": {"lr_x": 0.5, "lr_w": 1e-3},
    "pc+d+f": {"lr_x": 0.5, "lr_w": 1e-3},
    "pc+s+f": {"lr_x": 0.5, "lr_w": 1e-3, "alpha": 0.01},
    "ipc": {"lr_x": 0.1, "lr_w": 3e-4},
    "ipc+s": {"lr_x": 0.5, "lr_w": 3e-4, "alpha": 0.01},
    "epc": {"lr_x": 0.01, "lr_w": 1e-3},
    "hpc": {"lr_w": 1e-3},
    **{name: {"lr_w": 1e-3} for name in ("zil", "fa", "dfa", "tp")},
}
LIKE = {"pc+s": "pc+s+f", "pc+d": "pc+s+f", "pc+d+f": "pc+s+f", "pc+l+f": "pc+s+f", "pc+f": "pc"}
LIKE |= {"hpc": "pc", "zil": "bp", "fa": "bp", "dfa": "bp", "tp": "bp"}
NUDGED = {"beta": 0.5}  # for nudging, if it was not searched for: with 1 a negative sign mirrors the target
MUPC = "-mupc"
SCALED = {"lr_w": 2e-2}  # for muPC's weights, if it was not searched for: they are that much larger than torch's
LEVELS = {"mlp": 4, "vgg5": 5, "vgg7": 7, "vgg10": 10, "vgg15": 15}
LEVELS |= {f"resnet{levels}": levels for levels in (10, 18, 34, 66, 130)} | {f"resnet10{MUPC}": 10}


class Task(NamedTuple):
    """What a preset was made for. ``algorithm`` is that of a config's ``method``: a control has a name of its own."""

    dataset: str
    model: str
    norm: str
    algorithm: str


def settings_for(task: Task, folder: Path | None = None) -> tuple[dict[str, Any], str]:
    """Return hyper-parameters by name, and a few words on where they come from.

    ``folder`` holds the presets; None: the package's own.
    """
    method = re.sub(r"-(repeats|last)\d+", "", task.algorithm)  # of which it may be a control
    plain = re.sub(r"\+[pnc]n\b", "", method)  # without nudging
    known = _presets(folder)
    algorithms = [task.algorithm, method, plain, LIKE.get(plain, plain)]  # the first that has a preset
    usable = [other for other in known if other.algorithm in algorithms and other.model in LEVELS]
    if not task.model.endswith(MUPC):  # its learning rates are for no other weights
        usable = [other for other in usable if not other.model.endswith(MUPC)]
    scaled = SCALED if task.model.endswith(MUPC) else {}
    if not usable:
        return DEFAULTS[plain] | (NUDGED if plain != method else {}) | scaled, "defaults"
    nearest = min(usable, key=lambda other: (algorithms.index(other.algorithm), *_distance(other, task)))
    name, settings = known[nearest][0], dict(known[nearest][1])
    if nearest.model != task.model and settings.get("T") is not None:
        settings["T"] = max(settings["T"], LEVELS[task.model])
    if nearest.algorithm != method and plain != method:
        settings |= NUDGED
    if nearest.model != task.model:
        settings |= scaled
    return settings, f"preset {name}" + ("" if nearest == task else " (nearest)")


def _distance(other: Task, task: Task) -> tuple[bool | int, ...]:
    """How far a preset is from what is wanted, most important first. Ties go to the one without normalisation."""
    return (
        other.dataset != task.dataset,
        other.model != task.model,
        other.model[:3] != task.model[:3],
        abs(LEVELS[other.model] - LEVELS[task.model]),
        other.norm != task.norm,
        other.norm != "none",
    )


@cache
def _presets(folder: Path | None) -> dict[Task, tuple[str, dict[str, Any]]]:
    """All presets: their names, and what they decide of the hyper-parameters."""
    tuned = {"activation", "lr_w", "weight_decay", *known_options()}
    found = {}
    for name in presets.names(folder):
        preset = presets.load(name, folder)
        config = preset.config()
        task = Task(config.dataset, config.model, config.norm, config.method)
        found[task] = name, {key: config.setting(key) for key in preset.table if key in tuned}
    return found
