"""A run that takes a tenth of a second: 60 digits, a narrow MLP, three epochs of three batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from deeppc.training import TrainConfig

TINY: dict[str, Any] = {"model": "mlp", "width": 0.05, "limit": 60, "batch_size": 24, "epochs": 3, "device": "cpu"}
MakeConfig = Callable[..., TrainConfig]


@pytest.fixture(autouse=True)
def no_questions_to_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deeppc.runs.folder._git", lambda: None)


@pytest.fixture
def tiny(tmp_path: Path) -> MakeConfig:
    def make(name: str = "run", **changes: Any) -> TrainConfig:
        return TrainConfig(**{**TINY, "run_dir": tmp_path / name, **changes})

    return make


@pytest.fixture
def assert_same_state() -> Callable[[Path, Path], None]:
    """Bit for bit the same weights, best weights, optimiser and random state."""

    def check(one: Path, other: Path) -> None:
        for name in ("checkpoint.safetensors", "best.safetensors"):
            a, b = load_file(one / name), load_file(other / name)
            assert a.keys() == b.keys()
            different = [key for key in a if not torch.equal(a[key], b[key])]
            assert not different, f"{name}: {different}"

    return check
