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
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from deeppc.core.algorithms import Algorithm
from deeppc.core.graph import Graph
from deeppc.errors import DivergedError, Interrupted, RunError
from deeppc.runs.folder import RunFolder
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


@dataclass(frozen=True)
class Setup:
    """What a run is made of.

    ``sample``    the first batch, for diagnostics.
    ``settings``  its flat table; ``named``: the table is a config's, and repeats the run by name.
    """

    net: Graph
    algorithm: Algorithm
    optimizer: Optimizer
    schedule: Schedule
    sources: Sources
    metric: Metric
    sample: tuple[Tensor, Tensor]
    device: torch.device
    settings: Mapping[str, Any]
    named: bool
    epochs: int
    select: Literal["validation", "test", "last"]
    patience: int | None = None
    diagnostics: bool = False
    checkpoint_every: float | None = None
    precision: str = "fp32"
    report: bool = True


def run(setup: Setup, folder: RunFolder | None, resume: bool, tell: Callback) -> RunResult:
    """Train in ``folder`` (None: nowhere), from the start or from its checkpoint, and test the selected epoch."""
    with folder.held() if folder else nullcontext(), _reproducible(setup.device):
        if folder is not None:
            if not resume:
                folder.require_unused()
            folder.require_space(checkpoints.size_of(setup.net))
        with _ending(folder, tell, setup.report), Interruption() as interruption:
            loop = _Loop(setup, folder, tell, interruption)
            if resume:
                loop.resume()
            else:
                loop.begin()
            return loop.complete()


class _Stop(Exception):  # noqa: N818
    """Leave the loop: the user asked to."""


