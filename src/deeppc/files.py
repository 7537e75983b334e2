"""The one place where files are written and read: whole, sealed with a checksum, and with plain errors; and locks.

Every byte that is kept passes through :func:`_put`. A file is replaced as a whole (temporary file, fsync, rename,
fsync of the folder), so a reader, or a kill at any moment, finds the old or the new one.

JSON, lines of JSON and tensors carry ``format`` (see :data:`FORMAT`) and ``sha256``, the digest of all the rest. A
file that was altered by a failing disk, a careless copy or by hand is refused, and so is one of a newer deeppc.
"""

from __future__ import annotations

import _thread
import hashlib
import json
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from deeppc.errors import RunError

if TYPE_CHECKING:
    from torch import Tensor

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

FORMAT = 2  # to be raised when a file's content changes its meaning, so that an older deeppc does not misread it
SEAL = "sha256"
HEARTBEAT, GRACE = 30, 600  # seconds between two signs of life of a lock, and without any until its host is dead
DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32"}
DTYPES |= {"I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8"}
DTYPES |= {"BOOL": "bool", "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}  # as torch says
BIRTH = 0.5  # seconds after which a mark without a name is of a process that was killed before it wrote one
_LINE = 16  # hexadecimal digits that seal a line


def write_bytes(path: Path, *parts: bytes | memoryview) -> None:
    """Replace the file by ``parts``, one after the other: at once and on the disk, or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    with _or_undo(path, lambda: temporary.unlink(missing_ok=True)):
        path.parent.mkdir(parents=True, exist_ok=True)
        _put(temporary, "wb", parts)
        temporary.replace(path)
        _sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace the file by ``text``. What UTF-8 cannot hold, such as an odd byte in a path, becomes a question mark."""
    write_bytes(path, text.encode(errors="replace"))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace the file by ``content`` as sealed JSON."""
    sealed = _plain({"format": FORMAT, **content})
    write_text(path, json.dumps({**sealed, SEAL: _digest(sealed)}, indent=2) + "\n")


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Replace the file by one sealed line of JSON for each table."""
    write_bytes(path, *map(_line, lines))


def append_line(path: Path, content: Mapping[str, Any]) -> None:
    """Add a sealed line of JSON to the file. What a failure leaves of it is cut off again."""
    before = path.stat().st_size if path.exists() else 0
    with _or_undo(path, lambda: os.truncate(path, before)):
        _put(path, "ab", [_line(content)])


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> None:
    """Replace the file by sealed safetensors, which ``safetensors.torch.load_file`` reads as well.

    One tensor after the other: the library's ``save`` makes a copy of all of them in between, refuses what shares
    memory (tied weights), and ends the process where there is no memory for the copy.
    """
    import torch

    names = {getattr(torch, long): short for short, long in DTYPES.items()}
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    if unknown := next((f"{name} ({value.dtype})" for name, value in plain.items() if value.dtype not in names), None):
        raise RunError(f"{path} cannot hold {unknown}: safetensors have no such numbers. Keep it as another type.")
    table: dict[str, Any] = {"__metadata__": {"format": str(FORMAT), **header}}
    parts: list[memoryview] = []
    end = 0
    for name in sorted(plain, key=lambda name: (-plain[name].element_size(), name)):  # so that each is aligned
        value = plain[name]
        parts.append(value.reshape(-1).view(torch.uint8).numpy().data)
        begin, end = end, end + parts[-1].nbytes
        table[name] = {"dtype": names[value.dtype], "shape": [*value.shape], "data_offsets": [begin, end]}
    table["__metadata__"][SEAL] = _digest(table, *parts)
    text = json.dumps(table).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    write_bytes(path, len(text).to_bytes(8, "little"), text, *parts)


def read_json(path: Path) -> dict[str, Any]:
    """Return the table in a sealed JSON file. RunError, which says what to do, if it is not as it was written."""
    content = _parsed(path, read_bytes(path))
    _require_known(path, content.pop("format", None), content.get(SEAL))
    if content.pop(SEAL) != _digest({"format": FORMAT, **content}):
        raise _damaged(path, "its checksum does not match")
    return content


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the tables of a file of sealed lines; none if there is no file.

    A last line without its end is what a kill leaves, and is left out. RunError for anything else.
    """
    lines = read_bytes(path).split(b"\n")[:-1] if path.exists() else []
    tables = [_parsed(path, line, number) for number, line in enumerate(lines, start=1)]
    for number, table in enumerate(tables, start=1):
        if table.pop(SEAL, None) != _digest(table)[:_LINE]:
            raise _damaged(path, f"the checksum of line {number} does not match")
    return tables


def read_tensors(path: Path, *, foreign: bool = False) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return tensors and header of a sealed safetensors file. RunError if it is not as it was written.

    ``foreign``: one without a seal, of another program, will do.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    data = read_bytes(path)
    size = 8 + int.from_bytes(data[:8], "little")
    if not 8 < size <= len(data):
        raise _damaged(path, "it is cut short, or holds no tensors")
    table = _parsed(path, data[8:size])
    header = table.get("__metadata__")
    header = header if isinstance(header, dict) else {}
    if SEAL in header or not foreign:
        version = str(header.get("format"))
        _require_known(path, int(version) if version.isdecimal() else None, header.get(SEAL))
        if header.pop(SEAL) != _digest(table, memoryview(data)[size:]):
            raise _damaged(path, "its checksum does not match")
    try:
        with _panics_in_words():
            return load(data), {key: value for key, value in header.items() if key != "format"}
    except SafetensorError as error:  # cannot be, under a seal that matches
        raise _damaged(path, str(error)) from error


def read_bytes(path: Path) -> bytes:
    """Return what the file holds."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}.") from error


