"""One typed table of settings: the source of the command line's flags, of the TOML file and of the run's manifest.

A field's name is the flag (``lr_x``: ``--lr-x``) and the key in TOML; the text under it is the flag's help. Nothing
here imports torch, so that ``deeppc --help`` is quick; what only torch can check (an algorithm's name, a model's) is
checked where it is built, before anything is written.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import math
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from deeppc.errors import ConfigError


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a training run, and where it is kept."""

    dataset: str = "digits"
    """Data set: digits (no download), cifar10, cifar100, tiny-imagenet."""
    labels: str = "fine"
    """Labels to learn: fine, or for cifar100 also coarse (its 20 superclasses)."""
    model: str = "vgg5"
    """Network: mlp, vgg5, vgg7, vgg10, vgg15, resnet10, resnet18."""
    algorithm: str = "pc+s+f"
    """Algorithm: bp, pc, ipc, with +s spiking, +d exponential, +l linear precision, +f forward update, +cn nudging."""
    width: float = 0.25
    """Multiplies every channel count; 1 gives the paper's networks."""
    activation: Literal["gelu", "relu", "leaky_relu", "hard_tanh"] = "gelu"
    """Activation function (gelu in its tanh form)."""
    norm: Literal["none", "bf", "bn"] = "none"
    """Normalisation: none, bf (BatchNorm freezing, the paper's BF), bn (plain BatchNorm, its failing baseline)."""
    affine: bool = True
    """Whether norms learn a scale and a shift."""
    aux: bool = True
    """Auxiliary nodes on the skip paths of a ResNet (paper: auxiliary neurons)."""

    T: int | None = None
    """Inference steps for each batch (paper: T). None: as many as the network has levels (paper: T = L)."""
    lr_x: float = 0.5
    """Learning rate of the activities (paper: α in Eq. 2, lr_x in its search table)."""
    momentum_x: float = 0.0
    """Momentum of the activities' SGD (paper: momentum_x)."""
    nesterov: bool = True
    """Nesterov momentum for the activities; without momentum it changes nothing."""
    alpha: float = 0.01
    """With +s, precision outside the spike (paper: α of its search table, 0.001 to 0.05). 0 comes nearest to bp."""
    k: float = 1.0
    """With +d, rate of the exponential decay of precision (paper: k in {1, 1.5, 2})."""
    beta: float = 1.0
    """Nudging strength in (0, 1] (paper: β). 1 clamps the output to the label."""
    loss: Literal["squared_error", "cross_entropy"] = "squared_error"
    """Energy of the output node."""
    precision_on: Literal["energy", "node"] = "energy"
    """What precision weighs: each error, or a node's whole update (paper: Eq. 2; it wants a lower lr_x)."""
    presynaptic: Literal["initial", "relaxed"] = "initial"
    """With +f, activities that weights learn through: initial (x_0) or relaxed (paper: x_T in Algorithm 1)."""
    forward_last: int | None = None
    """With +f, forward update for so many last levels only, the standard rule below (paper: appendix). None: all."""
    free_steps: int = 0
    """With +f, steps of free relaxation whose state stands in for μ_0 (paper: appendix). 0: μ_0 is stored."""
    depth_gain: bool = False
    """Give each layer's weight gradient back the factor lr_x^arrival that the wave lost (not in the paper)."""

    lr_w: float = 1e-3
    """Learning rate of the weights, AdamW (paper: η, lr_w). It warms to 1.1 times this, then falls to 0.1 times."""
    weight_decay: float = 1e-4
    """Weight decay of AdamW (paper: weight_decay_w)."""
    epochs: int = 10
    """Passes over the training set, at most (paper: 50)."""
    schedule_epochs: int = 25
    """Epoch at which lr_w has fallen to its tenth, if there are so many (paper: 25)."""
    patience: int | None = 10
    """Stop after so many epochs without a better selection accuracy (paper: 10). None: never."""
    batch_size: int = 128
    """Images in a batch (paper: 128)."""
    seed: int = 0
    """Decides initial weights, data order, augmentation and the held-out images (paper: 0 to 4)."""

    select: Literal["validation", "test"] = "validation"
    """What chooses the epoch to report: held-out training images, or test images (paper; then none is held out)."""
    validation: float = 0.1
    """Fraction of the training set that is held out to choose the epoch, with --select validation."""
    limit: int | None = None
    """Train on so many images only, the same share of each class. None: on all that are not held out."""
    data_dir: Path = Path("data")
    """Folder that holds the data sets."""

    run_dir: Path | None = None
    """Folder for this run. None: runs/<dataset>-<model>-<algorithm>-<seed>, with a number if that is taken."""
    resume: bool = False
    """Go on with the run in --run-dir, to the same weights, bit for bit, as if it had never stopped."""
    diagnostics: bool = False
    """After each epoch, compare each layer's update with backprop's on one batch, and record it with the gap ratio."""
    checkpoint_every: float | None = None
    """Minutes between checkpoints within an epoch; 0: after every batch. None: one at the end of each epoch."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes cuda, then mps, then cpu."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of the predictions; weights, deviations and energies stay in fp32."""
    compile: bool = False
    """Compile the network's nodes with torch.compile: slower to begin, faster on a GPU."""

    def __post_init__(self) -> None:
        for name, (holds, expected) in _RANGES.items():
            value = getattr(self, name)
            if not holds(value):
                raise ConfigError(f"{name} is {value!r}, but must be {expected}.")


