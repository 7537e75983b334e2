"""Check the arguments of a public function against its annotations: the wrong kind of thing is refused in words.

    @checked
    def corrupt(images: Tensor, kind: str, level: float, seed: int = 0) -> Tensor: ...

    corrupt(images, "contrast", "0.3")    # TypeError: corrupt: level is '0.3', but must be a number

What fits is what :class:`~deeppc.core.algorithms.options.Option` says; ranges and shapes are the function's own to
check. Not for what is called for every batch.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from deeppc.core.algorithms.options import Option

F = TypeVar("F", bound=Callable[..., Any])


def checked(function: F) -> F:
    """Decorator: raise ``TypeError`` for an argument of the wrong kind, ``ValueError`` if it is none of the choices."""
    signature = inspect.signature(function)
    name = function.__qualname__.removesuffix(".__init__")

    @functools.cache
    def declared() -> dict[str, Option]:  # when it is first called: annotations may name what is defined later
        hints = typing.get_type_hints(function)
        single = {n for n, p in signature.parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
        return {n: Option("", None, n, hint) for n, hint in hints.items() if n in single}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:  # missing, or one too many
            raise TypeError(f"{name}: {error}") from None
        for n, option in declared().items():
            if n in given.arguments and not option.fits(value := given.arguments[n]):
                kind = ValueError if option.choices and isinstance(value, str) else TypeError
                raise kind(f"{name}: {option.refusal(value)}")
        return function(*args, **kwargs)

    return typing.cast(F, call)
