"""Does torch.compile pay? Steps of eager and of compiled nets in turns, and the first compiled step apart.

python benchmarks/compiled.py [--model vgg5] [--width 0.25] [--batch-size 128]
"""

import argparse
import copy
import statistics

import torch

from deeppc.bench.timing import batch, in_words, origin, seconds, step
from deeppc.core import memory
from deeppc.models import build
from deeppc.training.builder import compile_nodes

ALGORITHMS = ("bp", "pc+s+f, alpha=0", "pc+s+f")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="vgg5")
    parser.add_argument("--width", type=float, default=0.25)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    torch.set_num_threads(2)
    memory.keep()
    eager = build(given.model, width=given.width)
    images, labels = batch(eager, given.batch_size)
    compiled = copy.deepcopy(eager)
    compile_nodes(compiled)
    print("| step | eager, ms | compiled, ms | first compiled step, s |\n|---|---|---|---|")
    for name in ALGORITHMS:
        steps = [step(name, net, images, labels) for net in (eager, compiled)]
        steps[0]()
        first = seconds(steps[1])
        rounds = [[seconds(once) for once in steps] for _ in range(given.rounds)]
        medians = [1e3 * statistics.median(column) for column in zip(*rounds, strict=True)]
        print(f"| {name} | {medians[0]:.0f} | {medians[1]:.0f} | {first:.1f} |", flush=True)
    print(f"\n{in_words(origin())}")


if __name__ == "__main__":
    main()
