"""The commands of the search: ``deeppc search``, ``deeppc search importance`` and its like, ``deeppc presets``.

Optuna and torch are imported when a command runs, never for ``--help``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, UseAppendAction, arg

from deeppc.cli.common import Command, NoBase, Settings, base_settings, seeds_of
from deeppc.errors import ConfigError
from deeppc.training.config import TrainConfig

if TYPE_CHECKING:
    from deeppc.search.importance import Importance
    from deeppc.search.plan import Plan
    from deeppc.search.records import Trial
    from deeppc.search.study import SearchResult

Study = Annotated[Positional[Path], arg(metavar="STUDY")]
Studies = Annotated[Positional[tuple[Path, ...]], arg(metavar="STUDY...")]

EPOCHS = 25  # of a trial, as in the paper


@dataclass(frozen=True)
class Search:
    """Search hyper-parameters with Optuna: the paper's space, or yours. The same command again goes on."""

    settings: Settings = field(default_factory=lambda: TrainConfig(epochs=EPOCHS))
    trials: int = 40
    """Trials to settle: complete, pruned or diverged (paper: 200). Those lost to a kill are replaced."""
    jobs: int = 1
    """Trials at a time, each in a process of its own with one thread (or OMP_NUM_THREADS)."""
    space: Annotated[tuple[str, ...], UseAppendAction] = ()
    """Narrow, add or fix a dimension: "lr_x=0.01..0.5 log", "T=5..8", activation=gelu,relu, beta=1. May be repeated."""
    space_file: Path | None = None
    """TOML file with dimensions: lr_x = "0.01..0.5 log". --space wins over it."""
    pruner: Literal["median", "hyperband", "none"] = "median"
    """What ends hopeless trials early."""
    protocol: Literal["held-out", "paper"] = "held-out"
    """paper: 200 trials of 25 epochs, none pruned, judged on the test set; then seeds 0 to 4, 50 epochs each."""
    storage: str | None = None
    """Optuna storage URL, e.g. postgresql+psycopg://user@host/name. None: study.db in the study's folder."""
    seeds: str = ""
    """Seeds to train the best settings with afterwards, with commas between them, e.g. 0,1,2. Empty: none."""
    final_epochs: int | None = None
    """Epochs of these last runs, at most. None: as many as a trial has."""
    preset: str | None = None
    """Shipped settings to begin from, by name (deeppc presets lists them); for what is not searched."""
    config: Path | None = None
    """TOML file with settings (keys as the flags, with underscores). Flags given here win over the file."""
    json: bool = False
    """Print one JSON object per trial and one for the result, and nothing else, on stdout."""

    def base(self) -> Search | None:
        from deeppc.search import plan as plans

        changed = self
        defaults = TrainConfig(epochs=EPOCHS)
        if self.protocol == "paper":
            defaults = replace(defaults, select="test")
            changed = replace(changed, trials=200, pruner="none", seeds="0,1,2,3,4", final_epochs=50)

        def saved(folder: Path) -> TrainConfig:
            nonlocal changed
            plan = plans.read(folder)
            changed = replace(changed, trials=plan.trials, pruner=plan.pruner, storage=plan.storage)
            return replace(plan.config, resume=True)

        settings = base_settings(self.settings, self.preset, self.config, saved, defaults)
        return replace(changed, settings=settings or defaults)

    def run(self) -> None:
        from deeppc.search.display import display
        from deeppc.search.study import search

        seeds = seeds_of(self.seeds)
        with display(self.json) as listener:
            result = search(self.plan(), listener)
        _show_result(result, self.json)
        if not self.json:
            _show_importance([_importance(result.plan, result.trials)])
        _try_to_draw(result)
        if seeds:
            self._train_best(result, seeds)

    def plan(self) -> Plan:
        from deeppc.search import plan as plans
        from deeppc.search import space as spaces

        settings = self.settings
        if settings.resume and settings.run_dir is None:
            raise ConfigError("--resume needs --run-dir: the folder of the search to go on with.")
        if settings.resume and settings.run_dir is not None and not (self.space or self.space_file):
            table = plans.read(settings.run_dir).space.table()
            space = spaces.rebuild(settings, table, str(settings.run_dir / plans.STUDY))
        else:
            space = spaces.build(settings, self.space, self.space_file)
        folder = plans.folder_of(settings)
        return plans.Plan(folder, space, self.trials, self.pruner, self.storage, self.jobs)

    def _train_best(self, result: SearchResult, seeds: list[int]) -> None:
        """The best settings under several seeds, in the study's folder; goes on if it was interrupted."""
        from deeppc.cli.main import run_comparison
        from deeppc.training.compare import COMPARISON

        folder = result.plan.folder / "seeds"
        epochs = self.final_epochs or self.settings.epochs
        config = replace(result.best_config, epochs=epochs, run_dir=folder, resume=(folder / COMPARISON).exists())
        run_comparison(config, [config.algorithm], seeds, self.json)


def _read(folder: Path, storage: str | None) -> tuple[Plan, list[Trial]]:
    from deeppc.search import plan as plans
    from deeppc.search.records import trials_of
    from deeppc.search.storage import open_study

    plan = plans.read(folder, storage)
    with open_study(plan) as session:
        return plan, trials_of(session)


def _importance(plan: Plan, trials: Sequence[Trial]) -> Importance:
    from deeppc.search.importance import importance

    return importance(plan, trials)


def _draw(plan: Plan, trials: Sequence[Trial]) -> Path:
    from deeppc.search import page

    return page.write(plan, trials, _importance(plan, trials))


def _try_to_draw(result: SearchResult) -> None:
    """The search is safe in its storage, so a failure here is only a remark."""
    try:
        said = f"pictures: {_draw(result.plan, result.trials)}"
    except Exception as error:
        said = f"The page of {result.plan.folder} could not be written: {error!r}"
    print(said, file=sys.stderr)


