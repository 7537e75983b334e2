"""Calibration: by hand, in closed form, and against another implementation."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from deeppc.data import Batches
from deeppc.diagnostics.calibration import ada_ece, answers, fit_temperature, reliability


def sure(confidences, right):
    """Logits of two classes whose softmax is (c, 1 - c), and labels so that the answers are right or not."""
    c = torch.tensor(confidences, dtype=torch.float64)
    return torch.stack([c.log(), (1 - c).log()], dim=1), 1 - torch.tensor(right)


def random_answers(n=500, classes=7, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(size=(n, classes)) * 2), torch.from_numpy(rng.integers(0, classes, n))


def numpy_ada_ece(logits, labels, bins):
    """The textbook's, for samples of different confidences."""
    z = np.exp(logits - logits.max(1, keepdims=True))
    p = z / z.sum(1, keepdims=True)
    samples = sorted((float(row.max()), int(row.argmax()) == y) for row, y in zip(p, labels, strict=True))
    edges = np.linspace(0, len(samples), bins + 1).round().astype(int)
    total = 0.0
    for low, high in itertools.pairwise(edges):
        sure, right = zip(*samples[low:high], strict=True)
        total += abs(sum(right) - sum(sure))
    return total / len(samples)


def test_by_hand():
    """Two bins: (0.6, 0.7) with one right, (0.8, 0.9) with both: |0.5 - 0.65| / 2 + |1 - 0.85| / 2."""
    logits, labels = sure([0.9, 0.6, 0.8, 0.7], [1, 1, 1, 0])
    assert ada_ece(logits, labels, bins=2) == pytest.approx(0.15)
    table = reliability(logits, labels, bins=2)
    assert table.samples.tolist() == [2, 2]
    assert table.confidence == pytest.approx([0.65, 0.85])
    assert table.accuracy == pytest.approx([0.5, 1.0])
    assert ada_ece(logits, labels, bins=1) == pytest.approx(0.0)  # on the whole 75 % sure, and 75 % right


@pytest.mark.parametrize("bins", [1, 10, 50])  # of 500 samples: equal bins, so that both round alike
def test_it_agrees_with_the_textbook_whatever_is_added_to_all_logits_of_a_sample(bins):
    logits, labels = random_answers()
    shifted = logits + torch.arange(500.0).unsqueeze(1)
    assert ada_ece(shifted, labels, bins) == pytest.approx(numpy_ada_ece(logits.numpy(), labels.numpy(), bins))


def test_bins_differ_by_at_most_one_sample():
    logits, labels = random_answers(n=101)
    table = reliability(logits, labels, bins=15)
    assert table.samples.sum() == 101
    assert set(table.samples.tolist()) == {6, 7}
    assert reliability(logits[:4], labels[:4], bins=15).samples.tolist() == [1, 1, 1, 1]


@settings(max_examples=25)
@given(st.randoms(use_true_random=False), st.integers(1, 12))
def test_the_order_of_samples_does_not_matter_however_equal_they_are(random, bins):
    samples = [(c := random.choice([0.6, 0.7, 0.8]), int(random.random() < c)) for _ in range(30)]
    shuffled = random.sample(samples, k=30)
    one, other = (ada_ece(*sure(*map(list, zip(*each, strict=True))), bins) for each in (samples, shuffled))
    assert one == pytest.approx(other, abs=1e-12)


def test_equal_flat_and_large_logits():
    """1,000 answers, each 90 % sure, 60 % right: wrong by 0.3, however they are cut into bins."""
    assert ada_ece(*sure([0.9] * 1000, [1] * 600 + [0] * 400)) == pytest.approx(0.3)
    labels = torch.tensor([0, 0, 0, 1])
    assert ada_ece(torch.zeros(4, 4), labels) == pytest.approx(0.5)  # 1/4 sure of class 0, 3/4 right
    assert ada_ece(torch.eye(2)[labels] * 1e30, labels) == 0.0
    assert ada_ece(torch.eye(2)[1 - labels] * 1e30, labels) == 1.0


@pytest.mark.parametrize(("gap", "right"), [(2.0, 0.9), (0.01, 0.6), (300.0, 0.75)])
def test_the_temperature_in_closed_form(gap, right):
    """Two classes with one logit gap, a fraction q right: sigmoid(gap / T) = q."""
    logits = torch.tensor([[gap, 0.0]]).repeat(100, 1)
    labels = (torch.arange(100) >= 100 * right).long()
    assert fit_temperature(logits, labels) == pytest.approx(gap / math.log(right / (1 - right)), rel=1e-6)


def test_no_other_temperature_is_more_likely():
    torch.manual_seed(0)
    logits, _ = random_answers(classes=10)
    labels = torch.distributions.Categorical(logits=logits / 3).sample()
    best = fit_temperature(logits, labels)
    assert 2 < best < 4.5
    assert fit_temperature(1000 * logits + 5, labels) == pytest.approx(1000 * best, rel=1e-6)

    def unlikelihood(temperature):
        z = logits.numpy() / temperature
        return float(np.mean(np.log(np.exp(z).sum(1)) - z[np.arange(len(z)), labels.numpy()]))

    assert all(unlikelihood(best) < unlikelihood(best * factor) for factor in (0.9, 0.999, 1.001, 1.1))


def test_where_no_temperature_is_best():
    logits, _ = random_answers(n=50)
    spread = float((logits - logits.mean(1, keepdim=True)).square().mean().sqrt())
    assert fit_temperature(logits, logits.argmax(1)) == pytest.approx(1e-4 * spread, rel=1e-6)
    assert fit_temperature(logits, logits.argmin(1)) == pytest.approx(1e4 * spread, rel=1e-6)
    assert fit_temperature(torch.full((5, 3), 2.0), torch.zeros(5, dtype=torch.long)) == 1.0


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (torch.zeros(3), torch.zeros(3, dtype=torch.long), r"shape \(3,\): expected \(samples, classes\)"),
        (torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), "at least one"),
        (torch.zeros(2, 3), torch.zeros(3, dtype=torch.long), "expected 2 class indices"),
        (torch.zeros(2, 3), torch.zeros(2), "expected 2 class indices"),
        (torch.zeros(2, 3), torch.tensor([0, 3]), "class indices from 0 to 2"),
        (torch.tensor([[0.0, math.nan]]), torch.tensor([0]), "has the network diverged"),
    ],
)
def test_what_cannot_be_measured_is_refused(logits, labels, message):
    for measure in (ada_ece, fit_temperature):
        with pytest.raises(ValueError, match=message):
            measure(logits, labels)
    with pytest.raises(ValueError, match="bins is 0, but must be 1 or more"):
        ada_ece(logits, labels, bins=0)


def test_answers_are_those_of_the_net_at_test_time_and_its_modes_are_kept(dataset):
    net = nn.Sequential(nn.Flatten(), nn.Linear(256, 10), nn.BatchNorm1d(10), nn.Dropout(0.5))
    net[2].eval()
    batches = Batches(dataset.test, dataset, batch_size=25, augment=False, shuffle=False)
    logits, labels = answers(net, batches)
    assert [module.training for module in net] == [True, True, False, True]
    assert torch.equal(labels, dataset.test.labels)
    images = torch.cat([images for images, _ in batches.epoch(0)])
    torch.testing.assert_close(logits, net.eval()(images).detach())
