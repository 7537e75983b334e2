"""How many strides does it take, and what do they cost? The error of one, of two, and of a tolerance of 2 %.

    nice python benchmarks/strides.py [--rates 0.1,0.2,0.5] [--alpha 0.01] [--width 0.0625] [--data-dir data]

The largest relative error of any layer's gradient of pc+s+f in strides, against the same in all its steps: float64,
ReLU, 8 images of CIFAR-10, T = L; with alpha ignored, in one stride, in two, and with the tolerance. Untrained, after
the slash trained by 60 batches of 32 images with bp (AdamW, ``lr_w`` 0.001). Last the multiply-adds of a step, in
float32, relative to bp's, of the latter three. One number stands where both have the same. One thread.
"""

import argparse
import copy
from pathlib import Path

import torch

from deeppc import Algorithm, Graph
from deeppc.bench.timing import in_words, origin
from deeppc.data import load
from deeppc.diagnostics.work import multiply_adds, step_cost
from deeppc.models import build


def lessons(algorithm: Algorithm, net: Graph, images: torch.Tensor, labels: torch.Tensor) -> list[torch.Tensor]:
    """The gradient of each node's parameters."""
    net = copy.deepcopy(net).to(images.dtype)
    algorithm.gradients(net, images, labels)
    own = ([p.grad.flatten() for p in node.parameters() if p.grad is not None] for node in net.nodes.values())
    return [torch.cat(gradients) for gradients in own if gradients]


def largest(ours: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The relative error of the layer that has the largest."""
    return max(float((a - b).norm() / b.norm()) for a, b in zip(ours, expected, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="vgg5,vgg7,vgg10,resnet10,resnet18")
    parser.add_argument("--rates", default="0.1,0.2,0.5")
    parser.add_argument("--alpha", type=float, default=0.01)
    parser.add_argument("--width", type=float, default=0.0625)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = load("cifar10", given.data_dir)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (data.mean, data.std))
    columns = ["network", "`lr_x`", "`alpha` ignored", "K = 1", "K = 2", "2 %"]
    print(f"| {' | '.join([*columns, 'multiply-adds, K = 1', 'K = 2', '2 %'])} |")
    print("|" + 9 * "---|")
    for name in given.models.split(","):
        for norm in ("none", "bf"):
            torch.manual_seed(0)
            nets = [build(name, width=given.width, norm=norm, activation="relu")]
            order = torch.randperm(len(data.train))[: 32 * 61].split(32)
            batches = [((data.train.images[i] / 255 - mean) / std, data.train.labels[i]) for i in order]
            nets.append(copy.deepcopy(nets[0]))
            optimizer = torch.optim.AdamW(nets[1].parameters(), lr=1e-3)
            for images, labels in batches[1:]:
                Algorithm.parse("bp").step(nets[1], images, labels, optimizer)
            images, labels = (x[:8] for x in batches[0])
            macs = multiply_adds(nets[0], images[:1])
            bp = step_cost(Algorithm.parse("bp").gradients(copy.deepcopy(nets[0]), images, labels).work, macs)
            for lr_x in map(float, given.rates.split(",")):
                settings = [{"alpha": 0.0}, {"strides": 1}, {"strides": 2}, {"tolerance": 0.02}]
                exact, *rest = (
                    Algorithm.parse("pc+s+f", **({"lr_x": lr_x, "alpha": given.alpha} | more))
                    for more in [{}, *settings]
                )
                errors, work = [], []
                for net in nets:
                    expected = lessons(exact, net, images.double(), labels)
                    found = [lessons(algorithm, net, images.double(), labels) for algorithm in rest]
                    errors.append([f"{largest(ours, expected):.2%}" for ours in found])
                    counts = [algorithm.gradients(copy.deepcopy(net), images, labels).work for algorithm in rest[1:]]
                    work.append([f"{step_cost(count, macs) / bp:.2f}" for count in counts])
                cells = [
                    " / ".join(dict.fromkeys(pair)) for pair in [*zip(*errors, strict=True), *zip(*work, strict=True)]
                ]
                label = name + (", BF" if norm == "bf" else "")
                print(f"| {label} | {lr_x:g} | {' | '.join(cells)} |", flush=True)
    print(f"\n{in_words(origin())}")


if __name__ == "__main__":
    main()
