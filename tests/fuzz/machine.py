"""One piece of bad input, or one fault, and what came of it: the machine behind ``make fuzz`` and ``test_fuzz.py``.

A *kind* is a function ``(rng, place) -> Outcome``: it draws one case from ``rng``, tries it in ``place``, an empty
folder, and says what came of it:

    accepted    the work was done, or (where it would be long) was about to begin
    refused     one message in words: exit code 2 of a command, or a documented exception of a call
    traceback   anything else: exit code 70, an exception that is not raised by deeppc in so many words, a hang
    lost        what was good before is not any more, something half-made lies about, or a wrong result was accepted

``random.Random(f"{kind} {seed} {number}")`` draws the cases of a long run; in the tests hypothesis is the ``rng``.
"""

from __future__ import annotations

import atexit
import contextlib
import dis
import io
import json
import os
import random
import resource
import shutil
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from safetensors.torch import load_file

import deeppc
from deeppc.cli.main import main
from deeppc.errors import UserError
from deeppc.training import builder, loop
from deeppc.training.events import BatchDone, EpochDone, Event

BAD = ("traceback", "lost")
VERDICTS = ("accepted", "refused", *BAD)
LIMIT = 60  # seconds of computing after which a case counts as hung; ten times as many by the clock
PACKAGE, HERE = str(Path(deeppc.__file__).parent), str(Path(__file__).parent)
MODULES = str(Path(torch.nn.__file__).parent)
TINY = [
    *("--model", "mlp", "--width", "0.05", "--limit", "60", "--batch-size", "24", "--epochs", "3"),
    *("--device", "cpu", "--checkpoint-every", "0"),
]


class Enough(BaseException):
    """Raised where a long piece of work would begin: the input was accepted."""


class Hung(BaseException):
    """A case took longer than ``LIMIT``."""


@dataclass(frozen=True)
class Outcome:
    """``case`` says what was tried, ``said`` what came of it."""

    verdict: str
    case: str
    said: str = ""

    def lost(self, why: str) -> Outcome:
        return Outcome("lost", self.case, f"{why}; it said: {self.said}")


Kind = Callable[[random.Random, Path], Outcome]
KINDS: dict[str, tuple[str, Kind]] = {}  # by name: a title for the table, and the function


def kind(title: str) -> Callable[[Kind], Kind]:
    """Decorator: make a kind of case known by the name of its function."""

    def register(function: Kind) -> Kind:
        KINDS[function.__name__] = (title, function)
        return function

    return register


def try_case(name: str, rng: random.Random) -> Outcome:
    """Try one case of a kind in an empty folder, with the memory and the time that a case may take."""
    function = KINDS[name][1]
    with tempfile.TemporaryDirectory(prefix="fuzz-") as outer, quick(outer), limited_memory(), limited_time():
        place = Path(outer) / "above" / "here"  # one may write to ".." and harm nothing
        place.mkdir(parents=True)
        (place / "file.txt").write_text("a file")
        with contextlib.chdir(place):
            return function(rng, place)


def attempt(case: str, call: Callable[[], Any], *, command: bool = True) -> Outcome:
    """Call, and say what came of it. A ``command`` returns its exit code; other calls raise documented exceptions."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            warnings.simplefilter("ignore")
            code = call()
    except Enough:
        return Outcome("accepted", case)
    except SystemExit as stop:  # of the parser
        code = 0 if stop.code is None else stop.code
    except BaseException as error:
        if not command and _own(error):
            return Outcome("accepted", case, f"the caller's own {error!r}")
        in_words = not command and _in_words(error)
        where = (
            ""
            if in_words
            else " < ".join(
                f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)[:-6:-1]
            )
        )
        return Outcome("refused" if in_words else "traceback", case, f"{type(error).__name__}: {error} {where}".strip())
    said = " ".join((err.getvalue() or out.getvalue()).split())
    if not command or code in (0, 3):  # a run that diverges is a result, too
        return Outcome("traceback" if "Traceback" in err.getvalue() else "accepted", case, said)
    plain = code == 2 and len(said) > 15 and "Traceback" not in said
    return Outcome("refused" if plain else "traceback", case, f"exit {code}: {said}")


def _last(error: BaseException) -> Any:
    """Where an exception was raised."""
    tb = error.__traceback__
    while tb is not None and tb.tb_next is not None:
        tb = tb.tb_next
    return tb


def _own(error: BaseException) -> bool:
    """Whether it comes from a module or function of the caller's that deeppc called: their exceptions go through."""
    frames = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    inside = [number for number, name in enumerate(frames) if name.startswith(PACKAGE)]
    return bool(inside) and any(name.startswith((HERE, MODULES)) for name in frames[inside[-1] + 1 :])


