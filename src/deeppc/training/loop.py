"""The training loop: data -> network -> algorithm -> optimiser, watched, saved after every epoch, and resumable.

Batches are addressed by (seed, epoch, batch), and what has a state (weights, optimiser, scheduler, torch's random
numbers, sums of the epoch) is in the checkpoint. So a run that was killed, at any moment, resumes from its last
checkpoint to the same bits. A ``DataLoader`` cannot be addressed: such a run is saved, and resumes, at epochs only.

Several workers run this loop side by side, each with its part of every batch, and come to the same weights and numbers.
What is written, worker 0 writes; what only one of them can know, they agree on (see training/distributed.py).
"""

from __future__ import annotations

import math
import secrets
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from deeppc.core.algorithms import Algorithm
from deeppc.core.graph import Graph
from deeppc.core.inputs import UntaughtWarning
from deeppc.data.seeding import generator
from deeppc.errors import (
    ConfigError,
    DataError,
    DivergedError,
    Interrupted,
    RunError,
    UserError,
    is_memory_refused,
    memory_in_words,
)
from deeppc.files import write_tensors
from deeppc.runs.folder import ComparisonFolder, RunFolder, chained
from deeppc.runs.provenance import provenance
from deeppc.training import checkpoint as checkpoints
from deeppc.training.checkpoint import Progress
from deeppc.training.config import flag, toml_of
from deeppc.training.distributed import Exchange, Workers, average_statistics, note_run, synchronised
from deeppc.training.events import BatchDone, Callback, Ended, EpochDone, Event, Finished, Note, Started, StopRun
from deeppc.training.interruption import Interruption
from deeppc.training.result import RunResult
from deeppc.training.schedule import PaperSchedule, Schedule
from deeppc.training.scores import Metric, Sums, evaluate
from deeppc.training.sources import Source, Sources

EXPLODED = 1e6  # mean 1/2 |error|^2 of one node; a network that learns one-hot labels has a few units at most
CHECK_EVERY = 20  # steps between two looks at the energy on an accelerator, where each look waits for the device
STATUS = {Interrupted: "interrupted", DivergedError: "diverged", StopRun: "stopped"}


class _Stop(Exception):  # noqa: N818
    """Leave the loop: the user asked to."""


