"""What a config builds: device, data, network, algorithm and optimiser, with all complaints about it in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from deeppc.core.algorithms import Algorithm
from deeppc.core.graph import Graph
from deeppc.data import Batches, Dataset, Split, holdout, load
from deeppc.errors import ConfigError
from deeppc.models import build
from deeppc.training.config import TrainConfig, algorithm_options


@dataclass(frozen=True)
class Parts:
    """What a config builds. Nothing in here has been trained or written yet."""

    device: torch.device
    dataset: Dataset
    algorithm: Algorithm
    net: Graph
    optimizer: torch.optim.Optimizer
    training: Batches
    validation: Batches | None
    test: Batches
    training_images: int


def prepare(config: TrainConfig) -> Parts:
    """Load the data and build everything, with all complaints about the config, in words."""
    device = choose_device(config.device)
    with _in_words():
        algorithm = Algorithm.parse(config.algorithm, **algorithm_options(config))
    dataset = load(config.dataset, data_dir=config.data_dir, labels=config.labels)
    training, validation = _splits(config, dataset)
    torch.manual_seed(config.seed)
    with _in_words():
        net = build(
            config.model,
            classes=len(dataset.classes),
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
    return Parts(
        device=device,
        dataset=dataset,
        algorithm=algorithm,
        net=net,
        optimizer=torch.optim.AdamW(net.parameters(), lr=config.lr_w, weight_decay=config.weight_decay),
        training=Batches(training, dataset, batch_size=config.batch_size, seed=config.seed, device=device),
        validation=_unchanged(validation, dataset, device) if validation is not None else None,
        test=_unchanged(dataset.test, dataset, device),
        training_images=len(training),
    )


def choose_device(name: str) -> torch.device:
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, is_there in there.items() if is_there)
    if not there[name]:
        raise ConfigError(f"This machine has no {name} device that torch can use: choose --device auto or cpu.")
    return torch.device(name)


def compile_nodes(net: Graph) -> None:
    """Compile what each node computes; names of parameters stay as they are."""
    import torch._dynamo.config
    import torch._functorch.config

    torch._functorch.config.donated_buffer = False  # a kept prediction is pulled back through twice
    torch._dynamo.config.cache_size_limit = max(64, 8 * len(net.nodes))  # many nodes share Sequential.forward
    for module in net.nodes.values():  # its forward: Module.compile() passes over a Sequential without a word
        module.forward = torch.compile(module.forward)


@contextmanager
def _in_words() -> Iterator[None]:
    """The rooms below refuse bad settings by ValueError: the user's to put right, not a bug."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _splits(config: TrainConfig, dataset: Dataset) -> tuple[Split, Split | None]:
    """(training, held out). With ``--select test`` nothing is held out, as in the paper."""
    training, validation = dataset.train, None
    if config.select == "validation":
        training, validation = holdout(training, config.validation, config.seed)
    if config.limit is not None and config.limit < len(training):
        _, training = holdout(training, config.limit / len(training), config.seed)
    return training, validation


def _unchanged(split: Split, dataset: Dataset, device: torch.device) -> Batches:
    """For evaluation: in order, not augmented."""
    return Batches(split, dataset, batch_size=500, augment=False, shuffle=False, device=device)
