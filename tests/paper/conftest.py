"""Recipes in seconds: git is not asked, the digits are read once, and networks are as narrow as can be."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from deeppc.data import Dataset, load
from deeppc.paper.run import Plan, jobs, plan, run
from deeppc.report.pages import Picture
from deeppc.training import builder

TINY: dict[str, Any] = {"width": 0.02, "limit": 24, "models": ("vgg5",)}


@cache
def _digits() -> Dataset:
    return load("digits")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deeppc.runs.provenance._git", lambda: None)
    monkeypatch.setattr(builder, "load", lambda *args, **kwargs: _digits())


@pytest.fixture
def unsaved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are drawn, but not saved, which takes longer than all the rest."""
    monkeypatch.setattr("deeppc.report.pages.picture", lambda figure, folder, name, caption: Picture("", caption, name))


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without pictures."""
    monkeypatch.setattr("deeppc.paper.results.draw", lambda plot, folder: "")


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., Plan]:
    """A recipe at a scale below smoke, in a folder of the test's own."""

    def make(name: str, **overrides: Any) -> Plan:
        return plan(name, "smoke", tmp_path, **(TINY | overrides))

    return make


@pytest.fixture
def perform() -> Callable[..., list[Path]]:
    """Run what is left of plans, in this process."""
    return lambda *plans, only=None: run(plans, jobs(plans, only))


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders of all runs that were really trained, in order."""
    names: list[str] = []
    real = builder.train

    def watched(config: Any, *args: Any, **options: Any) -> Any:
        names.append(config.run_dir.name)
        return real(config, *args, **options)

    monkeypatch.setattr(builder, "train", watched)
    return names