# Where a run is kept and how it is watched: the same run all the same.
_PLACE = frozenset({"run_dir", "resume"})
# What may differ when a run goes on. (Another device computes other bits; the user who asks for it knows.)
_FREE = _PLACE | {"data_dir", "diagnostics", "checkpoint_every", "device", "epochs"}

_RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "width": (lambda w: 0 < w < math.inf, "positive"),
    "lr_w": (lambda x: 0 < x < math.inf, "positive"),
    "weight_decay": (lambda x: 0 <= x < math.inf, "0 or more"),
    "epochs": (lambda n: n >= 1, "1 or more"),
    "schedule_epochs": (lambda n: n >= 1, "1 or more"),
    "patience": (lambda n: n is None or n >= 1, "1 or more, or none"),
    "batch_size": (lambda n: n >= 1, "1 or more"),
    "seed": (lambda n: 0 <= n < 2**63, "a whole number from 0 to 2^63 - 1"),
    "validation": (lambda x: 0 < x < 1, "above 0 and below 1; to train on everything, --select test"),
    "limit": (lambda n: n is None or n >= 1, "1 or more, or none"),
    "checkpoint_every": (lambda x: x is None or 0 <= x < math.inf, "0 or more minutes, or none"),
}

_ALGORITHM_OPTIONS = (
    *("T", "lr_x", "momentum_x", "nesterov", "alpha", "k", "beta", "loss", "precision_on"),
    *("presynaptic", "forward_last", "free_steps", "depth_gain"),
)
_OF_FORWARD_UPDATE = ("presynaptic", "forward_last", "free_steps")


def algorithm_options(config: TrainConfig) -> dict[str, Any]:
    """The fields that :class:`deeppc.Algorithm` takes under the same names."""
    return {name: getattr(config, name) for name in _ALGORITHM_OPTIONS}


def for_algorithm(config: TrainConfig, algorithm: str, **changes: Any) -> TrainConfig:
    """``config`` for another algorithm, without the options that mean nothing to it (so that a comparison may say
    ``presynaptic = "relaxed"`` once for all its rows)."""
    family, *suffixes = algorithm.split("+")
    drop: tuple[str, ...] = () if "f" in suffixes else _OF_FORWARD_UPDATE
    if family == "bp":
        drop += ("depth_gain",)
    plain = TrainConfig()
    return dataclasses.replace(config, algorithm=algorithm, **{n: getattr(plain, n) for n in drop}, **changes)


