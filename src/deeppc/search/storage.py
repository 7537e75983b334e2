"""The study in its storage: SQLite in the study's folder, or any database that Optuna knows.

SQLite rather than Optuna's journal file, because its writes are transactions: a kill in the middle of one leaves
nothing behind. And other databases then take the same way.
"""

from __future__ import annotations

import platform
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from deeppc.errors import ConfigError, RunError
from deeppc.search import plan as plans
from deeppc.search.plan import Plan
from deeppc.search.space import Value
from deeppc.search.trials import LOST, Trial

if TYPE_CHECKING:
    import optuna
    from optuna.pruners import BasePruner
    from optuna.storages import RDBStorage
    from optuna.trial import FrozenTrial

IDENTITY, OWNER = "deeppc", "owner"  # attributes: of the study, what may not change; of a trial, who works on it
HEARTBEAT, GRACE = 30, 600  # seconds between two signs of life, and without any until a trial is given up
# What a damaged database makes Optuna raise, which trusts in whatever it finds there; ImportError: there is no driver.
DAMAGED = (sqlite3.Error, ImportError, ValueError, LookupError, TypeError, AttributeError)
TRIES, AGAIN = 5, 0.2  # and seconds in between, to open a storage whose tables another host is making
PATIENCE = 60  # seconds to wait for another process that writes to the same SQLite file


