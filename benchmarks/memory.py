"""Measure what keeping freed memory saves (deeppc.core.memory): page faults and system time, without and with it.

    python benchmarks/memory.py

Each in a process of its own, one thread, width 0.25, batch 128, means of 3 steps after 2. For Linux with glibc.
"""

import resource
import subprocess
import sys

CASES = (("vgg10", "pc"), ("vgg10", "bp"), ("resnet10", "bp"), ("resnet10", "pc+s+f"))


def measure(model: str, algorithm: str, how: str) -> str:
    import torch

    from deeppc.bench.timing import batch, step
    from deeppc.core import memory
    from deeppc.models import build

    if how == "kept":
        memory.keep()
    torch.set_num_threads(1)
    net = build(model, width=0.25)
    once = step(algorithm, net, *batch(net, 128))
    once(), once()
    before = resource.getrusage(resource.RUSAGE_SELF)
    once(), once(), once()
    after = resource.getrusage(resource.RUSAGE_SELF)
    faults = (after.ru_minflt - before.ru_minflt) / 3
    system, user = (1e3 * (getattr(after, t) - getattr(before, t)) / 3 for t in ("ru_stime", "ru_utime"))
    return f"{faults:.0f} | {system:.0f} | {user:.0f} | {after.ru_maxrss / 1024:.0f}"


def main() -> None:
    if len(sys.argv) == 4:
        print(measure(*sys.argv[1:]))
        return
    from deeppc.bench.timing import in_words, origin

    print("| step | freed memory | page faults | system, ms | user, ms | peak, MB |\n|---|---|---|---|---|---|")
    for (model, algorithm), how in ((case, how) for case in CASES for how in ("given back", "kept")):
        done = subprocess.run(
            [sys.executable, __file__, model, algorithm, how], capture_output=True, text=True, check=True
        )
        print(f"| {model} {algorithm} | {how} | {done.stdout.strip()} |", flush=True)
    print(f"\n{in_words(origin())}")


if __name__ == "__main__":
    main()