def to_table(config: TrainConfig) -> dict[str, Any]:
    """The settings as plain values for a manifest. Not where the run is kept: a run folder may be moved."""
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.name not in _PLACE}
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}


def from_table(table: Mapping[str, Any], source: str, base: TrainConfig | None = None) -> TrainConfig:
    """``base`` (the defaults) with the values of ``table``, each checked. ``source`` is named in errors."""
    hints = typing.get_type_hints(TrainConfig)
    given: dict[str, Any] = {}
    for key, value in table.items():
        if key not in hints:
            raise ConfigError(f"{source}: unknown key {key!r}: {nearest(key, hints)}")
        try:
            given[key] = _fitted(value, hints[key])
        except TypeError:
            raise ConfigError(f"{source}: {key} is {value!r}, but must be {_described(hints[key])}.") from None
    try:
        return dataclasses.replace(base or TrainConfig(), **given)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def to_toml(config: TrainConfig) -> str:
    """The settings as a file for ``--config``. TOML has no null: None is written ``"none"``."""
    import tomli_w

    return tomli_w.dumps({name: "none" if value is None else value for name, value in to_table(config).items()})


def read_toml(path: Path) -> dict[str, Any]:
    """The table in a TOML file, not yet checked."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"The config file {path} cannot be read: {error.strerror or error}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"The config file {path} is not valid TOML: {error}.") from None


def fingerprint(config: TrainConfig) -> str:
    """The same for two configurations exactly if one may go on with what the other began."""
    table = {name: value for name, value in to_table(config).items() if name not in _FREE}
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:16]


def horizon(config: TrainConfig) -> int:
    """Epochs over which ``lr_w`` changes."""
    return min(config.epochs, config.schedule_epochs)


def require_same_run(begun: TrainConfig, now: TrainConfig) -> None:
    """A run goes on with the settings it was begun with. More epochs are welcome where past rates stay true."""
    for name, before in to_table(begun).items():
        after = to_table(now)[name]
        if name not in _FREE and after != before:
            raise ConfigError(
                f"{flag(name)} is {after}, but this run was begun with {before}: leave the flag out to go on with it, "
                "or start another run without --resume."
            )
    if now.epochs < begun.epochs:
        raise ConfigError(
            f"--epochs is {now.epochs}, but this run was begun with {begun.epochs}: it can only be raised."
        )
    if horizon(now) != horizon(begun):
        raise ConfigError(
            f"--epochs cannot be raised from {begun.epochs} to {now.epochs}: the learning rate was planned to fall "
            f"over {horizon(begun)} epochs, and what is past would have had other rates. Start another run instead."
        )


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a mistyped name, or else all the names."""
    known = list(known)
    lower = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower().replace("-", "_"), lower, n=1, cutoff=0.5)
    return f"did you mean {lower[near[0]]!r}?" if near else f"the keys are {', '.join(known)}."


def _fitted(value: Any, hint: Any) -> Any:
    """``value`` as the type ``hint`` wants it. TypeError if it does not fit; a bool is no number."""
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        for arm in typing.get_args(hint):
            try:
                return _fitted(value, arm)
            except TypeError:
                continue
        raise TypeError
    if origin is Literal:
        if isinstance(value, str) and value in typing.get_args(hint):
            return value
        raise TypeError
    if hint is types.NoneType and (value is None or value == "none"):
        return None
    if hint is float and type(value) in (int, float):
        return float(value)
    if hint is Path and isinstance(value, str | Path):
        return Path(value)
    if type(value) is hint:
        return value
    raise TypeError


def _described(hint: Any) -> str:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_described(arm) for arm in typing.get_args(hint))
    if origin is Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    names = {float: "a number", int: "a whole number", bool: "true or false", str: "text", Path: "a path"}
    return names.get(hint, '"none"')