class _Loop:
    def __init__(self, setup: Setup, folder: RunFolder | None, tell: Callback, interruption: Interruption) -> None:
        self.setup, self.folder, self.tell, self.interruption = setup, folder, tell, interruption
        self.net, self.optimizer, self.sources = setup.net, setup.optimizer, setup.sources
        self.path = folder.path if folder else None
        self.parameters = sum(p.numel() for p in self.net.parameters())
        self.progress = Progress()
        self.sums = self._no_sums()
        self.best: checkpoints.Tensors = {}
        self._saved = self._clock = time.monotonic()
        targets = setup.sample[1]
        energy = 0.5 * float(targets.square().flatten(1).sum(1).mean()) if targets.is_floating_point() else 1.0
        self._limit = EXPLODED * max(1.0, energy)

    def _no_sums(self) -> Sums:
        return Sums.zero(tuple(self.net.nodes), self.setup.metric, self.setup.device)

    def begin(self) -> None:
        """Write the manifest, then a first checkpoint: whatever cannot be written is found out now."""
        if self.folder is not None:
            sizes = {"train": self.sources.train, "validation": self.sources.validation, "test": self.sources.test}
            metric = self.setup.metric
            self.folder.write_manifest(
                {
                    **provenance(self.setup.device.type),
                    "status": "running",
                    "seed": self.setup.settings.get("seed"),
                    "config": dict(self.setup.settings),
                    "resumed": [],
                    "dataset": self.sources.description,
                    "data": {name: source.size if source is not None else 0 for name, source in sizes.items()},
                    "network": {"levels": self.net.L, "nodes": list(self.net.nodes), "parameters": self.parameters},
                    "metric": {"name": metric.name, "higher_is_better": metric.higher_is_better},
                }
            )
            self._write_config(self.folder)
        self._save()
        self._announce()

    def resume(self) -> None:
        """Restore the last checkpoint; begin anew if the run was killed before it had one."""
        assert self.folder is not None
        manifest = self.folder.manifest()
        self._use_threads(manifest)
        if self.folder.checkpoint.exists():
            saved = checkpoints.load(self.folder.checkpoint)
            if saved.fingerprint != fingerprint(self.setup.settings):
                raise RunError(f"{self.folder.checkpoint} is of another run than the manifest beside it.")
            checkpoints.restore(saved, self.net, self.optimizer)
            self.setup.schedule.load(saved.schedule)
            self.progress, self.best = saved.progress, saved.part("best.")
            self.sums.put(saved.part("sums."))
        self.folder.cut_metrics(self.progress.epoch)
        now = provenance(self.setup.device.type)
        again = {key: now[key] for key in ("started", "command", "versions", "git", "machine")}
        manifest |= {"config": dict(self.setup.settings), "status": "running"}
        manifest["resumed"].append({**again, "epoch": self.progress.epoch, "batch": self.progress.batch})
        self.folder.write_manifest(manifest)
        self._write_config(self.folder)
        self._announce()
        if not self.sources.exact:
            self.tell(
                Note("A DataLoader cannot be asked for a single batch: the run resumes at the start of an epoch.")
            )

    def complete(self) -> RunResult:
        """Train what is left, then test the selected epoch."""
        try:
            while not self._over():
                self._train_epoch()
                self._close_epoch()
            return self._finish()
        except _Stop:
            self._save()
            raise self._interrupted() from None

    def _over(self) -> bool:
        done, patience = self.progress.epoch, self.setup.patience
        return done >= self.setup.epochs or (patience is not None and done - self.progress.best_epoch >= patience)

    def _train_epoch(self) -> None:
        self._clock = time.monotonic()
        for inputs, targets in self.sources.train.epoch(self.progress.epoch, start=self.progress.batch):
            self._pause()
            self.setup.schedule.before_step(self.progress.step)
            self.progress.lr = float(self.optimizer.param_groups[0]["lr"])
            with self._precision():
                out = self.setup.algorithm.step(self.net, inputs, targets, self.optimizer)
            energy = torch.stack([out.energy[v].to(self.sums.energy) for v in self.sums.nodes])
            self.sums.add(out.logits, targets, energy)
            self.setup.schedule.after_step()
            self.progress.step += 1
            self.progress.batch += 1
            if self.setup.device.type == "cpu" or self.progress.step % CHECK_EVERY == 0:
                self._require_sound(energy)
            self.tell(BatchDone(self.progress.epoch + 1, self.progress.batch, self.sums))
            every = self.setup.checkpoint_every
            if every is not None and time.monotonic() - self._saved >= 60 * every:
                self._save()

    def _close_epoch(self) -> None:
        """Evaluate, select, write the line of metrics, then the checkpoint that counts it, then the best weights."""
        self._require_sound(self.sums.energy / self.sums.batches)
        metric, select = self.setup.metric, self.setup.select
        validation = self._evaluate(self.sources.validation) if self.sources.validation is not None else None
        test = self._evaluate(self.sources.test) if select == "test" and self.sources.test is not None else None
        metrics: dict[str, Any] = {
            "epoch": self.progress.epoch + 1,
            "step": self.progress.step,
            "lr_w": self.progress.lr,
            f"train_{metric.name}": self.sums.value(),
            "energy": self.sums.energies(),
            **{f"validation_{name}": validation[name] if validation else None for name in metric.names},
        }
        if test is not None:
            metrics |= {f"test_{name}": value for name, value in test.items()}
        if self.setup.diagnostics:
            metrics |= self._diagnosis()
        self._tick()
        metrics["seconds"] = round(self.progress.epoch_seconds, 3)

        chosen = (test or validation or {}).get(metric.name, metrics[f"train_{metric.name}"])
        self.setup.schedule.after_epoch(chosen)
        self.progress.epoch += 1
        self.progress.batch = 0
        self.progress.epoch_seconds = 0.0
        self.sums = self._no_sums()
        if select == "last" or metric.better(chosen, self.progress.best_score):
            self.progress.best_epoch, self.progress.best_score = self.progress.epoch, chosen
            self.best = checkpoints.weights_of(self.net)
        if self.folder is not None:
            self.folder.append_metrics(metrics)
        self._save()
        self.tell(EpochDone(metrics))

    def _finish(self) -> RunResult:
        self._clock = time.monotonic()
        self.net.load_state_dict(self.best)
        test = self._evaluate(self.sources.test) if self.sources.test is not None else {}
        self._tick()
        score = self.progress.best_score
        result = RunResult(
            run_dir=self.path,
            metric=self.setup.metric.name,
            selected_epoch=self.progress.best_epoch,
            select=self.setup.select,
            validation={self.setup.metric.name: score}
            if self.setup.select == "validation" and score is not None
            else None,
            test=test,
            epochs=self.progress.epoch,
            steps=self.progress.step,
            seconds=round(self.progress.seconds, 3),
        )
        if self.folder is not None:
            self.folder.write_result(result.table())
        self.tell(Finished(result))
        return result

    def _diagnosis(self) -> dict[str, Any]:
        """On the run's first batch, which is another for every seed, and the same after every epoch."""
        from deeppc.diagnostics.updates import diagnose

        with self._precision():
            return dict(diagnose(self.setup.algorithm, self.net, *self.setup.sample))

    def _evaluate(self, source: Source) -> dict[str, float]:
        with self._precision():
            return evaluate(self.net, source, self.setup.metric, self._pause)

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
        return Interrupted(where, "train" if self.setup.named else "fit", self.path, self.interruption.signal)

    def _precision(self) -> torch.autocast:
        bf16 = self.setup.precision == "bf16"
        return torch.autocast(self.setup.device.type, dtype=torch.bfloat16, enabled=bf16)

    def _require_sound(self, energy: Tensor) -> None:
        """Stop where an energy is NaN or beyond reason. Of several nodes, name the one that the wave reaches first."""
        if bool((energy < self._limit).all()):
            return
        values = dict(zip(self.sums.nodes, energy.tolist(), strict=True))
        bad = [v for v, value in values.items() if not value < self._limit]
        self._diverged(min(bad, key=lambda v: self.net.arrival[v]), values)

    def _require_finite_weights(self) -> None:
        for name, parameter in self.net.named_parameters():
            if not bool(parameter.isfinite().all()):
                self._diverged(name.split(".")[1], {})

    def _diverged(self, node: str, values: Mapping[str, float]) -> None:
        options = self.setup.algorithm.settings()
        named = flag if self.setup.named else str
        advice = f"{named('lr_w')} (now {self.setup.settings.get('lr_w', self.progress.lr):g})"
        if "lr_x" in options:
            advice = f"{named('lr_x')} (now {options['lr_x']:g}) or {advice}"
        if options.get("precision_on") == "node":
            advice += f" or choose {named('precision_on')} energy"
        if options.get("depth_gain"):
            advice += f" or leave out {named('depth_gain')}"
        raise DivergedError(self.progress.step, node, values.get(node, math.nan), self.path, f"Lower {advice}.")

    def _tick(self) -> None:
        """Add the time since the last look to the epoch's and the run's."""
        now = time.monotonic()
        self.progress.epoch_seconds += now - self._clock
        self.progress.seconds += now - self._clock
        self._clock = now

    def _save(self) -> None:
        """Write the checkpoint, then the best weights if they are new. Never weights that are not finite."""
        self._require_finite_weights()
        self._tick()
        self._saved = time.monotonic()
        if self.folder is None or (self.progress.batch and not self.sources.exact):
            return
        checkpoints.save(
            self.folder.checkpoint,
            self.net,
            self.optimizer,
            self.progress,
            fingerprint(self.setup.settings),
            best=self.best,
            sums=self.sums.tensors(),
            schedule=self.setup.schedule.state(),
        )
        header = {"epoch": str(self.progress.best_epoch), self.setup.metric.name: repr(self.progress.best_score)}
        if self.best and checkpoints.saved_header(self.folder.best) != header:
            checkpoints.save_weights(self.folder.best, self.best, header)

    def _write_config(self, folder: RunFolder) -> None:
        if self.setup.named:
            folder.write_config(toml_of(self.setup.settings))

    def _use_threads(self, manifest: dict[str, Any]) -> None:
        """As many as the run was begun with: another number adds up in another order, to other bits."""
        threads, now = manifest["machine"]["threads"], torch.get_num_threads()
        if self.setup.device.type == "cpu" and threads != now:
            torch.set_num_threads(threads)
            self.tell(Note(f"Resuming with {threads} threads instead of {now}, as the run was begun: the same bits."))

    def _announce(self) -> None:
        settings = self.setup.settings
        width = f" at width {settings['width']:g}" if "width" in settings else ""
        self.tell(
            Started(
                settings=settings,
                run_dir=self.path,
                dataset=self.sources.description,
                network=f"{settings['model']}{width}",
                nodes=self.sums.nodes,
                parameters=self.parameters,
                device=self.setup.device.type,
                samples=self.sources.train.size,
                batches=len(self.sources.train),
                epochs=self.setup.epochs,
                epoch=self.progress.epoch,
                batch=self.progress.batch,
                metric=self.setup.metric,
            )
        )


@contextmanager
def _ending(folder: RunFolder | None, tell: Callback, report: bool) -> Iterator[None]:
    """However the run ends, its manifest says so, its report is written, and callbacks are told."""
    status = "failed"
    try:
        yield
        status = "finished"
    except Interrupted:
        status = "interrupted"
        raise
    except DivergedError:
        status = "diverged"
        raise
    except StopRun:
        status = "stopped"
        raise
    finally:
        if folder is None:
            tell(Ended(None, status))
        elif folder.holds_run:
            folder.set_status(status)
            if report:
                write_report("write_run", folder, tell)
            tell(Ended(folder.path, status))


def write_report(function: str, folder: Any, tell: Callback) -> None:
    """Draw the curves and the report. The run is safe on the disk, so a failure here is only a note."""
    try:
        from deeppc.report import pages

        tell(Note(f"report: {getattr(pages, function)(folder.path)}"))
    except Exception as error:
        tell(Note(f"The report of {folder.path} could not be written: {error!r}"))


@contextmanager
def _reproducible(device: torch.device) -> Iterator[None]:
    """cuDNN may not choose its algorithms by a race."""
    if device.type != "cuda":
        yield
        return
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        yield
