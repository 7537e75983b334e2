"""One typed table of settings: the source of the command line's flags, of the TOML file and of the run's manifest.

A setting's name is the flag (``lr_x``: ``--lr-x``) and the key in TOML. An algorithm's own options (``lr_x``, ``alpha``
...) are declared by its family in :mod:`deeppc.core.algorithms`, in the same way as the fields here; ``options`` holds
those that were given. Outside, settings are flat: ``TrainConfig.of(model="vgg5", lr_x=0.3)``.

:func:`canonical` is the one definition of "the same run". Nothing here imports torch: ``deeppc --help`` is quick.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from deeppc.core.algorithms import Algorithm, Option, describe, known_options, option, options_for
from deeppc.core.algorithms.options import declared
from deeppc.errors import ConfigError, nearest


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a training run by name, and where it is kept. Build one with :meth:`of`."""

    dataset: str = option(
        "digits",
        "Data set: digits (no download), mnist, fashion-mnist, cifar10, cifar100, tiny-imagenet, a folder of class "
        "folders with images, or an .npz file.",
    )
    labels: str = option("fine", "Labels to learn: fine, or for cifar100 also coarse (its 20 superclasses).")
    model: str = option(
        "vgg5",
        "Network: mlp, vgg5, vgg7, vgg10, vgg15, resnet10, resnet18, 34, 66, 130 or 514, resnet10-mupc, or "
        "path/to/file.py:function.",
    )
    algorithm: str = option("pc+s+f", "Algorithm: ")
    width: float = option(0.25, "Multiplies every channel count; 1 gives the paper's networks.", above=0)
    activation: Literal["gelu", "relu", "leaky_relu", "hard_tanh"] = option(
        "gelu", "Activation function (gelu in its tanh form)."
    )
    norm: Literal["none", "bf", "bn"] = option(
        "none", "Normalisation: none, bf (BatchNorm freezing, the paper's BF), bn (plain BatchNorm, its baseline)."
    )
    affine: bool = option(True, "Whether norms learn a scale and a shift.")
    aux: bool = option(True, "Auxiliary nodes on the skip paths of a ResNet (paper: auxiliary neurons).")

    lr_w: float = option(
        1e-3,
        "Learning rate of the weights, AdamW (paper: η, lr_w). It warms to 1.1 times this, then falls to 0.1 times.",
        above=0,
        most=1e6,
    )
    weight_decay: float = option(1e-4, "Weight decay of AdamW (paper: weight_decay_w).", least=0, most=1e6)
    epsilon: float = option(
        1e-8,
        "Epsilon of AdamW: gradients far below it, as those of early layers may be, are not heeded. (Below 1e-20 "
        "squares of gradients may underflow.)",
        above=0,
        most=1,
    )
    epochs: int = option(10, "Passes over the training set, at most (paper: 50).", least=1)
    schedule_epochs: int = option(
        25, "Epoch at which lr_w has fallen to its tenth, if there are so many (paper: 25).", least=1
    )
    patience: int | None = option(
        10, "Stop after so many epochs without a better selection accuracy (paper: 10). None: never.", least=1
    )
    batch_size: int = option(128, "Images in a batch (paper: 128).", least=1)
    seed: int = option(
        0,
        "Decides initial weights, data order, augmentation and the held-out images (paper: 0 to 4).",
        least=0,
        most=2**63,
    )

    select: Literal["validation", "test"] = option(
        "validation",
        "What chooses the epoch to report: held-out training images, or test images (paper; then none is held out).",
    )
    validation: float = option(
        0.1,
        "Fraction of the training set that is held out to choose the epoch. To train on everything, --select test.",
        above=0,
        most=0.99,
    )
    limit: int | None = option(
        None, "Train on so many images only, the same share of each class. None: on all that are not held out.", least=1
    )
    weights: Path | None = option(  # noqa: RUF009 - a field
        None,
        "File of weights to start from: best.safetensors or the checkpoint of another run, or a torch file. None: "
        "random ones.",
    )
    data_dir: Path = option(Path("data"), "Folder that holds the data sets.")  # noqa: RUF009 - a field

    run_dir: Path | None = option(  # noqa: RUF009
        None, "Folder for this run. None: runs/<dataset>-<model>-<algorithm>-<seed>, with a number if that is taken."
    )
    resume: bool = option(
        False, "Resume the run in --run-dir, to the same weights, bit for bit, as if it had never stopped."
    )
    diagnostics: bool = option(
        False,
        "After each epoch, compare each layer's update with backprop's on one batch, and record it with the gap ratio "
        "and whether inference settles.",
    )
    checkpoint_every: float | None = option(
        None,
        "Minutes between checkpoints within an epoch; 0: after every batch. None: one at the end of each epoch.",
        least=0,
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = option(
        "auto", "Where to compute; auto takes cuda, then mps, then cpu."
    )
    precision: Literal["fp32", "bf16"] = option(
        "fp32", "Arithmetic of the predictions; weights, deviations and energies stay in fp32."
    )
    sync_norm: bool = option(
        True,
        "With several workers (torchrun), let BatchNorm see the whole batch, as one worker would; --no-sync-norm: each "
        "its own part, with less to send, and another outcome for another number of workers.",
    )
    compile: bool = option(False, "Compile the network's nodes with torch.compile: slower to begin, faster on a GPU.")

    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The algorithm's options that were given; the others have their defaults."""

    def __post_init__(self) -> None:
        for name in FIELDS:
            object.__setattr__(self, name, fitted(name, getattr(self, name)))  # 1 and 1.0 are one setting
        means = _options_for(self.algorithm)
        if not isinstance(self.options, Mapping):
            raise ConfigError(f"options is {self.options!r}, but must be a table of names and values.")
        for name in map(str, self.options):
            if name not in means:
                raise ConfigError(_means_nothing(name, self.algorithm))
        object.__setattr__(self, "options", {name: fitted(name, value) for name, value in self.options.items()})
        self.algorithm_object()

    @classmethod
    def of(cls, **settings: Any) -> TrainConfig:
        """Build a config from flat settings: own fields and the algorithm's options."""
        return replace(cls(), **settings)

    def setting(self, name: str) -> Any:
        """Return a setting by its flat name: an own field, or an option's value (given or default)."""
        return getattr(self, name) if name in FIELDS else self.options.get(name, _known(name).default)

    @property
    def method(self) -> str:
        """``algorithm``, with what makes a control of bp: ``bp-last2``, ``bp-repeats5``."""
        controls = {"repeats": 1, "last": None}
        found = {name: self.setting(name) for name in controls}
        return self.algorithm + "".join(f"-{k}{v}" for k, v in found.items() if v != controls[k])

    def algorithm_object(self) -> Algorithm:
        """Build the algorithm with its options."""
        try:
            return Algorithm.parse(self.algorithm, **self.options)
        except ValueError as error:
            raise ConfigError(str(error)) from error


FIELDS: dict[str, Option] = declared(TrainConfig)
_PLACE = ("run_dir", "resume")  # a run folder may be moved
RAISED = ("epochs", "patience")  # what a run may get more of
_OTHER = {
    "schedule_epochs": "The learning rate would fall over another number of epochs (schedule_epochs)",
    "network": "The network has other nodes or shapes",
    "data": "The data are others",
}
_DIGEST = re.compile(r"(.+)#([0-9a-f]{16})")  # a file and what it held: ``best.safetensors#0f3c...``
# Where and how a run is computed and watched, not what. (Another device computes other bits; who asks for it knows.)
_ELSEWHERE = frozenset({*_PLACE, "data_dir", "device", "checkpoint_every", "diagnostics"})


def settings() -> dict[str, Option]:
    """Return the declarations of all settings by name: own fields, then the options of all algorithms."""
    algorithm = dataclasses.replace(FIELDS["algorithm"], help=f"Algorithm: {describe()}.")
    return {**FIELDS, "algorithm": algorithm, **known_options()}


def fitted(name: str, value: Any, source: str = "") -> Any:
    """Return ``value`` as the setting's type has it; ConfigError, which names ``source``, if it does not fit.

    A whole number is a number, a bool is none, text is a path, and ``"none"`` is None, which TOML does not have.
    """
    if isinstance(value, Mapping) and source:
        where = f"{source}: [{name}] is a section"
        raise ConfigError(f"{where}, but settings stand at the top, without [sections]: leave that line out.")
    declaration = _known(name, source)
    if isinstance(value, str) and not declaration.choices and (not value.strip() or "\0" in value):
        raise ConfigError(f"{source}: {name} is {value!r}: give it a value, or leave it out.".removeprefix(": "))
    if isinstance(value, str) and declaration.type is not str:
        value = None if value == "none" and "none" not in declaration.choices else value
        value = Path(value) if value is not None and declaration.type in (Path, Path | None) else value
    try:
        return declaration.check(value)
    except ValueError as error:
        raise ConfigError(f"{source}: {error}.".removeprefix(": ")) from None


def replace(config: TrainConfig, **settings: Any) -> TrainConfig:
    """Return ``config`` with other settings, own fields and options alike.

    Where the algorithm changes, options that the new one does not have are dropped. Those given here are refused
    (ConfigError) if they mean nothing to it.
    """
    return layered([(settings, "")], config)


def to_table(config: TrainConfig) -> dict[str, Any]:
    """Return every setting in full as plain values, for a manifest, but not where the run is kept."""
    own = {name: getattr(config, name) for name in FIELDS if name not in _PLACE}
    table = {name: str(value) if isinstance(value, Path) else value for name, value in own.items()}
    if config.weights is not None:
        path, digest = weights_file(config.weights)
        table["weights"] = f"{path}#{digest}"
    return {**table, **config.algorithm_object().settings()}


def weights_file(weights: Path) -> tuple[Path, str]:
    """Return the file that the setting names and a digest of its content: as it was written down, or else as it is."""
    if written := _DIGEST.fullmatch(str(weights)):
        return Path(written[1]), written[2]
    try:
        return weights, hashlib.sha256(weights.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise ConfigError(f"The weights {weights} cannot be read: {error.strerror or error}.") from None


def from_table(table: Mapping[str, Any], source: str, base: TrainConfig | None = None) -> TrainConfig:
    """Return ``base`` (the defaults) with the values of ``table``, each checked. ``source`` is named in errors."""
    return layered([(table, source)], base)


def layered(layers: Iterable[tuple[Mapping[str, Any], str]], base: TrainConfig | None = None) -> TrainConfig:
    """Return ``base`` with tables laid over it, each with its source for errors; later ones win.

    An option that means nothing to the algorithm is refused, unless a later layer has chosen that algorithm.
    """
    config = base or TrainConfig()
    own: dict[str, Any] = {"algorithm": config.algorithm}
    options: dict[str, tuple[Any, str | None]] = {name: (value, None) for name, value in config.options.items()}
    for table, source in layers:
        if table.get("algorithm", own["algorithm"]) != own["algorithm"]:
            options = {name: (value, None) for name, (value, _) in options.items()}
        for key, raw in table.items():
            value = fitted(key, raw, source)
            if key in FIELDS:
                own[key] = value
            else:
                options[key] = (value, source)
    means = _options_for(own["algorithm"])
    for name, (_, named) in options.items():
        if name not in means and named is not None:
            raise ConfigError(f"{named}: {_means_nothing(name, own['algorithm'])}".removeprefix(": "))
    kept = {name: value for name, (value, _) in options.items() if name in means}
    return dataclasses.replace(config, **own, options=kept)


def to_toml(config: TrainConfig) -> str:
    """Return the settings as a file for ``--config``. TOML has no null: None is written ``"none"``."""
    return toml_of(to_table(config))


def toml_of(table: Mapping[str, Any]) -> str:
    """Return a flat table as TOML."""
    import tomli_w

    return tomli_w.dumps({name: "none" if value is None else value for name, value in table.items()})


def read_toml(path: Path) -> dict[str, Any]:
    """Return the table in a TOML file, not yet checked."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"The config file {path} cannot be read: {error.strerror or error}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"The config file {path} is not valid TOML: {error}.") from None


def canonical(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a flat table that decide the outcome: equal for two tables exactly if they are one run.

    Options that mean nothing to the algorithm, and where and how it is computed, are left out. A setting that is
    missing (in an older record) has its default: a new setting's default is what happened before it existed.
    """
    full = {**{name: declaration.default for name, declaration in FIELDS.items()}, **table}
    try:
        means = options_for(full["algorithm"])
    except ValueError:  # an algorithm that is not registered here: its own record is all that is known
        pass
    else:
        full = {**{name: option.default for name, option in means.items()}, **meaningful(full)}
        full["algorithm"] = Algorithm.parse(full["algorithm"]).name  # pc+f+s is pc+s+f
    full["schedule_epochs"] = min(full["epochs"], full["schedule_epochs"])  # over which the rate falls
    if "scheduler" in full:  # of a run in Python
        del full["schedule_epochs"]
    if full["weights"] is not None:
        full["weights"] = weights_file(Path(full["weights"]))[1]
    if full["norm"] == "none":
        del full["affine"]
    if full["select"] != "validation":
        del full["validation"]
    return {name: value for name, value in full.items() if name not in _ELSEWHERE}


def meaningful(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a flat table without the options that mean nothing to its algorithm (as older records have them)."""
    means = _options_for(table.get("algorithm", TrainConfig.algorithm))
    return {name: value for name, value in table.items() if name in means or name not in known_options()}


def task_name(config: TrainConfig) -> str:
    """Return ``<dataset>-<model>`` as part of a file name: of a path its last part, without suffix."""
    model, _, function = config.model.partition(":")
    return "-".join([Path(config.dataset).stem, Path(model).stem + ("." + function if function else "")])


def flag(name: str) -> str:
    """Return the command-line flag of a setting."""
    return "--" + name.replace("_", "-")


def require_resumable(
    begun: Mapping[str, Any], now: Mapping[str, Any], spoken: Callable[[str], str] = flag
) -> dict[str, Any]:
    """Return the settings with which the run begun goes on; ConfigError unless it is the same run, or more of it.

    Epochs and patience may be raised. The learning rate then keeps its schedule, unless ``now`` has another, which is
    refused: past epochs would have had other rates. ``spoken`` says what a setting is called: a flag, or an argument.
    """
    if now["epochs"] > begun["epochs"] and now["schedule_epochs"] == begun["schedule_epochs"]:
        now = {**now, "schedule_epochs": min(begun["epochs"], begun["schedule_epochs"])}
    before, after = canonical(begun), canonical(now)
    for name in ("algorithm", *before, *after):  # which brings other options with it
        was, value = before.get(name), after.get(name)
        if was == value or (name in RAISED and (value is None or (was is not None and value > was))):
            continue
        if name in RAISED:
            raise ConfigError(f"{spoken(name)} is {value}, but this run was begun with {was}: it can only be raised.")
        if name in _OTHER:
            raise ConfigError(f"{_OTHER[name]} than this run was begun with: give the same, or start another run.")
        raise ConfigError(
            f"{spoken(name)} is {value}, but this run was begun with {was}: leave it out to resume the run, or start "
            f"another without {spoken('resume')}."
        )
    return dict(now)


def _known(name: str, source: str = "") -> Option:
    known = {**FIELDS, **known_options()}
    if name not in known:
        what = f"{source}: unknown key" if source else "unknown setting"
        raise ConfigError(f"{what} {name!r}: {nearest(name, known)}")
    return known[name]


def _options_for(algorithm: str) -> Mapping[str, Any]:
    try:
        return options_for(algorithm)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _means_nothing(name: str, algorithm: str) -> str:
    has = ", ".join(_options_for(algorithm))
    return f"{flag(name)} means nothing to {algorithm}: leave it out, or choose another --algorithm. It has {has}."
