"""Bad words: command lines and TOML files, made from the declarations of the commands and their settings."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.error import URLError

from machine import TINY, Enough, Outcome, damage, kind, refused_untouched

from deeppc import presets
from deeppc.cli.main import COMMANDS, main
from deeppc.core.algorithms import Option
from deeppc.training.config import TrainConfig, flag, settings, to_toml
from deeppc.training.loop import Loop

# No absolute path that could be written to: whoever runs this may be root.
ODD = [
    *("", " ", "x", "0", "1", "-1", "-0", "0.5", "2", "1e6", "1e-320", "1e999", "nan", "inf", "-inf", "0x10", "1_0"),
    *("9" * 30, "١٢", "½", "é", "\u202ex", "\U0001f984", "\udcff", "\n", "\t1", "a" * 5000, "%s", "{x}", "[red]x[/]"),
    *("None", "none", "NONE", "True", "False", "[]", "{}", "()", "--", "-", "=", ",", "a,b", "0,0", "0,x", "1..2"),
    *("file.txt", "file.txt/x", "file.txt:f", "nowhere", "nowhere/x", "nowhere.npz", "nowhere.py:f", ".", "..", "~"),
    *("/proc/nowhere", "/dev/null/x", "mlp", "vgg5", "resnet10", "digits", "cifar10", "bp", "pc", "ipc", "pc+s+f+cn"),
    *("pc+s+d", "bp+s", "+", "pc+", "ipc+f", "smoke", "all", "gap", "*", "sqlite://", "sqlite:///x", "http://x"),
]
BASE = {  # arguments with which a command does little
    "train": TINY,
    "compare": [*TINY, "--algorithms", "bp,pc+s+f", "--seeds", "0"],
    "search": [*TINY, "--trials", "1"],
    **{name: ["nowhere"] for name in ("search importance", "search plot", "search preset")},
    "search transfer": ["nowhere", "nowhere"],
    "paper run": ["ablation", "--scale", "smoke"],
    "show": ["mlp"],
    "data": ["fetch", "cifar10"],
    "completion": ["bash"],
}


def flags_of(command: str) -> dict[str, Option | None]:
    """Every flag of a command, with its declaration if it is a setting."""
    flags: dict[str, Option | None] = {}
    for field in dataclasses.fields(COMMANDS[command]):  # type: ignore[arg-type]
        if field.name == "settings":
            own = field.default_factory()  # type: ignore[misc]
            flags |= {flag(f.name): settings()[f.name] for f in dataclasses.fields(own)}
        else:
            flags[flag(field.name)] = None
    return flags


def fitting(rng: random.Random, option: Option) -> str:
    """A value that the setting takes, as far as its declaration says."""
    if option.choices:
        return str(rng.choice(option.choices))
    if "bool" in str(option.type):
        return "True"
    if "int" in str(option.type) or "float" in str(option.type):
        low = max(option.least if option.least is not None else 0, (option.above or 0) + 0.01)
        value = rng.choice([low, 1, 2, 7, 0.3, option.most or 40])
        return str(round(value) if "int" in str(option.type) else value)
    return str(rng.choice([option.default, "r", "digits", "mlp", "bp", "ipc"]))


def command_line(rng: random.Random) -> list[str]:
    """One command with something odd about it."""
    command = rng.choice([*COMMANDS, "train", "train", "compare"])
    flags = flags_of(command)
    words = [*BASE.get(command, [])]
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        name, option = rng.choice([*flags.items()]) if flags else ("--help", None)
        value = fitting(rng, option) if option is not None and rng.random() < 0.4 else rng.choice(ODD)
        if name in words:
            at = words.index(name)
            words[at : at + 2] = []
        switch = (option is not None and option.type is bool) or rng.random() < 0.05
        form = "switch" if switch and rng.random() < 0.8 else rng.choice(["two", "two", "two", "=", "again", "no"])
        words += {
            "switch": [name if rng.random() < 0.5 else f"--no-{name[2:]}"],
            "two": [name, value],
            "=": [f"{name}={value}"],
            "again": [name, value, name, rng.choice(ODD)],
            "no": [f"--no-{name[2:]}"],
        }[form]
    last = rng.random()
    if last < 0.05:
        words += [rng.choice([*flags, "--resume", "--preset"])]  # without its value, perhaps
    elif last < 0.1:
        words += [rng.choice([*ODD, "--nonsense", "--lrx", "—epochs", "-e", "--Epochs", "--epochs\u200b"])]
    elif last < 0.13:
        command = rng.choice(["trian", "", "train compare", "Train", "help", "\udcff", command.upper()])
    elif last < 0.16:
        words = [rng.choice(ODD) for _ in range(rng.randrange(4))]
    elif last < 0.2 and words:
        words.pop(rng.randrange(len(words)))
    return [*command.split(" "), *words] if command else words


@contextlib.contextmanager
def little_work() -> Iterator[None]:
    """What would take long raises ``Enough`` where it would begin. No network."""
    run = Loop.run

    def run_if_little(loop: Loop, resume: bool) -> Any:
        size = sum(p.numel() for p in loop.net.parameters())
        steps = loop.algorithm.steps(loop.net) + 1
        little = size < 30_000 and loop.sources.train.size < 100 and loop.epochs < 4 and steps < 30
        if not little or any(hasattr(m.forward, "get_compiler_config") for m in loop.net.nodes.values()):
            raise Enough
        return run(loop, resume)

    def enough(*args: Any, **options: Any) -> Any:
        raise Enough

    def offline(*args: Any, **options: Any) -> Any:
        raise URLError("no network in here")

    with (
        mock.patch.object(Loop, "run", run_if_little),
        mock.patch("deeppc.training.builder.compile_nodes", enough),
        mock.patch("deeppc.search.study.create", enough),
        mock.patch("deeppc.bench.steps.run", enough),
        mock.patch("deeppc.bench.scaling.bench", enough),
        mock.patch("deeppc.paper.run.pool.run", enough),
        mock.patch("deeppc.paper.results.draw", return_value=""),
        mock.patch("urllib.request.urlopen", offline),
        mock.patch("subprocess.run", offline),
    ):
        yield


@kind("command lines")
def command_lines(rng: random.Random, place: Path) -> Outcome:
    words = command_line(rng)
    with little_work():
        return refused_untouched(f"deeppc {shlex.join(words)}", lambda: main(words), place)


# ---- TOML ----

VALUES = [
    *("1", "-1", "0", "1e999", "nan", "inf", "-inf", "1.5", "true", '"x"', '""', "[]", "[1, 2]", "{}", "{a = 1}"),
    *("1979-05-27", "07:32:00", "9" * 40, '"none"', '"None"', '"\\u0000"', '"é"', "'''x'''", "", "x", "1 2", '"'),
    *("[" * 3000, "{a=" * 3000, '"' + "a" * 100_000 + '"', "0x10", "1_0", "+1", "01", '["bp"]', '"pc+x"', '"a/b"'),
]
LINES = [
    "[train]",
    "[[train]]",
    "[epochs]",
    "nonsense = 1",
    "lrx = 1",
    "Epochs = 3",
    "a.b = 1",
    "= 1",
    "epochs",
    "\x00",
]


def toml(rng: random.Random) -> bytes:
    """A config file with something odd about it."""
    config = TrainConfig.of(model="mlp", width=0.05, limit=60, batch_size=24, epochs=1, device="cpu")
    lines = to_toml(config).splitlines()
    for _ in range(rng.choice([1, 1, 2])):
        at, way = rng.randrange(len(lines)), rng.choice(["value", "value", "value", "line", "twice", "drop", "key"])
        key, _, value = lines[at].partition(" = ")
        lines[at : at + 1] = {
            "value": [f"{key} = {rng.choice(VALUES)}"],
            "line": [lines[at], rng.choice(LINES)],
            "twice": [lines[at], lines[at]],
            "drop": [],
            "key": [f"{rng.choice([*settings(), key.upper(), 'é', ''])} = {value}"],
        }[way]
    text = "\n".join(lines).encode()
    others = [b"\xef\xbb\xbf" + text, text.decode().encode("utf-16"), text.replace(b"\n", b"\r\n")]
    return (damage(rng, text, others)[0] or b"") if rng.random() < 0.4 else text


@kind("TOML files and presets")
def toml_files(rng: random.Random, place: Path) -> Outcome:
    content = toml(rng)
    (place / "mine.toml").write_bytes(content)
    shown = content.decode("utf-8", "backslashreplace").replace("\n", "; ")
    shown = shown if len(shown) < 2000 else f"{shown[:300]}... ({len(shown)} characters)"
    way = rng.choice(["train", "train", "compare", "search", "space", "preset", "preset"])
    if way == "preset":
        return refused_untouched(
            f"presets.load of {shown}", lambda: presets.load("mine", place).config(), place, command=False
        )
    words = [way, "--config", "mine.toml", "--run-dir", "r"]
    if way == "space":
        words = ["search", *TINY, "--space-file", "mine.toml", "--run-dir", "r"]
    with little_work():
        return refused_untouched(f"deeppc {shlex.join(words)} with {shown}", lambda: main(words), place)
