"""The paper's numbers: typed here a second time, from the paper, and against each other where it repeats itself."""

from __future__ import annotations

import pytest

from deeppc.bench.steps import PAPER
from deeppc.paper import published
from deeppc.paper.recipes.time import ratios as papers_ratios


@pytest.mark.parametrize(
    ("name", "dataset", "metric", "row", "column", "value"),
    [
        ("accuracy", "cifar10", "top1", "PC+S+F", "VGG10", (93.27, 0.10)),
        ("accuracy", "cifar10", "top1", "PC", "ResNet18", (15.63, 7.22)),
        ("accuracy", "cifar100", "top5", "iPC+S", "VGG5", (89.47, 0.02)),
        ("accuracy", "tiny-imagenet", "top1", "PC+S+F", "ResNet18", (54.24, 0.63)),
        ("accuracy", "tiny-imagenet", "top5", "iPC", "VGG5", (54.73, 0.52)),
        ("ablation", "cifar10", "top1", "PC", "VGG10", (72.75, 6.03)),
        ("ablation", "cifar10", "top1", "PC+F", "ResNet18", (25.50, 3.12)),
        ("ablation", "cifar100", "top1", "PC+S", "ResNet18", (22.92, 0.15)),
        ("ablation", "cifar100", "top5", "iPC+S", "VGG7", (84.96, 0.14)),
        ("schedules", "cifar10", "top1", "PC+L+F", "VGG10", (88.35, 0.12)),
        ("schedules", "cifar10", "top1", "PC+D+F", "VGG7 BF", (91.48, 0.12)),
        ("schedules", "cifar100", "top5", "PC+S", "VGG10 BF", (83.44, 0.21)),
        ("vgg15", "tiny-imagenet", "top1", "BP", "VGG15 BF", (53.21, 0.39)),
        ("vgg15", "tiny-imagenet", "top1", "PC+D", "VGG15", (27.29, 0.24)),
        ("vgg15", "tiny-imagenet", "top5", "iPC+S", "VGG15", (75.41, 0.10)),
        ("vgg15", "tiny-imagenet", "top5", "PC", "VGG15", (47.04, 2.04)),
        ("batchnorm", "cifar10", "top1", "BN", "PC+S+F", (24.31, 4.51)),
        ("batchnorm", "cifar10", "top1", "BF without affine", "PC+S+F", (93.18, 0.06)),
        ("auxiliary", "cifar10", "top1", "iPC+S", "ResNet18 without", (64.0, None)),
    ],
)
def test_values_of_tables(name, dataset, metric, row, column, value):
    assert published.table(name, dataset, metric)[row, column] == value


def test_values_of_other_shapes():
    gap, robustness, time = (published.read(name) for name in ("gap", "robustness", "time"))
    assert gap["without F"]["5"][9] == 7065.72
    assert gap["with F"]["45"][7:10] == [731.19, 115.87, 10.54]
    assert gap["F on the last 3"]["25"][4] == 16.04
    assert robustness["VGG5"]["PC"][4] == [0.033315, 0.434768]
    assert robustness["VGG10"]["PC+S+F"][0] == [0.039269, 0.486342]
    assert time["ResNet18"][3] == [22.14, 0.05]


def test_no_table_has_an_empty_or_an_impossible_number():
    for name in ("accuracy", "ablation", "schedules", "vgg15"):
        for dataset, metrics in published.read(name).items():
            for metric in metrics:
                values = published.table(name, dataset, metric)
                assert values
                assert all(0 < mean < 100 and spread is not None for mean, spread in values.values())
    assert published.table("ablation", "tiny-imagenet", "top1") == {}  # which there is not


def test_what_the_paper_says_twice_is_the_same():
    """The table of schedules repeats the one without BF, and Table 1 takes the better of both."""
    for dataset in ("cifar10", "cifar100"):
        plain, with_bf = published.table("ablation", dataset, "top1"), published.table("schedules", dataset, "top1")
        best = published.table("accuracy", dataset, "top1")
        for row in ("BP", "PC", "PC+S+F"):
            for net in ("VGG5", "VGG7", "VGG10"):
                assert plain[row, net] == with_bf[row, net]
                assert best[row, net] == max(with_bf[row, net], with_bf[row, f"{net} BF"])


def test_ratios_of_times_are_those_of_the_benchmark():
    ratios = {(net.lower(), name): mean for (net, name), (mean, _) in papers_ratios().items()}
    for net, algorithms in PAPER.items():
        for name, ratio in algorithms.items():
            assert ratios[net, name] == pytest.approx(ratio, abs=0.006)
