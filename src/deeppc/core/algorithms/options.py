"""Options of an algorithm, each typed once: its type, default, range, help and search space.

    lr_x: float = option(0.5, "Learning rate of the activities (paper: lr_x).", above=0, search="5e-3..9e-1 log")

is a dataclass field. Its annotation says what fits: ``int``, ``float``, ``bool``, ``str``, ``Path``, ``Literal[...]``,
a function, None, or one of several.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import math
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

_WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "text", Path: "a path"}
_WORDS |= {types.NoneType: "None"}


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
        first, *others = [_WORDS.get(arm) or _name(arm) for arm in _arms(self.type)]
        return " or ".join([f"{first} {bounds}".rstrip(), *others])

    def check(self, value: Any) -> Any:
        """Return ``value`` as a plain Python value of the option's type. ``ValueError`` if it does not fit."""
        for arm in _arms(self.type):
            if _fits(value, arm) and (not isinstance(value, Real) or self._in_range(float(value))):
                return float(value) if arm is float else int(value) if arm is int else value
        raise ValueError(self.refusal(value))

    def fits(self, value: Any) -> bool:
        """Whether ``value`` is of the option's type, in its range or not."""
        return any(_fits(value, arm) for arm in _arms(self.type))

    def refusal(self, value: Any) -> str:
        """Say of a value that does not fit what would."""
        return f"{self.name} is {_shown(value)}{': choose' if self.choices else ', but must be'} {self.expected}"

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
    """Whether ``value`` is of the type ``arm``, and so are its elements. A bool is no number, text is no bool."""
    origin, inner = typing.get_origin(arm), typing.get_args(arm)
    if arm is Any:
        return True
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is collections.abc.Callable:
        return callable(value)
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, each) for each in inner)
    if origin is tuple and ... not in inner:
        return isinstance(value, tuple | list) and len(value) == len(inner) and all(map(_fits, value, inner))
    if origin in (tuple, collections.abc.Sequence):
        return isinstance(value, tuple | list) and all(_fits(item, inner[0]) for item in value)
    if origin is collections.abc.Mapping:
        return isinstance(value, Mapping) and all(_fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items())
    kind = {float: Real, int: Integral}.get(arm, origin or arm)
    return isinstance(value, kind) and (arm is bool or not isinstance(value, bool))


def _name(arm: Any) -> str:
    """A type in words: ``a function``, ``a Tensor``, ``a tuple[Tensor, Tensor]``."""
    if typing.get_origin(arm) is collections.abc.Callable:
        return "a function"
    return f"a {re.sub(r'[a-z_]+[.]', '', str(arm) if typing.get_args(arm) else arm.__name__)}"


def _shown(value: Any) -> str:
    """A value, or what kind of thing it is if that takes more than a line."""
    text = repr(value)
    return text if len(text) < 60 and "\n" not in text else f"a {type(value).__name__}"
