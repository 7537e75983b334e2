"""Read the pickles that CIFAR comes in: plain containers and arrays of bytes, and nothing else.

A pickle is a program that may import and call whatever it names. This reader lets it name the four functions that an
array needs, and gives it none of them: each stands for a function below that cannot do harm, made anew each time, so
that a hostile file reaches no numpy code but ``frombuffer`` and ``reshape`` on bytes that it brought.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np


def load_dict(data: bytes) -> dict[str, Any]:
    """Return the dictionary pickled in ``data``, with text keys. Raises ``pickle.UnpicklingError`` and nothing else."""
    try:
        content = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        if not isinstance(content, dict):
            raise pickle.UnpicklingError(f"it holds a {type(content).__name__} instead of a dictionary")
        return {_text(key): value.finished() if isinstance(value, _Array) else value for key, value in content.items()}
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # broken bytes make the unpickler raise almost anything
        raise pickle.UnpicklingError(str(error) or type(error).__name__) from error


class _Unpickler(pickle._Unpickler):  # the one in Python: a giant memo index makes that in C ask for all the memory
    def find_class(self, module: str, name: str) -> Any:
        match module.replace("_core", "core"), name:  # numpy 2 has numpy._core where numpy 1 has numpy.core
            case "numpy.core.multiarray", "_reconstruct":
                return lambda *_: _Array()
            case "numpy", "ndarray":
                return None  # named as the type of the array, never called
            case "numpy", "dtype":
                return lambda code, *_: _Array(_text(code))
            case "_codecs", "encode":  # Python 3 writes bytes as latin-1 text in the old protocols
                return lambda text, _: text.encode("latin1")
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which has no place in a data set")


class _Array:
    """A numpy array, or its type, under construction: empty at first, then given its state."""

    __slots__ = ("state",)

    def __init__(self, code: str = "u1") -> None:
        if code != "u1":
            raise pickle.UnpicklingError(f"it holds an array of type {code!r}, not of bytes")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def finished(self) -> np.typing.NDArray[np.uint8]:
        _version, shape, _dtype, fortran, raw = self.state
        return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C")


def _text(key: str | bytes) -> str:
    """Python 2 wrote byte strings where Python 3 writes text."""
    return key.decode() if isinstance(key, bytes) else str(key)
