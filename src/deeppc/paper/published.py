"""The paper's own numbers, typed from its tables into ``values/*.toml``."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

Value = tuple[float, float | None]  # mean and spread; None where the paper gives no spread


@cache
def read(name: str) -> dict[str, Any]:
    """The whole file ``values/<name>.toml``."""
    text = (files("deeppc.paper") / "values" / f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def table(name: str, dataset: str, metric: str) -> dict[tuple[str, str], Value]:
    """(row, column) -> value of one table, e.g. ``table("accuracy", "cifar10", "top1")``; empty if there is none."""
    content = read(name).get(dataset, {}).get(metric, {})
    return {
        (row, column): (value[0], value[1] if len(value) > 1 else None)
        for row, values in content.items()
        if row != "columns"
        for column, value in zip(content["columns"], values, strict=True)
        if value
    }
