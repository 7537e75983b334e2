"""Read a pickle that may come from anyone: plain containers and numeric numpy arrays, and nothing else.

A pickle is a program that may import and call whatever it names. This reader first looks the program through
and refuses every instruction that such data do not need. Then it runs it, and lets it name the four globals
that an array needs. None of them is numpy's own: each stands for a function below that checks its arguments,
so a hostile file reaches no numpy code but `frombuffer` and `reshape` on bytes that it brought.
"""

import io
import pickle
import pickletools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def load_dict(data: bytes) -> dict[str, Any]:
    """The dictionary pickled in `data`, with text keys. Raises `pickle.UnpicklingError` and nothing else."""
    try:
        _inspect(data)
        content = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        if not isinstance(content, dict):
            raise pickle.UnpicklingError(f"it holds a {type(content).__name__} instead of a dictionary")
        return {_text(key): _plain(value) for key, value in content.items()}
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # broken bytes make the unpickler raise almost anything
        raise pickle.UnpicklingError(str(error) or type(error).__name__) from error


_FRAMING = {"PROTO", "FRAME", "MARK", "STOP"}
_NUMBERS = {"NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
_STRINGS = {f"{length}BIN{kind}" for length in ("", "SHORT_") for kind in ("STRING", "BYTES", "UNICODE")}
_LISTS = {"EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}
_DICTS = {"EMPTY_DICT", "SETITEM", "SETITEMS"}
_MEMORY = {"BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET"}
_ARRAYS = {"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD"}
_INSTRUCTIONS = _FRAMING | _NUMBERS | _STRINGS | _LISTS | _DICTS | _MEMORY | _ARRAYS


def _inspect(data: bytes) -> None:
    for instruction, argument, position in pickletools.genops(data):
        if instruction.name not in _INSTRUCTIONS:
            raise pickle.UnpicklingError(f"it has an instruction {instruction.name} at byte {position}")
        # The unpickler makes its table as long as the index says: ten bytes could ask for all the memory.
        if instruction.name == "LONG_BINPUT" and isinstance(argument, int) and argument > len(data):
            raise pickle.UnpicklingError(f"it has an impossible table index {argument} at byte {position}")


def _text(key: object) -> str:
    """Python 2 wrote byte strings where Python 3 writes text."""
    return key.decode() if isinstance(key, bytes) else str(key)


def _plain(value: object) -> object:
    return value.value if isinstance(value, _Array) else value


class _Dtype:
    """Stands for a numpy dtype under construction: a code such as 'u1', then its byte order."""

    __slots__ = ("code", "value")

    def __init__(self, code: str | bytes, *_: object) -> None:
        self.code = _text(code)
        if not re.fullmatch("[biuf][1248]", self.code):
            raise pickle.UnpicklingError(f"it holds an array of type {self.code!r}, not of numbers")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.value = np.dtype(_text(state[1]) + self.code)


class _Array:
    """Stands for a numpy array under construction: empty at first, then given its state."""

    __slots__ = ("value",)
    value: NDArray[Any]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, dtype, fortran, raw = state
        self.value = np.frombuffer(raw, dtype.value).reshape(shape, order="F" if fortran else "C")


class _Admitted:
    """A global that a pickle may name. Pickles may also give objects new state; this one refuses, so that a
    file cannot alter what the next one meets."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    def __call__(self, *arguments: object) -> object:
        return self._function(*arguments)

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("it tries to change a function")


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _ndarray(*_: object) -> None:
    raise pickle.UnpicklingError("it calls numpy.ndarray, which belongs in an array's type only")


def _encode(text: str, encoding: str) -> bytes:
    """Python 3 writes bytes as latin-1 text in the old protocols."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for the codec {encoding!r}")
    return text.encode("latin1")


_ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): _Admitted(_reconstruct),  # numpy 1
    ("numpy._core.multiarray", "_reconstruct"): _Admitted(_reconstruct),  # numpy 2
    ("numpy", "ndarray"): _Admitted(_ndarray),
    ("numpy", "dtype"): _Admitted(_Dtype),
    ("_codecs", "encode"): _Admitted(_encode),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which has no place in a data set")
        return _ADMITTED[module, name]
