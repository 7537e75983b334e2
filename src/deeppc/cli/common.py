"""What the commands share: settings as flags, the order in which they are laid over one another, and the display.

A command is a dataclass whose fields are its flags, with ``run(given)``, where ``given`` has the names of the flags
that were on the command line (``lr_x`` for ``--lr-x``). Those that train have

    settings: Settings = field(default_factory=default_settings)

and get their config by ``config_of(self, given, ...)``: defaults or resumed run < preset < --config file < given flags.
(What contradicts the run to resume is refused when it is.)
torch is imported when a command runs, never for ``--help``.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from tyro.conf import arg

from deeppc.errors import ConfigError
from deeppc.training.config import FIELDS, TrainConfig, fitted, layered, read_toml, settings

if TYPE_CHECKING:
    from deeppc.training.events import Callback

Given = frozenset[str]
Layer = tuple[Mapping[str, Any], str]  # a flat table, and its source for errors


class Command(Protocol):
    """A command: its fields are its flags."""

    def run(self, given: Given) -> None: ...


class Training(Protocol):
    """A command that trains."""

    @property
    def settings(self) -> Any: ...
    @property
    def preset(self) -> str | None: ...
    @property
    def config(self) -> Path | None: ...


def require_words(args: Sequence[str]) -> None:
    """Refuse an argument that no command can mean: an empty one, or one that is no text."""
    for before, word in zip(["", *args], args, strict=False):
        option, equals, value = word.partition("=") if word.startswith("--") else (before, "=", word)
        name = option if option.startswith("--") else "An argument"
        if equals and not value.strip():
            raise ConfigError(_empty(name))
        if "\0" in word or word != word.encode(errors="replace").decode():
            raise ConfigError(f"{name} is {value!r}: write it without NUL, and in UTF-8.")


def _empty(name: str) -> str:
    return f"{name} is empty: give it a value, or leave it out."


def given_flags(args: Sequence[str]) -> Given:
    """Return the names of the flags among the words of a command line."""
    names = {word[2:].partition("=")[0].replace("-", "_") for word in args if word.startswith("--")}
    return frozenset(names | {name.removeprefix("no_") for name in names})


def settings_type(*without: str, **defaults: Any) -> Any:
    """Return a dataclass with a field for each setting of a training, for tyro: its flags stand beside the command's.

    ``without``: settings that the command has not; ``defaults``: those that it begins with.
    """
    fields = [
        (name, Annotated[s.type, arg(help=s.help)], dataclasses.field(default=defaults.get(name, s.default)))
        for name, s in settings().items()
        if name not in without
    ]
    return Annotated[dataclasses.make_dataclass("Settings", fields, frozen=True), arg(name="")]


def layers_of(command: Training) -> list[Layer]:
    """Return the tables of the preset and of the config file, if they are given."""
    layers: list[Layer] = []
    if command.preset is not None:
        from deeppc import presets

        found = presets.load(command.preset)
        layers.append((found.table, str(found.path)))
    if command.config is not None:
        layers.append((read_toml(command.config), str(command.config)))
    return layers


def flags_of(command: Training, given: Given) -> dict[str, Any]:
    """Return the settings that were given as flags."""
    return {name: value for name, value in vars(command.settings).items() if name in given}


def folder_to_resume(command: Training, given: Given) -> Path | None:
    """Return the folder of the run to resume; None to start a new one."""
    merged = {name: value for table, _ in layers_of(command) for name, value in table.items()}
    merged |= flags_of(command, given)
    if not merged.get("resume"):
        return None
    if merged.get("run_dir") is None:
        raise ConfigError("--resume needs --run-dir: the folder of the run to resume.")
    return Path(merged["run_dir"])


def config_of(
    command: Training, given: Given, saved: Callable[[Path], TrainConfig], defaults: Mapping[str, Any] | None = None
) -> TrainConfig:
    """Return the config of a command. ``saved`` reads that of a folder to resume; ``defaults`` are the command's."""
    layers: list[Layer] = [*layers_of(command), (flags_of(command, given), "")]
    if (folder := folder_to_resume(command, given)) is not None:
        return layered(layers, saved(folder))
    return layered([(defaults or {}, ""), *layers])


def split_options(
    layers: Sequence[Layer], algorithms: Sequence[str], must: Given
) -> tuple[list[Layer], dict[str, Any]]:
    """Part layers into own settings and options, for a command that has several algorithms.

    Options that none of them has are dropped, unless ``must`` names them.
    """
    from deeppc.training.config import meaningful

    own: list[Layer] = [({k: v for k, v in t.items() if k in FIELDS and k != "algorithm"}, s) for t, s in layers]
    options = {k: fitted(k, v, s) for table, s in layers for k, v in table.items() if k not in FIELDS}
    means = {name for algorithm in algorithms for name in meaningful({"algorithm": algorithm, **options})}
    return own, {name: value for name, value in options.items() if name in means or name in must}


def words(flag: str, text: str) -> list[str]:
    """Split a list with commas, whose default may be empty."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    if text and not found:
        raise ConfigError(_empty(flag))
    return found


def seeds_of(text: str) -> list[int]:
    """Read seeds with commas between them; each counts once."""
    try:
        return list(dict.fromkeys(int(seed) for seed in words("--seeds", text)))
    except ValueError:
        raise ConfigError(f"--seeds is {text!r}, but must be whole numbers, e.g. 0,1,2.") from None


@contextmanager
def watching(as_json: bool, tensorboard: bool = False) -> Iterator[Callback]:
    """Yield the callback that shows a training where the output goes."""
    from deeppc.training.callbacks import TensorBoard
    from deeppc.training.display import display
    from deeppc.training.events import together

    with display(as_json) as show:
        yield together([show, *([TensorBoard()] if tensorboard else [])])


def remark(text: str, style: str = "bold") -> None:
    """Say something on stderr."""
    try:
        from rich.console import Console
        from rich.text import Text

        Console(file=sys.stderr).print(Text(text, style=style), soft_wrap=True)
    except MemoryError:
        sys.stderr.write(f"{text}\n")


if TYPE_CHECKING:
    Settings = Any
else:
    Settings = settings_type()


def default_settings() -> Any:
    """Return all settings as flags have them where none is given."""
    return Settings.__origin__()
