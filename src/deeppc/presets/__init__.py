"""Tuned settings that ship with the package: TOML files whose comments say which search they come from.

    deeppc train --preset cifar10-vgg5-pc+s+f        deeppc presets

A preset has the keys of a config file, but only those that a search decides or that it was made for (data set, network,
algorithm, width): how long to train, and on how much, is yours to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeppc.errors import ConfigError
from deeppc.search import space
from deeppc.training.config import TrainConfig, from_table, nearest, read_toml, to_table

SHIPPED = Path(__file__).parent.parent / "presets"
_TASK = ("dataset", "labels", "model", "algorithm", "width", "norm")


@dataclass(frozen=True)
class Preset:
    """``table`` has settings by name; ``provenance`` is the comment on top of the file."""

    name: str
    path: Path
    table: dict[str, Any]
    provenance: str

    def config(self, base: TrainConfig | None = None) -> TrainConfig:
        """``base`` (the defaults) with the preset's settings."""
        return from_table(self.table, str(self.path), base)


def names(folder: Path | None = None) -> list[str]:
    """The presets that there are, by name."""
    return sorted(path.stem for path in (folder or SHIPPED).glob("*.toml"))


def load(name: str, folder: Path | None = None) -> Preset:
    """Raises ConfigError for a name that is not there, and for a file that is no config."""
    known = names(folder)
    if name not in known:
        hint = nearest(name, known).replace("the keys are", "there are") if known else "there are none yet."
        raise ConfigError(f"There is no preset {name!r}: {hint}")
    path = (folder or SHIPPED) / f"{name}.toml"
    preset = Preset(name, path, read_toml(path), _comment(path))
    preset.config()
    return preset


def find(
    dataset: str, model: str, algorithm: str, norm: str = "none", *, folder: Path | None = None
) -> dict[str, Any] | None:
    """The settings of the preset made for this task, by name; None if there is no such preset."""
    wanted = {"dataset": dataset, "model": model, "algorithm": algorithm, "norm": norm}
    for name in names(folder):
        preset = load(name, folder)
        if {key: getattr(preset.config(), key) for key in wanted} == wanted:
            return dict(preset.table)
    return None


def name_of(config: TrainConfig) -> str:
    """``cifar10-vgg5-pc+s+f``, ``cifar10-vgg5-bf-pc+s+f``."""
    norm = "" if config.norm == "none" else f"-{config.norm}"
    return f"{config.dataset}-{config.model}{norm}-{config.algorithm}"


def as_toml(config: TrainConfig, drawn: set[str], provenance: str) -> str:
    """The file of a preset: the task, what was drawn, and what else is not as by default, each if it means anything."""
    import tomli_w

    table, plain = to_table(config), to_table(TrainConfig())
    kept = {name: table[name] for name in _TASK if name in ("dataset", "model", "algorithm", "width")}
    for name in (*_TASK, *space.SEARCHABLE):
        means = all(condition.holds(vars(config)) for condition in space.needs(name))
        if means and (name in drawn or (table[name] != plain[name] and name != "schedule_epochs")):
            kept[name] = "none" if table[name] is None else table[name]
    comment = "".join(f"# {line}".rstrip() + "\n" for line in provenance.splitlines())
    return f"{comment}\n{tomli_w.dumps(kept)}"


def _comment(path: Path) -> str:
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("#").strip())
    return "\n".join(lines)
