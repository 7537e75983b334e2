"""``deeppc search``, and what is done with a search: importance, plot, transfer, preset."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, UseAppendAction, arg

from deeppc.cli.common import Command, Given, config_of, folder_to_resume, remark, seeds_of, settings_type, watching
from deeppc.errors import ConfigError
from deeppc.training.config import replace

if TYPE_CHECKING:
    from deeppc.search.plan import Plan
    from deeppc.search.study import SearchResult

    SearchSettings = Any
else:
    SearchSettings = settings_type(epochs=25)  # as in the paper

Study = Annotated[Positional[Path], arg(metavar="STUDY")]
Studies = Annotated[Positional[tuple[Path, ...]], arg(metavar="STUDY...")]
Storage = Annotated[str | None, arg(help="Optuna storage URL of the search, if it needs a password.")]
PAPER = {"trials": 200, "pruner": "none", "seeds": "0,1,2,3,4", "final_epochs": 50}  # the paper's protocol


@dataclass(frozen=True)
class Search:
    """Search hyper-parameters with Optuna: the paper's space, or yours. The same command again resumes it."""

    settings: SearchSettings = field(default_factory=lambda: SearchSettings.__origin__())
    trials: int = 40
    """Trials that end: complete, pruned or diverged (paper: 200). Those lost to a kill are replaced."""
    jobs: int = 1
    """Trials at a time, each in a process of its own with its share of the cores (or OMP_NUM_THREADS)."""
    space: Annotated[tuple[str, ...], UseAppendAction] = ()
    """Narrow, add or fix a dimension: "lr_x=0.01..0.5 log", "T=5..8", activation=gelu,relu, beta=1. May be repeated."""
    space_file: Path | None = None
    """TOML file with dimensions: lr_x = "0.01..0.5 log". --space wins over it."""
    first: Annotated[tuple[str, ...], UseAppendAction] = ()
    """Preset, by name or path, whose settings a trial has before any are drawn. May be repeated."""
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

    def run(self, given: Given) -> None:
        from deeppc.search.display import display
        from deeppc.search.study import search

        own = self.own(given)
        seeds, plan = seeds_of(own["seeds"]), self.plan(given)
        epochs = plan.config.epochs if own["final_epochs"] is None else own["final_epochs"]
        for seed in seeds:
            replace(plan.config, seed=seed, epochs=epochs)  # refused now, not after the search
        with display(self.json) as listener:
            result = search(plan, listener)
        self._show(result)
        if seeds:
            self._train_best(result, seeds, epochs)

    def own(self, given: Given) -> dict[str, Any]:
        """This command's flags, with what the protocol says where none was given."""
        said = PAPER if self.protocol == "paper" else {}
        return {**vars(self), **{name: value for name, value in said.items() if name not in given}}

    def plan(self, given: Given) -> Plan:
        from deeppc import presets
        from deeppc.search import plan as plans
        from deeppc.search import space as spaces

        own, folder = self.own(given), folder_to_resume(self, given)
        begun = None if folder is None else plans.read(folder)
        select = {"select": "test"} if self.protocol == "paper" else {}
        config = config_of(
            self, given, lambda folder: replace(plans.read(folder).config, resume=True), {"epochs": 25, **select}
        )
        if begun is not None:
            own |= {name: getattr(begun, name) for name in ("trials", "pruner", "storage") if name not in given}
        if begun is not None and not (self.space or self.space_file):
            space = dataclasses.replace(begun.space, config=config)
        else:
            space = spaces.build(config, self.space, self.space_file)
        first = tuple(space.within(presets.load(name).table, f"--first {name}") for name in self.first)
        folder = plans.folder_of(config)
        return plans.Plan(folder, space, own["trials"], own["pruner"], own["storage"], self.jobs, first)

    def _show(self, result: SearchResult) -> None:
        from rich.console import Console

        from deeppc.search import page
        from deeppc.search.importance import importance, turned
        from deeppc.search.plan import BEST
        from deeppc.search.trials import score, settings

        best, folder = result.best, result.plan.folder
        found = importance(result.plan, result.trials)
        if self.json:
            record = {"event": "search", "folder": str(folder), "best": dataclasses.asdict(best)}
            print(json.dumps(record), flush=True)
        else:
            console = Console(highlight=False, markup=False, soft_wrap=True)
            console.print(f"best: trial {best.number} with {score(best.value)}: {settings(best.params)}")
            console.print(f"train it:  deeppc train --config {folder / BEST}")
            console.print(turned([found]).rich())
        try:
            remark(f"pictures: {page.write(result.plan, result.trials, found)}", "")
        except Exception as error:  # the search is safe in its storage
            remark(f"The page of {folder} could not be written: {error!r}")

    def _train_best(self, result: SearchResult, seeds: list[int], epochs: int) -> None:
        """Train the best settings under several seeds, in the study's folder; resumes if it was interrupted."""
        from deeppc.cli.train import run_comparison
        from deeppc.runs.folder import ComparisonFolder

        folder, config = ComparisonFolder(result.plan.folder / "seeds"), result.best_config
        config = replace(config, epochs=epochs, run_dir=folder.path, resume=folder.holds_comparison)
        run_comparison(config, [config.algorithm], seeds, self.json)


