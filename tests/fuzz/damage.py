"""Files that are not as they were written: run folders, comparisons, searches, results of the paper.

A good folder is copied, one of its files is damaged, and a command is given that reads it. Either it is refused, and
nothing has changed, so that with the file put back everything goes on to the same bits; or the damage did no harm.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import machine
from machine import Outcome, attempt, changes, damage, difference, files_of, good_runs, kind, quick, refused_untouched
from words import little_work

from deeppc import files
from deeppc.cli.main import main
from deeppc.errors import RunError
from deeppc.report import pages
from deeppc.runs.folder import RunFolder
from deeppc.search.storage import read_study
from deeppc.training import checkpoint as checkpoints
from deeppc.training.events import BatchDone, Event

Spoilt = tuple[Path, bytes, str]  # a file, what it was, and what became of it


def of_another_version(rng: random.Random, path: Path) -> str | None:
    """Seal a JSON or tensor file anew, as of an older or a newer format."""
    number = files.FORMAT + rng.choice([-1, 1])
    if path.suffix not in (".json", ".safetensors"):
        return None
    content = files.read_json(path) if path.suffix == ".json" else files.read_tensors(path)
    with mock.patch.object(files, "FORMAT", number):
        files.write_json(path, content) if path.suffix == ".json" else files.write_tensors(path, *content)
    return f"of format {number}"


def spoil(rng: random.Random, folder: Path, others: list[Path], path: Path | None = None) -> Spoilt:
    """Damage one file below ``folder``."""
    path = path or folder / rng.choice([*files_of(folder)])
    good, name = path.read_bytes(), path.relative_to(folder)
    if rng.random() < 0.12 and (how := of_another_version(rng, path)) is not None:
        return path, good, f"{name} {how}"
    same = [(other / name).read_bytes() for other in others if (other / name).is_file()]
    content, how = damage(rng, good, same if rng.random() < 0.7 else [p.read_bytes() for p in path.parent.glob("*.*")])
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    return path, good, f"{name} {how}"


def contents(path: Path) -> Any:
    """What deeppc itself reads in a file."""
    run = RunFolder(path.parent)
    if path.suffix == ".json":
        return files.read_json(path)
    if path == run.metrics_path:
        return run.metrics()
    if path == run.best:
        return {name: weights.tolist() for name, weights in run.best_weights().items()}
    if path == run.checkpoint:
        return checkpoints.resumable(run) and path.read_bytes()
    return None  # a file for people


def put_back(path: Path, good: bytes, damaged: bytes | None) -> str:
    """Put a damaged file that was left as it is back. Says so, if it would have been read as something else."""
    if (path.read_bytes() if path.exists() else None) != damaged:
        return ""  # it was written anew
    try:
        found = contents(path) if damaged is not None else None
    except RunError:
        found = None
    path.write_bytes(good)
    was = contents(path)
    torn = path.suffix == ".jsonl" and found is not None and found == was[: len(found)]
    own = [run / path.name for moment, run in good_runs().items() if moment != "other"]  # of the run, at any moment
    earlier = path.name == "checkpoint.safetensors" and damaged in [p.read_bytes() for p in own if p.exists()]
    return "" if found in (None, was) or torn or earlier else f"{path.name} is read as something else"


def go_on(case: str, words: list[str], spoilt: Spoilt, place: Path, differs: Callable[[], str]) -> Outcome:
    """Give a command that reads a damaged file; then, with the file put back, the same again, to the same bits."""
    path, good, _ = spoilt
    damaged = path.read_bytes() if path.exists() else None
    outcome = refused_untouched(case, lambda: main(words), place)
    if outcome.verdict in machine.BAD:
        return outcome
    if (wrong := put_back(path, good, damaged)) and outcome.verdict == "accepted":
        return outcome.lost(wrong)
    again = attempt(case, lambda: main(words))
    if again.verdict != "accepted" or differs():
        return outcome.lost(f"with the file put back: {again.said} {differs()}")
    return outcome


@kind("run folders")
def run_folders(rng: random.Random, place: Path) -> Outcome:
    goods, name = good_runs(), rng.choice(["begun", "middle", "edge", "finished"])
    run = Path(shutil.copytree(goods[name], place / "run"))
    spoilt = spoil(rng, run, [goods[other] for other in ("middle", "finished", "other") if other != name])
    case = f"a run ({name}) with {spoilt[2]}, then train --resume"
    return go_on(case, ["train", "--resume", "--run-dir", "run"], spoilt, place, lambda: difference(run))


@kind("reports of damaged runs")
def reports(rng: random.Random, place: Path) -> Outcome:
    run = Path(shutil.copytree(good_runs()[rng.choice(["begun", "middle", "finished"])], place / "run"))
    _, _, how = spoil(rng, run, [good_runs()["other"]])
    before = files_of(run)
    outcome = attempt(f"report.pages.write_run of a run with {how}", lambda: pages.write_run(run), command=False)
    after = {name: content for name, content in files_of(run).items() if name in before and name != "report.html"}
    before.pop("report.html", None)
    return outcome.lost(differs) if (differs := changes(before, after)) else outcome


# ---- comparisons ----


@cache
def good_comparisons() -> dict[str, Path]:
    """A comparison of two runs, stopped in the second one and finished."""
    from deeppc.training.compare import compare
    from deeppc.training.config import TrainConfig

    made = machine.workshop() / "comparisons"
    settings = {"model": "mlp", "width": 0.05, "limit": 60, "batch_size": 24, "epochs": 2, "device": "cpu"}

    def copy(event: Event) -> None:
        batches = isinstance(event, BatchDone) and (made / "finished/pc+s+f-0/manifest.json").exists()
        if batches and not (made / "middle").exists() and event.epoch == 2:  # type: ignore[union-attr]
            shutil.copytree(made / "finished", made / "middle")

    config = TrainConfig.of(**settings, checkpoint_every=0, run_dir=made / "finished")
    with quick(str(made)), contextlib.redirect_stdout(io.StringIO()):
        compare(config, ["bp", "pc+s+f"], [0], copy)
    return {name: made / name for name in ("middle", "finished")}


def comparison_of(folder: Path) -> dict[str, Any]:
    rows = [
        {k: v for k, v in row.items() if k != "seconds"}
        for row in json.loads((folder / "comparison.json").read_text())["rows"]
    ]
    return {"rows": rows, **{run: machine.state_of(folder / run) for run in ("bp-0", "pc+s+f-0")}}


@kind("comparisons")
def comparisons(rng: random.Random, place: Path) -> Outcome:
    goods, name = good_comparisons(), rng.choice(["middle", "finished"])
    folder = Path(shutil.copytree(goods[name], place / "c"))
    spoilt = spoil(rng, folder, [goods["finished"]])
    case = f"a comparison ({name}) with {spoilt[2]}, then compare --resume"

    def differs() -> str:
        return changes(comparison_of(goods["finished"]), comparison_of(folder))

    return go_on(case, ["compare", "--resume", "--run-dir", "c"], spoilt, place, differs)


# ---- searches ----


@cache
def good_search() -> Path:
    """A search of two trials."""
    made = machine.workshop() / "search"
    words = [*machine.TINY, "--epochs", "1", "--trials", "2", "--space", "lr_w=1e-4..1e-2 log", "--run-dir", str(made)]
    with quick(str(made.parent)), no_pictures(), contextlib.redirect_stdout(io.StringIO()):
        assert main(["search", *words]) == 0
    return made


def no_pictures() -> contextlib.AbstractContextManager[Any]:
    return mock.patch("deeppc.search.page.write", return_value="a page")


@kind("searches")
def searches(rng: random.Random, place: Path) -> Outcome:
    """What SQLite reads in a damaged database, it reads: only that nothing raises, and that the rest stays good."""
    study = Path(shutil.copytree(good_search(), place / "search", ignore=shutil.ignore_patterns("*.lock")))
    path = study / rng.choice(["study.json", "study.db"])
    spoilt = spoil(rng, study, [], path)
    words = rng.choice([["--resume", "--run-dir", "search"], ["importance", "search"], ["preset", "search"]])
    case = f"a search with {spoilt[2]}, then deeppc search {words[0]}"

    def differs() -> str:
        same = read_study(study)[1] == read_study(good_search())[1]
        return "" if same or path.name == "study.db" else "other trials"

    with no_pictures():
        outcome = go_on(case, ["search", *words], spoilt, place, differs)
        if outcome.verdict in machine.BAD or path.name == "study.json":
            return outcome
        for left in study.glob("study.db*"):
            left.unlink()
        shutil.copy(good_search() / "study.db", study)
        again = attempt(case, lambda: main(["search", "--resume", "--run-dir", "search"]))
    same = again.verdict == "accepted" and read_study(study)[1] == read_study(good_search())[1]
    return outcome if same else outcome.lost(f"with the file put back: {again.said}")


# ---- results of the paper ----

SMOKE = ["ablation", "--scale", "smoke", "--only", "*BP VGG5*"]


@cache
def good_paper() -> Path:
    """One cell of a recipe, trained, recorded and written down."""
    made = machine.workshop() / "paper"
    with quick(str(made)), drawn_nothing(), contextlib.redirect_stdout(io.StringIO()):
        assert main(["paper", "run", *SMOKE, "--out", str(made / "out"), "--records", str(made / "records")]) == 0
        assert main(["paper", "record", "--out", str(made / "out"), "--to", str(made / "records")]) == 0
    return made


def drawn_nothing() -> contextlib.AbstractContextManager[Any]:
    return mock.patch("deeppc.paper.results.draw", return_value="")


def tables_of(out: Path) -> Any:
    return json.loads((out / "ablation-smoke" / "result.json").read_text())["tables"]


@kind("results and records of the paper")
def papers(rng: random.Random, place: Path) -> Outcome:
    shutil.copytree(good_paper() / "out", place / "out")
    shutil.copytree(good_paper() / "records", place / "records")
    folder = place / rng.choice(["out", "records"])
    path, good, how = spoil(rng, folder, [good_paper() / "out", good_paper() / "records"])
    words: list[str] = rng.choice(
        [
            ["list", "--out", "out"],
            ["claims", "--results", "out", "--scale", "smoke"],
            ["run", *SMOKE, "--render", "--out", "out"],
            ["run", *SMOKE, "--plan", "--out", "out"],
            ["record", "--out", "out"],
        ]
    )
    case = f"results with {folder.name}/{how}, then deeppc paper {' '.join(words)}"
    with drawn_nothing(), little_work():
        outcome = refused_untouched(case, lambda: main(["paper", *words]), place)
        path.write_bytes(good)
        again = attempt(case, lambda: main(["paper", "run", *SMOKE, "--render", "--out", "out"]))
    if again.verdict != "accepted" or tables_of(place / "out") != tables_of(good_paper() / "out"):
        return outcome.lost(f"with the file put back: {again.said}")
    return outcome
