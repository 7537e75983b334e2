"""Arguments of the wrong kind, refused by their annotations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from deeppc.core.arguments import checked
from deeppc.data import from_tensors, load
from deeppc.diagnostics import corruption


@checked
def function(
    a: int = 1,
    b: float | None = None,
    c: Literal["x", "y"] = "x",
    d: Callable[[int], int] | None = None,
    e: tuple[Tensor, str] | None = None,
    f: Sequence[str] = (),
    g: Mapping[str, int] | None = None,
    *h: Any,
) -> str:
    return "called"


@pytest.mark.parametrize(
    "good",
    [
        *({}, {"a": np.int64(3)}, {"b": 1}, {"b": float("nan")}, {"c": "y"}, {"d": abs}),
        *({"e": (torch.ones(1), "x")}, {"e": [torch.ones(1), "x"]}, {"f": ["x"]}, {"g": {"x": 1}}),
    ],
)
def test_what_fits_is_passed_on(good: dict[str, Any]) -> None:
    assert function(**good) == "called"


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        ({"a": 1.5}, TypeError, "function: a is 1.5, but must be a whole number"),
        ({"a": True}, TypeError, "a is True"),
        ({"a": torch.ones(30, 30)}, TypeError, "a is a Tensor, but must be a whole number"),
        ({"b": "1"}, TypeError, "b is '1', but must be a number or None"),
        ({"c": "z"}, ValueError, "c is 'z': choose x or y"),
        ({"c": 3}, TypeError, "c is 3: choose x or y"),
        ({"d": 3}, TypeError, "d is 3, but must be a function or None"),
        ({"e": (torch.ones(1),)}, TypeError, r"must be a tuple\[Tensor, str\] or None"),
        ({"f": "text"}, TypeError, r"must be a Sequence\[str\]"),
        ({"f": [1]}, TypeError, r"f is \[1\]"),
        ({"g": {1: 1}}, TypeError, r"must be a Mapping\[str, int\] or None"),
        ({"z": 1}, TypeError, "function: got an unexpected keyword argument 'z'"),
    ],
)
def test_the_rest_is_refused_in_words(bad: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        function(**bad)


def test_public_functions_are_checked() -> None:
    pair = (torch.ones(2, 3), torch.zeros(2))
    for call in (
        lambda: corruption.corrupt(torch.ones(1, 1, 2, 2), "contrast", "0.3"),  # type: ignore[arg-type]
        lambda: from_tensors(3, pair),  # type: ignore[arg-type]
        lambda: load(None),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match="but must be"):
            call()
