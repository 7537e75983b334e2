"""Recipes in seconds: git is not asked, the digits are read once, and networks are as narrow as can be."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from deeppc.data import Dataset, load
from deeppc.paper.run import Plan, plan, run

TINY: dict[str, Any] = {"width": 0.02, "limit": 24, "models": ("vgg5",)}


@cache
def _digits() -> Dataset:
    return load("digits")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deeppc.runs.folder._git", lambda: None)
    monkeypatch.setattr("deeppc.training.parts.load", lambda *args, **kwargs: _digits())


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., Plan]:
    """A recipe at a scale below smoke, in a folder of the test's own."""

    def make(name: str, **overrides: Any) -> Plan:
        return plan(name, "smoke", tmp_path, **(TINY | overrides))

    return make


@pytest.fixture
def perform() -> Callable[[Plan], Path]:
    """Run all that is left of a plan, in this process."""
    return lambda planned: run(planned, planned.jobs())


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders of all runs that were really trained, in order."""
    from deeppc.training import fit as loop

    names: list[str] = []
    real = loop.train

    def watched(config: Any, *args: Any) -> Any:
        names.append(config.run_dir.name)
        return real(config, *args)

    monkeypatch.setattr(loop, "train", watched)
    return names
