"""The training loop: data -> network -> algorithm -> optimiser, watched, saved after every epoch, and resumable.

Batches are addressed by (seed, epoch, batch), and what has a state (weights, optimiser, scheduler, torch's random
numbers, sums of the epoch) is in the checkpoint. So a run that was killed, at any moment, resumes from its last
checkpoint to the same bits. A ``DataLoader`` cannot be addressed: such a run is saved, and resumes, at epochs only.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from deeppc.core.algorithms import Algorithm
from deeppc.core.graph import Graph
from deeppc.errors import ConfigError, DivergedError, Interrupted, RunError
from deeppc.runs.folder import ComparisonFolder, RunFolder
from deeppc.runs.provenance import provenance
from deeppc.training import checkpoint as checkpoints
from deeppc.training.checkpoint import Progress
from deeppc.training.config import fingerprint, flag, toml_of
from deeppc.training.events import BatchDone, Callback, Ended, EpochDone, Finished, Note, Started, StopRun
from deeppc.training.interruption import Interruption
from deeppc.training.result import RunResult
from deeppc.training.schedule import Schedule
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

    def __post_init__(self) -> None:
        inputs, targets = self.sample
        self.device = inputs.device
        self.path = self.folder.path if self.folder else None
        self.progress = Progress()
        self.sums = Sums(tuple(self.net.nodes), self.metric, self.device)
        self.best: checkpoints.Tensors = {}
        self.interruption = Interruption()
        self._under_way = False  # the manifest is this run's; one that could not be resumed stays as it was
        self._saved = self._clock = time.monotonic()
        energy = 0.5 * float(targets.square().flatten(1).sum(1).mean()) if targets.is_floating_point() else 1.0
        self._limit = EXPLODED * max(1.0, energy)

    def run(self, resume: bool) -> RunResult:
        """Train from the start or from the folder's checkpoint, and test the selected epoch."""
        cudnn = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True)  # no choice by a race
        with self.folder.held() if self.folder else nullcontext(), cudnn:
            if self.folder is not None:
                if not resume:
                    self.folder.require_unused()
                self.folder.require_space(checkpoints.size_of(self.net))
            with self._ending(), self.interruption:
                if resume:
                    self._resume()
                else:
                    self._begin()
                try:
                    while not self._over():
                        self._train_epoch()
                        self._close_epoch()
                    return self._finish()
                except _Stop:
                    if self.progress.batch:  # at the edge of an epoch the last checkpoint already is where it stopped
                        self._save()
                    raise self._interrupted() from None

    def _begin(self) -> None:
        """Write the manifest, then a first checkpoint: whatever cannot be written is found out now."""
        sources, net = self.sources, self.net
        sizes = {"train": sources.train, "validation": sources.validation, "test": sources.test}
        self._write_manifest(
            {
                **provenance(self.device.type),
                "seed": self.settings.get("seed"),
                "resumed": [],
                "dataset": sources.description,
                "data": {name: source.size if source is not None else 0 for name, source in sizes.items()},
                "network": {"levels": net.L, "nodes": list(net.nodes), "parameters": self._parameters()},
                "metric": {"name": self.metric.name, "higher_is_better": self.metric.higher_is_better},
            }
        )
        self._save()
        self._announce()

    def _resume(self) -> None:
        """Restore the last checkpoint; begin anew if the run was killed before it had one."""
        assert self.folder is not None
        manifest = self.folder.manifest()
        begun = manifest.get("metric", {}).get("name", self.metric.name)
        if begun != self.metric.name:
            raise ConfigError(f"The run was begun with targets scored by {begun}, not by {self.metric.name}.")
        self._use_threads(manifest["machine"]["threads"])
        if self.folder.checkpoint.exists():
            saved = checkpoints.load(self.folder.checkpoint)
            if saved.fingerprint != fingerprint(self.settings):
                raise RunError(f"{self.folder.checkpoint} is of another run than the manifest beside it.")
            checkpoints.restore(saved, self.net, self.optimizer)
            self.schedule.load(saved.schedule)
            self.progress, self.best = saved.progress, saved.part("best.")
            self.sums.load(saved.part("sums."))
            self._save_best()  # a kill may have come between the two files
        self.folder.cut_metrics(self.progress.epoch)
        now = provenance(self.device.type)
        again = {key: now[key] for key in ("started", "command", "versions", "git", "machine")}
        manifest["resumed"].append({**again, "epoch": self.progress.epoch, "batch": self.progress.batch})
        self._write_manifest(manifest)
        self._announce()
        if not self.sources.exact:
            text = "A DataLoader cannot be asked for a single batch: the run resumes at the start of an epoch."
            self.tell(Note(text))

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
            with self._precision():
                out = self.algorithm.step(self.net, inputs, targets, self.optimizer)
            energy = self.sums.add(out.logits, targets, out.energy)
            self.schedule.after_step()
            progress.step += 1
            progress.batch += 1
            if self.device.type == "cpu" or progress.step % CHECK_EVERY == 0:
                self._require_sound(energy)
            self.tell(BatchDone(progress.epoch + 1, progress.batch, self.sums))
            if self.checkpoint_every is not None and time.monotonic() - self._saved >= 60 * self.checkpoint_every:
                self._save()

    def _close_epoch(self) -> None:
        """Evaluate, select, write the line of metrics, then the checkpoint that counts it, then the best weights."""
        self._require_sound(self.sums.energy())
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
        if self.diagnostics:
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
        self._save()
        self.tell(EpochDone(metrics))

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
            self.folder.write_result(result.table())
        self.tell(Finished(result))
        return result

    def _diagnose(self) -> dict[str, Any]:
        """Diagnose the run's first batch, which is another for every seed, and the same after every epoch."""
        from deeppc.diagnostics.updates import diagnose

        with self._precision():
            return dict(diagnose(self.algorithm, self.net, *self.sample))

    def _evaluate(self, source: Source | None) -> dict[str, float]:
        if source is None:
            return {}
        with self._precision():
            return evaluate(self.net, source, self.metric, self._pause)

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16")

    def _pause(self) -> None:
        if self.interruption.signal is not None:
            raise _Stop

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
        self._saved = time.monotonic()
        if self.folder is None or (self.progress.batch and not self.sources.exact):
            return
        checkpoints.save(
            self.folder.checkpoint,
            self.net,
            self.optimizer,
            self.progress,
            fingerprint(self.settings),
            best=self.best,
            sums=self.sums.tensors,
            schedule=self.schedule.state(),
        )
        self._save_best()

    def _save_best(self) -> None:
        assert self.folder is not None
        header = {"epoch": str(self.progress.best_epoch), self.metric.name: repr(self.progress.best_score)}
        if self.best and checkpoints.saved_header(self.folder.best) != header:
            checkpoints.write_tensors(self.folder.best, self.best, header)

    def _write_manifest(self, manifest: Mapping[str, Any]) -> None:
        if self.folder is not None:
            self.folder.write_manifest({**manifest, "config": dict(self.settings), "status": "running"})
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
