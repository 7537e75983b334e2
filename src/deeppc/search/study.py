"""The search: trials by TPE, one after the other or by several processes, in a study that survives them all.

    result = search(Plan.of(TrainConfig(model="vgg5", dataset="cifar10", epochs=10), trials=40, jobs=2))

A trial trains by :func:`deeppc.training.fit.train` and is judged by its best epoch on held-out images (with
``select="test"``, the paper's protocol, on the test set; otherwise no test image is ever looked at). It is pruned when
it is hopeless; one that diverges is recorded as failed, with its reason.
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from deeppc.errors import DivergedError, Interrupted, RunError
from deeppc.files import replacing
from deeppc.runs.folder import LOCK
from deeppc.search import ledger
from deeppc.search import plan as plans
from deeppc.search import storage as storages
from deeppc.search.events import Began, Looked, SearchListener, TrialEnded, nobody
from deeppc.search.ledger import Claim, Worker
from deeppc.search.plan import Plan
from deeppc.search.records import Trial, best_of, progress_of, trials_of
from deeppc.search.storage import Session
from deeppc.training.config import TrainConfig, to_toml
from deeppc.training.events import BatchDone, EpochDone, Event, Note, StopRun
from deeppc.training.interruption import Interruption

if TYPE_CHECKING:
    import optuna

LOOK = 1.0  # seconds between two looks at the study while it goes
WAIT = 0.5  # seconds between two looks for a free slot, when others work on the last ones

Stopper = Callable[[], bool]


@dataclass(frozen=True)
class SearchResult:
    """``trials`` of all states; ``best`` is the complete one with the highest selection accuracy."""

    plan: Plan
    trials: list[Trial]
    best: Trial

    @property
    def best_config(self) -> TrainConfig:
        return self.best.config(self.plan.config)


def search(plan: Plan, on_event: SearchListener = nobody) -> SearchResult:
    """Search until ``plan.trials`` trials are settled, going on with what the folder holds; then write ``best.toml``.

    Raises ConfigError for settings that cannot be trained or that differ from those the search was begun with,
    RunError if the storage cannot be used or no trial completed, Interrupted after Ctrl-C.
    """
    _check(plan)
    with storages.create(plan) as session:
        watcher = Watcher(session, on_event)
        on_event(Began(plan, progress_of(plan, trials_of(session))))
        if plan.jobs == 1:
            with Worker(plan.folder) as worker:
                work(session, worker, look=watcher.look)
        elif not ledger.all_settled(session):
            from deeppc.search.workers import oversee

            oversee(session, watcher)
        watcher.look(now=True)
        return conclude(session)


def conclude(session: Session) -> SearchResult:
    """What came out, and ``best.toml``. Nothing is left running, no weights are left over."""
    plan = session.plan
    with storages.exclusively(plan.folder), storages.in_words(plan):
        ledger.bury(session)
    trials = trials_of(session)
    _clean(plan, trials)
    best = best_of(trials)
    if best is None:
        reasons = "; ".join(dict.fromkeys(t.reason for t in trials if t.state == "failed"))
        raise RunError(
            f"No trial in {plan.folder} completed{f' ({reasons[:300]})' if reasons else ''}: narrow the space, e.g. "
            "--space 'lr_w=1e-5..1e-3', in another folder (--run-dir)."
        )
    result = SearchResult(plan, trials, best)
    with replacing(plan.folder / plans.BEST) as temporary:
        temporary.write_text(_best_toml(result), encoding="utf-8")
    return result


def work(
    session: Session, worker: Worker, stopped: Stopper = lambda: False, look: Callable[[], None] = lambda: None
) -> None:
    """Trial after trial, until all slots are settled. Waits for others' last trials, in case those are lost."""
    with Interruption() as interruption:
        while not stopped():
            if interruption.signal is not None:
                raise interrupted(session, interruption.signal)
            claim = ledger.claim(session, worker)
            if claim is not None:
                with worker.signs_of_life(session, claim):
                    run_trial(session, claim, stopped, look)
            elif ledger.all_settled(session):
                return
            else:
                time.sleep(WAIT)
            look()


def run_trial(session: Session, claim: Claim, stopped: Stopper, look: Callable[[], None]) -> None:
    """Draw settings, train, report. Whatever happens but a kill, the trial is not left running."""
    from optuna.exceptions import UpdateFinishedTrialError

    folder = _folder(session.plan, claim.number)
    shutil.rmtree(folder, ignore_errors=True)  # of a study that was here before
    try:
        _train(session, claim, folder, stopped, look)
        _tidy(folder)
    except UpdateFinishedTrialError:  # others took us for dead, and the slot is theirs now
        shutil.rmtree(folder, ignore_errors=True)
    except BaseException as error:
        ledger.lose(session, claim.number, "interrupted" if _is_wish(error) else f"{type(error).__name__}: {error}")
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, Interrupted):
            raise interrupted(session, error.signal) from None
        raise


def _train(session: Session, claim: Claim, folder: Path, stopped: Stopper, look: Callable[[], None]) -> None:
    """One trial to its end, with what came out in the storage."""
    import torch

    from deeppc.training.fit import train

    plan = session.plan
    with storages.in_words(plan):
        trial = _trial(session, claim)
        drawn = plan.space.draw(trial)
        config = dataclasses.replace(plan.config, **drawn, run_dir=folder, resume=False)  # type: ignore[arg-type]
        watch = Watch(trial, config, stopped, look)
        try:
            train(config, watch)
        except StopRun:
            watch.report(session, claim)
        except DivergedError as error:
            _fail(session, claim, f"diverged at step {error.step}: the energy of {error.node} is {error.value:.3g}")
        except torch.OutOfMemoryError:
            _fail(session, claim, "out of memory")