def require_writable(folder: Path) -> None:
    """Make the folder, and raise RunError now, rather than after hours of work, if nothing can be written to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))  # a full disk makes files, but takes no bytes
            file.flush()
    except OSError as error:
        raise RunError(f"{folder} cannot be written to: {error.strerror or error}. Choose another folder.") from error


def digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a table as JSON holds it."""
    return _digest(_plain(content))


def unused(path: Path) -> Path:
    """Return ``path``, or the first of ``path-2``, ``path-3``, ... that does not exist."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


class Busy(RunError):  # noqa: N818
    """Another process holds the lock."""


class BusyElsewhere(Busy):
    """A process on another host holds the lock, or did before that host died."""


class Lock:
    """A lock between processes, on one host or on several that share the folder, as a context.

    Raises :class:`Busy` at once if another process (or another Lock of this one) holds it.

    On one host the system keeps it, and releases it when the process ends, even by a kill. Not every network file
    system tells other hosts of that. So beside it lies a *mark* with the name of the host that holds it, made
    exclusively and touched every HEARTBEAT seconds. That of another host counts until it is GRACE seconds old.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.mark = path.with_name(f"{path.name.removesuffix('.lock')}.host.lock")
        self._file: IO[str] | None = None
        self._over = threading.Event()

    def __enter__(self) -> Lock:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = self.path.open("w")
        except OSError as error:
            raise RunError(f"{self.path.parent} cannot be written: {error.strerror or error}.") from error
        try:
            self._hold(file)
            self._leave_mark()
        except BaseException:
            file.close()
            raise
        self._file = file
        self._over.clear()
        try:
            _thread.start_new_thread(self._touch, ())  # Thread.start waits for ever for one that finds no memory
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._over.set()
            with suppress(OSError):
                self.mark.unlink()
            self._file.close()
            self._file = None

    def _hold(self, file: IO[str]) -> None:
        try:
            if sys.platform == "win32":
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Busy(f"Another process is working in {self.path.parent}.") from None

    def _leave_mark(self) -> None:
        """Make the mark. One of our host is left by a process that was killed, since no other holds the lock here."""
        host = platform.node()
        try:
            if self.mark.exists():
                if not (other := self.mark.read_text()):
                    time.sleep(BIRTH)
                    other = self.mark.read_text()
                silent = time.time() - self.mark.stat().st_mtime
                if other not in ("", host) and silent < GRACE:
                    raise BusyElsewhere(
                        f"The host {other} is working in {self.path.parent}, or has died there: it counts as dead "
                        f"{GRACE // 60} minutes after its last sign of life. If you know it is, remove {self.mark}."
                    )
                self.mark.unlink(missing_ok=True)
            with self.mark.open("x") as mark:
                mark.write(host)
        except FileExistsError:
            raise Busy(f"Another host has just begun to work in {self.path.parent}.") from None
        except FileNotFoundError:
            raise Busy(f"Another host has just ended its work in {self.path.parent}: try again.") from None
        except OSError as error:
            with suppress(OSError):
                self.mark.unlink()
            raise RunError(f"{self.path.parent} cannot be written: {error.strerror or error}.") from error

    def _touch(self) -> None:
        while not self._over.wait(HEARTBEAT):
            with suppress(OSError):
                os.utime(self.mark)


def _put(path: Path, mode: str, parts: Iterable[bytes | memoryview]) -> None:
    with path.open(mode) as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    if sys.platform != "win32":  # which cannot open a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _line(content: Mapping[str, Any]) -> bytes:
    content = _plain(content)
    return (json.dumps({**content, SEAL: _digest(content)[:_LINE]}) + "\n").encode()


def _plain(content: Mapping[str, Any]) -> dict[str, Any]:
    """``content`` as JSON gives it back: its digest is taken of that."""
    return dict(json.loads(json.dumps(content)))


def _digest(content: Mapping[str, Any], *data: memoryview) -> str:
    """The SHA-256 of a table, whatever the order of its keys, and of the bytes that follow it."""
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for part in data:
        digest.update(part)
    return digest.hexdigest()


def _parsed(path: Path, text: bytes, line: int | None = None) -> dict[str, Any]:
    where = "" if line is None else f"line {line}: "
    try:
        content = json.loads(text.decode())
    except UnicodeDecodeError:
        raise _damaged(path, f"{where}it is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"{where}it is no JSON ({error})") from None
    if not isinstance(content, dict):
        raise _damaged(path, f"{where}it holds no table")
    return content


def _require_known(path: Path, version: object, seal: object) -> None:
    if isinstance(version, int) and version > FORMAT:
        raise RunError(f"{path} was written by a newer deeppc (format {version}): update deeppc to read it.")
    if version != FORMAT or seal is None:
        raise _damaged(path, "it has no checksum of this version of deeppc")


def _damaged(path: Path, why: str) -> RunError:
    return RunError(f"{path} is damaged: {why}. Put it back from a copy.")


@contextmanager
def _or_undo(path: Path, undo: Callable[[], None]) -> Iterator[None]:
    """Within, ``path`` is written. Whatever goes wrong is undone; what the disk refuses is said in words."""
    try:
        yield
    except BaseException as error:
        with suppress(OSError):
            undo()
        if isinstance(error, OSError):
            raise RunError(f"{path} could not be written: {error.strerror or error}.") from error
        raise


@contextmanager
def _panics_in_words() -> Iterator[None]:
    """Raise MemoryError where safetensors, which is written in Rust, panics: it does when Python is refused memory."""
    try:
        yield
    except BaseException as error:  # pyo3's PanicException has no other base, and no module to import it from
        if type(error).__name__ != "PanicException":
            raise
        raise MemoryError("safetensors has no memory left") from error
