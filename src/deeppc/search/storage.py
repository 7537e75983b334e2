"""The study in its storage: SQLite in the study's folder, or any database that Optuna knows.

SQLite rather than Optuna's journal file, because its writes are transactions: a kill in the middle of one leaves
nothing behind. And other databases then take the same way.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from deeppc.errors import ConfigError, RunError
from deeppc.search import plan as plans
from deeppc.search.plan import Plan

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from optuna import Study
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.storages import RDBStorage
    from optuna.trial import FrozenTrial

IDENTITY = "deeppc"  # attribute of the study: what may not change
PATIENCE = 60  # seconds to wait for another process that writes to the same SQLite file


def require_optuna() -> None:
    """A friendly word where the extra is not installed. Also: Optuna reports nothing by itself, the display does."""
    try:
        import optuna
    except ImportError:
        raise ConfigError(
            "Searching needs Optuna, which is not installed: pip install 'deeppc[search]' (quotes included)."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(frozen=True)
class Session:
    """An open study. ``study`` keeps in memory what has ended, ``storage`` asks the database every time.

    Use it as a context, to close its connections.
    """

    plan: Plan
    study: Study
    storage: RDBStorage

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.storage.remove_session()
        self.storage.engine.dispose()

    @cached_property
    def study_id(self) -> int:
        return self.storage.get_study_id_from_name(self.plan.name)

    def trials(self) -> list[FrozenTrial]:
        with in_words(self.plan):
            return self.study.get_trials(deepcopy=False)

    def sampling(self, seed: int) -> Study:
        """The study as it is now, for one trial, with a sampler whose draws are decided by ``seed`` and the past."""
        from optuna.samplers import TPESampler

        return _load(self.plan, self.storage, TPESampler(seed=seed))


def create(plan: Plan) -> Session:
    """Begin the study, or find the one begun earlier. Raises ConfigError if that one was of other settings."""
    require_optuna()
    import optuna

    if plan.storage is not None:
        plans.without_password(plan.storage)  # complains if it is no URL
    _make(plan.folder)
    with exclusively(plan.folder), in_words(plan):
        if (plan.folder / plans.STUDY).exists():
            plans.require_same(plans.read(plan.folder).identity(), plan)
        storage = _connect(plan)
        study = optuna.create_study(study_name=plan.name, storage=storage, direction="maximize", load_if_exists=True)
        begun = study.user_attrs.get(IDENTITY)
        if begun is None and study.get_trials(deepcopy=False):
            raise RunError(f"The storage holds a study {plan.name!r} that deeppc did not begin: rename the folder.")
        if begun is not None:
            plans.require_same(begun, plan)
        else:
            study.set_user_attr(IDENTITY, plan.identity())
        plans.write(plan)
    return Session(plan, study, storage)


def open_study(plan: Plan) -> Session:
    """The study, which exists."""
    require_optuna()
    if plan.storage is None and not (plan.folder / plans.DATABASE).exists():
        raise RunError(f"{plan.folder / plans.DATABASE} is missing: the trials of this search are lost.")
    with in_words(plan):
        storage = _connect(plan)
        return Session(plan, _load(plan, storage), storage)


def _load(plan: Plan, storage: RDBStorage, sampler: BaseSampler | None = None) -> Study:
    import optuna

    try:
        return optuna.load_study(study_name=plan.name, storage=storage, sampler=sampler, pruner=_pruner(plan))
    except KeyError:  # Optuna's word for a study that is not there
        raise RunError(f"The storage has no study {plan.name!r}: was the folder renamed?") from None


def _connect(plan: Plan) -> RDBStorage:
    from optuna.storages import RDBStorage

    wait = {"connect_args": {"timeout": PATIENCE}} if plan.storage is None else {"pool_pre_ping": True}
    try:
        return RDBStorage(plan.url, engine_kwargs=wait)
    except ImportError as error:
        raise RunError(f"The driver of this storage is not installed here: {error}.") from error


@contextmanager
def in_words(plan: Plan) -> Iterator[None]:
    """A database that does not answer, or answers wrongly, is for the user to put right."""
    import sqlalchemy.exc
    from optuna.exceptions import StorageInternalError

    try:
        yield
    except (StorageInternalError, sqlalchemy.exc.SQLAlchemyError) as error:
        where = plan.folder / plans.DATABASE if plan.storage is None else plans.without_password(plan.storage)
        first = next(iter(str(error.__cause__ or error).splitlines()), type(error).__name__)
        raise RunError(f"The storage {where} cannot be used: {first}") from error


@contextmanager
def exclusively(folder: Path) -> Iterator[None]:
    """Only one process of this machine at a time; the system gives the lock back even on a kill."""
    with (folder / ".lock").open("w") as lock:
        if sys.platform != "win32":
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(folder: Path) -> None:
    try:
        (folder / plans.TRIALS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"The folder {folder} cannot be written: {error.strerror or error}. Choose another with --run-dir."
        ) from error


def _pruner(plan: Plan) -> BasePruner:
    """Hopeless trials end early: below the median of the others at the same epoch, but never at the first."""
    import optuna

    epochs = plan.config.epochs
    if plan.pruner == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=max(2, epochs // 5))
    if plan.pruner == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=max(1, epochs // 9), max_resource=epochs)
    return optuna.pruners.NopPruner()
