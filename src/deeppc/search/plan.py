"""What a search is to do, and ``study.json``, which keeps it in the study's folder:

study.json          settings, space, pruner, where the trials are stored
study.db            the trials, unless they are stored elsewhere
trials/<number>/    manifest, config and metrics of each trial; no weights
best.toml           the best trial's settings, for deeppc train --config
search.html         pictures and tables
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from deeppc.errors import ConfigError, RunError
from deeppc.files import read_json, write_json
from deeppc.search import space as spaces
from deeppc.search.space import Space
from deeppc.training.config import TrainConfig, flag, from_table, to_table

STUDY, DATABASE, TRIALS, BEST, PAGE = "study.json", "study.db", "trials", "best.toml", "search.html"
Pruner = Literal["median", "hyperband", "none"]

# Where and how it runs, not what is searched: may differ when a search goes on.
_FREE = frozenset({"data_dir", "checkpoint_every", "device"})


@dataclass(frozen=True)
class Plan:
    """``trials`` counts those that ended: complete, pruned or diverged. ``storage`` is an Optuna URL; None: a file."""

    folder: Path
    space: Space
    trials: int = 40
    pruner: Pruner = "median"
    storage: str | None = None
    jobs: int = 1

    def __post_init__(self) -> None:
        for name, least in (("trials", 1), ("jobs", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"--{name} is {getattr(self, name)}, but must be {least} or more.")

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

    def identity(self) -> dict[str, Any]:
        """What may not change while a search goes on."""
        config = {name: value for name, value in to_table(self.config).items() if name not in _FREE}
        return {"config": config, "space": self.space.table(), "pruner": self.pruner}


def folder_of(config: TrainConfig) -> Path:
    """``run_dir``, or ``searches/<dataset>-<model>-<algorithm>`` (with the norm, if there is one)."""
    norm = "" if config.norm == "none" else f"-{config.norm}"
    return config.run_dir or Path("searches") / f"{config.dataset}-{config.model}{norm}-{config.algorithm}"


def write(plan: Plan) -> None:
    """Keep the plan in its folder. A password in the storage's URL is not written down."""
    table = {"format": 1, "name": plan.name, "storage": plan.storage and without_password(plan.storage)}
    table |= {"trials": plan.trials, **plan.identity(), "config": to_table(plan.config)}
    write_json(plan.folder / STUDY, table)


def read(folder: Path, storage: str | None = None) -> Plan:
    """The plan of the search in ``folder``. ``storage`` is given where its URL needs a password."""
    path = folder / STUDY
    if not path.exists():
        raise RunError(f"There is no search in {folder}: {STUDY} is missing. Start one with deeppc search.")
    table = read_json(path)
    try:
        config = from_table({**table["config"], "run_dir": folder}, str(path))
        space = spaces.rebuild(config, table["space"], str(path))
        if table["pruner"] not in get_args(Pruner):
            raise KeyError(table["pruner"])
        return Plan(folder, space, int(table["trials"]), table["pruner"], storage or table["storage"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path} is damaged: {error!r}.") from error


def require_same(begun: dict[str, Any], plan: Plan) -> None:
    """A search goes on with the settings, the space and the pruner that it was begun with."""
    now = plan.identity()
    plain = to_table(TrainConfig())  # for a setting that is younger than the search
    begun = {**begun, "config": {name: begun.get("config", {}).get(name, plain[name]) for name in now["config"]}}
    for what, name in (("config", ""), ("space", "--space "), ("pruner", "")):
        before, after = begun.get(what), now[what]
        if before == after:
            continue
        if not isinstance(before, dict):
            raise ConfigError(_other(plan, f"--{what}", after, before))
        key = next(k for k in {**before, **after} if before.get(k) != after.get(k))
        raise ConfigError(_other(plan, f"{name}{key}" if name else flag(key), after.get(key), before.get(key)))


def _other(plan: Plan, name: str, now: object, before: object) -> str:
    return (
        f"{name} is {_said(now)}, but the search in {plan.folder} was begun with {_said(before)}: go on with it by "
        f"--resume --run-dir {plan.folder}, or choose another folder."
    )


def _said(value: object) -> str:
    return "not there" if value is None else repr(value)


def without_password(url: str) -> str:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(url)._replace(password=None).render_as_string()
    except ArgumentError:
        raise ConfigError(
            f"--storage is no database URL: write e.g. postgresql+psycopg://user@host/name, not {url!r}."
        ) from None
