"""Train networks that know nothing of deeppc by backprop and by pc+s+f, after from_torch.

    nice python benchmarks/converted.py [name ...]
    nice python benchmarks/converted.py --cifar10 4000 [--data-dir data] [name ...]

On scikit-learn's digits: 8x8 images, 1,437 to train on and 360 to test on, batches of 64. Or on so many images of
CIFAR-10, augmented, and its whole test set, batches of 128. Test accuracy of the last epoch, mean over the seeds, which
draw the weights and the order of the data. The same for both algorithms: AdamW with deeppc's schedule, cross-entropy,
epochs and rate as below. Networks: tests/models/zoo.py. One thread.
"""

import argparse
import sys
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import torch
from sklearn.datasets import load_digits

import deeppc
from deeppc.bench.timing import in_words, origin
from deeppc.data import Split, holdout, load

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from models.zoo import CIFAR_NETWORKS, NETWORKS

ALGORITHMS = {"bp": {}, "pc+s+f": {"alpha": 1e-3, "lr_x": 0.9}}
EPOCHS_AND_RATE = {"torchvision resnet18": (4, 1e-3), "torchvision vgg11_bn": (4, 1e-3), "DenseNet": (20, 5e-3)}
EPOCHS_AND_RATE |= dict.fromkeys(("vision transformer", "MLP-Mixer", "RNN over rows"), (20, 3e-3))
OTHERS = (8, 5e-3)
CIFAR_EPOCHS_AND_RATE = {"pre-activation ResNet": (6, 5e-3), "vision transformer": (10, 2e-3)}


class Run(NamedTuple):
    accuracy: float
    epochs: int
    seconds: float
    net: deeppc.Graph


def digits() -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    source = load_digits()
    images = torch.from_numpy(source.images).float().unsqueeze(1) / 16
    parts = holdout(Split(images, torch.from_numpy(source.target).long()), fraction=0.2, seed=0)
    return tuple(((part.images - 0.305) / 0.376, part.labels) for part in parts)


def trained(net: deeppc.Graph, algorithm: str, epochs: int, rate: float, seed: int, data: Any, **options: Any) -> Run:
    """Train ``net`` on ``data``, and test it. The seconds are the processor's: others work on the machine."""
    begun = time.process_time()
    result = deeppc.fit(
        net,
        data,
        deeppc.Algorithm.parse(algorithm, loss="cross_entropy", **ALGORITHMS[algorithm]),
        epochs=epochs,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=rate),
        seed=seed,
        select="last",
        show=False,
        **options,
    )
    return Run(100 * result.test_accuracy, epochs, time.process_time() - begun, net)


def on_digits(name: str, algorithm: str, seed: int) -> Run:
    data = digits()
    torch.manual_seed(seed)
    net = deeppc.from_torch(NETWORKS[name](), data[0][0][:2], balance=True)
    return trained(net, algorithm, *EPOCHS_AND_RATE.get(name, OTHERS), seed, data, batch_size=64)


def on_cifar10(name: str, algorithm: str, seed: int, images: int, data_dir: str) -> Run:
    torch.manual_seed(seed)
    net = deeppc.from_torch(CIFAR_NETWORKS[name](), torch.zeros(2, 3, 32, 32), balance=True)
    data = load("cifar10", data_dir)
    return trained(net, algorithm, *CIFAR_EPOCHS_AND_RATE[name], seed, data, batch_size=128, limit=images)


def row(name: str, runs: dict[str, list[Run]]) -> str:
    """One line of the table: accuracies, and how many times as long pc+s+f took."""
    scores = [[run.accuracy for run in of_one] for of_one in runs.values()]
    bp, pc = runs.values()
    count = sum(p.numel() for p in bp[0].net.parameters())
    cells = [f"{mean(s):.2f} ± {stdev(s):.2f}" if len(s) > 1 else f"{s[0]:.2f}" for s in scores]
    times = sum(run.seconds for run in pc) / sum(run.seconds for run in bp)
    cells += [f"{mean(scores[1]) - mean(scores[0]):+.2f}", f"{times:.1f}"]
    return f"| {name} | {count:,} | {bp[0].net.L} | {bp[0].epochs} | {' | '.join(cells)} |"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("names", nargs="*", help="of networks; all, if none is given")
    arguments.add_argument("--cifar10", type=int, metavar="IMAGES", help="train on so many images of CIFAR-10")
    arguments.add_argument("--data-dir", default="data", help="where CIFAR-10 lies")
    arguments.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = arguments.parse_args()
    torch.set_num_threads(1)
    settings = ", ".join(f"{key}={value}" for key, value in ALGORITHMS["pc+s+f"].items())
    print(f"| network | parameters | levels | epochs | bp | pc+s+f ({settings}) | difference | time |", end="")
    print("\n" + 8 * "|---" + "|", flush=True)
    for name in given.names or (NETWORKS if given.cifar10 is None else CIFAR_NETWORKS):
        runs: dict[str, list[Run]] = {algorithm: [] for algorithm in ALGORITHMS}
        for seed in given.seeds:
            for algorithm, done in runs.items():
                if given.cifar10 is None:
                    done.append(on_digits(name, algorithm, seed))
                else:
                    done.append(on_cifar10(name, algorithm, seed, given.cifar10, given.data_dir))
                said = f"{name}, seed {seed}, {algorithm}: {done[-1].accuracy:.2f} in {done[-1].seconds:.0f} s"
                print(said, file=sys.stderr, flush=True)
        print(row(name, runs), flush=True)
    print(f"\n{in_words(origin())}")


if __name__ == "__main__":
    main()
