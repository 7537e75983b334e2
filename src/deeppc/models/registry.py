"""Networks by name: those registered here, and functions in files of your own."""

from __future__ import annotations

import inspect
import runpy
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from deeppc.core.graph import Graph
from deeppc.models.layers import Style, choose

Builder = Callable[..., Graph]
F = TypeVar("F", bound=Builder)

_BUILDERS: dict[str, Builder] = {}


def model(name: str) -> Callable[[F], F]:
    """Register the decorated function under ``name``; :func:`build` calls it with the settings that it accepts."""

    def register(builder: F) -> F:
        _BUILDERS[name] = builder
        return builder

    return register


def names() -> tuple[str, ...]:
    """Return the names of the registered networks."""
    return tuple(_BUILDERS)


def build(
    name: str,
    classes: int = 10,
    in_shape: tuple[int, ...] = (3, 32, 32),
    width: float = 1.0,
    activation: str = "gelu",
    norm: str = "none",
    aux: bool = True,
    affine: bool = True,
) -> Graph:
    """Build the network called ``name``: one of :func:`names`, or ``path/to/file.py:function``.

    The settings are those of :class:`Style`; ``aux`` puts auxiliary nodes on the skip paths of a ResNet (chains have
    none). A function in a file, or one that was registered, is called with those of these settings that it has
    arguments for (or ``style``, all of them but ``aux``), and returns a :class:`deeppc.Graph`. Raises ``ValueError``
    where a setting, or the file, is wrong.
    """
    settings = {key: value for key, value in locals().items() if key != "name"}
    if ".py:" in name:
        return _build_from_file(name, settings)
    builder = _BUILDERS[choose("model", name, names())]
    return builder(**_accepted(builder, settings))


def _accepted(builder: Builder, settings: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(builder).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return settings
    accepted = {key: value for key, value in settings.items() if key in parameters}
    if "style" in parameters:  # else the function judges for itself: its activations need not be ours
        accepted["style"] = Style(**{key: value for key, value in settings.items() if key != "aux"})
    return accepted


def _build_from_file(spec: str, settings: dict[str, Any]) -> Graph:
    path, _, function = spec.rpartition(":")
    file = str(Path(path).resolve())
    if not Path(file).is_file():
        raise ValueError(f"there is no file {path} to take the model {spec!r} from")
    sys.path.insert(0, str(Path(file).parent))  # as for a script: the file may import its neighbours
    try:
        builder = runpy.run_path(file).get(function)
        net = builder(**_accepted(builder, settings)) if callable(builder) else None
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        where = f" (line {lines[-1]})" if lines else ""
        raise ValueError(f"{spec} raised {type(error).__name__}: {error}{where}") from error
    finally:
        sys.path.remove(str(Path(file).parent))
    if not callable(builder):
        raise ValueError(f"{path} has no function {function!r} to build a network with")
    if not isinstance(net, Graph):
        raise ValueError(
            f"{spec} returned a {type(net).__name__}, but a deeppc.Graph is needed: name each node and the module that "
            "predicts it, or put the layers of a sequence into deeppc.Chain(...)"
        )
    return net
