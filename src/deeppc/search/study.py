"""The search: trials by TPE, one after the other or by several processes, in a study that survives them all.

    result = search(Plan.of(TrainConfig.of(model="vgg5", dataset="cifar10", epochs=10), trials=40, jobs=2))

A trial trains by :func:`deeppc.training.train` and is judged by its best epoch on held-out images (with
``select="test"``, the paper's protocol, on the test set; otherwise no test image is ever looked at). It is pruned when
it is hopeless; one that diverges is recorded as failed, with its reason.

No trial is lost or counted twice. A trial counts if fewer than N with a lower number have ended or are running, which
every machine that shares the storage sees alike. Its outcome is stored in one transaction; Optuna refuses it if the
trial was given up before. Given up are: trials of a job that is tried again, or that ran in this folder before (only
one search at a time holds the folder's lock), and those on other machines whose heartbeat has stopped.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeppc.errors import DivergedError, Interrupted, OutOfMemory, RunError
from deeppc.files import Lock, write_text
from deeppc.runs.folder import RunFolder
from deeppc.search import plan as plans
from deeppc.search.plan import Plan
from deeppc.search.storage import Session, create, open_study, place, require_optuna
from deeppc.search.trials import LOST, REASON, Progress, Trial, judged_by, score
from deeppc.training import pool
from deeppc.training.config import TrainConfig, replace, to_toml
from deeppc.training.events import EpochDone, Event, Started, StopRun

if TYPE_CHECKING:
    import optuna

LOOK, WAIT = 1.0, 2.0  # seconds between two looks at the study: while it runs, while others have its last trials

Listener = Callable[[Progress], None]


@dataclass(frozen=True)
class SearchResult:
    """``trials`` of all states; ``best`` is the complete one with the highest score."""

    plan: Plan
    trials: list[Trial]
    best: Trial

    @property
    def best_config(self) -> TrainConfig:
        return self.best.config(self.plan.config)


def search(plan: Plan, on_progress: Listener = lambda progress: None) -> SearchResult:
    """Search until ``plan.trials`` trials have ended, resuming what the folder holds; then write ``best.toml``.

    Raises ConfigError for settings that cannot be trained or that differ from those the search was begun with,
    RunError if the storage cannot be used or no trial completed, Interrupted after Ctrl-C.
    """
    from deeppc.training.builder import build

    require_optuna()
    # Whatever is wrong with data, network or algorithm is said before anything is written.
    build(replace(plan.config, **plan.space.example()))
    if plan.storage is not None:
        plans.without_password(plan.storage)  # complains if it is no URL
    new = not plan.folder.exists()
    with Lock(plan.folder / ".lock"), ExitStack() as stack:
        try:
            session = stack.enter_context(create(plan))
        except Exception:
            if new:
                shutil.rmtree(plan.folder, ignore_errors=True)
            raise
        for settings in plan.first:
            session.begin_with(settings)
        reporter = Reporter(session, on_progress)
        try:
            _run(session, reporter)
        except (Interrupted, KeyboardInterrupt) as stop:
            session.give_up(place(plan), "interrupted")
            where = f"after {reporter.look().ended} of {plan.trials} trials"
            raise Interrupted(where, "search", plan.folder, getattr(stop, "signal", 2)) from None
        return _conclude(Progress(plan, session.trials()))


def _run(session: Session, reporter: Reporter) -> None:
    """Fill the places that are free, until all trials have ended."""
    plan, here = session.plan, place(session.plan)
    dead = here if plan.storage else ""  # in a file of our own, any trial that is still running when we begin
    session.give_up(dead)
    while (before := reporter.look().ended) < plan.trials:
        free = plan.trials - session.live()
        if free <= 0:  # other machines work on the last ones, and may lose them
            time.sleep(WAIT)
            session.give_up_silent()
            continue
        jobs = [Job(plan, f"{here}{number}#") for number in range(free)]
        outcomes = pool.run(run_job, jobs, min(plan.jobs, free), reporter.hear)
        session.give_up(dead)
        failed = [outcome for outcome in outcomes if isinstance(outcome, pool.Failed)]
        if failed and reporter.look().ended == before:
            raise RunError(f"All workers ended early: {failed[-1].reason} Resume with:  {plan.resume_command}")


@dataclass(frozen=True)
class Job:
    """A place to be filled by one trial. ``owner`` names it on this machine, in this folder."""

    plan: Plan
    owner: str


def run_job(job: Job, send: pool.Send) -> None:
    """Run one trial, if there is still one to run. In a worker of the pool."""
    with open_study(job.plan) as session:
        from optuna.exceptions import UpdateFinishedTrialError

        session.give_up(job.owner)  # the worker that tried this job before has died
        session.give_up_silent()
        if session.live() < job.plan.trials:
            # the error: others have given the trial up meanwhile, and another one is in its place
            with suppress(UpdateFinishedTrialError), session.begin_trial(job.owner) as trial:
                TrialRun(session, trial, send).run()


@dataclass
class TrialRun:
    """One trial: draw settings, train, and tell Optuna after each epoch. Ends the run before its test set is seen."""

    session: Session
    trial: optuna.Trial
    send: pool.Send
    scores: list[float] = field(default_factory=list)

    def run(self) -> None:
        from optuna.trial import TrialState

        plan, number = self.session.plan, self.trial.number
        if self.session.live(below=number) >= plan.trials:
            self._fail(LOST, "another machine has the last place")
            return
        try:
            self._train(_trial_folder(plan, number))
        except DivergedError as error:
            self._fail(REASON, f"diverged at step {error.step}: the energy of {error.node} is {error.value:.3g}")
        except OutOfMemory:
            self._fail(REASON, "out of memory")
        except (Interrupted, KeyboardInterrupt, SystemExit):
            self._fail(LOST, "interrupted")
            raise
        except Exception as error:
            self._fail(LOST, repr(error))
            raise
        else:
            complete = self._is_last_epoch()
            state = TrialState.COMPLETE if complete else TrialState.PRUNED
            value = max(self.scores) if complete else None
            self.session.study.tell(self.trial, value, state, skip_if_finished=True)

    def _fail(self, attribute: str, why: str) -> None:
        self.session.fail(self.trial._trial_id, attribute, why)

    def _train(self, folder: Path) -> None:
        from optuna.samplers import TPESampler

        from deeppc.data.seeding import generator
        from deeppc.training import train

        plan = self.session.plan
        seed = int(generator("search", plan.config.seed, self.trial.number).integers(2**32))
        self.session.study.sampler = TPESampler(seed=seed)  # workers must not draw alike
        self.config = replace(plan.config, **plan.space.draw(self.trial), run_dir=folder, resume=False)
        self.send("drawn")
        shutil.rmtree(folder, ignore_errors=True)  # of a study that was here before
        try:
            with suppress(StopRun):
                train(self.config, self.hear, report=False)
        finally:  # settings and metrics are worth keeping; weights are not: the best is trained anew in no time
            run = RunFolder(folder)
            for path in (run.checkpoint, run.best, run.lock):
                path.unlink(missing_ok=True)

    def hear(self, event: Event) -> None:
        match event:
            case Started():
                self.metric = event.metric
            case EpochDone():
                value = event.metrics[f"{self.config.select}_{self.metric.name}"]
                self.scores.append(value if self.metric.higher_is_better else -value)
                self.trial.report(self.scores[-1], step=len(self.scores))
                self.send("epoch")
                if self._is_last_epoch() or self.trial.should_prune():
                    raise StopRun

    def _is_last_epoch(self) -> bool:
        """As the training loop sees it."""
        done, patience = len(self.scores), self.config.patience
        best = self.scores.index(max(self.scores)) + 1
        return done >= self.config.epochs or (patience is not None and done - best >= patience)


class Reporter:
    """Tells a listener what has changed in the study, at most once a second unless a trial has ended."""

    def __init__(self, session: Session, listener: Listener) -> None:
        self.session, self.listener = session, listener
        self._known = {t.number for t in session.trials() if t.state != "running"}
        self._last = 0.0

    def hear(self, job: Job, message: Any) -> None:
        if isinstance(message, pool.Failed) and message.traceback:
            log = self.session.plan.folder / "error.log"
            write_text(log, message.traceback)
            raise RunError(
                f"A trial failed: {message.reason} (more in {log}). What has ended is kept; resume with:  "
                f"{self.session.plan.resume_command}"
            )
        if isinstance(message, pool.Done | pool.Failed) or time.monotonic() - self._last > LOOK:
            self.look()

    def look(self) -> Progress:
        trials = self.session.trials()
        news = [t for t in trials if t.state != "running" and t.number not in self._known]
        self._known |= {t.number for t in news}
        progress = Progress(self.session.plan, trials, news)
        self.listener(progress)
        self._last = time.monotonic()
        return progress


def _trial_folder(plan: Plan, number: int) -> Path:
    return plan.folder / plans.TRIALS / f"{number:04}"


def _conclude(progress: Progress) -> SearchResult:
    """Remove what a kill left behind, and write the best settings."""
    plan, trials, best = progress.plan, list(progress.trials), progress.best
    for trial in trials:
        if trial.state == "lost":
            shutil.rmtree(_trial_folder(plan, trial.number), ignore_errors=True)
    if best is None:
        reasons = "; ".join(dict.fromkeys(t.reason for t in trials if t.state == "failed"))
        raise RunError(
            f"No trial in {plan.folder} completed{f' ({reasons[:300]})' if reasons else ''}: narrow the space, e.g. "
            "--space 'lr_w=1e-5..1e-3', in another folder (--run-dir)."
        )
    comment = (
        f"# Trial {best.number} of the search {plan.name!r}: {score(best.value)} on {judged_by(plan.config)}.\n"
        f"# Of {progress.ended} trials: {progress.summary()}.\n"
        f"# Train it:  deeppc train --config {plans.BEST}\n\n"
    )
    write_text(plan.folder / plans.BEST, comment + to_toml(best.config(plan.config)))
    return SearchResult(plan, trials, best)
