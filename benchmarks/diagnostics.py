"""Measure the cost of recording: steps watched by EnergyTrace beside others, and `--diagnostics` beside an epoch.

    python benchmarks/diagnostics.py

One thread, width 0.25, batches of 64, ten rounds in which the three take turns; medians of the ratios, with quartiles.
"""

import statistics

import torch

from deeppc import Algorithm
from deeppc.bench.timing import batch, in_words, origin, seconds
from deeppc.core import memory
from deeppc.diagnostics import EnergyTrace
from deeppc.diagnostics.updates import diagnose
from deeppc.models import build

MODELS, ALGORITHMS = ("vgg5", "vgg10", "resnet10"), ("pc", "pc+s+f", "ipc+s")
ROUNDS, BATCHES = 10, 100  # of an epoch, to which the diagnostics of its end are compared


def ratios(model: str, algorithm: str) -> tuple[list[float], list[float]]:
    net = build(model, width=0.25)
    images, labels = batch(net, 64)
    algo, trace = Algorithm.parse(algorithm), EnergyTrace()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)

    def step(observe: EnergyTrace | None = None) -> None:
        algo.step(net, images, labels, optimizer, observe=observe)

    def look() -> None:
        diagnose(algo, net, images, labels)

    step(), step(trace), look()
    watched, looked = [], []
    for _ in range(ROUNDS):
        alone = seconds(step)
        with_trace = seconds(lambda: step(trace))
        after = seconds(step)
        watched.append(2 * with_trace / (alone + after) - 1)
        looked.append(seconds(look) / (BATCHES * after))
    return watched, looked


def percent(values: list[float]) -> str:
    low, middle, high = (100 * q for q in statistics.quantiles(values, n=4))
    return f"{middle:.1f} % ({low:.1f} to {high:.1f})"


def main() -> None:
    memory.keep()
    torch.set_num_threads(1)
    print(f"| step | EnergyTrace in each | --diagnostics, {BATCHES} to an epoch |\n|---|---|---|")
    for model in MODELS:
        for algorithm in ALGORITHMS:
            watched, looked = ratios(model, algorithm)
            print(f"| {model} {algorithm} | {percent(watched)} | {percent(looked)} |", flush=True)
    print(f"\n{in_words(origin())}")


if __name__ == "__main__":
    main()
