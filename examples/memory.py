"""Recall stored images from noise: python examples/memory.py

An associative memory: the network learns a few images until it predicts them from a few latents. Shown one that is
noisy, or half of one, it settles in latents that explain it, and predicts the stored image.
"""

import sys
from pathlib import Path

import torch
from generative import SCALE, digits, generator, picture, rows, train

import deeppc

STORED = 40


def main(folder: Path, epochs: int = 1500) -> tuple[float, float]:
    """Return the share of images recalled, from noise and from their upper half."""
    images, *_ = digits()
    stored = images[:STORED]
    net = generator(latents=10, hidden=128)
    train(net, rows(stored), stored, epochs)

    torch.manual_seed(0)
    noisy = (stored + 0.35 * SCALE * torch.randn_like(stored)).clamp(0, SCALE)
    seen = torch.arange(64) < 32
    half = torch.where(seen, stored, 0.0)
    settings = {"steps": 400, "lr_x": 0.05, "momentum_x": 0.5}
    from_noise = deeppc.infer(net, {"input": rows(stored), "image": noisy}, **settings)
    from_half = deeppc.infer(net, {"input": rows(stored), "image": (stored, seen)}, **settings)
    recalled = [found.predictions["image"] for found in (from_noise, from_half)]
    shares = [
        float((torch.cdist(found, stored).argmin(1) == torch.arange(STORED)).float().mean()) for found in recalled
    ]
    lines = {"noisy": noisy[:14], "recalled": recalled[0][:14], "half": half[:14], "recalled ": recalled[1][:14]}
    picture(folder / "memory.png", {**lines, "stored": stored[:14]}, f"{STORED} stored images, recalled")
    print(f"recalled of {STORED} images: {shares[0]:.0%} from noise, {shares[1]:.0%} from their upper half")
    return shares[0], shares[1]


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
