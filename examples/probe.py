"""Learn without labels, then ask what was learnt: python examples/probe.py

A linear classifier reads the latents that inference finds for each image. It is compared with one that reads the
pixels, and with one that reads latents of a network that has not learnt, by the number of labels that each is given.
"""

import sys
from pathlib import Path

import torch
from generative import digits, generator, plt, rows, train
from sklearn.linear_model import LogisticRegression

import deeppc

LABELS = (20, 50, 100, 300, 1500)


def latents(net: deeppc.Graph, images: torch.Tensor) -> torch.Tensor:
    """Return the latents of least energy of each image."""
    clamp = {"input": rows(images), "image": images}
    return deeppc.infer(net, clamp, steps=200, lr_x=0.05, momentum_x=0.5).activities["z"]


def main(folder: Path, epochs: int = 40) -> dict[str, list[float]]:
    """Return the test accuracies by what is read, for each number of labels."""
    images, labels, test, test_labels = digits()
    net, untrained = generator(), generator()
    train(net, rows(images), images, epochs)
    read = {
        "latents": (latents(net, images), latents(net, test)),
        "pixels": (images, test),
        "latents, untrained": (latents(untrained, images), latents(untrained, test)),
    }
    scores: dict[str, list[float]] = {}
    for name, (known, asked) in read.items():
        mean, spread = known.mean(0), known.std(0) + 1e-6
        known, asked = (known - mean) / spread, (asked - mean) / spread
        fits = [LogisticRegression(max_iter=2000).fit(known[:n], labels[:n]) for n in LABELS]
        scores[name] = [float(fit.score(asked, test_labels)) for fit in fits]
        print(
            f"{name:20}" + "  ".join(f"{n} labels {100 * s:.1f} %" for n, s in zip(LABELS, scores[name], strict=True))
        )
    figure, axis = plt.subplots(figsize=(5, 3.2))
    for name, line in scores.items():
        axis.plot(LABELS, [100 * s for s in line], "o-", label=name)
    axis.set(xscale="log", xlabel="labels", ylabel="test accuracy, %", title="A linear classifier on digits")
    axis.legend()
    figure.savefig(folder / "probe.png", dpi=130, bbox_inches="tight")
    plt.close(figure)
    return scores


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