@dataclass
class Loop:
    """A run, from its first or next batch to its result.

    ``sample``    the first batch, for diagnostics.
    ``settings``  its flat table; ``named``: the table is a config's, and repeats the run by name.
    ``folder``    None: nothing is written.
    ``workers``   those that have the other parts of ``sources``; ``sync_norm``: their norms share statistics.
    The rest is as in :func:`deeppc.fit`.
    """

    net: Graph
    algorithm: Algorithm
    optimizer: Optimizer
    schedule: Schedule
    sources: Sources
    metric: Metric
    sample: tuple[Tensor, Tensor]
    settings: Mapping[str, Any]
    named: bool
    epochs: int
    select: str
    patience: int | None
    diagnostics: bool
    checkpoint_every: float | None
    precision: str
    report: bool
    folder: RunFolder | None
    tell: Callback
    workers: Workers = Workers()  # noqa: RUF009 - frozen
    sync_norm: bool = True

    def __post_init__(self) -> None:
        inputs, targets = self.sample
        self.device = inputs.device
        self.path = self.folder.path if self.folder else None
        self.exchange = None if self.workers.alone else Exchange(self.net, self.workers)
        self._stopped: StopRun | None = None
        if not self.workers.first:
            self.folder = None  # worker 0 writes
        self.progress = Progress()
        self.sums = Sums(tuple(self.net.nodes), self.metric, self.device)
        self.best: checkpoints.Tensors = {}
        self._id = secrets.token_hex(8)
        self._kept = 0  # the epoch whose weights are in the folder; a resumed run writes them again
        self.interruption = Interruption(patient=not self.workers.alone)
        self._under_way = False  # the manifest is this run's; one that could not be resumed stays as it was
        self._saved = self._clock = time.monotonic()
        energy = 0.5 * float(targets.square().flatten(1).sum(1).mean()) if targets.is_floating_point() else 1.0
        self._limit = EXPLODED * max(1.0, energy)

    def run(self, resume: bool) -> RunResult:
        """Train from the start or from the folder's checkpoint, and test the selected epoch."""
        cudnn = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True)  # no choice by a race
        with ExitStack() as stack, cudnn:
            self.workers.share(lambda: self._claim(stack, resume))
            with self.interruption, self._ending():
                if resume:
                    self._resume()
                else:
                    self._begin()
                try:
                    with memory_in_words("the training"), self._warnings_as_notes():
                        while not self._over():
                            self._train_epoch()
                            self._close_epoch()
                            self._agree(False)
                        return self._finish()
                except _Stop:
                    if self.progress.batch:  # at the edge of an epoch the last checkpoint already is where it stopped
                        self._save()
                    raise self._interrupted() from None

    def _claim(self, stack: ExitStack, resume: bool) -> None:
        """Hold the folder until ``stack`` is left, once it is one that can be used."""
        if self.folder is not None:
            stack.enter_context(self.folder.held())
            if not resume:
                self.folder.require_unused()
            self.folder.require_space(checkpoints.size_of(self.net))

    def _begin(self) -> None:
        """Write the manifest, then a first checkpoint: whatever cannot be written is found out now."""
        sources, net = self.sources, self.net
        if not self.workers.alone:  # which may have drawn other weights
            weights = self.workers.share(lambda: {name: value.cpu() for name, value in net.state_dict().items()})
            net.load_state_dict(weights)
            self._draw_apart()
        sizes = {"train": sources.train, "validation": sources.validation, "test": sources.test}
        manifest = {
            "id": self._id,
            **provenance(self.device.type),
            "workers": self.workers.size,
            "seed": self.settings.get("seed"),
            "resumed": [],
            "dataset": sources.description,
            "data": {name: source.size if source is not None else 0 for name, source in sizes.items()},
            "network": {"levels": net.L, "nodes": list(net.nodes), "parameters": self._parameters()},
            "metric": {"name": self.metric.name, "higher_is_better": self.metric.higher_is_better},
        }
        self.progress.history = self._id
        self._write_manifest(manifest, "starting")
        if self.folder is not None:
            self.folder.cut_metrics(0)
        self._save()
        self._write_manifest(manifest, "running")
        self._announce()

    def _resume(self) -> None:
        """Restore the last checkpoint; begin anew if the run was killed before it had one."""
        manifest, saved = self.workers.share(self._saved_run)
        if saved is None:
            self._begin()
            return
        checkpoints.restore(saved, self.net, self.optimizer)
        self.schedule.load(saved.schedule)
        self.progress, self.best, self._id = saved.progress, saved.part("best."), manifest["id"]
        self.sums.load(saved.part("sums."))
        self._draw_apart()
        if manifest.get("workers", 1) == self.workers.size:
            self._use_threads(manifest["machine"]["threads"])
        if self.folder is not None:
            self._save_best()  # a kill may have come between the two files
            self.folder.cut_metrics(self.progress.epoch)
        now = {**provenance(self.device.type), "workers": self.workers.size}
        again = {key: now[key] for key in ("started", "command", "versions", "git", "machine", "workers")}
        manifest["resumed"].append({**again, "epoch": self.progress.epoch, "batch": self.progress.batch})
        planned = manifest["config"]["epochs"]
        self._write_manifest(manifest, "running")
        self._announce()
        if self.epochs > planned and isinstance(self.schedule, PaperSchedule):
            horizon = min(planned, self.settings["schedule_epochs"])
            text = f"The learning rate keeps the schedule that the run was begun with: it falls over {horizon} epochs, "
            self.tell(Note(text + "and then stays at its tenth."))
        if not self.sources.exact:
            text = "A DataLoader cannot be asked for a single batch: the run resumes at the start of an epoch."
            if getattr(self.sources.train, "generator", None) is not None:
                text += " Its own generator is not saved: from here on, batches come in another order than before."
            self.tell(Note(text))

    def _saved_run(self) -> tuple[dict[str, Any], checkpoints.Checkpoint | None]:
        """The manifest and the last checkpoint, if the run came to one."""
        assert self.folder is not None
        manifest = self.folder.manifest()
        begun = manifest.get("metric", {}).get("name", self.metric.name)
        if begun != self.metric.name:
            raise ConfigError(f"The run was begun with targets scored by {begun}, not by {self.metric.name}.")
        return manifest, checkpoints.resumable(self.folder)

    def _draw_apart(self) -> None:
        """Let every worker but the first, who draws as one alone would, have random numbers (dropout) of its own."""
        if not self.workers.first:
            key = self.workers.rank, self.progress.step
            torch.manual_seed(int(generator("worker", *key).integers(2**62)))

    def _over(self) -> bool:
        done, patience = self.progress.epoch, self.patience
        return done >= self.epochs or (patience is not None and done - self.progress.best_epoch >= patience)

    def _train_epoch(self) -> None:
        self._clock = time.monotonic()
        progress = self.progress
        for inputs, targets in self.sources.train.epoch(progress.epoch, start=progress.batch):
            self._pause()
            self.schedule.before_step(progress.step)
            progress.lr = float(self.optimizer.param_groups[0]["lr"])
            with self._precision(), self._errors_in_words(inputs), self._synchronised():
                if self.exchange is not None:
                    self.exchange.begin(len(targets))
                out = self.algorithm.step(self.net, inputs, targets, self.optimizer, workers=self.exchange)
            energy = self.sums.add(out.logits, targets, out.energy, self.workers.total)
            self.schedule.after_step()
            progress.step += 1
            progress.batch += 1
            looking = self.device.type == "cpu" or progress.step % CHECK_EVERY == 0
            if looking:
                self._require_sound(energy)
            self._tell(BatchDone(progress.epoch + 1, progress.batch, self.sums))
            if (looking or self.workers.alone) and self._agree(self._due()):
                self._save()

    def _close_epoch(self) -> None:
        """Evaluate, select, write the line of metrics, then the checkpoint that counts it, then the best weights."""
        self._require_sound(self.sums.energy())
        self._average()
        progress, name = self.progress, self.metric.name
        validation = self._evaluate(self.sources.validation)
        test = self._evaluate(self.sources.test) if self.select == "test" else {}
        metrics: dict[str, Any] = {
            "epoch": progress.epoch + 1,
            "step": progress.step,
            "lr_w": progress.lr,
            f"train_{name}": self.sums.value(),
            "energy": self.sums.energies(),
            **{f"validation_{key}": validation.get(key) for key in self.metric.names},
            **{f"test_{key}": value for key, value in test.items()},
        }
        if self.diagnostics and self.workers.first:
            metrics |= self._diagnose()
        self._tick()
        metrics["seconds"] = round(progress.epoch_seconds, 3)

        chosen = (test or validation).get(name, metrics[f"train_{name}"])
        self.schedule.after_epoch(chosen)
        progress.epoch += 1
        progress.batch, progress.epoch_seconds = 0, 0.0
        self.sums = Sums(self.sums.nodes, self.metric, self.device)
        if self.select == "last" or self.metric.better(chosen, progress.best_score):
            progress.best_epoch, progress.best_score = progress.epoch, chosen
            self.best = checkpoints.weights_of(self.net)
        if self.folder is not None:
            self.folder.append_metrics(metrics)
            progress.history = chained(progress.history, metrics)
        self._save()
        self._tell(EpochDone(metrics, selected=progress.best_epoch == progress.epoch))

    def _finish(self) -> RunResult:
        self._clock = time.monotonic()
        self.net.load_state_dict(self.best)
        test = self._evaluate(self.sources.test)
        self._tick()
        progress = self.progress
        score = progress.best_score if self.select == "validation" else None
        result = RunResult(
            run_dir=self.path,
            metric=self.metric.name,
            selected_epoch=progress.best_epoch,
            select=self.select,
            validation=None if score is None else {self.metric.name: score},
            test=test,
            epochs=progress.epoch,
            steps=progress.step,
            seconds=round(progress.seconds, 3),
        )
        if self.folder is not None:
            self.folder.write_result({**result.table(), "history": progress.history})
        self.tell(Finished(result))
        return result

    def _diagnose(self) -> dict[str, Any]:
        """Diagnose the run's first batch, which is another for every seed, and the same after every epoch."""
        from deeppc.diagnostics.updates import diagnose

        with self._precision():
            return dict(diagnose(self.algorithm, self.net, *self.sample, self.optimizer))

    def _evaluate(self, source: Source | None) -> dict[str, float]:
        if source is None:
            return {}
        with self._precision():
            return evaluate(self.net, source, self.metric, self._pause, self.workers.total)

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16")

    @contextmanager
    def _errors_in_words(self, inputs: Tensor) -> Iterator[None]:
        """What a module of the network raises over a batch is said in words, with its node, and the batch by number."""
        try:
            yield
        except Exception as error:
            if isinstance(error, UserError) or is_memory_refused(error):
                raise
            where = f"batch {self.progress.batch + 1} of epoch {self.progress.epoch + 1}"
            if len(inputs) == 1 and "more than 1 value" in str(error):
                raise DataError(
                    f"{where.capitalize()} is a single sample, which a BatchNorm cannot normalise: leave it out by "
                    "DataLoader(..., drop_last=True), or choose another batch size."
                ) from error
            notes = " ".join(getattr(error, "__notes__", ()))  # the core says at which node
            what = f"{type(error).__name__}: {error} {notes}".rstrip()
            raise RunError(f"The network failed in {where}: {what}") from error

    @contextmanager
    def _warnings_as_notes(self) -> Iterator[None]:
        """What the core warns of in every step is told once."""
        told, show = False, warnings.showwarning

        def tell(message: Warning | str, category: type[Warning], *where: Any) -> None:
            nonlocal told
            if not issubclass(category, UntaughtWarning):
                show(message, category, *where)
            elif not told:
                told = True
                self.tell(Note(str(message)))

        with warnings.catch_warnings():
            warnings.simplefilter("always", UntaughtWarning)
            warnings.showwarning = tell  # type: ignore[assignment]
            yield

    def _synchronised(self) -> AbstractContextManager[None]:
        """Let BatchNorms see the whole batch. (Only a step does: diagnostics have the whole batch in one process.)"""
        return synchronised(self.net) if self.sync_norm and not self.workers.alone else nullcontext()

    def _average(self) -> None:
        """Have the same running statistics in all workers, to evaluate and to save."""
        if not self.sync_norm:
            average_statistics(self.net, self.workers)

    def _pause(self) -> None:
        if self.workers.alone and self.interruption.signal is not None:
            raise _Stop

    def _due(self) -> bool:
        """Whether it is time for a checkpoint within the epoch."""
        every = self.checkpoint_every
        return every is not None and time.monotonic() - self._saved >= 60 * every

    def _agree(self, save: bool) -> bool:
        """Stop if any worker was told to. Returns whether worker 0 wants to save."""
        if self.workers.alone:
            return save
        wishes = [self.interruption.signal or 0, self._stopped is not None, save and self.workers.first]
        signal, stop, saving = map(int, self.workers.most(wishes))
        if signal:
            self.interruption.signal = signal
            raise _Stop
        if stop:
            raise self._stopped or StopRun
        return bool(saving)

    def _tell(self, event: Event) -> None:
        """Tell callbacks, whose wish to stop is granted when all workers know of it."""
        try:
            self.tell(event)
        except StopRun as stop:
            if self.workers.alone:
                raise
            self._stopped = stop

    def _interrupted(self) -> Interrupted:
        assert self.interruption.signal is not None
        done, batches = self.progress, len(self.sources.train)
        where = f"in epoch {done.epoch + 1}, after {done.batch} of {batches} batches"
        if not done.batch:
            where = f"after epoch {done.epoch}" if done.epoch else "before the first batch"
        elif not self.sources.exact:
            where += f" (which are not kept: what is saved is epoch {done.epoch})"
        return Interrupted(where, "train" if self.named else "fit", self.path, self.interruption.signal)

    def _require_sound(self, energy: Tensor) -> None:
        """Stop where an energy is NaN or beyond reason. Of several nodes, name the one that the wave reaches first."""
        if bool((energy < self._limit).all()):
            return
        values = dict(zip(self.sums.nodes, energy.tolist(), strict=True))
        bad = [v for v, value in values.items() if not value < self._limit]
        node = min(bad, key=lambda v: self.net.arrival[v])
        raise self._diverged(node, values[node])

    def _diverged(self, node: str, energy: float) -> DivergedError:
        options = self.algorithm.settings()
        named = flag if self.named else str
        advice = f"{named('lr_w')} (now {self.settings.get('lr_w', self.progress.lr):g})"
        if "lr_x" in options:
            advice = f"{named('lr_x')} (now {options['lr_x']:g}) or {advice}"
        if options.get("precision_on") == "node":
            advice += f" or choose {named('precision_on')} energy"
        if options.get("depth_gain"):
            advice += f" or leave out {named('depth_gain')}"
        return DivergedError(self.progress.step, node, energy, self.path, f"Lower {advice}.")

    def _tick(self) -> None:
        """Add the time since the last look to the epoch's and the run's."""
        now = time.monotonic()
        self.progress.epoch_seconds += now - self._clock
        self.progress.seconds += now - self._clock
        self._clock = now

    def _save(self) -> None:
        """Write the checkpoint, then the best weights if they are new. Never weights that are not finite."""
        for name, parameter in self.net.named_parameters():
            if not bool(parameter.isfinite().all()):
                raise self._diverged(name.split(".")[1], math.nan)
        self._tick()
        self._average()
        self._saved = time.monotonic()
        if self.folder is None or (self.progress.batch and not self.sources.exact):
            return
        checkpoints.save(
            self.folder.checkpoint,
            self.net,
            self.optimizer,
            self.progress,
            best=self.best,
            sums=self.sums.tensors,
            schedule=self.schedule.state(),
        )
        self._save_best()

    def _save_best(self) -> None:
        assert self.folder is not None
        if self.best and self.progress.best_epoch != self._kept:
            header = {"epoch": str(self.progress.best_epoch), self.metric.name: repr(self.progress.best_score)}
            header["run"] = self._id
            write_tensors(self.folder.best, self.best, header)
            self._kept = self.progress.best_epoch

    def _write_manifest(self, manifest: Mapping[str, Any], status: str) -> None:
        if self.folder is not None:
            self.folder.write_manifest({**manifest, "config": dict(self.settings), "status": status})
            note_run(self.folder.path)
            self._under_way = True
            if self.named:
                self.folder.write_config(toml_of(self.settings))

    def _use_threads(self, begun: int) -> None:
        """As many as the run was begun with: another number adds up in another order, to other bits."""
        now = torch.get_num_threads()
        if self.device.type == "cpu" and begun != now:
            torch.set_num_threads(begun)
            self.tell(Note(f"Resuming with {begun} threads instead of {now}, as the run was begun: the same bits."))

    def _parameters(self) -> int:
        return sum(p.numel() for p in self.net.parameters())

    def _announce(self) -> None:
        self.tell(
            Started(
                settings=self.settings,
                run_dir=self.path,
                dataset=self.sources.description,
                parameters=self._parameters(),
                device=self.device.type,
                samples=self.sources.train.size,
                batches=len(self.sources.train),
                epochs=self.epochs,
                epoch=self.progress.epoch,
                batch=self.progress.batch,
                metric=self.metric,
            )
        )

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """However the run ends, its manifest says so, its report is written, and callbacks are told."""
        status = "finished"
        try:
            yield
        except BaseException as error:
            status = next((name for kind, name in STATUS.items() if isinstance(error, kind)), "failed")
            raise
        finally:
            self.schedule.end()
            if self.folder is None:
                self.tell(Ended(None, status))
            elif self._under_way:
                if status == "failed" and not self.folder.checkpoint.exists():
                    status = "starting"  # there is nothing to resume from: the run may begin anew
                self.folder.set_status(status)
                if self.report:
                    write_report("write_run", self.folder, self.tell)
                self.tell(Ended(self.path, status))


def write_report(function: str, folder: RunFolder | ComparisonFolder, tell: Callback) -> None:
    """Draw the curves and the report. The run is safe on the disk, so a failure here is only a note."""
    try:
        from deeppc.report import pages

        tell(Note(f"report: {getattr(pages, function)(folder.path)}"))
    except Exception as error:
        tell(Note(f"The report of {folder.path} could not be written: {error!r}"))
