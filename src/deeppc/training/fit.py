"""The training loop: data -> network -> algorithm -> optimiser, watched, saved after every epoch, and resumable.

    result = train(TrainConfig(algorithm="pc+s+f", epochs=10))

A run is a function of its config: batches are addressed by (seed, epoch, batch), the learning rate by the step, and
what has a state (weights, AdamW, torch's random numbers, sums of the epoch) is in the checkpoint. So a run that was
killed, at any moment, goes on from its last checkpoint to the same bits.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from deeppc.data import Batches
from deeppc.errors import ConfigError, DivergedError, Interrupted, RunError
from deeppc.runs.folder import RunDir, default_run_dir, provenance, saved_config
from deeppc.training import checkpoint as checkpoints
from deeppc.training.checkpoint import Progress
from deeppc.training.config import TrainConfig, fingerprint, horizon, require_same_run
from deeppc.training.diagnostics import diagnose
from deeppc.training.events import BatchDone, Ended, EpochDone, Finished, Listener, Note, Started, StopRun, nobody
from deeppc.training.interruption import Interruption
from deeppc.training.parts import Parts, prepare
from deeppc.training.schedule import learning_rate
from deeppc.training.scores import Score, Sums, evaluate

EXPLODED = 1e6  # mean 1/2 |error|^2 of one node; a network that learns one-hot labels has a few units at most
CHECK_EVERY = 20  # steps between two looks at the energy on an accelerator, where each look waits for the device


@dataclass(frozen=True)
class RunResult:
    """The selected epoch's weights, on the whole test set. Accuracies are fractions; epochs count from 1."""

    run_dir: Path
    selected_epoch: int
    select: str
    validation_accuracy: float | None
    test_accuracy: float
    test_top5: float
    epochs: int
    steps: int
    seconds: float

    def table(self) -> dict[str, Any]:
        """What ``result.json`` holds."""
        values = dataclasses.asdict(self)
        del values["run_dir"]
        return values


class _Stop(Exception):  # noqa: N818
    """Leave the loop: the user asked to."""


def train(config: TrainConfig, on_event: Listener = nobody) -> RunResult:
    """Train by ``config`` and evaluate the selected epoch on the test set. Prints nothing: ``on_event`` is told.

    Raises :class:`ConfigError` and :class:`deeppc.data.DataError` before anything is written, :class:`RunError` if
    the folder cannot be used, :class:`DivergedError`, and :class:`Interrupted` after Ctrl-C. With ``resume``, goes on
    with the run in ``run_dir``; a finished run returns its result at once. See :func:`saved_config` for its settings.
    """
    begun = _begun(config)
    if begun is not None:
        require_same_run(begun, config)
        if (result := finished_result(begun)) is not None and config.epochs == begun.epochs:
            on_event(Note(f"The run in {result.run_dir} is finished: there is nothing left to train."))
            on_event(Finished(result))
            return result
    parts = prepare(config)
    with RunDir(config.run_dir or default_run_dir(config)) as folder, _reproducible(parts.device):
        if begun is None:
            folder.require_unused()
        folder.require_space(checkpoints.size_of(parts.net))
        with _ending(folder, on_event), Interruption() as interruption:
            run = Run(config, parts, folder, on_event, interruption)
            if begun is None:
                run.begin()
            else:
                run.go_on()
            return run.complete()


def finished_result(config: TrainConfig) -> RunResult | None:
    """What the run in ``run_dir`` came to, if it is finished."""
    folder = RunDir(config.run_dir or Path())
    if not folder.holds_run or folder.read_manifest().get("status") != "finished":
        return None
    return RunResult(run_dir=folder.path, **folder.read_result())


