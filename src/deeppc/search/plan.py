"""What a search is to do, and ``study.json``, which keeps it in the study's folder:

study.json          settings, space, pruner, where the trials are stored
study.db            the trials, unless they are stored elsewhere
trials/<number>/    manifest, config and metrics of each trial; no weights
best.toml           the best trial's settings, for deeppc train --config
search.html         pictures and tables
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from deeppc.errors import ConfigError, RunError
from deeppc.files import read_json, write_json
from deeppc.search import space as spaces
from deeppc.search.space import Space, Value
from deeppc.training.config import TrainConfig, canonical, flag, from_table, meaningful, to_table

STUDY, DATABASE, TRIALS, BEST, PAGE = "study.json", "study.db", "trials", "best.toml", "search.html"
Pruner = Literal["median", "hyperband", "none"]


@dataclass(frozen=True)
class Plan:
    """``trials`` counts those that ended: complete, pruned or diverged. ``storage`` is an Optuna URL; None: a file.

    ``first`` are settings that trials have before any are drawn.
    """

    folder: Path
    space: Space
    trials: int = 40
    pruner: Pruner = "median"
    storage: str | None = None
    jobs: int = 1
    first: tuple[Mapping[str, Value], ...] = ()

    def __post_init__(self) -> None:
        for name in ("trials", "jobs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name} is {getattr(self, name)}, but must be 1 or more.")

    @classmethod
    def of(cls, config: TrainConfig, **options: Any) -> Plan:
        """A plan with the paper's space for ``config``, in ``config.run_dir`` or the usual folder."""
        return cls(folder_of(config), options.pop("space", None) or spaces.build(config), **options)

    @property
    def config(self) -> TrainConfig:
        """The settings of every trial, but for what it draws."""
        return self.space.config

    @property
    def name(self) -> str:
        """Of the study in its storage: machines that share one work together if their folders are called alike."""
        return self.folder.resolve().name

    @property
    def url(self) -> str:
        return self.storage or f"sqlite:///{self.folder / DATABASE}"

    @property
    def resume_command(self) -> str:
        return f"deeppc search --resume --run-dir {self.folder}"

    def identity(self) -> dict[str, Any]:
        """What may not change while a search goes on."""
        return {"config": canonical(to_table(self.config)), "space": self.space.table(), "pruner": self.pruner}


def task_name(config: TrainConfig) -> str:
    """``cifar10-vgg5-pc+s+f``, ``cifar10-vgg5-bf-bp-last2``; of a path, only its last part."""
    norm = "" if config.norm == "none" else f"-{config.norm}"
    dataset, model = (re.sub(r"[^\w.+-]+", "-", Path(name).name) for name in (config.dataset, config.model))
    return f"{dataset}-{model}{norm}-{config.method}"


def folder_of(config: TrainConfig) -> Path:
    """``run_dir``, or ``searches/<dataset>-<model>-<algorithm>`` (with the norm, if there is one)."""
    return config.run_dir or Path("searches") / task_name(config)


def write(plan: Plan) -> None:
    """Keep the plan in its folder. A password in the storage's URL is not written down."""
    own = {"name": plan.name, "storage": plan.storage and without_password(plan.storage), "trials": plan.trials}
    write_json(plan.folder / STUDY, {**own, **plan.identity(), "config": to_table(plan.config)})


def read(folder: Path, storage: str | None = None) -> Plan:
    """The plan of the search in ``folder``. ``storage`` is given where its URL needs a password."""
    path = folder / STUDY
    if not path.exists():
        raise RunError(f"There is no search in {folder}: {STUDY} is missing. Start one with deeppc search.")
    table = read_json(path)
    try:
        config = from_table({**meaningful(table["config"]), "run_dir": folder}, str(path))
        space = spaces.rebuild(config, table["space"], str(path))
        if table["pruner"] not in get_args(Pruner):
            raise KeyError(table["pruner"])
        return Plan(folder, space, int(table["trials"]), table["pruner"], storage or table["storage"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path} is damaged: {error!r}.") from error


def require_same(begun: dict[str, Any], plan: Plan) -> None:
    """Raise ConfigError unless the search was begun with these settings, this space and this pruner."""
    before = {**begun, "config": canonical(begun.get("config", {}))}
    for what, after in plan.identity().items():
        if before.get(what) == after:
            continue
        name, was, now = f"--{what}", before.get(what), after
        if isinstance(was, dict):
            differ = [key for key in {**was, **now} if was.get(key) != now.get(key)]
            key = "algorithm" if "algorithm" in differ else differ[0]  # which brings other options with it
            name, was, now = f"--space {key}" if what == "space" else flag(key), was.get(key), now.get(key)
        was, now = ("not there" if value is None else repr(value) for value in (was, now))
        raise ConfigError(
            f"{name} is {now}, but the search in {plan.folder} was begun with {was}: resume it with "
            f"--resume --run-dir {plan.folder}, or choose another folder."
        )


def without_password(url: str) -> str:
    """The storage's URL as it may be written down. Raises ConfigError if it is none."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(url)._replace(password=None).render_as_string()
    except ArgumentError:
        raise ConfigError(
            f"--storage is no database URL: write e.g. postgresql+psycopg://user@host/name, not {url!r}."
        ) from None
