"""How much of what incremental predictive coding teaches a layer undoes what it has just learnt?

    nice python benchmarks/pullback.py [--model vgg10] [--batches 30] [--data-dir data]

iPC updates weights at every inference step, and activities stay where they were: so a layer that has learnt predicts
something else than its activity, and this error, which was none before, pulls the weights back. Here the network is
trained by each algorithm for some batches of 64 images of CIFAR-10 (width 0.25, BatchNorm freezing, ReLU, AdamW), and
the gradients of the last batch are looked at, by layer:

later / first  the largest norm of a gradient after the first one, which comes with the energy and is what there is to
               learn, in terms of it
pull-back      cosine of the second gradient with the change that the weights have just made (the optimiser's momentum
               included): descent along it goes back

With each algorithm, the root mean square of the first gradient where it is least: AdamW heeds what is above 1e-8.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from deeppc import Algorithm
from deeppc.bench.timing import in_words, origin
from deeppc.data import load
from deeppc.models import build

ROWS: dict[str, tuple[str, float, dict[str, Any]]] = {
    "A": ("ipc", 1e-3, {"lr_x": 0.28, "momentum_x": 0.5}),
    "B": ("ipc+s", 3e-4, {"lr_x": 0.3, "alpha": 0.01}),
    "C": ("ipc+s", 9e-4, {"lr_x": 0.85, "alpha": 0.001}),
    "D": ("ipc", 1e-3, {"lr_x": 0.28, "momentum_x": 0.5, "follow": True}),
}
Lessons = list[tuple[Tensor, Tensor]]  # by inference step: a layer's gradient, and its weights before it


def taught(algorithm: Algorithm, lr_w: float, batches: list[tuple[Tensor, Tensor]], model: str) -> dict[str, Lessons]:
    """Train a network; return what each of its layers was taught in the last batch."""
    torch.manual_seed(0)
    net = build(model, width=0.25, norm="bf", activation="relu")
    weights = {n.split(".")[1]: p for n, p in net.named_parameters() if p.dim() > 1}
    optimizer = torch.optim.AdamW(net.parameters(), lr=lr_w, weight_decay=1e-4)
    lessons: dict[str, Lessons] = {}

    def note(*_: object) -> None:
        for layer, weight in weights.items():
            if weight.grad is not None:
                lessons[layer].append((weight.grad.flatten(), weight.detach().flatten().clone()))

    optimizer.register_step_pre_hook(note)
    for images, labels in batches:
        lessons.update({layer: [] for layer in weights})
        algorithm.step(net, images, labels, optimizer)
    return lessons


def numbers(lessons: Lessons) -> str:
    """How much larger later gradients are than the first, and the cosine of the pull-back."""
    (first, before), (second, after), *_ = lessons
    cosine = float(torch.cosine_similarity(second, after - before, dim=0))
    later = max(float(gradient.norm()) for gradient, _ in lessons[1:])
    return f"{later / float(first.norm()):.2g} | {cosine:+.2f}"


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
    found = {}
    for name, (spec, lr_w, own) in ROWS.items():
        found[name] = taught(Algorithm.parse(spec, **own), lr_w, batches, given.model)
        least = min(float(lessons[0][0].square().mean().sqrt()) for lessons in found[name].values())
        said = ", ".join(f"`{key}` {value:g}" for key, value in {"lr_w": lr_w, **own}.items())
        print(f"- **{name}**: `{spec}`, {said}; least first gradient {least:.1e}", flush=True)
    print("\n| layer | " + " | ".join(f"{name}: later / first | pull-back" for name in ROWS) + " |")
    print("|" + (1 + 2 * len(ROWS)) * "---|")
    for layer in found["A"]:
        if all(len(lessons[layer]) > 1 for lessons in found.values()):  # energy comes to the first in the last step
            print(f"| {layer} | " + " | ".join(numbers(lessons[layer]) for lessons in found.values()) + " |")
    print(f"\n{in_words(origin())}")


if __name__ == "__main__":
    main()
