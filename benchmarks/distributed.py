"""Measure what several workers cost: samples per second, the share of time that waits for others, bytes per step.

    python benchmarks/distributed.py                       # 1 and 2 processes of one thread, VGG5 at width 0.25
    python benchmarks/distributed.py --model resnet18 --width 0.25 --processes 1,2 --rounds 8

Without norms, then with BatchNorm freezing. Processes talk by gloo on this machine. The global batch is the same, 128
images, whatever their number, so two processes do half the work each. *Waiting* is the time in which a worker does
nothing but send to others or wait for them, relative to the whole step: what the overlap with inference does not hide,
and the skew between the workers. *Bytes* are those of the gradients, and of the statistics of norms, that one worker
puts into sums in one step; a ring of N sends each 2 (N - 1) / N times.
"""

import argparse
import os
import statistics
import tempfile
import time
from itertools import product
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from deeppc.bench.timing import SPECS, batch, in_words, origin
from deeppc.core.algorithms import Algorithm
from deeppc.core.memory import keep
from deeppc.data.batches import part_of
from deeppc.models import build
from deeppc.training.distributed import Exchange, current, synchronised

BATCH, NORMS = 128, ("none", "bf")
Row = tuple[float, float, float]  # seconds of a step, of waiting in it, and bytes


class Meter:
    """Counts what passes through torch's collectives."""

    def __init__(self) -> None:
        self.seconds, self.bytes, self._reduce = 0.0, 0, dist.all_reduce

    def all_reduce(self, values: Tensor, *args: object, **options: object) -> object:
        start = time.perf_counter()
        work = self._reduce(values, *args, **options)
        self.seconds += time.perf_counter() - start
        self.bytes += values.nbytes
        return None if work is None else _Timed(work, self)


class _Timed:
    def __init__(self, work: dist.Work, meter: Meter) -> None:
        self._work, self._meter = work, meter

    def wait(self) -> None:
        start = time.perf_counter()
        self._work.wait()
        self._meter.seconds += time.perf_counter() - start


def work(rank: int, size: int, folder: str, norm: str, options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    keep()
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    torch.manual_seed(0)
    net = build(options.model, width=options.width, norm=norm)
    images, labels = batch(net, BATCH)
    mine = part_of(BATCH, rank, size)
    images, labels = images[mine], labels[mine]
    meter, found = Meter(), {}
    dist.all_reduce = meter.all_reduce
    for name, given in SPECS.items():
        algorithm = Algorithm.parse(name.split(",")[0], **given)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-8)
        exchange = Exchange(net, current())
        rows: list[Row] = []
        for _ in range(options.rounds + 1):
            meter.seconds, meter.bytes = 0.0, 0
            dist.barrier()
            start = time.perf_counter()
            if size == 1:
                algorithm.step(net, images, labels, optimizer)
            else:
                with synchronised(net):
                    exchange.begin(len(labels))
                    algorithm.step(net, images, labels, optimizer, workers=exchange)
            rows.append((time.perf_counter() - start, meter.seconds, float(meter.bytes)))
        found[name] = [statistics.median(column) for column in zip(*rows[1:], strict=True)]
    if rank == 0:
        torch.save(found, Path(folder) / "found")
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="vgg5")
    parser.add_argument("--width", type=float, default=0.25)
    parser.add_argument("--processes", default="1,2")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    sizes = [int(number) for number in options.processes.split(",")]
    found: dict[tuple[str, int], dict[str, Row]] = {}
    for norm, size in product(NORMS, sizes):
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(work, (size, folder, norm, options), size)
            found[norm, size] = torch.load(Path(folder) / "found")
    print("| norm | step | processes | samples/s | speed-up | waiting | MB per step |\n" + 7 * "|---" + "|")
    for norm, name, size in product(NORMS, SPECS, sizes):
        seconds, waiting, sent = found[norm, size][name]
        ratio = found[norm, sizes[0]][name][0] / seconds
        share = f"{waiting / seconds:.0%}" if size > 1 else "-"
        print(f"| {norm} | {name} | {size} | {BATCH / seconds:.0f} | {ratio:.2f} | {share} | {sent / 1e6:.2f} |")
    print(f"\n{in_words(origin())}")


if __name__ == "__main__":
    main()
