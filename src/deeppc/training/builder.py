"""Runs by name: what a config builds, and ``train(config)``, which gives it to :func:`deeppc.fit`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from deeppc.core.algorithms import Algorithm
from deeppc.core.graph import Graph
from deeppc.data import Dataset, load
from deeppc.files import unused
from deeppc.models import build as build_model
from deeppc.runs.folder import RunFolder
from deeppc.training.config import TrainConfig, from_table, meaningful, replace, task_name, to_table
from deeppc.training.events import Callback, ignore
from deeppc.training.fit import choose_device, finished, fit, in_words
from deeppc.training.result import RunResult
from deeppc.training.sources import Sources, sources_of

PASSED_ON = (  # settings that are arguments of fit as they are
    *("epochs", "batch_size", "schedule_epochs", "seed", "select", "validation", "limit", "patience"),
    *("resume", "diagnostics", "checkpoint_every", "precision", "device"),
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
    """Load the data and build the network with the config's seed; ConfigError and DataError in words."""
    device = choose_device(config.device)
    dataset = load(config.dataset, data_dir=config.data_dir, labels=config.labels)
    torch.manual_seed(config.seed)
    with in_words():
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
    if config.compile:
        compile_nodes(net)
    return Parts(device, dataset, config.algorithm_object(), net, config)


def train(config: TrainConfig, callback: Callback = ignore, *, report: bool = True) -> RunResult:
    """Train by ``config`` and test the selected epoch. Prints nothing: ``callback`` is told.

    With ``resume``, resumes the run in ``run_dir``; a finished run returns its result at once. See :func:`saved_config`
    for its settings.
    """
    if config.resume:
        folder = RunFolder(config.run_dir) if config.run_dir is not None else None
        if (result := finished(folder, to_table(config), callback)) is not None:
            return result
    parts = build(config)
    return fit(
        parts.net,
        parts.dataset,
        parts.algorithm,
        optimizer=lambda weights: torch.optim.AdamW(weights, lr=config.lr_w, weight_decay=config.weight_decay),
        run_dir=config.run_dir or default_run_dir(config),
        callbacks=[callback],
        show=False,
        report=report,
        settings=to_table(config),
        **{name: getattr(config, name) for name in PASSED_ON},
    )


def default_run_dir(config: TrainConfig) -> Path:
    """Return ``runs/<dataset>-<model>-<algorithm>-<seed>``, with a number if that is taken."""
    return unused(Path("runs") / f"{task_name(config)}-{config.algorithm}-{config.seed}")


def saved_config(run_dir: Path) -> TrainConfig:
    """Return the settings of the run in ``run_dir``, ready to resume it."""
    folder = RunFolder(run_dir)
    folder.require_run()
    config = from_table(meaningful(folder.config()), str(folder.manifest_path))
    return replace(config, run_dir=run_dir, resume=True)


def compile_nodes(net: Graph) -> None:
    """Compile what each node computes; names of parameters stay as they are."""
    import torch._dynamo.config
    import torch._functorch.config

    torch._functorch.config.donated_buffer = False  # a kept prediction is pulled back through twice
    torch._dynamo.config.cache_size_limit = max(64, 8 * len(net.nodes))  # many nodes share Sequential.forward
    for module in net.nodes.values():  # its forward: Module.compile() passes over a Sequential without a word
        module.forward = torch.compile(module.forward)
