"""Data for :func:`deeppc.fit`, whatever it comes as: a ``Dataset``, tensors, or torch ``DataLoader``s.

A source gives batches of (inputs, targets) by epoch. What is in memory is addressed by (epoch, batch), so that a run
resumes at any batch; a ``DataLoader`` can only be asked for a whole epoch.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from numpy import ndarray
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, SequentialSampler

from deeppc.data import Batches, Dataset, Split, from_tensors, holdout
from deeppc.data.batches import part_of
from deeppc.errors import DataError

PARTS = ("train", "validation", "test")
_EVALUATED = 500  # samples in a batch of an evaluation


class Source(Protocol):
    """Batches by epoch. ``size`` counts samples, ``len`` batches."""

    size: int

    def __len__(self) -> int: ...
    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]: ...
    def shard(self, number: int, of: int) -> Source: ...


class Loader:
    """A torch ``DataLoader`` of (inputs, targets), on the device."""

    def __init__(self, loader: DataLoader[Any], device: torch.device) -> None:
        self._loader, self._device = loader, device
        self._part, self._parts = 0, 1
        self.generator: torch.Generator | None = loader.generator
        try:
            self._count = len(loader)
        except TypeError:
            raise DataError("The DataLoader has no length: give its data set a __len__.") from None
        if not self._count:
            raise DataError("The DataLoader is empty.")
        dataset: Any = loader.dataset
        self.size = len(dataset) if hasattr(dataset, "__len__") else self._count * (loader.batch_size or 1)

    def __len__(self) -> int:
        return self._count

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        if hasattr(self._loader.sampler, "set_epoch"):
            self._loader.sampler.set_epoch(epoch)
        for index, batch in enumerate(self._loader):
            if not _is_pair(batch) or not all(isinstance(part, Tensor) for part in batch):
                kind = type(batch).__name__
                raise DataError(f"The DataLoader gives {kind}: expected pairs of tensors (inputs, targets).")
            targets = batch[1].unsqueeze(1) if batch[1].is_floating_point() and batch[1].dim() == 1 else batch[1]
            if not targets.is_floating_point() and targets.dim() != 1:
                shape = tuple(targets.shape)
                raise DataError(f"The DataLoader gives class indices of the shape {shape}: expected (batch,).")
            if index >= start:
                mine = part_of(len(targets), self._part, self._parts)
                yield batch[0][mine].to(self._device), targets[mine].to(self._device)

    def shard(self, number: int, of: int) -> Loader:
        """Return the part of worker ``number`` of ``of``.

        A ``DistributedSampler`` has divided the samples already. Of batches that come in order each worker takes its
        part. Any other sampler might give each worker another order.
        """
        if isinstance(self._loader.sampler, DistributedSampler):
            return self
        if not isinstance(self._loader.sampler, SequentialSampler):
            raise DataError(
                "Several workers would each draw an order of their own from this DataLoader: give it a "
                "torch.utils.data.DistributedSampler, or give tensors or a Dataset instead."
            )
        part = copy.copy(self)
        part._part, part._parts = number, of
        return part


@dataclass(frozen=True)
class Sources:
    """``exact``: training batches are addressed by (epoch, batch). ``identity``: a digest of the data, if they are."""

    train: Source
    validation: Source | None
    test: Source | None
    description: str
    exact: bool = True
    identity: str | None = None

    def shard(self, number: int, of: int) -> Sources:
        """Return the part of worker ``number`` of ``of``."""
        validation, test = (None if part is None else part.shard(number, of) for part in (self.validation, self.test))
        return replace(self, train=self.train.shard(number, of), validation=validation, test=test)


def sources_of(
    data: Any, *, batch_size: int, seed: int, validation: float | None, limit: int | None, device: torch.device
) -> Sources:
    """Return what to train on, to select by and to test on.

    ``validation`` is the fraction of the training samples to hold out (None: none) where ``data`` has no validation
    part of its own and can be divided; ``limit`` the number of samples to train on.
    """
    parts = {} if isinstance(data, Dataset) else _parts(data)
    if parts and all(isinstance(part, DataLoader) for part in parts.values()):
        if limit is not None:
            raise DataError("A DataLoader decides itself how many samples there are: leave limit out.")
        loaders = {name: Loader(loader, device) for name, loader in parts.items()}
        description = "DataLoader: " + ", ".join(f"{loader.size:,} {name}" for name, loader in loaders.items())
        return Sources(loaders["train"], loaders.get("validation"), loaders.get("test"), description, exact=False)

    dataset, held_out = (data, None) if isinstance(data, Dataset) else _of_tensors(data, parts)
    training = dataset.train
    if held_out is None and validation is not None:
        training, held_out = holdout(training, validation, seed)
    if limit is not None and limit < len(training):
        _, training = holdout(training, limit / len(training), seed)

    def in_order(split: Split) -> Batches:
        return Batches(split, dataset, batch_size=_EVALUATED, augment=False, shuffle=False, device=device)

    sources = Sources(
        Batches(training, dataset, batch_size=batch_size, seed=seed, device=device),
        in_order(held_out) if held_out is not None else None,
        in_order(dataset.test),
        str(dataset),
        identity=_identity(dataset.train, dataset.test),
    )
    if not parts or "test" in parts:
        return sources
    inputs = parts["train"][0]
    description = f"tensors: {len(inputs):,} samples of {'x'.join(map(str, inputs.shape[1:]))}"
    return replace(sources, test=None, description=description)


def first_batch(source: Source) -> tuple[Tensor, Tensor]:
    """Return the first batch of the first epoch; random numbers, torch's and a loader's own, stay as they are."""
    own = getattr(source, "generator", None)
    generators = [torch.default_generator, *([own] if own is not None else [])]
    states = [generator.get_state() for generator in generators]
    torch.default_generator.manual_seed(0)
    try:
        return next(iter(source.epoch(0)))
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


def _identity(*splits: Split) -> str:
    """A digest of sizes, types and values; of a large tensor a million values, evenly spread, must do."""
    digest = hashlib.sha256()
    for tensor in (tensor for split in splits for tensor in (split.images, split.labels)):
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        values = tensor.detach().flatten()[:: max(1, tensor.numel() >> 20)]
        digest.update(values.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _of_tensors(data: Any, parts: Mapping[str, Any]) -> tuple[Dataset, Split | None]:
    """Return the data set, and the validation part if there is one. Without a test part, its test split is no use."""
    if not all(_is_pair(part) for part in parts.values()):
        raise DataError(_expected(data))
    pairs = {name: _as_tensors(pair) for name, pair in parts.items()}
    given = {name: from_tensors(pairs["train"], pair) for name, pair in pairs.items()}  # each fits the first
    return given.get("test", given["train"]), given["validation"].test if "validation" in given else None


def _parts(data: Any) -> dict[str, Any]:
    """``data`` by the names of its parts, of which there is always ``train``."""
    if isinstance(data, Mapping):
        if "train" not in data or not data.keys() <= set(PARTS):
            raise DataError(f"The data has the parts {', '.join(map(str, data))}: expected train, validation, test.")
        return {name: data[name] for name in PARTS if data.get(name) is not None}
    if isinstance(data, DataLoader) or _is_pair(data):
        return {"train": data}
    if isinstance(data, tuple | list) and len(data) in (2, 3):
        return dict(zip(PARTS if len(data) == 3 else ("train", "test"), data, strict=True))
    raise DataError(_expected(data))


def _is_pair(part: Any) -> bool:
    return isinstance(part, tuple | list) and len(part) == 2 and all(isinstance(t, Tensor | ndarray) for t in part)


def _as_tensors(pair: Any) -> tuple[Tensor, Tensor]:
    """Numpy arrays are taken as they are, without a copy."""
    try:
        return torch.as_tensor(pair[0]), torch.as_tensor(pair[1])
    except (TypeError, ValueError) as error:
        raise DataError(f"The data cannot become tensors: {error}.") from error


def _expected(data: Any) -> str:
    return (
        f"The data is {type(data).__name__}: expected a deeppc.data.Dataset, tensors (inputs, targets), a DataLoader, "
        "or several of one kind as (train, test), (train, validation, test) or a dict of these names."
    )
