"""What would bound 8 and 64 GPUs, and how busy a pipeline of 2, 4, 8 devices would be: counted work, assumed devices.

    python benchmarks/devices.py bounds        # the first
    python benchmarks/devices.py pipeline      # the second

Counted here, by the engine itself: how often each node is predicted, pulled back through and differentiated at each
inference step, the multiply-adds of each node, the bytes of its weights and of the activities at a cut. Assumed: the
rates of devices and links below, from data sheets. Measured: nothing but the engine's own time for one operation of one
node, on a core of this machine. No GPU was used.
"""

import argparse
import heapq
import itertools
import statistics
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import torch

from deeppc.bench.timing import in_words, origin
from deeppc.core.algorithms import Algorithm
from deeppc.core.graph import Graph
from deeppc.diagnostics.contexts import evaluating
from deeppc.diagnostics.work import multiply_adds
from deeppc.models.layers import Style
from deeppc.models.resnet import resnet

SPECS = {  # as deeppc bench has them, T = L
    "bp": ("bp", {}),
    "pc+s+f, alpha=0": ("pc+s+f", {"alpha": 0.0, "lr_x": 0.1}),
    "pc+s+f": ("pc+s+f", {"lr_x": 0.1}),
    "pc": ("pc", {"lr_x": 0.1}),
    "ipc+s, alpha=0": ("ipc+s", {"alpha": 0.0, "lr_x": 0.1}),
    "ipc+s": ("ipc+s", {"lr_x": 0.1}),
}
RATE = 0.3 * 495e12 / 2  # multiply-adds per second: 30 % of an H100's dense TF32 peak
NVLINK = 450e9  # bytes per second and direction: NVLink 4, a GPU to the others of its host
INFINIBAND = 50e9  # NDR, 400 Gbit/s for each GPU
LATENCY = 10e-6  # seconds of one message between GPUs, software included
FLOAT = 4  # bytes


class Counts(NamedTuple):
    """Of a network at width 1 on 32x32 images, and an algorithm. ``work`` is by step (the forward pass first) and node.

    ``macs`` for one sample, ``weights`` and ``activity`` (of one sample) in bytes, by node.
    """

    net: Graph
    macs: dict[str, int]
    weights: dict[str, int]
    activity: dict[str, int]
    work: list[Counter[str]]
    learnt: list[Counter[str]]


def count(blocks: tuple[int, ...]) -> Callable[[str], Counts]:
    """Build the network once at width 1, for its sizes, and once narrow, to run each algorithm on."""
    net, narrow = resnet(blocks), resnet(blocks, Style(width=1 / 16, in_shape=(3, 8, 8)))
    image = torch.randn(1, 3, 32, 32)
    macs = multiply_adds(net, image)
    weights = {v: FLOAT * sum(p.numel() for p in module.parameters()) for v, module in net.nodes.items()}
    activity = {}
    with evaluating(net):
        values = {"input": image}
        for v, module in net.nodes.items():
            values[v] = module(*(values[p] for p in net.parents[v]))
            activity[v] = FLOAT * values[v].numel()

    def of(name: str) -> Counts:
        seen: list[tuple[Counter[str], Counter[str]]] = []

        def note(t: int, state: object) -> None:
            w = state.work  # type: ignore[attr-defined]
            seen.append((w.predictions + w.pull_backs + w.weight_gradients, Counter(w.weight_gradients)))

        spec, options = SPECS[name]
        algorithm = Algorithm.parse(spec, **options)
        optimizer = torch.optim.SGD(narrow.parameters(), lr=0.0)
        out = algorithm.step(narrow, torch.randn(2, 3, 8, 8), torch.tensor([0, 1]), optimizer, observe=note)
        note(-1, out)
        none: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        steps = [(a - b, c - d) for (b, d), (a, c) in itertools.pairwise([none, *seen])]
        return Counts(net, macs, weights, activity, [w for w, _ in steps], [w for _, w in steps])

    return of


def overhead() -> float:
    """Measure the seconds of a core that one operation of a node takes where there is next to nothing to compute."""
    torch.set_num_threads(1)
    net = resnet((2, 2, 2, 2), Style(width=1 / 64, in_shape=(3, 8, 8)))
    algorithm, optimizer = Algorithm.parse("pc", lr_x=0.1), torch.optim.SGD(net.parameters(), lr=0.0)
    times = []
    for _ in range(7):
        start = time.process_time()
        work = algorithm.step(net, torch.randn(2, 3, 8, 8), torch.tensor([0, 1]), optimizer).work
        operations = sum((work.predictions + work.pull_backs + work.weight_gradients).values())
        times.append((time.process_time() - start) / operations)
    return statistics.median(times)