def _in_words(error: BaseException) -> bool:
    """Whether deeppc raised this exception on purpose, in words, rather than met it."""
    if isinstance(error, UserError):
        return bool(str(error))
    tb = _last(error)
    code = tb.tb_frame.f_code
    if code.co_filename.startswith(HERE):  # the call itself does not fit: Python's own word on that
        return isinstance(error, TypeError)
    on_purpose = dis.opname[code.co_code[tb.tb_lasti]] == "RAISE_VARARGS" and code.co_filename.startswith(PACKAGE)
    return isinstance(error, TypeError | ValueError) and bool(str(error)) and on_purpose


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by name, with its content, but for locks."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".lock"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    """What differs between two looks at a folder, in words; "" if nothing does."""
    names = [name for name in {**before, **after} if before.get(name, 0) != after.get(name, 0)]
    return ", ".join(
        f"{n} {'is new' if n not in before else 'is gone' if n not in after else 'differs'}" for n in names
    )


def refused_untouched(case: str, call: Callable[[], Any], place: Path, *, command: bool = True) -> Outcome:
    """As :func:`attempt`; lost, if it was refused and yet something in ``place`` changed."""
    before = files_of(place)
    outcome = attempt(case, call, command=command)
    if outcome.verdict == "refused" and (differs := changes(before, files_of(place))):
        return outcome.lost(differs)
    return outcome


def damage(rng: random.Random, good: bytes, others: list[bytes]) -> tuple[bytes | None, str]:
    """What is left of a file's content, and how that came to be; None if the file is missing."""
    at = rng.randrange(len(good) or 1)
    match rng.choice(
        ["flip", "flip", "flip", "byte", "cut", "cut", "gone", "empty", "twice", "insert", "drop", "other"]
    ):
        case "flip" if good:
            bit = 1 << rng.randrange(8)
            return good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :], f"bit {bit} of byte {at} flipped"
        case "byte" if good:
            return good[:at] + bytes([rng.randrange(256)]) + good[at + 1 :], f"byte {at} replaced"
        case "cut":
            return good[:at], f"cut after {at} bytes"
        case "gone":
            return None, "missing"
        case "empty":
            return b"", "emptied"
        case "twice":
            end = rng.choice([good, good.splitlines(keepends=True)[-1] if good else b""])
            return good + end, f"its last {len(end)} bytes twice"
        case "insert":
            more = rng.choice(
                [b"\xff\xfe", b"\x00" * 20, b"{}", b"\n", b"[" * 100_000, b"9" * 5000, "é".encode("utf-16")]
            )
            return good[:at] + more + good[at:], f"{more[:10]!r}... ({len(more)} bytes) inserted at {at}"
        case "drop":
            count = rng.randrange(1, 40)
            return good[:at] + good[at + count :], f"{count} bytes dropped at {at}"
        case _:
            return rng.choice(others or [b"nonsense"]), "another file in its place"


# ---- a quick and bounded world ----


@contextlib.contextmanager
def quick(cache_folder: str) -> Iterator[None]:
    """No reports, no questions to git, nothing waits for the disk, the digits are read once, nobody's cache is used."""
    load = builder.load

    def load_once(name: Any, *args: Any, **options: Any) -> Any:
        return digits() if name == "digits" and options.get("labels") == "fine" else load(name, *args, **options)

    with (
        mock.patch.object(loop, "write_report"),
        mock.patch("deeppc.runs.provenance._git", return_value=None),
        mock.patch("os.fsync"),
        mock.patch.object(builder, "load", load_once),
        mock.patch.dict(os.environ, {"XDG_CACHE_HOME": cache_folder, "COLUMNS": "200"}),
        kept_random_state(),
    ):
        yield


