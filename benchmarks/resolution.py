"""Does float32 compute what float64 does, in every layer? The lowest cosine of a layer's gradient with float64's.

    nice python benchmarks/resolution.py [--models vgg10,vgg15,resnet18,resnet66] [--data-dir data]

Width 0.0625, BatchNorm freezing, ReLU, T = L, the gain; images of CIFAR-10. Untrained, after the slash trained by 60
batches of 32 images with bp (AdamW, ``lr_w`` 0.003). The lessons of ipc are those that each node gets first: from then
on its weights have changed, and its errors are as large as that makes them. Beside float32 stands float64 itself, after
the pixels have changed by 1e-8 of themselves: what it loses by that, no arithmetic can bring back. "-": refused, since
the gain is beyond float32's range. One thread.
"""

import argparse
import copy
import sys
from pathlib import Path

import torch

from deeppc import Algorithm, Graph
from deeppc.bench.timing import in_words, origin
from deeppc.data import load
from deeppc.models import build
from deeppc.report.tables import Table

RATES = [("pc", 0.01), ("pc", 0.05), ("pc", 0.2), ("pc+f", 0.01), ("pc+f", 0.05), ("pc+f", 0.2)]
RATES += [("ipc", 0.01), ("ipc", 0.05), ("ipc", 0.2), ("pc+s+f", 0.05), ("pc+s+f", 0.2), ("pc+s+f", 0.5)]


def lessons(algorithm: Algorithm, net: Graph, images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    """The gradient of each layer's weights (not of its norms); of several the first."""
    net, first = copy.deepcopy(net).to(images.dtype), dict[str, torch.Tensor]()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)  # weights stay where they are

    def collect(*_: object) -> None:
        for n, p in net.named_parameters():
            if p.grad is not None and p.dim() > 1:
                first.setdefault(n, p.grad.double().flatten())

    optimizer.register_step_pre_hook(collect)
    algorithm.step(net, images, labels, optimizer)
    return first


def lowest(algorithm: Algorithm, net: Graph, images: torch.Tensor, labels: torch.Tensor) -> list[str]:
    """Return that of float32, and that of float64 with other last digits in the pixels."""
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(1)).double()
    try:
        exact, *others = (
            lessons(algorithm, net, x, labels) for x in (images.double(), images, images.double() * (1 + 1e-8 * noise))
        )
    except ValueError:
        return ["-", "-"]
    assert exact.keys() == {n for n, p in net.named_parameters() if p.dim() > 1}
    cosines = [[float(torch.cosine_similarity(ours[n], exact[n], dim=0)) for n in exact] for ours in others]
    return [f"{min(found):.5f}".rstrip("0").rstrip(".") for found in cosines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="vgg10,vgg15,resnet18,resnet66")
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = load("cifar10", given.data_dir)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (data.mean, data.std))
    rows = [[f"`{spec}`", f"{lr:g}"] for spec, lr in RATES]
    for name in given.models.split(","):
        torch.manual_seed(0)
        nets = [build(name, width=0.0625, norm="bf", activation="relu")]
        order = torch.randperm(len(data.train))[: 32 * 61].split(32)
        batches = [((data.train.images[i] / 255 - mean) / std, data.train.labels[i]) for i in order]
        nets.append(copy.deepcopy(nets[0]))
        optimizer = torch.optim.AdamW(nets[1].parameters(), lr=3e-3)
        for images, labels in batches[1:]:
            Algorithm.parse("bp").step(nets[1], images, labels, optimizer)
        images, labels = (x[: 4 if name == "resnet66" else 24] for x in batches[0])
        for row, (spec, lr) in zip(rows, RATES, strict=True):
            algorithm = Algorithm.parse(spec, lr_x=lr, depth_gain=True)
            found = [lowest(algorithm, net, images, labels) for net in nets]
            row += [" / ".join(pair) for pair in zip(*found, strict=True)]
            print(name, *row[:2], *row[-2:], file=sys.stderr, flush=True)
    networks = [column for name in given.models.split(",") for column in (name, "*float64*")]
    print(Table(["", "`lr_x`", *networks], rows).markdown())
    print(in_words(origin()))


if __name__ == "__main__":
    main()
