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


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load("digits")


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "study.db"
    made = optuna.storages.RDBStorage(f"sqlite:///{path}")
    made.remove_session()
    made.engine.dispose()
    return path


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, digits: Dataset, empty_database: Path) -> Iterator[None]:
    """One thread, digits read once, nothing waits for the disk, and databases begin as copies of an empty one.

    Optuna takes most of a second to make its tables. Connections are closed after the test.
    """
    monkeypatch.setattr("deeppc.training.builder.load", lambda *args, **options: digits)
    monkeypatch.setattr("os.fsync", lambda handle: None)
    connect, opened = storage._connect, []

    def connect_to_copy(plan: Plan) -> optuna.storages.RDBStorage:
        if plan.storage is None and not (plan.folder / plans.DATABASE).exists():
            shutil.copy(empty_database, plan.folder / plans.DATABASE)
        opened.append(connect(plan))
        return opened[-1]

    def hurry(connection: Any, record: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")

    monkeypatch.setattr(storage, "_connect", connect_to_copy)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", hurry)
    yield
    sqlalchemy.event.remove(sqlalchemy.Engine, "connect", hurry)
    torch.set_num_threads(threads)
    for database in opened:
        database.remove_session()
        database.engine.dispose()


@pytest.fixture
def tiny(tmp_path: Path) -> MakePlan:
    """``tiny(trials=3, space=["lr_w=1e-4..1e-2"], algorithm="pc")``: options of the plan, then settings."""

    def make(name: str = "study", space: tuple[str, ...] | list[str] = (), **changes: Any) -> Plan:
        options = {key: changes.pop(key) for key in ("trials", "pruner", "storage", "jobs", "first") if key in changes}
        config = TrainConfig.of(**{**TINY, "run_dir": tmp_path / name, **changes})
        return Plan(tmp_path / name, build(config, space), **{"trials": 3, **options})

    return make
