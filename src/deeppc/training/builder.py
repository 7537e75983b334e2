"""Runs by name: what a config builds, and ``train(config)``, which gives it to :func:`deeppc.fit`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from deeppc.core.algorithms import Algorithm
from deeppc.core.arguments import checked
from deeppc.core.graph import Graph
from deeppc.data import Dataset, load
from deeppc.errors import ConfigError, memory_in_words
from deeppc.files import unused
from deeppc.models import build as build_model
from deeppc.models import takes
from deeppc.runs.folder import RunFolder
from deeppc.training import distributed
from deeppc.training.config import (
    FIELDS,
    TrainConfig,
    flag,
    from_table,
    meaningful,
    replace,
    require_resumable,
    task_name,
    to_table,
)
from deeppc.training.devices import choose_device
from deeppc.training.events import Callback, ignore
from deeppc.training.fit import finished, fit, in_words
from deeppc.training.result import RunResult
from deeppc.training.sources import Sources, sources_of
from deeppc.training.weights import load_weights

PASSED_ON = (  # settings that are arguments of fit as they are
    *("epochs", "batch_size", "schedule_epochs", "seed", "select", "validation", "limit", "patience"),
    *("resume", "diagnostics", "checkpoint_every", "precision", "sync_norm", "device"),
)


@dataclass(frozen=True)
class Parts:
    """What a config builds. Nothing in here has been trained or written yet."""

    device: torch.device
    dataset: Dataset
    algorithm: Algorithm
    net: Graph
    config: TrainConfig

    def sources(self) -> Sources:
        """Return the batches to train on, to select by and to test on."""
        c = self.config
        validation = c.validation if c.select == "validation" else None
        return sources_of(
            self.dataset, batch_size=c.batch_size, seed=c.seed, validation=validation, limit=c.limit, device=self.device
        )


def build(config: TrainConfig) -> Parts:
    """Load the data and build the network with the config's seed; ConfigError and DataError in words.

    With ``weights``, it has those, unless it is to be resumed.
    """
    _require_meaning(config)
    device = choose_device(config.device, config.precision)
    dataset = load(config.dataset, data_dir=config.data_dir, labels=config.labels)
    torch.manual_seed(config.seed)
    with in_words(), memory_in_words(f"the network {config.model} at width {config.width:g}"):
        net = build_model(
            config.model,
            classes=dataset.outputs,
            in_shape=dataset.in_shape,
            width=config.width,
            activation=config.activation,
            norm=config.norm,
            aux=config.aux,
            affine=config.affine,
        )
        net = net.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    if config.weights is not None and not config.resume:
        load_weights(net, config.weights)
    algorithm = config.algorithm_object()
    if config.compile:
        if algorithm.second_order:
            raise ConfigError(f"--compile does not go with {algorithm}, which differentiates twice: leave it out.")
        compile_nodes(net)
    return Parts(device, dataset, algorithm, net, config)


@distributed.joining
@checked
def train(config: TrainConfig, callback: Callback = ignore, *, report: bool = True) -> RunResult:
    """Train by ``config`` and test the selected epoch. Prints nothing: ``callback`` is told.

    With ``resume``, resumes the run in ``run_dir``; a finished run returns its result at once. See :func:`saved_config`
    for its settings.
    """
    workers = distributed.current()
    workers.require_same({"--resume": config.resume, "a --run-dir": config.run_dir is not None})
    if config.run_dir is None:
        if config.resume:
            raise ConfigError("--resume needs --run-dir: the folder of the run to resume.")
        if distributed.may_restart():
            raise ConfigError("After a restart (--max-restarts) the run is resumed: say in which folder, by --run-dir.")
        config = replace(config, run_dir=workers.share(lambda: default_run_dir(config)))
    assert config.run_dir is not None
    folder = RunFolder(config.run_dir)
    if workers.share(lambda: folder.holds_run and distributed.noted_run(folder.path)):
        config = replace(config, resume=True)
    if config.resume:
        table = require_resumable(workers.share(folder.begun), to_table(config))
        if (result := workers.share(lambda: finished(folder, table, callback))) is not None:
            return result
    parts = build(config)
    return fit(
        parts.net,
        parts.dataset,
        parts.algorithm,
        optimizer=lambda weights: torch.optim.AdamW(
            weights, lr=config.lr_w, weight_decay=config.weight_decay, eps=config.epsilon
        ),
        run_dir=config.run_dir,
        callbacks=[callback],
        show=False,
        report=report,
        settings=to_table(config),
        **{name: getattr(config, name) for name in PASSED_ON},
    )


def _require_meaning(config: TrainConfig) -> None:
    """Refuse settings that were changed, but would change nothing."""
    with in_words():
        taken = takes(config.model)
    idle = {name: config.model for name in ("width", "activation", "norm", "affine", "aux") if name not in taken}
    if config.norm == "none":
        idle.setdefault("affine", "a network without a norm")
        if "norm" in taken:  # one from a file may have norms all the same
            idle["sync_norm"] = "a network without a norm"
    if config.select == "test":
        idle["validation"] = "a run that selects by test images"
    for name, what in idle.items():
        if (value := getattr(config, name)) != FIELDS[name].default:
            spoken = f"--no-{flag(name)[2:]}" if value is False else flag(name)
            raise ConfigError(f"{spoken} means nothing to {what}: leave it out.")


def default_run_dir(config: TrainConfig) -> Path:
    """Return ``runs/<dataset>-<model>-<algorithm>-<seed>``, with a number if that is taken."""
    return unused(Path("runs") / f"{task_name(config)}-{config.algorithm}-{config.seed}")


def saved_config(run_dir: Path) -> TrainConfig:
    """Return the settings of the run in ``run_dir``, ready to resume it."""
    folder = RunFolder(run_dir)
    folder.require_run()
    table = folder.config()
    if "optimizer" in table:
        raise ConfigError(
            f"The run in {run_dir} was begun in Python: resume it with deeppc.fit(..., run_dir={str(run_dir)!r}, "
            "resume=True)."
        )
    config = from_table(meaningful(table), str(folder.manifest_path))
    return replace(config, run_dir=run_dir, resume=True)


def compile_nodes(net: Graph) -> None:
    """Compile what each node computes; names of parameters stay as they are."""
    import torch._dynamo.config
    import torch._functorch.config

    torch._functorch.config.donated_buffer = False  # a kept prediction is pulled back through twice
    torch._dynamo.config.cache_size_limit = max(64, 8 * len(net.nodes))  # many nodes share Sequential.forward
    for module in net.nodes.values():  # its forward: Module.compile() passes over a Sequential without a word
        module.forward = torch.compile(module.forward)