def require_optuna() -> None:
    """Raise ConfigError where the extra is not installed. Optuna reports nothing by itself, the display does."""
    try:
        import optuna
    except ImportError:
        raise ConfigError(
            "Searching needs Optuna, which is not installed: pip install 'deeppc[search]' (quotes included)."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@dataclass(frozen=True)
class Session:
    """An open study, as a context that closes its connections."""

    plan: Plan
    study: optuna.Study
    storage: RDBStorage

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.storage.remove_session()
        self.storage.engine.dispose()

    def trials(self) -> list[Trial]:
        with in_words(self.plan):
            found = self.study.get_trials(deepcopy=False)
        return [Trial.of(trial) for trial in found if trial.state.name != "WAITING"]

    def begin_with(self, settings: Mapping[str, Value]) -> None:
        """Give these to the next trial, unless one has had them."""
        with in_words(self.plan):
            self.study.enqueue_trial(dict(settings), skip_if_exists=True)

    def live(self, below: int | None = None) -> int:
        """The number of trials that have ended or are running; of those with a number below this one."""
        return sum(t.state != "lost" and (below is None or t.number < below) for t in self.trials())

    @contextmanager
    def begin_trial(self, owner: str) -> Iterator[optuna.Trial]:
        """A new trial, which gives signs of life within the context."""
        from optuna.storages._heartbeat import get_heartbeat_thread  # otherwise only Study.optimize has them

        with in_words(self.plan):
            trial = self.study.ask()
        with get_heartbeat_thread(trial._trial_id, self.storage):
            trial.set_user_attr(OWNER, owner)
            yield trial

    def fail(self, trial_id: int, attribute: str = "", why: str = "") -> None:
        """End a trial as failed, unless it has ended meanwhile."""
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        with in_words(self.plan), suppress(UpdateFinishedTrialError):
            if attribute:
                self.storage.set_trial_user_attr(trial_id, attribute, why)
            self.storage.set_trial_state_values(trial_id, TrialState.FAIL)

    def give_up(self, owner: str, why: str = "") -> None:
        """Free the places of running trials whose owner's name begins so: no process works on them any more."""
        self._give_up(lambda t: str(t.user_attrs.get(OWNER, "")).startswith(owner), why)

    def give_up_silent(self) -> None:
        """Free the places of trials, on any machine, that have given no sign of life for long."""
        from optuna.storages import fail_stale_trials

        with in_words(self.plan):
            fail_stale_trials(self.study)
        since = datetime.now() - timedelta(seconds=GRACE)  # killed before it could say whose it is
        self._give_up(lambda t: OWNER not in t.user_attrs and t.datetime_start is not None and t.datetime_start < since)

    def _give_up(self, which: Callable[[FrozenTrial], bool], why: str = "") -> None:
        with in_words(self.plan):
            found = self.study.get_trials(deepcopy=False)
        for trial in found:
            if trial.state.name == "RUNNING" and which(trial):
                self.fail(trial._trial_id, LOST if why else "", why)


def create(plan: Plan) -> Session:
    """Begin the study, or find the one begun earlier. Raises ConfigError if that one was of other settings."""
    require_optuna()
    import optuna

    if (plan.folder / plans.STUDY).exists():
        with in_words(plan):
            plans.require_same(plans.read(plan.folder).identity(), plan)
        session = open_study(plan)
    else:
        (plan.folder / plans.TRIALS).mkdir(parents=True, exist_ok=True)
        with in_words(plan):
            storage = _connect(plan)
            study = optuna.create_study(
                study_name=plan.name, storage=storage, direction="maximize", load_if_exists=True, pruner=_pruner(plan)
            )
        session = Session(plan, study, storage)
    with in_words(plan):
        begun = session.study.user_attrs.get(IDENTITY)
        if begun is not None:
            plans.require_same(begun, plan)
        elif session.study.get_trials(deepcopy=False):
            raise RunError(f"The storage holds a study {plan.name!r} that deeppc did not begin: rename the folder.")
        else:
            session.study.set_user_attr(IDENTITY, plan.identity())
        plans.write(plan)
    return session


def open_study(plan: Plan) -> Session:
    """Open a study that exists."""
    require_optuna()
    import optuna

    database = plan.folder / plans.DATABASE
    if plan.storage is None and not (database.exists() and database.stat().st_size):  # Optuna would fill an empty one
        raise RunError(
            f"{database} is missing or empty: put it back from a copy. Without one, the trials of this "
            f"search are lost, and {plan.folder / plans.STUDY} may be deleted to begin anew."
        )
    with in_words(plan):
        storage = _connect(plan)
        try:
            study = optuna.load_study(study_name=plan.name, storage=storage, pruner=_pruner(plan))
        except KeyError:
            raise RunError(f"The storage holds no study {plan.name!r}: was {plan.folder} renamed?") from None
        return Session(plan, study, storage)


def read_study(folder: Path, storage: str | None = None) -> tuple[Plan, list[Trial]]:
    """Return the plan and the trials of the search in ``folder``. ``storage`` is given where its URL has a password."""
    plan = plans.read(folder, storage)
    with open_study(plan) as session:
        trials, drawn = session.trials(), {dimension.name for dimension in plan.space.dimensions}
        if unknown := {name for trial in trials for name in trial.params} - drawn:
            raise RunError(f"The storage of {folder} is damaged: its trials have drawn {', '.join(sorted(unknown))}.")
        return plan, trials


def _connect(plan: Plan) -> RDBStorage:
    """Open the storage, with its tables made if it has none. Hosts that begin at once may make the same: try again."""
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import IntegrityError, ProgrammingError

    _require_own(plan)
    patient = {"connect_args": {"timeout": PATIENCE}} if plan.url.startswith("sqlite") else {}
    connect = partial(RDBStorage, plan.url, engine_kwargs=patient, heartbeat_interval=HEARTBEAT, grace_period=GRACE)
    for _ in range(TRIES):
        with suppress(IntegrityError, ProgrammingError):
            return connect()
        time.sleep(AGAIN)
    return connect()


def _require_own(plan: Plan) -> None:
    """Raise RunError for an SQLite file that is damaged, or that is of something else: Optuna would write into it."""
    from sqlalchemy.engine import make_url

    url = make_url(plan.url)
    path = Path(url.database or "")
    if url.get_backend_name() != "sqlite" or not path.is_file() or not path.stat().st_size:
        return
    if not path.read_bytes()[:16].startswith(b"SQLite format 3"):
        raise RunError(f"The storage {path} cannot be used: it is no SQLite database. Choose another, or a copy of it.")
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=PATIENCE)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables and "studies" not in tables:
            raise RunError(f"The storage {path} cannot be used: it is the database of something else. Choose another.")
        if (found := database.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise RunError(f"The storage {path} is damaged: {found}. Put it back from a copy.")


@contextmanager
def in_words(plan: Plan) -> Iterator[None]:
    """Raise RunError for a database that does not answer, or answers wrongly: the user's to put right."""
    import sqlalchemy.exc
    from optuna.exceptions import StorageInternalError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of heartbeats, which have been experimental since 2021
            yield
    except (StorageInternalError, sqlalchemy.exc.SQLAlchemyError, *DAMAGED) as error:
        where = plan.folder / plans.DATABASE if plan.storage is None else plans.without_password(plan.storage)
        first = next(iter(str(error.__cause__ or error).splitlines()), type(error).__name__)
        raise RunError(f"The storage {where} cannot be used: {first}") from error


def place(plan: Plan) -> str:
    """The beginning of the names of all owners of trials on this machine and in this folder."""
    return f"{platform.node()}:{plan.folder.resolve()}#"


def _pruner(plan: Plan) -> BasePruner:
    """Hopeless trials end early: below the median of the others at the same epoch, but never at the first."""
    from optuna import pruners

    epochs = plan.config.epochs
    if plan.pruner == "median":
        return pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=max(2, epochs // 5))
    if plan.pruner == "hyperband":
        return pruners.HyperbandPruner(min_resource=max(1, epochs // 9), max_resource=epochs)
    return pruners.NopPruner()
