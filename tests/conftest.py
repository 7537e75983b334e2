"""Fixtures for all tests: profiles of hypothesis, a tiny run, and the question whether two runs are the same bits."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import Phase, settings
from safetensors.torch import load_file

from deeppc.training.config import TrainConfig

# Before the first product: some virtual machines announce matrix instructions for bfloat16 (AMX) and die of them.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# The same examples in every run, whatever the machine's speed; ``--hypothesis-profile default`` draws others.
# ``quick`` stops at the first failure, for those who only want to know that there is one.
settings.register_profile("same", derandomize=True, deadline=None)
settings.load_profile("same")
settings.register_profile("quick", settings.get_profile("same"), phases=[Phase.explicit, Phase.generate], database=None)

TINY: dict[str, Any] = {"model": "mlp", "width": 0.05, "limit": 60, "batch_size": 24, "epochs": 3, "device": "cpu"}


@pytest.fixture(autouse=True)
def no_questions_to_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deeppc.runs.provenance._git", lambda: None)


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., TrainConfig]:
    """A run that takes a tenth of a second: 60 digits, a narrow MLP, three epochs of three batches."""

    def make(name: str = "run", **changes: Any) -> TrainConfig:
        return TrainConfig.of(**{**TINY, "run_dir": tmp_path / name, **changes})

    return make


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """Instead of drawing, which takes seconds: (function, folder) of each report that was asked for."""
    asked: list[tuple[str, Path]] = []
    monkeypatch.setattr(
        "deeppc.training.loop.write_report", lambda function, folder, tell: asked.append((function, folder.path))
    )
    return asked


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
