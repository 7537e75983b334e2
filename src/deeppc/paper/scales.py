"""How large a recipe is run: the one table of all such numbers.

``paper``   the paper's protocol: its nets, 50 epochs, 5 seeds, the epoch selected on the test set. For GPUs.
``laptop``  what 2 cores do in less than an hour a recipe: real CIFAR-10, a part of it, in narrow nets.
``smoke``   seconds: does everything run? Its accuracies mean nothing.

A recipe with needs of its own has a line in :data:`OWN`. The command line may override some for one run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from deeppc.errors import ConfigError

NETS = ("vgg5", "vgg7", "vgg10", "vgg15", "resnet10", "resnet18")
ALL_DATA = {name: name for name in ("cifar10", "cifar100", "tiny-imagenet")}


@dataclass(frozen=True)
class Scale:
    """The settings that a scale decides. ``datasets`` maps a data set of the paper to the one that is trained on;
    data sets and nets that are not named here are left out of the grid."""

    name: str
    width: float
    epochs: int
    seeds: tuple[int, ...]
    limit: int | None
    batch_size: int = 128
    patience: int | None = None
    select: Literal["validation", "test"] = "validation"
    validation: float = 0.1  # fraction held out to select the epoch
    datasets: Mapping[str, str] = field(default_factory=lambda: ALL_DATA)
    models: tuple[str, ...] = NETS
    activation: str | None = None  # of every network without normalisation, whatever the preset says
    same_activation: bool = False  # and of those with it: for recipes that compare the one with the other
    rates: tuple[float, ...] = (1.0, 0.4)  # of the tuned lr_x, that the readings recipe tries
    rounds: int = 7  # of the time recipe
    corrupted: int | None = None  # test images that the robustness recipe corrupts; None: all


SCALES = {
    "paper": Scale(name="paper", width=1.0, epochs=50, seeds=(0, 1, 2, 3, 4), limit=None, patience=10, select="test"),
    "laptop": Scale(
        name="laptop",
        width=0.125,
        epochs=4,
        seeds=(0, 1),
        limit=1_200,
        batch_size=16,  # so few images are learnt from best in many small steps
        validation=0.02,  # 1,000 images: looking at more after every epoch would cost as much as learning
        datasets={"cifar10": "cifar10"},
        activation="hard_tanh",  # presets come from networks with BF, and what suits those need not suit others
        models=("vgg5", "vgg7", "vgg10", "vgg15", "resnet10"),
        corrupted=2_000,
    ),
    "smoke": Scale(
        name="smoke",
        width=0.03,
        epochs=1,
        seeds=(0,),
        limit=32,
        batch_size=32,
        datasets={"cifar10": "digits"},
        models=("vgg5", "vgg10", "resnet10"),
        rates=(1.0,),
        rounds=1,
        corrupted=32,
    ),
}

# What differs for one recipe: (scale, recipe) -> fields.
OWN: dict[tuple[str, str], dict[str, Any]] = {
    ("paper", "energy"): {"seeds": (0,), "patience": None},  # as in the paper: one seed, no early stop
    ("paper", "readings"): {"models": ("vgg7", "vgg10")},
    ("paper", "gap"): {"seeds": (0,), "patience": None},
    ("laptop", "schedules"): {"models": ("vgg5", "vgg10"), "same_activation": True},
    ("laptop", "batchnorm"): {"models": ("vgg5", "vgg10"), "same_activation": True},
    ("laptop", "ablation"): {"models": ("vgg5", "vgg10", "resnet10")},
    ("laptop", "auxiliary"): {"models": ("resnet10", "resnet18")},
    ("laptop", "vgg15"): {"datasets": {"tiny-imagenet": "cifar10"}, "same_activation": True},
    ("laptop", "readings"): {"models": ("vgg7",)},
    ("laptop", "energy"): {"models": ("vgg10",)},
    ("laptop", "alpha"): {
        "models": ("vgg5", "vgg10"),
        "width": 0.25,
        "limit": 2_000,
        "batch_size": 32,
        "seeds": (0, 1, 2),
    },
    ("laptop", "time"): {"models": NETS, "width": 0.5, "rounds": 5},
    ("smoke", "readings"): {"models": ("vgg5",)},
    ("smoke", "vgg15"): {"datasets": {"tiny-imagenet": "digits"}, "models": ("vgg15",)},
}


def scale_for(name: str, recipe: str, **overrides: Any) -> Scale:
    """The scale called ``name`` as ``recipe`` uses it. ``overrides`` that are None change nothing."""
    if name not in SCALES:
        raise ConfigError(f"There is no scale {name!r}: choose {', '.join(SCALES)}.")
    given = {key: value for key, value in overrides.items() if value is not None}
    return dataclasses.replace(SCALES[name], **(OWN.get((name, recipe), {}) | given))
