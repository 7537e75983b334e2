"""How large a recipe is run: the one table of all such numbers.

``paper``        the paper's protocol: its nets, 50 epochs, 5 seeds, the epoch selected on the test set. For GPUs.
``workstation``  two cores for a few nights: nets of a quarter of the width that learn 20,000 images in 10 epochs, with
                 BatchNorm freezing. (All 50,000 images would take 2.5 times as long.)
``laptop``       two cores for less than an hour a recipe: 1,200 images of CIFAR-10 in narrow nets.
``smoke``        seconds: does everything run? Its accuracies mean nothing.

A recipe with needs of its own has a line in :data:`OWN`. The command line may override some for one run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from deeppc.errors import ConfigError, nearest

PAPERS = ("vgg5", "vgg7", "vgg10", "vgg15", "resnet10", "resnet18")
DEEPER = ("resnet34", "resnet66", "resnet130")  # than the paper's
NETS = (*PAPERS, *DEEPER)
ALL_DATA = {name: name for name in ("cifar10", "cifar100", "tiny-imagenet")}
NORMS = ("none", "bn", "bf")
MAIN = ("bp", "pc", "ipc", "ipc+s", "pc+s+f")  # the algorithms of the paper's Table 1


@dataclass(frozen=True)
class Part:
    """More of a grid: some nets and algorithms on one data set, with seeds of their own."""

    dataset: str
    models: tuple[str, ...]
    algorithms: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Scale:
    """The settings that a scale decides.

    ``datasets`` maps a data set of the paper to the one that is trained on. Data sets, nets, algorithms and norms that
    are not named here are left out of a recipe's grid, unless one of ``parts`` has them.
    """

    name: str
    width: float
    epochs: int
    seeds: tuple[int, ...]
    limit: int | None
    batch_size: int = 128
    schedule_epochs: int = 25
    patience: int | None = None
    select: Literal["validation", "test"] = "validation"
    validation: float = 0.1  # fraction held out to select the epoch
    datasets: Mapping[str, str] = field(default_factory=lambda: ALL_DATA)
    models: tuple[str, ...] = NETS
    algorithms: tuple[str, ...] | None = None  # None: all that the recipe has
    norm: str = "none"  # of recipes that are not about normalisation
    norms: tuple[str, ...] = NORMS
    parts: tuple[Part, ...] = ()
    activation: str | None = None  # of every network without normalisation, whatever the preset says
    same_activation: bool = False  # and of those with it: for recipes that compare the one with the other
    rates: tuple[float, ...] = (1.0, 0.4)  # of the tuned lr_x, that the readings recipe tries
    goal: int = 60  # percent of held-out images: the alpha recipe counts the work until a network has so many right
    rounds: int = 7  # of the time recipe
    corrupted: int | None = None  # test images that the robustness recipe corrupts; None: all

    def seeds_for(self, dataset: str, model: str, algorithm: str, norm: str) -> tuple[int, ...]:
        """The seeds of a place in the grid; none if it is left out."""
        if norm not in self.norms:
            return ()
        if dataset in self.datasets and model in self.models and algorithm in (self.algorithms or (algorithm,)):
            return self.seeds
        found = (p for p in self.parts if p.dataset == dataset and model in p.models and algorithm in p.algorithms)
        return next((part.seeds for part in found), ())


SCALES = {
    "paper": Scale(name="paper", width=1.0, epochs=50, seeds=(0, 1, 2, 3, 4), limit=None, patience=10, select="test"),
    "workstation": Scale(
        name="workstation",
        width=0.25,
        epochs=10,
        schedule_epochs=10,
        seeds=(0, 1, 2),
        limit=20_000,
        batch_size=64,
        validation=0.04,  # 2,000 images of CIFAR-10
        datasets={"cifar10": "cifar10"},
        models=("vgg5", "vgg7", "vgg10", "resnet10"),
        norm="bf",
        norms=("bf",),
        rates=(1.0,),
        corrupted=2_000,
    ),
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
        goal=30,
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
        goal=10,
        rounds=1,
        corrupted=32,
    ),
}

_DEEP: dict[str, Any] = {"models": ("vgg10",)}
# What differs for one recipe: (scale, recipe) -> fields.
OWN: dict[tuple[str, str], dict[str, Any]] = {
    ("paper", "energy"): {"seeds": (0,), "patience": None},  # as in the paper: one seed, no early stop
    ("paper", "readings"): {"models": ("vgg7", "vgg10")},
    ("paper", "gap"): {"seeds": (0,), "patience": None},
    ("workstation", "accuracy"): {
        "parts": (
            Part("cifar10", ("resnet18",), ("bp", "pc+s+f", "ipc+s")),
            Part("cifar100", ("vgg5", "vgg10"), ("bp", "pc", "pc+s+f", "ipc+s")),
            Part("tiny-imagenet", ("vgg5",), ("bp", "pc+s+f")),
        )
    },
    ("workstation", "depth"): {  # centre nudging in the deepest only, by one seed: it would double the recipe
        "models": ("vgg5", "vgg7", "vgg10"),
        "algorithms": MAIN,
        "parts": (
            Part("cifar10", ("vgg10",), ("pc+s", "pc+f"), (0, 1, 2)),
            Part("cifar10", ("vgg10",), ("pc+cn", "ipc+cn", "pc+s+cn", "pc+f+cn", "pc+s+f+cn")),
        ),
    },
    ("workstation", "energy"): _DEEP,
    ("workstation", "schedules"): _DEEP,
    ("workstation", "ablation"): _DEEP,
    ("workstation", "batchnorm"): {**_DEEP, "algorithms": ("bp", "pc+s+f"), "norms": NORMS},
    ("workstation", "auxiliary"): {
        "models": ("resnet10",),
        "parts": (Part("cifar10", ("resnet18",), ("ipc+s", "pc+s+f")),),
    },
    ("workstation", "robustness"): {"models": ("vgg5", "vgg10")},
    ("workstation", "readings"): {"models": ("vgg5",), "seeds": (0,)},
    ("workstation", "alpha"): {"models": ("vgg5",), "seeds": (0,)},
    ("workstation", "gain"): {
        **_DEEP,
        "limit": 10_000,
        "epochs": 6,
        "parts": (Part("cifar10", ("vgg5", "vgg15", "resnet18"), ("bp", "pc", "pc+f", "pc+s+f")),),
    },
    ("workstation", "deep"): {
        "models": ("resnet18", "resnet34", "resnet66", "resnet130"),
        "algorithms": ("bp", "pc+s+f"),
        "width": 0.125,
        "limit": 5_000,
        "epochs": 8,
        "batch_size": 32,
        "parts": (
            Part("cifar10", ("resnet18", "resnet34", "resnet66"), ("pc",)),
        ),  # of 130 levels: 40 backprops a step
    },
    ("workstation", "control"): {
        "models": ("vgg5", "vgg10"),
        "parts": (Part("cifar100", ("vgg5",), ("bp", "ipc+s", "pc+s+f")),),
    },
    ("workstation", "rivals"): {"activation": "relu", "same_activation": True},  # one graph for all
    ("workstation", "vgg15"): {
        "datasets": {"tiny-imagenet": "cifar10"},
        "models": ("vgg15",),
        "norms": NORMS,
        "seeds": (0,),
    },
    ("workstation", "time"): {"models": PAPERS},
    ("laptop", "schedules"): {"models": ("vgg5", "vgg10"), "same_activation": True},
    ("laptop", "batchnorm"): {"models": ("vgg5", "vgg10"), "same_activation": True},
    ("laptop", "ablation"): {"models": ("vgg5", "vgg10", "resnet10")},
    ("laptop", "auxiliary"): {"models": ("resnet10", "resnet18")},
    ("laptop", "vgg15"): {"datasets": {"tiny-imagenet": "cifar10"}, "same_activation": True},
    ("laptop", "readings"): {"models": ("vgg7",)},
    ("laptop", "energy"): _DEEP,
    ("laptop", "alpha"): {
        "models": ("vgg5", "vgg10"),
        "width": 0.25,
        "limit": 2_000,
        "batch_size": 32,
        "seeds": (0, 1, 2),
    },
    ("laptop", "gain"): {"models": ("vgg5", "vgg10"), "norms": ("bf",)},
    ("laptop", "deep"): {"models": ("resnet18", "resnet34"), "algorithms": ("bp", "pc+s+f")},
    ("laptop", "control"): {"models": ("vgg5", "vgg10"), "norms": ("bf",)},
    ("laptop", "time"): {"models": PAPERS, "width": 0.5, "rounds": 5},
    ("smoke", "readings"): {"models": ("vgg5",)},
    ("smoke", "deep"): {"models": ("resnet18", "resnet34"), "algorithms": ("bp", "pc+s+f")},
    ("smoke", "vgg15"): {"datasets": {"tiny-imagenet": "digits"}, "models": ("vgg15",)},
}


def scale_for(name: str, recipe: str, **overrides: Any) -> Scale:
    """Return the scale called ``name`` as ``recipe`` uses it. ``overrides`` that are None change nothing.

    Whoever chooses nets or data sets gets all algorithms of the recipe in them.
    """
    if name not in SCALES:
        raise ConfigError(f"There is no scale {name!r}: {nearest(name, SCALES)}")
    given = {key: value for key, value in overrides.items() if value is not None}
    if "models" in given or "datasets" in given:
        given = {"algorithms": None, "parts": (), **given}
    scale = dataclasses.replace(SCALES[name], **(OWN.get((name, recipe), {}) | given))
    if "seeds" in given:
        some = [dataclasses.replace(p, seeds=tuple(s for s in p.seeds if s in scale.seeds)) for p in scale.parts]
        scale = dataclasses.replace(scale, parts=tuple(some))
    return scale