@contextlib.contextmanager
def kept_random_state() -> Iterator[None]:
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_rng_state(state)
        torch.set_num_threads(threads)


@contextlib.contextmanager
def limited_memory(more: int = 3 << 30) -> Iterator[None]:
    """Give this process so many bytes more than it has: what asks for all the memory is refused it."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextlib.contextmanager
def limited_time(seconds: float = LIMIT) -> Iterator[None]:
    """Raise Hung after so many seconds of computing: on a busy machine, the clock says little."""

    def give_up(*_: object) -> None:
        raise Hung(f"after {seconds} seconds of computing, or {10 * seconds} by the clock")

    timers = {signal.SIGPROF: (signal.ITIMER_PROF, seconds), signal.SIGALRM: (signal.ITIMER_REAL, 10 * seconds)}
    before = {number: signal.signal(number, give_up) for number in timers}
    for timer, limit in timers.values():
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


# ---- a good run, and whether another is the same ----


@cache
def digits() -> Any:
    return deeppc.data.load("digits")


@cache
def workshop() -> Path:
    """A folder for what is made once and then only copied."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-good-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def train(run: Path, *more: str) -> int:
    """Train the tiny run in a folder, or resume what is there."""
    if (run / "manifest.json").exists():
        return main(["train", "--resume", "--run-dir", str(run), *more])
    return main(["train", *TINY, "--run-dir", str(run), *more])


@cache
def good_runs() -> dict[str, Path]:
    """Folders of one run, as kills leave it and as it ends, and of another seed. They are not to be touched.

    ``begun``  at its first batch; ``middle``  in its second epoch; ``edge``  after its second; ``finished``;
    ``other``  another run, finished.
    """
    made = workshop() / "runs"
    moments = {"begun": (1, 1), "middle": (2, 2)}

    def copy(event: Event) -> None:
        for name, moment in moments.items():
            if isinstance(event, BatchDone) and (event.epoch, event.batch) == moment:
                shutil.copytree(made / "finished", made / name)
        if isinstance(event, EpochDone) and event.metrics["epoch"] == 2:
            shutil.copytree(made / "finished", made / "edge")

    with quick(str(made)), kept_random_state(), contextlib.redirect_stdout(io.StringIO()):
        for name, seed in (("finished", 0), ("other", 1)):
            from deeppc.training.config import TrainConfig

            settings = {"model": "mlp", "width": 0.05, "limit": 60, "batch_size": 24, "epochs": 3, "device": "cpu"}
            config = TrainConfig.of(**settings, checkpoint_every=0, seed=seed, run_dir=made / name)
            builder.train(config, copy if seed == 0 else lambda event: None)
    return {path.name: path for path in made.iterdir()}


def state_of(run: Path) -> dict[str, Any]:
    """What must be the same bits in two runs: weights, optimiser, random state, metrics, result; not times, seals."""

    def plain(text: str) -> dict[str, Any]:
        return {k: v for k, v in json.loads(text).items() if k not in ("seconds", "sha256", "format", "history")}

    state: dict[str, Any] = {
        f"{name} {key}": (tensor.dtype, tuple(tensor.shape), tensor.numpy().tobytes())
        for name in ("checkpoint.safetensors", "best.safetensors")
        for key, tensor in load_file(run / name).items()
    }
    lines = [plain(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {**state, "metrics": lines, "result": plain((run / "result.json").read_text())}


@cache
def wanted() -> dict[str, Any]:
    return state_of(good_runs()["finished"])


def difference(run: Path) -> str:
    """How a run that has ended differs from the undisturbed one, in words; "" if it is the same bits."""
    try:
        found = changes(wanted(), state_of(run))
    except Exception as error:
        return f"the run cannot be read: {error!r}"
    left = [path.name for path in run.glob(".*") if not path.name.endswith(".lock")]
    return found or (f"left behind: {', '.join(left)}" if left else "")