@dataclass
class Watch:
    """Listens to a trial's run: reports each epoch, and ends it after the last one, when hopeless, or when told to.

    It ends the run itself so that the test set is not looked at.
    """

    trial: optuna.Trial
    config: TrainConfig
    stopped: Stopper
    look: Callable[[], None]
    accuracies: list[float] = field(default_factory=list)
    pruned: bool = False

    def __call__(self, event: Event) -> None:
        match event:
            case BatchDone():
                if self.stopped():
                    raise Abandoned
                self.look()
            case EpochDone():
                self._epoch(event.metrics[f"{self.config.select}_accuracy"])

    def _epoch(self, accuracy: float) -> None:
        self.accuracies.append(accuracy)
        self.trial.report(accuracy, step=len(self.accuracies))
        self.pruned = not self._is_over() and self.trial.should_prune()
        if self.pruned or self._is_over():
            raise StopRun

    def _is_over(self) -> bool:
        """As the training loop sees it."""
        done, patience = len(self.accuracies), self.config.patience
        best = self.accuracies.index(max(self.accuracies)) + 1
        return done >= self.config.epochs or (patience is not None and done - best >= patience)

    def report(self, session: Session, claim: Claim) -> None:
        from optuna.trial import TrialState

        state = TrialState.PRUNED if self.pruned else TrialState.COMPLETE
        session.storage.set_trial_state_values(claim.trial_id, state, [max(self.accuracies)])


class Abandoned(Exception):  # noqa: N818
    """Whoever started this worker has gone, or wants it to end."""


class Watcher:
    """Looks at the study and tells the listener what has changed: once a second, or when asked to look now."""

    def __init__(self, session: Session, on_event: SearchListener) -> None:
        self.session, self.tell = session, on_event
        self._known = {t.number for t in trials_of(session) if t.state != "running"}
        self._last = 0.0

    def look(self, now: bool = False) -> None:
        if not now and time.monotonic() - self._last < LOOK:
            return
        trials = trials_of(self.session)
        progress = progress_of(self.session.plan, trials)
        for trial in trials:
            if trial.state != "running" and trial.number not in self._known:
                self._known.add(trial.number)
                self.tell(TrialEnded(trial, progress))
        self.tell(Looked(progress))
        self._last = time.monotonic()

    def note(self, text: str) -> None:
        self.tell(Note(text))


def _check(plan: Plan) -> None:
    """Data, network, algorithm: whatever is wrong with them is said before anything is written."""
    from deeppc.training.parts import prepare

    storages.require_optuna()
    prepare(plan.config)


def _trial(session: Session, claim: Claim) -> optuna.Trial:
    """The trial for Optuna. Its seed depends on the slot alone: a killed search draws what it would have drawn."""
    from optuna.trial import Trial as OptunaTrial

    from deeppc.data.seeding import generator

    seed = int(generator("search", session.plan.config.seed, claim.slot).integers(2**32))
    return OptunaTrial(session.sampling(seed), claim.trial_id)


def _fail(session: Session, claim: Claim, reason: str) -> None:
    """Failed, but settled: that these settings do not train is a result."""
    from optuna.trial import TrialState

    session.storage.set_trial_user_attr(claim.trial_id, ledger.REASON, reason)
    session.storage.set_trial_state_values(claim.trial_id, TrialState.FAIL)


def _is_wish(error: BaseException) -> bool:
    return isinstance(error, Interrupted | Abandoned | KeyboardInterrupt)


def interrupted(session: Session, signal: int) -> Interrupted:
    progress = progress_of(session.plan, trials_of(session))
    return Interrupted(f"after {progress.settled} of {progress.wanted} trials", "search", session.plan.folder, signal)


def _folder(plan: Plan, number: int) -> Path:
    return plan.folder / plans.TRIALS / f"{number:04}"


def _tidy(folder: Path) -> None:
    """Settings and metrics are worth keeping; weights of a trial are not: the best is trained anew in no time."""
    for path in (*folder.glob("*.safetensors"), folder / LOCK):
        path.unlink(missing_ok=True)


def _clean(plan: Plan, trials: list[Trial]) -> None:
    """What a kill left behind."""
    for trial in trials:
        if trial.state == "lost":
            shutil.rmtree(_folder(plan, trial.number), ignore_errors=True)
        elif trial.state != "running":
            _tidy(_folder(plan, trial.number))
    ledger.forget_dead(plan.folder)


def _best_toml(result: SearchResult) -> str:
    plan, best = result.plan, result.best
    states = progress_of(plan, result.trials).counts
    by = "the test set (the paper's protocol)" if plan.config.select == "test" else "held-out images"
    return (
        f"# Trial {best.number} of the search {plan.name!r}: {100 * (best.value or 0):.2f} % on {by}.\n"
        f"# Of {len(result.trials) - states['lost']} trials {states['complete']} were complete, {states['pruned']} "
        f"pruned, {states['failed']} diverged.\n"
        f"# Train it:  deeppc train --config {plans.BEST}\n\n{to_toml(result.best_config)}"
    )
