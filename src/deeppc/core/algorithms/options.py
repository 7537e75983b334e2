"""Options of an algorithm, each typed once: its type, default, range, help and search space.

    lr_x: float = option(0.5, "Learning rate of the activities (paper: lr_x).", above=0, search="5e-3..9e-1 log")

is a dataclass field. Its annotation says what fits: ``int``, ``float``, ``bool``, ``str``, ``Path``, ``Literal[...]``,
a function, None, or one of several.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

_WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "text", Path: "a path"}


@dataclass(frozen=True)
class Option:
    """One option of a family.

    ``type``      the annotation; ``choices`` are its literals, if it has any.
    ``least``, ``above``, ``most``   the range of a number.
    ``needs``     values of other fields without which the option means nothing; it is refused there.
    ``unless``    values of other fields with which the option changes nothing; it is accepted, but not worth searching.
    ``search``    the paper's search space, in the grammar of ``deeppc search --space``; "" if it has none.
    """

    help: str
    default: Any
    name: str = ""
    type: Any = Any
    least: float | None = None
    above: float | None = None
    most: float | None = None
    needs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    unless: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    search: str = ""

    @property
    def choices(self) -> tuple[Any, ...]:
        return tuple(v for arm in _arms(self.type) if typing.get_origin(arm) is Literal for v in typing.get_args(arm))

    @property
    def expected(self) -> str:
        """The values that fit, in words: ``a number above 0 and at most 1``."""
        if self.choices:
            return " or ".join(map(str, self.choices))
        limits = [("at least", self.least), ("above", self.above), ("at most", self.most)]
        bounds = " and ".join(f"{word} {limit:g}" for word, limit in limits if limit is not None)
        words = {**_WORDS, types.NoneType: "None"}
        first, *others = [words.get(arm, "a function") for arm in _arms(self.type)]
        return " or ".join([f"{first} {bounds}".rstrip(), *others])

    def check(self, value: Any) -> Any:
        """Return ``value`` as a plain Python value of the option's type. ``ValueError`` if it does not fit."""
        for arm in _arms(self.type):
            if _fits(value, arm) and (not isinstance(value, Real) or self._in_range(float(value))):
                return float(value) if arm is float else int(value) if arm is int else value
        raise ValueError(f"{self.name} is {value!r}{': choose' if self.choices else ', but must be'} {self.expected}")

    def _in_range(self, value: float) -> bool:
        least = self.least is None or value >= self.least
        above = self.above is None or value > self.above
        return math.isfinite(value) and least and above and (self.most is None or value <= self.most)


def option(default: Any, help: str, **more: Any) -> Any:
    """Declare an option: a dataclass field with a default, a help text and what else :class:`Option` says of it."""
    return dataclasses.field(default=default, metadata={"option": Option(help, default, **more)})


@cache
def declared(family: type[Any]) -> dict[str, Option]:
    """The options of a dataclass by name, in order, with the types of its annotations."""
    hints = typing.get_type_hints(family)
    return {
        field.name: dataclasses.replace(field.metadata["option"], name=field.name, type=hints[field.name])
        for field in dataclasses.fields(family)
        if "option" in field.metadata
    }


@cache
def _arms(hint: Any) -> tuple[Any, ...]:
    """The types that a union joins."""
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


def _fits(value: Any, arm: Any) -> bool:
    """Whether ``value`` is of the type ``arm``. A bool is no number, text is no bool."""
    if typing.get_origin(arm) is Literal:
        return isinstance(value, str) and value in typing.get_args(arm)
    if typing.get_origin(arm) is collections.abc.Callable:
        return callable(value)
    kind = {float: Real, int: Integral}.get(arm, arm)
    return isinstance(value, kind) and (arm is bool or not isinstance(value, bool))
