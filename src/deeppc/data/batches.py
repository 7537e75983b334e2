"""Batches: the whole split lies on the device as uint8; crop, flip and normalise happen there, a batch at a time.

A batch is addressed, not streamed. The order of an epoch depends on (seed, epoch), the augmentation of a batch on
(seed, epoch, index of the batch), and on nothing else: a run resumed at any batch of any epoch sees bit for bit the
tensors it would have seen.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch.nn.functional import pad

from deeppc.core.arguments import checked
from deeppc.data.seeding import generator
from deeppc.data.splits import Dataset, Split
from deeppc.errors import DataError


def crop(
    images: torch.Tensor, padding: int, rows: torch.Tensor, columns: torch.Tensor, flips: torch.Tensor
) -> torch.Tensor:
    """Pad each image with black, mirror it where ``flips``, and cut its own window out at (row, column).

    images (N, C, H, W); rows, columns int64 (N,) in [0, 2 padding]; flips int64 (N,), 0 or 1.

    One row of a crop is W consecutive elements of the padded batch. So the whole batch is a single selection of N*C*H
    starting points from the sliding windows of length W: a few memcpys instead of an index per pixel.
    """
    n, channels, height, width = images.shape
    padded = pad(images, (padding,) * 4)
    both = torch.stack((padded, padded.flip(-1)))  # (2, N, C, H + 2 padding, W + 2 padding)
    mirror, image, channel, line, _ = both.stride()

    def steps(count: int, stride: int) -> torch.Tensor:
        return torch.arange(count, device=images.device) * stride

    corner = flips * mirror + steps(n, image) + rows * line + columns
    starts = corner[:, None, None] + steps(channels, channel)[:, None] + steps(height, line)  # (N, C, H)
    return both.view(-1).unfold(0, width, 1).index_select(0, starts.view(-1)).view(images.shape)


def part_of(count: int, number: int, of: int) -> slice:
    """The part of worker ``number`` of ``of`` in ``count`` samples; parts differ by one sample at most."""
    return slice(count * number // of, count * (number + 1) // of)


class Batches:
    """The batches of a split, as (images float32 (B, C, H, W) normalised and channels-last, labels int64 (B,)).

    Float inputs and float targets come as they are. For training leave ``augment`` and ``shuffle`` on; for evaluation
    turn both off. The last, smaller batch is kept unless ``drop_last``; a last sample that would be alone joins the
    batch before it, since a BatchNorm cannot normalise a single one. ``size`` is the number of samples.
    """

    @checked
    def __init__(
        self,
        split: Split,
        dataset: Dataset,
        batch_size: int = 128,
        *,
        seed: int = 0,
        augment: bool = True,
        shuffle: bool = True,
        device: torch.device | str = "cpu",
        drop_last: bool = False,
    ) -> None:
        if batch_size < 1:
            raise DataError(f"The batch size is {batch_size}: choose 1 or more.")
        self.size = len(split)
        self._images = split.images.to(device)
        self._labels = split.labels.to(device)
        self._batch_size = batch_size
        self._seed = seed
        self._augment = augment and (dataset.padding > 0 or dataset.flip)
        self._shuffle = shuffle
        self._padding, self._flip = dataset.padding, dataset.flip
        self._part, self._parts = 0, 1
        full, rest = divmod(len(split), batch_size)
        alone = rest == 1 and full > 0
        self._count = full if drop_last or alone else full + (rest > 0)
        self._used = full * batch_size if drop_last else len(split)
        if not self._count:
            raise DataError(f"{len(split)} images do not fill one batch of {batch_size}.")
        # (pixel / 255 - mean) / std, as one multiplication and one addition. They stay two operations, since each is
        # rounded exactly on every device, and a fused one is not.
        mean, std = torch.tensor(dataset.mean), torch.tensor(dataset.std)
        self._scale = (1 / (255 * std)).to(device).view(-1, 1, 1)
        self._shift = (-mean / std).to(device).view(-1, 1, 1)

    def __len__(self) -> int:
        return self._count

    def shard(self, number: int, of: int) -> Batches:
        """Return the same batches for worker ``number`` of ``of``, who gets its part of each, and maybe nothing.

        Parts follow one another and differ by one sample at most. A sample is augmented as it would be in the whole.
        """
        part = copy.copy(self)
        part._part, part._parts = number, of
        return part

    @checked
    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the batches of one epoch, from number ``start`` on."""
        if not 0 <= start <= len(self):
            raise ValueError(f"start={start} is not one of the {len(self)} batches of an epoch")
        order = self._order(epoch)
        for index in range(start, len(self)):
            end = self._used if index == len(self) - 1 else (index + 1) * self._batch_size
            whole = order[index * self._batch_size : end]
            mine = part_of(len(whole), self._part, self._parts)
            chosen = whole[mine]
            images = self._images.index_select(0, chosen)
            if self._augment and len(chosen):
                images = self._jitter(images, self._draws(epoch, index, len(whole))[mine])
            if images.dtype == torch.uint8:
                images = self._normalise(images)
            yield images, self._labels.index_select(0, chosen)

    def _order(self, epoch: int) -> torch.Tensor:
        n = len(self._labels)
        if not self._shuffle:
            return torch.arange(n, device=self._labels.device)
        return torch.from_numpy(generator("order", self._seed, epoch).permutation(n)).to(self._labels.device)

    def _draws(self, epoch: int, index: int, samples: int) -> torch.Tensor:
        """The row, column and flip of each sample of a batch, (samples, 3)."""
        rng = generator("augment", self._seed, epoch, index)
        highest = [2 * self._padding, 2 * self._padding, int(self._flip)]
        return torch.from_numpy(rng.integers(0, highest, size=(samples, 3), endpoint=True))

    def _jitter(self, images: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        rows, columns, flips = draws.to(images.device).unbind(1)
        return crop(images, self._padding, rows, columns, flips)

    def _normalise(self, images: torch.Tensor) -> torch.Tensor:
        # Channels-last comes last: with 3 channels innermost the arithmetic would not vectorise.
        scaled = (images * self._scale).add_(self._shift)
        return scaled.contiguous(memory_format=torch.channels_last)
