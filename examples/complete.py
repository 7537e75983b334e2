"""Complete digits whose lower half is hidden: python examples/complete.py

The network never saw a label or a mask. Half of the image node is clamped, the rest is free: latents settle that
explain what is seen, and the hidden half follows from them.
"""

import sys
from pathlib import Path

import torch
from generative import SCALE, digits, generator, picture, rows, train

import deeppc


def main(folder: Path, epochs: int = 40) -> tuple[float, float]:
    """Return the mean squared error of hidden pixels, by completion and by the mean image."""
    images, _, test, _ = digits()
    net = generator()
    train(net, rows(images), images, epochs)

    seen = torch.arange(64) < 32  # the upper half
    start = torch.where(seen, test, images.mean(0))
    found = deeppc.infer(
        net,
        clamp={"input": rows(test), "image": (test, seen)},
        start={"image": start},
        steps=300,
        lr_x=0.05,
        momentum_x=0.5,
    )
    completed = found.activities["image"]
    error, baseline = ((guess - test)[:, ~seen].square().mean() / SCALE**2 for guess in (completed, start))
    masked = torch.where(seen, test, 0.0)
    lines = {"seen": masked[:14], "completed": completed[:14], "true": test[:14]}
    picture(folder / "complete.png", lines, "Digits that were never seen, completed from their upper half")
    print(f"mean squared error of a hidden pixel: {error:.4f}, by the mean image {baseline:.4f}")
    return float(error), float(baseline)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
