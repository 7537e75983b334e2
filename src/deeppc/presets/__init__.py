"""Tuned settings that ship with the package: TOML files whose comments say which search they come from.

    deeppc train --preset cifar10-vgg5-bf-pc+s+f     deeppc presets     deeppc train --preset my/own.toml

A preset has the keys of a config file, but only those that a search decides or that it was made for (data set, network,
algorithm, width): how long to train, and on how much, is yours to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeppc.core.arguments import checked
from deeppc.errors import ConfigError, nearest
from deeppc.training.config import TrainConfig, from_table, read_toml

SHIPPED = Path(__file__).parent


@dataclass(frozen=True)
class Preset:
    """``table`` has settings by name; ``provenance`` is the comment on top of the file."""

    name: str
    path: Path
    table: dict[str, Any]
    provenance: str

    def config(self, base: TrainConfig | None = None) -> TrainConfig:
        """Return ``base`` (the defaults) with the preset's settings."""
        return from_table(self.table, str(self.path), base)


@checked
def names(folder: Path | None = None) -> list[str]:
    """Return the names of the presets."""
    return sorted(path.stem for path in (folder or SHIPPED).glob("*.toml"))


@checked
def load(name: str, folder: Path | None = None) -> Preset:
    """Read a preset: one of :func:`names`, or a file of your own, by its path (``mine.toml``, ``folder/mine``).

    ConfigError for a name that is not there, and for a file that is no config.
    """
    path = Path(name)
    if path.suffix != ".toml" and len(path.parts) < 2:
        known = names(folder)
        if name not in known:
            own = f"A file of your own is named by its path, as in {name}.toml."
            raise ConfigError(f"There is no preset {name!r}: {nearest(name, known)} {own}")
        path = (folder or SHIPPED) / f"{name}.toml"
    preset = Preset(path.stem, path, read_toml(path), _comment(path))
    preset.config()
    return preset


def _comment(path: Path) -> str:
    """The comment on top of a file."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("#").strip())
    return "\n".join(lines)
