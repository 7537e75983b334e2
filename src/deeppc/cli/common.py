"""What the commands of all rooms share: settings as flags, and where their defaults come from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Protocol

from tyro.conf import arg

from deeppc.errors import ConfigError
from deeppc.training.config import TrainConfig, from_table, read_toml

Settings = Annotated[TrainConfig, arg(name="")]  # without a name of its own: its flags stand beside the command's


class Command(Protocol):
    """A command. ``base`` may say, after a first look at the flags, what other defaults they have (from a file)."""

    def base(self) -> Command | None: ...
    def run(self) -> None: ...


class NoBase:
    def base(self) -> Command | None:
        return None


def base_settings(
    flags: TrainConfig,
    preset: str | None,
    file: Path | None,
    saved: Callable[[Path], TrainConfig],
    defaults: TrainConfig | None = None,
) -> TrainConfig | None:
    """The settings that hold where no flag is given: of the run to resume, the preset, the file, each over the last.

    None: the defaults.
    """
    layers: list[tuple[dict[str, Any], str]] = []
    if preset is not None:
        from deeppc import presets

        found = presets.load(preset)
        layers.append((found.table, str(found.path)))
    if file is not None:
        layers.append((read_toml(file), str(file)))
    wanted = _laid(defaults or TrainConfig(), layers)
    run_dir = flags.run_dir or wanted.run_dir
    if (flags.resume or wanted.resume) and run_dir is not None:
        return _laid(saved(run_dir), layers)
    return wanted if layers or defaults is not None else None


def _laid(config: TrainConfig, layers: list[tuple[dict[str, Any], str]]) -> TrainConfig:
    for table, source in layers:
        config = from_table(table, source, base=config)
    return config


def parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def seeds_of(text: str) -> list[int]:
    try:
        return list(dict.fromkeys(int(seed) for seed in parts(text)))
    except ValueError:
        raise ConfigError(f"--seeds is {text!r}, but must be whole numbers, e.g. 0,1,2.") from None
