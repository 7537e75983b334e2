"""``deeppc train`` and ``deeppc compare``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeppc.cli.common import (
    Command,
    Given,
    Layer,
    Settings,
    config_of,
    default_settings,
    flags_of,
    folder_to_resume,
    layers_of,
    seeds_of,
    settings_type,
    split_options,
    watching,
    words,
)
from deeppc.training.config import TrainConfig, layered

if TYPE_CHECKING:
    ComparedSettings = Any
else:
    ComparedSettings = settings_type("algorithm", "seed")


@dataclass(frozen=True)
class Train:
    """Train one network and keep the run in a folder: manifest, metrics, energies, checkpoints, report."""

    settings: Settings = field(default_factory=default_settings)
    preset: str | None = None
    """Shipped settings to begin from, by name: deeppc presets lists them. --config and flags win over it."""
    config: Path | None = None
    """TOML file with settings (keys as the flags, with underscores). Flags given here win over the file."""
    tensorboard: bool = False
    """Write each epoch's numbers for TensorBoard into the run folder, too: pip install 'deeppc[tensorboard]'."""
    json: bool = False
    """Print one JSON object per epoch and one for the result, and nothing else, on stdout."""

    def run(self, given: Given) -> None:
        from deeppc.training.builder import saved_config, train
        from deeppc.training.distributed import joined
        from deeppc.training.events import ignore

        with joined() as workers:
            workers.require_same({"--resume": folder_to_resume(self, given) is not None})
            config = config_of(self, given, lambda folder: workers.share(lambda: saved_config(folder)))
            if not workers.first:
                train(config, ignore)
                return
            with watching(self.json, self.tensorboard) as callback:
                train(config, callback)


@dataclass(frozen=True)
class Compare:
    """Train several algorithms under the same seeds and print a table with mean and spread. --resume may add some."""

    settings: ComparedSettings = field(default_factory=lambda: ComparedSettings.__origin__())
    algorithms: str = "bp,pc+s+f"
    """Algorithms to compare, with commas between them. An option is given to those that have it."""
    seeds: str = "0,1,2"
    """Seeds that each algorithm is trained with, with commas between them."""
    preset: str | None = None
    """Shipped settings to begin from, by name: deeppc presets lists them. --config and flags win over it."""
    config: Path | None = None
    """TOML file with settings (keys as the flags, with underscores). Flags given here win over the file."""
    tensorboard: bool = False
    """Write each epoch's numbers for TensorBoard into the run folders, too: pip install 'deeppc[tensorboard]'."""
    json: bool = False
    """Print one JSON object per epoch, per result and for the comparison, and nothing else, on stdout."""

    def run(self, given: Given) -> None:
        from deeppc.training.compare import saved_comparison

        algorithms, seeds = words("--algorithms", self.algorithms), seeds_of(self.seeds)
        layers: list[Layer] = [*layers_of(self), (flags_of(self, given), "")]
        base = TrainConfig()
        if (folder := folder_to_resume(self, given)) is not None:
            base, saved_algorithms, saved_seeds, saved_options = saved_comparison(folder)
            algorithms = list(dict.fromkeys([*saved_algorithms, *(algorithms if "algorithms" in given else ())]))
            seeds = list(dict.fromkeys([*saved_seeds, *(seeds if "seeds" in given else ())]))
            layers = [(saved_options, ""), *layers]
        own, options = split_options(layers, algorithms, given)
        first: Layer = (dict(zip(["algorithm"], algorithms, strict=False)), "")
        config = layered([*own, first], base)
        run_comparison(config, algorithms, seeds, self.json, options, self.tensorboard)


def run_comparison(
    config: TrainConfig,
    algorithms: Sequence[str],
    seeds: Sequence[int],
    as_json: bool,
    options: Mapping[str, Any] | None = None,
    tensorboard: bool = False,
) -> None:
    """Train each algorithm with each seed, and print the table."""
    from deeppc.training.compare import compare

    with watching(as_json, tensorboard) as callback:
        comparison = compare(config, algorithms, seeds, callback, options=options)
    if as_json:
        print(json.dumps({"event": "comparison", "folder": str(comparison.folder), **comparison.table()}))
        return
    from rich.console import Console

    Console().print(comparison.summary().rich(), f"saved in {comparison.folder}")


COMMANDS: dict[str, type[Command]] = {"train": Train, "compare": Compare}
