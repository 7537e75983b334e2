"""Transfer: which settings go where, T = max(T*, L), and tables that resume where they stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deeppc.cli.main import main
from deeppc.errors import ConfigError, RunError
from deeppc.search import storage, transfer
from deeppc.search.plan import Plan
from deeppc.search.study import search
from deeppc.search.transfer import Cell, Source
from deeppc.search.trials import Trial
from deeppc.training import TrainConfig
from deeppc.training.events import Finished

MakePlan = Callable[..., Plan]


def source(algorithm: str, dataset: str, model: str, **params: Any) -> Source:
    config = TrainConfig.of(algorithm=algorithm, dataset=dataset, model=model, epochs=3)
    return Source(config, Trial(0, "complete", 0.5, params, {}, None))


def test_the_papers_two_tables() -> None:
    sources = [
        source(algorithm, *task)
        for algorithm in ("bp", "pc+s+f")
        for task in (("cifar10", "vgg5"), ("cifar10", "vgg7"), ("cifar10", "vgg10"), ("cifar100", "vgg7"))
    ]
    tables = transfer.tables(transfer.cells(sources), {})
    assert {table.title: list(table.columns[1:]) for table in tables} == {
        "Across data sets, vgg7": [
            "on cifar10, settings of cifar10",
            "on cifar10, settings of cifar100",
            "on cifar100, settings of cifar100",
            "on cifar100, settings of cifar10",
        ],
        "Across depths, cifar10": ["vgg10, settings of vgg10", "vgg10, settings of vgg7", "vgg10, settings of vgg5"],
    }
    assert [row[0] for table in tables for row in table.rows] == ["bp", "pc+s+f"] * 2


@pytest.mark.parametrize(("found", "wanted"), [(8, 10), (16, 16), (10, 10), (None, None)])
def test_steps_in_a_deeper_network(found: int | None, wanted: int | None) -> None:
    """VGG10 has ten levels; None means as many as there are."""
    shallow = source("pc", "cifar10", "vgg7", T=found, lr_x=0.3)
    config = Cell("", "", source("pc", "cifar10", "vgg10", T=12), shallow).config
    assert (config.model, config.setting("T"), config.setting("lr_x")) == ("vgg10", wanted, 0.3)


def test_only_the_task_is_the_targets() -> None:
    target, other = source("pc", "cifar100", "vgg7", lr_w=1.0), source("pc", "cifar10", "vgg7", lr_w=2.0, T=3)
    config = Cell("", "", target, other).config
    assert (config.dataset, config.lr_w, config.setting("T")) == ("cifar100", 2.0, 3)  # T: in no deeper a network


def test_what_cannot_be_transferred(tiny: MakePlan) -> None:
    with pytest.raises(ConfigError, match="nothing to transfer"):
        transfer.cells([source("pc", "cifar10", "vgg5"), source("bp", "cifar10", "vgg7")])
    storage.create(tiny())
    with pytest.raises(RunError, match="is not finished: resume it with"):
        transfer.read(tiny().folder)


def test_trained_written_and_resumed(tiny: MakePlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for model in ("mlp", "vgg5"):
        search(tiny(model, trials=1, model=model, epochs=1, width=0.05, limit=30, algorithm="bp", space=["lr_w=1e-3"]))
    sources = [transfer.read(tmp_path / model) for model in ("mlp", "vgg5")]
    trained: list[Any] = []
    listener = lambda event: trained.append(event) if isinstance(event, Finished) else None  # noqa: E731
    text = transfer.transfer(sources, tmp_path / "out", [0, 1], callback=listener)
    assert len(trained) == 4  # two sets of settings, two seeds
    assert (tmp_path / "out" / "transfer.md").read_text() == text
    cells = json.loads((tmp_path / "out" / "transfer.json").read_text())["cells"]
    found = [event.result.table()["test_accuracy"] for event in trained]
    assert {c["column"]: c["test_accuracy"] for c in cells} == {
        "vgg5, settings of vgg5": found[:2],
        "vgg5, settings of mlp": found[2:],
    }
    assert f"{50 * (found[0] + found[1]):.2f} ±" in text

    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("metrics.jsonl")}
    folders = [str(tmp_path / name) for name in ("mlp", "vgg5", "out")]
    assert main(["search", "transfer", *folders[:2], "--seeds", "0,1", "--run-dir", folders[2]]) == 0
    out = capsys.readouterr().out
    assert "2 of 2: digits-vgg5-bp with the settings of digits-mlp-bp" in out
    assert "Across depths, digits" in out
    assert (tmp_path / "out" / "transfer.md").read_text() == text
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("metrics.jsonl")}