class Run:
    """One run in its folder: begin or go on, then complete."""

    def __init__(
        self, config: TrainConfig, parts: Parts, folder: RunDir, tell: Listener, interruption: Interruption
    ) -> None:
        self.config, self.parts, self.folder, self.tell, self.interruption = config, parts, folder, tell, interruption
        self.net, self.optimizer = parts.net, parts.optimizer
        self.progress = Progress()
        self.sums = Sums.zero(tuple(self.net.nodes), parts.device)
        self.best: checkpoints.Tensors = {}
        self._saved = self._clock = time.monotonic()

    def begin(self) -> None:
        """The manifest, then a first checkpoint: whatever cannot be written is found out now."""
        manifest = provenance(self.config, self.parts.device.type)
        manifest["dataset"] = str(self.parts.dataset)
        manifest["data"] = {
            "train": self.parts.training_images,
            "validation": self.parts.validation.size if self.parts.validation is not None else 0,
            "test": self.parts.test.size,
        }
        manifest["network"] = {"levels": self.net.L, "nodes": list(self.net.nodes), "parameters": self._parameters()}
        self.folder.write_manifest(manifest)
        self.folder.write_config(self.config)
        self._save()
        self._announce()

    def go_on(self) -> None:
        """From the last checkpoint; from the start, if the run was killed before it had one."""
        manifest = self.folder.read_manifest()
        self._use_threads(manifest)
        if self.folder.checkpoint.exists():
            saved = checkpoints.load(self.folder.checkpoint)
            if saved.fingerprint != fingerprint(self.config):
                raise RunError(f"{self.folder.checkpoint} is of another run than the manifest beside it.")
            checkpoints.restore(saved, self.net, self.optimizer)
            self.progress, self.best = saved.progress, saved.part("best.")
            self.sums.put(saved.part("sums."))
        self.folder.cut_metrics(self.progress.epoch)
        now = provenance(self.config, self.parts.device.type)
        manifest["config"], manifest["status"] = now["config"], "running"
        again = {key: now[key] for key in ("started", "command", "versions", "git", "machine")}
        manifest["resumed"].append({**again, "epoch": self.progress.epoch, "batch": self.progress.batch})
        self.folder.write_manifest(manifest)
        self.folder.write_config(self.config)
        self._announce()

    def complete(self) -> RunResult:
        """Train what is left, then put the selected epoch to the test."""
        try:
            while not self._over():
                self._train_epoch()
                self._close_epoch()
            return self._finish()
        except _Stop:
            self._save()
            raise self._interrupted() from None

    def _over(self) -> bool:
        done, patience = self.progress.epoch, self.config.patience
        return done >= self.config.epochs or (patience is not None and done - self.progress.best_epoch >= patience)

    def _train_epoch(self) -> None:
        self._clock = time.monotonic()
        for images, labels in self.parts.training.epoch(self.progress.epoch, start=self.progress.batch):
            self._pause()
            for group in self.optimizer.param_groups:
                group["lr"] = self._rate(self.progress.step)
            with self._precision():
                out = self.parts.algorithm.step(self.net, images, labels, self.optimizer)
            energy = torch.stack([out.energy[v].to(self.sums.energy) for v in self.sums.nodes])
            self.sums.add(out.logits, labels, energy)
            self.progress.step += 1
            self.progress.batch += 1
            if self.parts.device.type == "cpu" or self.progress.step % CHECK_EVERY == 0:
                self._require_sound(energy)
            self.tell(BatchDone(self.progress.epoch + 1, self.progress.batch, self.sums))
            every = self.config.checkpoint_every
            if every is not None and time.monotonic() - self._saved >= 60 * every:
                self._save()

    def _rate(self, step: int) -> float:
        return learning_rate(self.config.lr_w, step, horizon(self.config) * len(self.parts.training))

    def _close_epoch(self) -> None:
        """Evaluate, choose, write the line of metrics, then the checkpoint that knows of it, then the best weights."""
        self._require_sound(self.sums.energy / self.sums.batches)
        validation = self._evaluate(self.parts.validation) if self.parts.validation is not None else None
        test = self._evaluate(self.parts.test) if self.config.select == "test" else None
        chosen = test or validation
        assert chosen is not None, "one of the two selects"
        metrics: dict[str, Any] = {
            "epoch": self.progress.epoch + 1,
            "step": self.progress.step,
            "lr_w": self._rate(self.progress.step - 1),
            "train_accuracy": self.sums.accuracy(),
            "energy": self.sums.energies(),
            "validation_accuracy": validation.top1 if validation else None,
            "validation_top5": validation.top5 if validation else None,
        }
        if test is not None:
            metrics |= {"test_accuracy": test.top1, "test_top5": test.top5}
        if self.config.diagnostics:
            metrics |= self._diagnosis()
        self._tick()
        metrics["seconds"] = round(self.progress.epoch_seconds, 3)

        self.progress.epoch += 1
        self.progress.batch = 0
        self.progress.epoch_seconds = 0.0
        self.sums = Sums.zero(self.sums.nodes, self.parts.device)
        if chosen.top1 > self.progress.best_accuracy:
            self.progress.best_epoch, self.progress.best_accuracy = self.progress.epoch, chosen.top1
            self.best = checkpoints.weights_of(self.net)
        self.folder.append_metrics(metrics)
        self._save()
        self.tell(EpochDone(metrics))

    def _finish(self) -> RunResult:
        self._clock = time.monotonic()
        self.net.load_state_dict(self.best)
        test = self._evaluate(self.parts.test)
        self._tick()
        result = RunResult(
            run_dir=self.folder.path,
            selected_epoch=self.progress.best_epoch,
            select=self.config.select,
            validation_accuracy=self.progress.best_accuracy if self.config.select == "validation" else None,
            test_accuracy=test.top1,
            test_top5=test.top5,
            epochs=self.progress.epoch,
            steps=self.progress.step,
            seconds=round(self.progress.seconds, 3),
        )
        self.folder.write_result(result.table())
        self.tell(Finished(result))
        return result

    def _diagnosis(self) -> dict[str, Any]:
        """On the run's first batch, which is another for every seed, and the same after every epoch."""
        images, labels = next(self.parts.training.epoch(0))
        with self._precision():
            return diagnose(self.parts.algorithm, self.net, images, labels)

    def _evaluate(self, batches: Batches) -> Score:
        with self._precision():
            return evaluate(self.net, batches, self._pause)

    def _pause(self) -> None:
        if self.interruption.signal is not None:
            raise _Stop

    def _interrupted(self) -> Interrupted:
        assert self.interruption.signal is not None
        done, batches = self.progress, len(self.parts.training)
        where = f"in epoch {done.epoch + 1}, after {done.batch} of {batches} batches"
        if not done.batch:
            where = f"after epoch {done.epoch}" if done.epoch else "before the first batch"
        return Interrupted(where, "train", self.folder.path, self.interruption.signal)

    def _precision(self) -> torch.autocast:
        bf16 = self.config.precision == "bf16"
        return torch.autocast(self.parts.device.type, dtype=torch.bfloat16, enabled=bf16)

    def _require_sound(self, energy: Tensor) -> None:
        """Stop where an energy is NaN or beyond reason. Of several nodes, name the one that the wave reaches first."""
        if bool((energy < EXPLODED).all()):
            return
        values = dict(zip(self.sums.nodes, energy.tolist(), strict=True))
        bad = [v for v, value in values.items() if not value < EXPLODED]
        node = min(bad, key=lambda v: self.net.arrival[v])
        raise DivergedError(self.progress.step, node, values[node], self.folder.path, self._advice())

    def _require_finite_weights(self) -> None:
        for name, parameter in self.net.named_parameters():
            if not bool(parameter.isfinite().all()):
                node = name.split(".")[1]
                raise DivergedError(self.progress.step, node, math.nan, self.folder.path, self._advice())

    def _advice(self) -> str:
        c, family = self.config, self.parts.algorithm.family
        if family == "bp":
            return f"Lower --lr-w (now {c.lr_w:g})."
        also = " or choose --precision-on energy" if c.precision_on == "node" else ""
        also += " or leave out --depth-gain" if c.depth_gain else ""
        return f"Lower --lr-x (now {c.lr_x:g}) or --lr-w (now {c.lr_w:g}){also}."

    def _tick(self) -> None:
        """Add the time since the last look to the epoch's and the run's."""
        now = time.monotonic()
        self.progress.epoch_seconds += now - self._clock
        self.progress.seconds += now - self._clock
        self._clock = now

    def _save(self) -> None:
        """The checkpoint, then the best weights if they are new. Never weights that are not finite."""
        self._require_finite_weights()
        self._tick()
        checkpoints.save(
            self.folder.checkpoint,
            self.net,
            self.optimizer,
            self.progress,
            fingerprint(self.config),
            best=self.best,
            sums=self.sums.tensors(),
        )
        self._saved = time.monotonic()
        self._export_best()

    def _export_best(self) -> None:
        header = {"epoch": str(self.progress.best_epoch), "accuracy": repr(self.progress.best_accuracy)}
        if self.best and checkpoints.saved_header(self.folder.best) != header:
            checkpoints.save_weights(self.folder.best, self.best, header)

    def _use_threads(self, manifest: dict[str, Any]) -> None:
        """As many as the run was begun with: another number adds up in another order, to other bits."""
        threads, now = manifest["machine"]["threads"], torch.get_num_threads()
        if self.parts.device.type == "cpu" and threads != now:
            torch.set_num_threads(threads)
            self.tell(Note(f"Going on with {threads} threads instead of {now}, as the run was begun: the same bits."))

    def _parameters(self) -> int:
        return sum(p.numel() for p in self.net.parameters())

    def _announce(self) -> None:
        self.tell(
            Started(
                config=self.config,
                run_dir=self.folder.path,
                dataset=str(self.parts.dataset),
                nodes=self.sums.nodes,
                parameters=self._parameters(),
                device=self.parts.device.type,
                training_images=self.parts.training_images,
                batches=len(self.parts.training),
                epoch=self.progress.epoch,
                batch=self.progress.batch,
            )
        )


def _begun(config: TrainConfig) -> TrainConfig | None:
    """The settings that the run to resume was begun with; None for a new run."""
    if not config.resume:
        return None
    if config.run_dir is None:
        raise ConfigError("--resume needs --run-dir: the folder of the run to go on with.")
    return saved_config(config.run_dir)


@contextmanager
def _ending(folder: RunDir, tell: Listener) -> Iterator[None]:
    """However the run ends, its manifest says so, and the listener is told."""
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
        if folder.holds_run:
            folder.set_status(status)
            tell(Ended(folder.path, status))


@contextmanager
def _reproducible(device: torch.device) -> Iterator[None]:
    """cuDNN may not choose its algorithms by a race."""
    if device.type != "cuda":
        yield
        return
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        yield
