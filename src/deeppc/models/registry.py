"""Networks by name: those registered here, and functions in files of your own."""

from __future__ import annotations

import inspect
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import nn

from deeppc.core.arguments import checked
from deeppc.core.graph import Graph
from deeppc.models.from_torch import from_torch
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


@checked
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
    arguments for (or ``style``, all of them but ``aux``), and returns a :class:`deeppc.Graph`. One in a file may return
    any torch module: it is converted by :func:`deeppc.from_torch`, balanced if ``aux``. Raises ``ValueError`` where a
    setting, or the file, is wrong.
    """
    settings = {key: value for key, value in locals().items() if key != "name"}
    if _is_file(name):
        return _build_from_file(name, settings)
    builder = _BUILDERS[choose("model", name, names())]
    accepted = _accepted(builder, settings)
    if "style" in accepted and torch.get_default_device().type != "meta":
        _require_memory(name, partial(builder, **accepted), width)
    return builder(**accepted)


def takes(name: str) -> frozenset[str]:
    """Return which settings of :func:`build` the network called ``name`` takes: the others would change nothing."""
    builder = _from_file(name) if _is_file(name) else _BUILDERS[choose("model", name, names())]
    parameters = inspect.signature(builder).parameters
    known = inspect.signature(build).parameters.keys() - {"name"}
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return frozenset(known)
    styled = known - {"aux"} if "style" in parameters else set()
    balanced = {"aux"} if _is_file(name) else set()  # if it makes a module, which is not known before it is called
    return frozenset(styled | balanced | (known & parameters.keys()))


def described(name: str, width: float) -> str:
    """Return ``vgg5 at width 0.25``; the name alone of a network that takes no width, or whose file is gone."""
    try:
        return f"{name} at width {width:g}" if "width" in takes(name) else name
    except ValueError:
        return name


def _require_memory(name: str, builder: Builder, width: float) -> None:
    """Build without any memory first: a network larger than the machine would take minutes to fail, or its neighbours.

    Weights on torch's meta device have shapes only, and draw no random numbers.
    """
    try:
        with torch.device("meta"):
            size = sum(p.numel() * p.element_size() for p in builder().parameters())
    except RuntimeError:  # larger than numbers go
        size = 1 << 63
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else size
    if size > memory:
        raise ValueError(
            f"{name} at width {width:g} has weights of {size / 1e9:,.0f} GB, but this machine has {memory / 1e9:,.1f} "
            "GB of memory: choose a smaller width, fewer classes or smaller samples"
        )


def _is_file(name: str) -> bool:
    """Whether the name is ``path/to/file.py:function``; a file without a function is refused."""
    if ".py:" in name:
        return True
    if name.endswith(".py") or os.path.isfile(name):  # which takes any name, also one too long for a file
        raise ValueError(f"{name} is a file: name the function that builds the network, too, as in {name}:function")
    return False


def _accepted(builder: Builder, settings: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(builder).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return settings
    accepted = {key: value for key, value in settings.items() if key in parameters}
    if "style" in parameters:  # else the function judges for itself: its activations need not be ours
        accepted["style"] = Style(**{key: value for key, value in settings.items() if key != "aux"})
    return accepted


def _build_from_file(spec: str, settings: dict[str, Any]) -> Graph:
    builder = _from_file(spec)
    accepted = _accepted(builder, settings)
    with _in_words(spec):
        net: object = builder(**accepted)
    if isinstance(net, Graph):
        if not settings["aux"] and "aux" not in accepted:
            raise ValueError(f"aux=False means nothing to {spec}: it has no argument aux, and returned a deeppc.Graph")
        return net
    if not isinstance(net, nn.Module):
        raise ValueError(f"{spec} returned a {type(net).__name__}, but a torch.nn.Module or deeppc.Graph is needed")
    try:
        return from_torch(net, torch.zeros(2, *settings["in_shape"]), balance=settings["aux"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{spec}, for samples of {'x'.join(map(str, settings['in_shape']))}: {error}") from error


def _from_file(spec: str) -> Builder:
    """Return the function that ``path/to/file.py:function`` names."""
    path, _, function = spec.rpartition(":")
    if not os.path.isfile(path):
        raise ValueError(f"there is no file {path} to take the model {spec!r} from")
    with _in_words(spec):
        builder = runpy.run_path(str(Path(path).resolve())).get(function)
    if not callable(builder):
        raise ValueError(f"{path} has no function {function!r} to build a network with")
    return cast(Builder, builder)


@contextmanager
def _in_words(spec: str) -> Iterator[None]:
    """Say what a user's file raises, and in which of its lines. Within, it may import its neighbours, as a script."""
    file = str(Path(spec.rpartition(":")[0]).resolve())
    sys.path.insert(0, str(Path(file).parent))
    try:
        yield
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        where = f" (line {lines[-1]})" if lines else ""
        raise ValueError(f"{spec} raised {type(error).__name__}: {error}{where}") from error
    finally:
        sys.path.remove(str(Path(file).parent))
