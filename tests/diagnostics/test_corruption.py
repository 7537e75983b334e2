"""Corruptions: what each does, by hand; that levels are ordered and nested; and how a network fares under them."""

import itertools
import math
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from deeppc.data import Split
from deeppc.diagnostics import corruption
from deeppc.diagnostics.calibration import ada_ece
from deeppc.diagnostics.corruption import KINDS, LEVELS, corrupt, corrupt_split, under_corruption
from deeppc.models import build


def photographs(n=12, size=(3, 20, 24), dtype=torch.float32):
    return torch.rand(n, *size, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_each_level_is_farther_from_the_original_of_the_same_shape_type_and_range(kind):
    images = photographs(dtype=torch.float64)
    before, distances = images.clone(), []
    for level in (0.0, *LEVELS, 1.0):
        spoilt = corrupt(images, kind, level, seed=1)
        assert (spoilt.shape, spoilt.dtype) == (images.shape, images.dtype)
        assert 0 <= spoilt.min() <= spoilt.max() <= 1
        distances.append(float((spoilt - images).abs().mean()))
    assert distances[0] == 0
    assert all(a < b for a, b in itertools.pairwise(distances))
    assert torch.equal(images, before)


@pytest.mark.parametrize("kind", ["gaussian_noise", "salt_and_pepper", "occlusion"])
def test_chance_depends_on_the_seed_alone(kind):
    images = photographs()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    once = corrupt(images, kind, 0.3, seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(corrupt(images, kind, 0.3, seed=5), once)
    assert not torch.equal(corrupt(images, kind, 0.3, seed=6), once)
    assert len({(a - b).abs().sum().item() for a, b in zip(once, images, strict=True)}) == len(images)


@pytest.mark.parametrize("kind", ["salt_and_pepper", "occlusion"])
def test_what_is_spoilt_stays_spoilt_at_higher_levels(kind):
    images = photographs() * 0.8 + 0.1  # neither black nor white
    changed = [corrupt(images, kind, level) != images for level in np.linspace(0, 1, 30)]
    assert all((a <= b).all() for a, b in itertools.pairwise(changed))
    assert changed[-1].all()


def test_noise_has_the_standard_deviation_it_says():
    grey = torch.full((40, 3, 32, 32), 0.5)
    noise = corrupt(grey, "gaussian_noise", 0.1) - grey
    assert float(noise.std()) == pytest.approx(0.1, rel=0.02)
    assert float(noise.mean()) == pytest.approx(0.0, abs=0.002)
    assert float((corrupt(grey, "gaussian_noise", 0.05) - grey - noise / 2).abs().max()) < 1e-6


def test_salt_and_pepper_takes_whole_pixels():
    grey = torch.full((40, 3, 32, 32), 0.5)
    spoilt = corrupt(grey, "salt_and_pepper", 0.3)
    assert torch.equal(spoilt, spoilt[:, :1].expand_as(spoilt))
    assert set(spoilt.unique().tolist()) == {0.0, 0.5, 1.0}
    for value in (0.0, 1.0):
        assert float((spoilt == value).float().mean()) == pytest.approx(0.15, abs=0.01)


@pytest.mark.parametrize("level", [0.1, 0.5])
def test_blur_of_a_dot_is_a_gaussian_and_keeps_its_light(level):
    dot = torch.zeros(1, 2, 32, 40, dtype=torch.float64)
    dot[:, :, 16, 20] = 1.0
    spoilt = corrupt(dot, "gaussian_blur", level).numpy()
    sigma = 4 * level  # 32 / 8
    y, x = np.mgrid[:32, :40]
    bell = np.exp(-((y - 16) ** 2 + (x - 20) ** 2) / (2 * sigma**2))
    np.testing.assert_allclose(spoilt[0, 1], bell / bell.sum(), atol=1e-4)
    assert spoilt[0, 0].sum() == pytest.approx(1.0)


def test_by_hand():
    plain = torch.full((1, 1, 9, 5), 0.3, dtype=torch.float64)
    torch.testing.assert_close(corrupt(plain, "gaussian_blur", 1.0), plain)  # to its edge
    images = torch.tensor([0.2, 0.4, 0.6, 0.8]).view(1, 1, 2, 2)
    assert corrupt(images, "contrast", 0.5).flatten().tolist() == pytest.approx([0.35, 0.45, 0.55, 0.65])
    assert corrupt(images, "contrast", 1.0).flatten().tolist() == pytest.approx([0.5] * 4)
    assert corrupt(images, "brightness", 0.3).flatten().tolist() == pytest.approx([0.5, 0.7, 0.9, 1.0])


@pytest.mark.parametrize("level", [0.1, 0.25, 0.5])
def test_occlusion_is_a_black_rectangle_of_its_share(level):
    white = torch.ones(30, 3, 20, 24)
    spoilt = corrupt(white, "occlusion", level)
    height, width = round(20 * math.sqrt(level)), round(24 * math.sqrt(level))
    corners = set()
    for image in spoilt:
        black = (image == 0).all(0)
        assert torch.equal(black, (image == 0).any(0))
        rows, columns = black.any(1).nonzero().flatten(), black.any(0).nonzero().flatten()
        assert (len(rows), len(columns), int(black.sum())) == (height, width, height * width)
        assert (rows.diff() == 1).all()
        assert (columns.diff() == 1).all()
        corners.add((int(rows[0]), int(columns[0])))
    assert len(corners) > 5


@pytest.mark.parametrize(
    ("images", "kind", "level", "message"),
    [
        (photographs(), "fog", 0.1, "unknown corruption 'fog': choose gaussian_noise, salt_and_pepper"),
        *((photographs(), "contrast", level, "must be from 0 to 1") for level in (-0.1, 1.1, math.nan)),
        (photographs().byte(), "contrast", 0.1, r"expected floats \(N, C, H, W\)"),
        (photographs()[0], "contrast", 0.1, r"expected floats \(N, C, H, W\)"),
        *((photographs() * bad, "contrast", 0.1, "before they are normalised") for bad in (2, -1, math.nan)),
    ],
)
def test_bad_arguments_are_named(images, kind, level, message):
    with pytest.raises(ValueError, match=message):
        corrupt(images, kind, level)


# --- a split, and a network on it ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_split_is_corrupted_as_its_images_are_whatever_the_chunks(kind, dataset, monkeypatch):
    split = dataset.test
    expected = (255 * corrupt(split.images.float() / 255, kind, 0.3, seed=4)).round().byte()
    for chunk in (7, 1000):
        monkeypatch.setattr(corruption, "CHUNK", chunk)
        spoilt = corrupt_split(split, kind, 0.3, seed=4)
        assert torch.equal(spoilt.labels, split.labels)
        assert spoilt.images.dtype == torch.uint8
        assert (spoilt.images.int() - expected.int()).abs().max() <= (1 if kind == "gaussian_blur" else 0)
    assert torch.equal(corrupt_split(split, kind, 0.0).images, split.images)


@pytest.fixture
def net(dataset):
    torch.manual_seed(0)
    return build("mlp", classes=10, in_shape=dataset.in_shape, width=0.1, norm="bf")


def test_scores_are_those_of_a_naive_evaluation(dataset, net):
    split = dataset.test
    scores = under_corruption(net, split, ["contrast", "occlusion"], [0.0, 0.5], dataset=dataset, temperature=0.2)
    assert [(s.kind, s.level) for s in scores] == [*product(["contrast", "occlusion"], [0.0, 0.5])]
    assert net.training
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (dataset.mean, dataset.std))
    for score in scores:
        net.train()
        spoilt = corrupt_split(split, score.kind, score.level)
        with torch.no_grad():
            logits = net.eval()((spoilt.images / 255 - mean) / std)
        assert score.accuracy == pytest.approx(float((logits.argmax(1) == split.labels).double().mean()))
        assert score.ada_ece == pytest.approx(ada_ece(logits / 0.2, split.labels), abs=1e-5)


def test_everything_by_default_and_the_same_again(dataset, net):
    split = Split(dataset.test.images[:20], dataset.test.labels[:20])
    scores, again = (under_corruption(net, split, dataset=dataset) for _ in range(2))
    assert [(s.kind, s.level) for s in scores] == [*product(KINDS, LEVELS)]
    assert again == scores


def test_mistakes_are_found_before_anything_is_computed(dataset):
    class Forbidden(nn.Linear):
        def forward(self, x):
            pytest.fail("it was asked")

    for wrong in ({"kinds": ["contrast", "fog"]}, {"levels": [0.1, 2.0]}, {"temperature": 0.0}):
        with pytest.raises(ValueError, match=r"fog|2\.0|temperature"):
            under_corruption(Forbidden(1, 1), dataset.test, dataset=dataset, **wrong)