@dataclass(frozen=True)
class SearchImportance:
    """Which settings matter, in the paper's table: fANOVA and PED-ANOVA beside the paper's values."""

    studies: Studies
    """Folders of searches, e.g. searches/cifar10-vgg5-pc+s+f."""
    pruned: bool = False
    """Count pruned trials, too, by the score that they had: more trials, but each is judged too low."""
    out: Path | None = None
    """Write the table to this Markdown file, too."""
    storage: Storage = None
    json: bool = False
    """Print one JSON object per study instead of the table."""

    def run(self, given: Given) -> None:
        from rich.console import Console

        from deeppc.files import write_text
        from deeppc.search.importance import NOTE, as_table, importance, turned
        from deeppc.search.storage import read_study

        if not self.studies:
            raise ConfigError("Say which search, e.g. deeppc search importance searches/cifar10-vgg5-pc+s+f")
        found = [importance(*read_study(folder, self.storage), with_pruned=self.pruned) for folder in self.studies]
        if self.out is not None:
            write_text(self.out, f"{NOTE}\n\n{as_table(found).markdown()}")
        if self.json:
            print("\n".join(json.dumps(one.table()) for one in found))
            return
        for dataset in dict.fromkeys(one.dataset for one in found):
            table = turned([one for one in found if one.dataset == dataset])
            Console(highlight=False).print(f"importance on {dataset}, %", table.rich(), sep="\n")


@dataclass(frozen=True)
class SearchPlot:
    """Draw a search: history, learning curves, slices, importance, in one offline page."""

    study: Study
    """Folder of the search; it may still be running."""
    storage: Storage = None

    def run(self, given: Given) -> None:
        from deeppc.search import page
        from deeppc.search.importance import importance
        from deeppc.search.storage import read_study

        plan, trials = read_study(self.study, self.storage)
        print(page.write(plan, trials, importance(plan, trials)))


@dataclass(frozen=True)
class SearchTransfer:
    """The paper's transfer tables, across data sets and depths, from finished searches. The same again resumes."""

    studies: Studies
    """Folders of finished searches, at least two."""
    seeds: str = "0,1,2"
    """Seeds that each entry is trained with, with commas between them."""
    epochs: int | None = None
    """Epochs of each run, at most. None: as many as the trials of the target's search had."""
    run_dir: Path = Path("searches/transfer")
    """Folder for the runs and the tables. The same command again resumes where it stopped."""
    storage: Storage = None
    json: bool = False
    """Print one JSON object per epoch and per run, and nothing else, on stdout; the tables are in the folder."""

    def run(self, given: Given) -> None:
        from rich.console import Console
        from rich.markdown import Markdown

        from deeppc.search import transfer

        sources = [transfer.read(folder, self.storage) for folder in self.studies]
        with watching(self.json) as callback:
            text = transfer.transfer(sources, self.run_dir, seeds_of(self.seeds), self.epochs, callback)
        if not self.json:
            Console().print(Markdown(text), f"saved in {self.run_dir}")


@dataclass(frozen=True)
class SearchPreset:
    """Make a preset of a search's best settings, with comments on where they come from."""

    study: Study
    """Folder of the search."""
    out: Path = Path()
    """Folder to write <dataset>-<model>-<algorithm>.toml to."""
    storage: Storage = None

    def run(self, given: Given) -> None:
        from deeppc.files import write_text
        from deeppc.search.plan import task_name
        from deeppc.search.provenance import preset_of
        from deeppc.search.storage import read_study

        config, text = preset_of(*read_study(self.study, self.storage))
        path = self.out / f"{task_name(config)}.toml"
        write_text(path, text)
        print(path)


COMMANDS: dict[str, type[Command]] = {
    "search": Search,
    "search importance": SearchImportance,
    "search plot": SearchPlot,
    "search transfer": SearchTransfer,
    "search preset": SearchPreset,
}
