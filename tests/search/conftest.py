"""A search that takes seconds: digits, a narrow MLP, a few images."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy
import torch

from deeppc.data import Dataset, load
from deeppc.search import plan as plans
from deeppc.search import storage
from deeppc.search.plan import Plan
from deeppc.search.space import build
from deeppc.training import TrainConfig

TINY: dict[str, Any] = {"model": "mlp", "width": 0.05, "limit": 60, "batch_size": 24, "epochs": 2, "device": "cpu"}
MakePlan = Callable[..., Plan]


@pytest.fixture(autouse=True)
def no_questions_to_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deeppc.runs.folder._git", lambda: None)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Networks as small as these only wait for each other's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def nothing_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A power cut is not what these tests are about."""

    def hurry(connection: Any, record: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")

    monkeypatch.setattr("os.fsync", lambda handle: None)
    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", hurry)
    yield
    sqlalchemy.event.remove(sqlalchemy.Engine, "connect", hurry)


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load("digits")


@pytest.fixture(autouse=True)
def digits_read_once(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deeppc.training.parts.load", lambda *args, **options: digits)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "study.db"
    optuna.storages.RDBStorage(f"sqlite:///{path}")
    return path


@pytest.fixture(autouse=True)
def databases_made_quickly(empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Optuna takes most of a second to make its tables; a copy of empty ones takes none. Closed after the test."""
    connect, opened = storage._connect, []

    def connect_to_copy(plan: Plan) -> optuna.storages.RDBStorage:
        if plan.storage is None and not (plan.folder / plans.DATABASE).exists():
            shutil.copy(empty_database, plan.folder / plans.DATABASE)
        opened.append(connect(plan))
        return opened[-1]

    monkeypatch.setattr(storage, "_connect", connect_to_copy)
    yield
    for database in opened:
        database.remove_session()
        database.engine.dispose()


@pytest.fixture
def tiny(tmp_path: Path) -> MakePlan:
    """``tiny(trials=3, space=["lr_w=1e-4..1e-2"], algorithm="pc")``: options of the plan, then settings."""

    def make(name: str = "study", space: tuple[str, ...] | list[str] = (), **changes: Any) -> Plan:
        options = {key: changes.pop(key) for key in ("trials", "pruner", "storage", "jobs") if key in changes}
        config = TrainConfig(**{**TINY, "run_dir": tmp_path / name, **changes})
        return Plan(tmp_path / name, build(config, space), **{"trials": 3, **options})

    return make
