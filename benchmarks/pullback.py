"""How much of what incremental predictive coding teaches a layer undoes what it has just learnt?

    nice python benchmarks/pullback.py [--model vgg10] [--batches 30] [--data-dir data]

iPC updates weights at every inference step, and activities stay where they were: so a layer that has learnt predicts
something else than its activity, and this error, which was none before, pulls the weights back. Here the network is
trained by each algorithm for some batches of 64 images of CIFAR-10 (width 0.25, BatchNorm freezing, ReLU, AdamW), and
the gradients of the last batch are looked at, by layer:

later / first  the largest norm of a gradient after the first one, which comes with the energy and is what there is to
               learn, in terms of it
pull-back      cosine of the second gradient with the change that the weights have just made: descent along it goes back
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor

from deeppc import Algorithm
from deeppc.data import load
from deeppc.models import build

ROWS = (
    ("ipc", 1e-3, {"lr_x": 0.28}),
    ("ipc+s", 3e-4, {"lr_x": 0.3, "alpha": 0.01}),
    ("ipc+s", 9e-4, {"lr_x": 0.85, "alpha": 0.001}),
    ("ipc", 3e-4, {"lr_x": 0.28, "follow": True}),
)
Layers = dict[str, list[tuple[Tensor, Tensor]]]  # by layer and inference step: its gradient, and its weights before it


def last_batch(algorithm: Algorithm, lr_w: float, batches: list[tuple[Tensor, Tensor]], model: str) -> Layers:
    """Train a network, and return what its layers were taught in the last batch."""
    torch.manual_seed(0)
    net = build(model, width=0.25, norm="bf", activation="relu")
    weights = {n.split(".")[1]: p for n, p in net.named_parameters() if p.dim() > 1}
    optimizer = torch.optim.AdamW(net.parameters(), lr=lr_w, weight_decay=1e-4)
    taught: Layers = {layer: [] for layer in weights}

    def note(*_: object) -> None:
        for layer, weight in weights.items():
            if weight.grad is not None:
                taught[layer].append((weight.grad.flatten(), weight.detach().flatten().clone()))

    for i, (images, labels) in enumerate(batches):
        if i == len(batches) - 1:
            optimizer.register_step_pre_hook(note)
        algorithm.step(net, images, labels, optimizer)
    return taught


def numbers(taught: list[tuple[Tensor, Tensor]]) -> str:
    """How much larger later gradients are than the first one, and the cosine of the pull-back."""
    (first, before), (gradient, after), *_ = taught
    ratio = max(float(g.norm()) for g, _ in taught[1:]) / float(first.norm())
    cosine = float(torch.cosine_similarity(gradient, after - before, dim=0))
    return f"{ratio:.2g} | {cosine:+.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vgg10")
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = load("cifar10", given.data_dir)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (data.mean, data.std))
    torch.manual_seed(0)
    order = torch.randperm(len(data.train))[: 64 * given.batches].split(64)
    batches = [((data.train.images[i] / 255 - mean) / std, data.train.labels[i]) for i in order]
    columns = [last_batch(Algorithm.parse(spec, **own), lr_w, batches, given.model) for spec, lr_w, own in ROWS]
    for spec, lr_w, own in ROWS:
        said = ", ".join(f"`{name}` {value:g}" for name, value in {"lr_w": lr_w, **own}.items())
        print(f"- {spec}: {said}")
    print("\n| layer | " + " | ".join(f"{spec}: later / first | pull-back" for spec, _, _ in ROWS) + " |")
    print("|" + (1 + 2 * len(ROWS)) * "---|")
    for layer in columns[0]:
        if all(len(taught[layer]) > 1 for taught in columns):  # to the first one energy comes in the last step
            print(f"| {layer} | " + " | ".join(numbers(taught[layer]) for taught in columns) + " |")


if __name__ == "__main__":
    main()