def _show_importance(found: Sequence[Importance]) -> None:
    from rich.console import Console
    from rich.table import Table

    from deeppc.search.importance import by_setting

    console = Console(highlight=False)
    for task in dict.fromkeys((one.dataset, one.architecture) for one in found):
        head, lines = by_setting([one for one in found if (one.dataset, one.architecture) == task])
        table = Table(*head[:2], title=f"importance on {task[0]}, %")
        for name in head[2:]:
            table.add_column(name, justify="right")
        for line in lines:
            table.add_row(*line, style="dim" if line[1] == "paper" else "")
        console.print(table)
    for one in found:
        if one.warning:
            console.print(one.warning, style="yellow", markup=False)


def _write_text(path: Path, text: str) -> None:
    from deeppc.files import replacing

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}.") from error
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _show_result(result: SearchResult, as_json: bool) -> None:
    from deeppc.search.plan import BEST

    best, folder = result.best, result.plan.folder
    if as_json:
        print(json.dumps({"event": "search", "folder": str(folder), "best": best.table()}), flush=True)
        return
    from rich.console import Console

    from deeppc.search.display import settings
    from deeppc.training.display import percent

    console = Console(highlight=False)
    accuracy = percent(best.value or 0.0)
    console.print(f"best: trial {best.number} with {accuracy}: {settings(best.params)}", soft_wrap=True, markup=False)
    console.print(f"train it:  deeppc train --config {folder / BEST}", soft_wrap=True, markup=False)


@dataclass(frozen=True)
class SearchImportance(NoBase):
    """Which settings matter, in the paper's table: fANOVA and PED-ANOVA beside the paper's values."""

    studies: Studies
    """Folders of searches, e.g. searches/cifar10-vgg5-pc+s+f."""
    pruned: bool = False
    """Count pruned trials, too, by the accuracy that they had: more trials, but each is judged too low."""
    out: Path | None = None
    """Write the table to this markdown file, too."""
    storage: str | None = None
    """Optuna storage URL of the studies, if it needs a password."""
    json: bool = False
    """Print one JSON object per study instead of the table."""

    def run(self) -> None:
        from deeppc.search import importance as importances

        if not self.studies:
            raise ConfigError("Say which search, e.g. deeppc search importance searches/cifar10-vgg5-pc+s+f")
        found = []
        for folder in self.studies:
            plan, trials = _read(folder, self.storage)
            found.append(importances.importance(plan, trials, with_pruned=self.pruned))
        if self.out is not None:
            _write_text(self.out, importances.markdown(found))
        if self.json:
            for one in found:
                print(json.dumps(one.table()))
        else:
            _show_importance(found)


@dataclass(frozen=True)
class SearchPlot(NoBase):
    """Draw a search: history, learning curves, slices, parallel coordinates, importance, in one offline page."""

    study: Study
    """Folder of the search; it may still be running."""
    storage: str | None = None
    """Optuna storage URL of the study, if it needs a password."""

    def run(self) -> None:
        plan, trials = _read(self.study, self.storage)
        print(_draw(plan, trials))


@dataclass(frozen=True)
class SearchTransfer(NoBase):
    """The paper's transfer tables, across data sets and depths, from finished searches. The same again goes on."""

    studies: Studies
    """Folders of finished searches, at least two."""
    seeds: str = "0,1,2"
    """Seeds that each entry is trained with, with commas between them."""
    epochs: int | None = None
    """Epochs of each run, at most. None: as many as the trials of the target's search had."""
    run_dir: Path = Path("searches/transfer")
    """Folder for the runs and the tables. The same command again goes on where it stopped."""
    storage: str | None = None
    """Optuna storage URL of the studies, if it needs a password."""
    json: bool = False
    """Print one JSON object per epoch and per run, and nothing else, on stdout; the tables are in the folder."""

    def run(self) -> None:
        from rich.console import Console
        from rich.markdown import Markdown

        from deeppc.search import transfer
        from deeppc.training.display import display

        sources = [transfer.read(folder, self.storage) for folder in self.studies]
        with display(self.json) as listener:
            text = transfer.transfer(sources, self.run_dir, seeds_of(self.seeds), self.epochs, listener)
        if not self.json:
            Console().print(Markdown(text), f"saved in {self.run_dir}")


@dataclass(frozen=True)
class SearchPreset(NoBase):
    """Make a preset of a search's best settings, with comments on where they come from."""

    study: Study
    """Folder of the search."""
    out: Path = Path()
    """Folder to write <dataset>-<model>-<algorithm>.toml to."""
    storage: str | None = None
    """Optuna storage URL of the study, if it needs a password."""

    def run(self) -> None:
        from deeppc import presets
        from deeppc.search.provenance import preset_of

        plan, trials = _read(self.study, self.storage)
        config, text = preset_of(plan, trials)
        path = self.out / f"{presets.name_of(config)}.toml"
        _write_text(path, text)
        print(path)


@dataclass(frozen=True)
class Presets(NoBase):
    """List the shipped presets, with where they come from."""

    def run(self) -> None:
        from rich.console import Console
        from rich.text import Text

        from deeppc import presets

        console, names = Console(highlight=False), presets.names()
        for name in names:
            console.print(Text(name, style="bold"), Text(presets.load(name).provenance, style="dim"), sep="\n")
        if not names:
            console.print(
                "There are none yet. Make one from a search of yours:  deeppc search preset STUDY", soft_wrap=True
            )


COMMANDS: dict[str, type[Command]] = {
    "search": Search,
    "search importance": SearchImportance,
    "search plot": SearchPlot,
    "search transfer": SearchTransfer,
    "search preset": SearchPreset,
    "presets": Presets,
}
