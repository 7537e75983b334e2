"""Batches against a slow loop over images, and what resuming a run relies on."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deeppc.data import Batches, DataError, Dataset, Split, holdout
from deeppc.data.batches import crop


def make(count: int, shape: tuple[int, int, int] = (3, 8, 8), padding: int = 2, flip: bool = True) -> Dataset:
    """So many images of noise, as the training and the test set."""
    images = np.random.default_rng(count).integers(0, 256, (count, *shape), dtype=np.uint8)
    split = Split(torch.from_numpy(images), torch.arange(count) % 10)
    mean, std = (0.4, 0.5, 0.6)[: shape[0]], (0.2, 0.25, 0.3)[: shape[0]]
    return Dataset("made up", split, split, tuple("abcdefghij"), mean, std, padding, flip)


def of_one_image(count: int) -> Dataset:
    """The same image ``count`` times: whatever differs in a batch was drawn."""
    split = Split(make(1).train.images.expand(count, -1, -1, -1), torch.zeros(count, dtype=torch.int64))
    return dataclasses.replace(make(1), train=split)


def naive_crop(image: np.ndarray, padding: int, row: int, column: int, flip: bool) -> np.ndarray:
    channels, height, width = image.shape
    result = np.zeros_like(image)
    for c in range(channels):
        for y in range(height):
            for x in range(width):
                from_y, from_x = y + row - padding, x + column - padding
                if flip:
                    from_x = width - 1 - from_x
                if 0 <= from_y < height and 0 <= from_x < width:
                    result[c, y, x] = image[c, from_y, from_x]
    return result


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_crop_is_the_loop_over_pixels(data):
    n, channels, padding = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3)), data.draw(st.integers(0, 3))
    height, width = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    images = make(n, (channels, height, width)).train.images
    offsets = st.lists(st.integers(0, 2 * padding), min_size=n, max_size=n)
    rows, columns = data.draw(offsets), data.draw(offsets)
    flips = data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    got = crop(images, padding, torch.tensor(rows), torch.tensor(columns), torch.tensor(flips))
    expected = [
        naive_crop(image, padding, row, column, bool(flip))
        for image, row, column, flip in zip(images.numpy(), rows, columns, flips, strict=True)
    ]
    np.testing.assert_array_equal(got.numpy(), np.stack(expected))


def pixels(batch: torch.Tensor, dataset: Dataset) -> np.ndarray:
    """Normalisation undone, in float64: the bytes it started from."""
    mean, std = (np.array(v)[:, None, None] for v in (dataset.mean, dataset.std))
    value = (batch.double().numpy() * std + mean) * 255
    assert np.abs(value - value.round()).max() < 1e-3
    return value.round().astype(np.uint8)


@pytest.mark.parametrize(("padding", "flip"), [(1, True), (1, False), (0, True), (0, False)])
def test_every_augmented_image_is_one_of_the_crops_that_exist(padding, flip):
    """And over enough epochs each of them appears, equally often."""
    dataset = make(1, (3, 6, 6), padding, flip)
    batches = Batches(dataset.train, dataset, batch_size=1, seed=3)
    side = range(2 * padding + 1)
    possible = {
        naive_crop(dataset.train.images[0].numpy(), padding, row, column, mirrored).tobytes(): 0
        for row in side
        for column in side
        for mirrored in range(flip + 1)
    }
    for epoch in range(20 * len(possible)):
        ((images, _),) = batches.epoch(epoch)
        possible[pixels(images, dataset)[0].tobytes()] += 1  # a KeyError is an image that cannot be
    # Chi-squared: mean df, variance 2 df; five standard deviations.
    df = len(possible) - 1
    statistic = sum((count - 20) ** 2 / 20 for count in possible.values())
    assert statistic <= df + 5 * (2 * df) ** 0.5


def test_each_image_seed_epoch_and_batch_has_its_own_draws():
    """Also where a careless mix collides: seeds that differ by 2**32, and (1, 23) against (12, 3)."""
    dataset = of_one_image(64)
    keys = [(seed, epoch) for seed in (0, 1, 12, 2**32, 2**32 + 1) for epoch in (0, 1, 3, 23)]
    draws = set()
    for seed, epoch in keys:
        for images, _ in Batches(dataset.train, dataset, batch_size=32, seed=seed).epoch(epoch):
            draws.add(images.numpy().tobytes())
            assert len({image.numpy().tobytes() for image in images}) > 12  # of 50; 32 draws give 24 on average
    assert len(draws) == 2 * len(keys)


@pytest.mark.parametrize("channels", [1, 3])
def test_evaluation_is_normalisation_only_in_order_and_whole(channels):
    dataset = make(50, (channels, 8, 8))
    split = dataset.train
    batches = Batches(split, dataset, batch_size=16, augment=False, shuffle=False)
    got = list(batches.epoch(0))
    assert [len(labels) for _, labels in got] == [16, 16, 16, 2]
    assert len(batches) == 4
    mean, std = (torch.tensor(v, dtype=torch.float64).view(-1, 1, 1) for v in (dataset.mean, dataset.std))
    expected = (split.images.double() / 255 - mean) / std
    torch.testing.assert_close(torch.cat([i for i, _ in got]).double(), expected, atol=1e-6, rtol=1e-6)
    assert torch.equal(torch.cat([labels for _, labels in got]), split.labels)


@pytest.mark.parametrize("augment", [True, False])
def test_a_batch_is_float_and_channels_last_and_a_copy(augment):
    dataset = make(20)
    before = dataset.train.images.clone()
    images, labels = next(Batches(dataset.train, dataset, 8, augment=augment, shuffle=augment).epoch(0))
    assert (images.shape, images.dtype) == ((8, 3, 8, 8), torch.float32)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert (labels.shape, labels.dtype) == ((8,), torch.int64)
    images.zero_()
    labels.zero_()
    assert torch.equal(dataset.train.images, before)
    assert torch.equal(dataset.train.labels, torch.arange(20) % 10)


def test_an_epoch_has_every_image_once_with_its_own_label():
    dataset = make(53, padding=0, flip=False)  # so that images can be recognised
    split, batches = dataset.train, Batches(dataset.train, dataset, batch_size=8, seed=1)
    label_of = {image.numpy().tobytes(): int(label) for image, label in zip(split.images, split.labels, strict=True)}
    assert len(label_of) == 53
    orders = []
    for epoch in range(3):
        seen = {}
        for images, labels in batches.epoch(epoch):
            for image, label in zip(pixels(images, dataset), labels.tolist(), strict=True):
                seen[image.tobytes()] = label
        assert seen == label_of
        orders.append(tuple(seen))
    assert len(set(orders)) == 3, "each epoch has its own order"


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 10**6), start=st.integers(0, 7))
def test_any_batch_of_any_epoch_can_be_the_first(seed, epoch, start):
    """Bit for bit, from a fresh object, whatever torch's and numpy's own generators are at, which are left alone."""
    dataset = make(55)
    whole = list(Batches(dataset.train, dataset, batch_size=8, seed=seed).epoch(epoch))
    torch.manual_seed(seed)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    rest = list(Batches(dataset.train, dataset, batch_size=8, seed=seed).epoch(epoch, start=start))
    holdout(dataset.train, 0.5, seed=0)
    assert len(rest) == 7 - start
    for (images, labels), (again, labels_again) in zip(whole[start:], rest, strict=True):
        assert torch.equal(images, again)
        assert torch.equal(labels, labels_again)
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])


def test_how_many_batches():
    dataset = make(20)
    dropped = Batches(dataset.train, dataset, batch_size=8, drop_last=True)
    assert [len(labels) for _, labels in dropped.epoch(0)] == [8, 8]
    assert len(dropped) == 2
    with pytest.raises(DataError, match="batch size is 0"):
        Batches(dataset.train, dataset, batch_size=0)
    with pytest.raises(DataError, match="20 images do not fill one batch of 21"):
        Batches(dataset.train, dataset, batch_size=21, drop_last=True)
    for start in (-1, 4):
        with pytest.raises(ValueError, match="start="):
            next(Batches(dataset.train, dataset, batch_size=8).epoch(0, start=start))


# Held-out validation.


@settings(max_examples=60, deadline=None)
@given(
    labels=st.lists(st.integers(0, 4), min_size=4, max_size=80),
    fraction=st.sampled_from([0.1, 0.2, 0.29, 1 / 3, 0.5, 0.9]),
    seed=st.integers(0, 100),
)
def test_holdout_is_a_stratified_partition(labels, fraction, seed):
    images = torch.arange(len(labels)).view(-1, 1, 1, 1)  # an image is its own number
    split = Split(images, torch.tensor(labels))
    total = round(fraction * len(labels))
    if total in (0, len(labels)):
        with pytest.raises(DataError, match="one part empty"):
            holdout(split, fraction, seed)
        return
    train, validation = holdout(split, fraction, seed)
    assert len(validation) == total
    numbers = [part.images.flatten().tolist() for part in (train, validation)]
    assert sorted(numbers[0] + numbers[1]) == list(range(len(labels)))
    assert numbers == [sorted(part) for part in numbers], "the order is kept"
    for part, chosen in zip((train, validation), numbers, strict=True):
        assert part.labels.tolist() == [labels[number] for number in chosen]
    for label in set(labels):
        exact = fraction * labels.count(label)
        assert abs(validation.labels.tolist().count(label) - exact) < 1


def test_holdout_depends_on_the_seed_only():
    first, again, other = (holdout(make(200).train, 0.1, seed)[1].images for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    for fraction in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(DataError, match="above 0 and below 1"):
            holdout(make(20).train, fraction, seed=0)


@pytest.mark.parametrize(
    ("count", "size", "drop_last", "sizes"),
    [
        (9, 4, False, [4, 5]),  # the ninth would be alone
        (10, 4, False, [4, 4, 2]),
        (9, 4, True, [4, 4]),
        (1, 4, False, [1]),
        (3, 1, False, [1, 1, 1]),
    ],
)
def test_a_last_sample_that_would_be_alone_joins_the_batch_before(count, size, drop_last, sizes):
    data = make(count)
    batches = Batches(data.train, data, size, drop_last=drop_last)
    seen = [len(labels) for _, labels in batches.epoch(0)]
    assert seen == sizes
    assert len(batches) == len(sizes)
    assert [len(labels) for _, labels in batches.epoch(0, start=len(sizes) - 1)] == sizes[-1:]