def bounds(of: Callable[[str], Counts], per_operation: float) -> None:
    """Print what a step of ResNet18 takes on N GPUs: arithmetic, sums of gradients, and the engine's own time."""
    print("| step | GPUs | images per GPU | arithmetic, ms | sums, ms | engine, ms | bound by | GPU busy |")
    print("|---|---|---|---|---|---|---|---|")
    for name in SPECS:
        c = of(name)
        macs = sum(n * c.macs[v] for step in c.work for v, n in step.items())
        rounds = [sum(c.weights[v] for v in step) for step in c.learnt]
        rounds = [r for r in rounds if r] if name.startswith("ipc") else [sum(rounds)]
        operations = sum(sum(step.values()) for step in c.work)
        for gpus, link in ((8, NVLINK), (64, INFINIBAND)):
            for images in (128, 128 // gpus):
                parts = {
                    "arithmetic": macs * images / RATE,
                    "sums": sum(2 * (gpus - 1) / gpus * r / link + 2 * (gpus - 1) * LATENCY for r in rounds),
                    "engine": operations * per_operation,
                }
                bound = max(parts, key=lambda part: parts[part])
                cells = [f"{1e3 * parts[part]:.2f}" for part in parts]
                share = f"{parts['arithmetic'] / max(parts.values()):.0%}"
                print(f"| {name} | {gpus} | {images} | {' | '.join(cells)} | {bound} | {share} |")


def cut(c: Counts, devices: int) -> dict[str, int]:
    """The stage of each node: consecutive levels with about the same work over the whole step."""
    total = Counter[int]()
    for step in c.work:
        for v, n in step.items():
            total[c.net.level[v]] += n * c.macs[v]
    stage, done, of_level = 0, 0, {}
    for level in range(1, c.net.L + 1):
        if done + total[level] / 2 > sum(total.values()) * (stage + 1) / devices and stage < devices - 1:
            stage += 1
        of_level[level] = stage
        done += total[level]
    return {v: of_level[c.net.level[v]] for v in c.net.nodes}


def pipeline(c: Counts, devices: int, batches: int, images: int, link: float) -> float:
    """Simulate ``batches`` in flight on ``devices`` stages; return the share of time in which devices compute.

    A stage is at work on one step of one batch at a time. Its step t needs its own step t - 1 and those of its
    neighbours, whose activities and errors at the cuts take their time over the link; the forward pass needs the stage
    before it, and backprop's backward pass the one after it. A stage that has done nothing sends nothing.
    """
    stage = cut(c, devices)
    crossing = Counter[int]()  # bytes at the cut above each stage
    for v, parents in c.net.parents.items():
        for p in parents:
            for s in range(stage.get(p, 0), stage[v]):
                crossing[s] += images * c.activity.get(p, 0)
    steps = list(c.work)
    if len(steps) == 1:  # backprop: the forward pass predicts each node once
        forward = Counter(dict.fromkeys(c.net.nodes, 1))
        steps = [forward, steps[0] - forward]
    seconds = [[0.0] * devices for _ in steps]
    for t, step in enumerate(steps):
        for v, n in step.items():
            seconds[t][stage[v]] += n * c.macs[v] * images / RATE
    backwards = len(c.work) == 1

    def needs(b: int, t: int, s: int) -> list[tuple[int, int, int]]:
        if t == 0:
            return [(b, 0, s - 1)] if s else []
        around = [s, s + 1] if backwards else [s - 1, s, s + 1]
        found = [(b, t - 1, o) for o in around if 0 <= o < devices]
        return [(b, 0, s), *([(b, 1, s + 1)] if s + 1 < devices else [])] if backwards else found

    done: dict[tuple[int, int, int], float] = {}
    free, busy = [0.0] * devices, 0.0
    left = {(b, t, s) for b in range(batches) for t in range(len(steps)) for s in range(devices)}
    ready: list[tuple[float, int, tuple[int, int, int]]] = []
    waiting = {task: len(needs(*task)) for task in left}
    users: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {task: [] for task in left}
    for task in left:
        for need in needs(*task):
            users[need].append(task)
    for task in sorted(task for task, n in waiting.items() if not n):
        heapq.heappush(ready, (0.0, -task[1], task))
    while ready:
        start, _, task = heapq.heappop(ready)
        _, t, s = task
        if start < free[s]:  # the device is at work: try again when it is free, what is furthest on first
            heapq.heappush(ready, (free[s], -t, task))
            continue
        done[task] = free[s] = start + seconds[t][s]
        busy += seconds[t][s]
        for user in users[task]:
            waiting[user] -= 1
            if not waiting[user]:
                arrivals = [
                    done[n]
                    + (LATENCY + crossing[min(n[2], user[2])] / link) * (n[2] != user[2] and seconds[n[1]][n[2]] > 0)
                    for n in needs(*user)
                ]
                heapq.heappush(ready, (max(arrivals), -user[1], user))
    assert len(done) == len(left), "a task was never ready"
    return busy / (devices * max(done.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("bounds", "pipeline"))
    torch.manual_seed(0)
    if parser.parse_args().what == "bounds":
        per_operation = overhead()
        print(
            f"The engine's own time for one operation of one node, measured: {1e6 * per_operation:.0f} microseconds\n"
        )
        bounds(count((2, 2, 2, 2)), per_operation)
    else:
        pipelines()
    print(f"\n{in_words(origin())}")


def pipelines() -> None:
    """Print how busy devices are, by network, algorithm and number of batches in flight."""
    nets = {"ResNet18": count((2, 2, 2, 2)), "ResNet130": count((16, 16, 16, 16))}
    print("| network | step | devices | 1 batch | 2 | 4 | 8 | 32 in flight |\n|---|---|---|---|---|---|---|---|")
    for (network, of), name in itertools.product(nets.items(), ("bp", "pc+s+f, alpha=0", "pc+s+f", "pc")):
        c = of(name)
        for devices in (2, 4, 8):
            shares = [pipeline(c, devices, batches, 16, NVLINK) for batches in (1, 2, 4, 8, 32)]
            print(f"| {network} | {name} | {devices} | {' | '.join(f'{share:.0%}' for share in shares)} |")


if __name__ == "__main__":
    main()
