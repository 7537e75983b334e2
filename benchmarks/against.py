"""Time training steps of this checkout against those of another, one after the other in turns, in one run.

    git worktree add ../other 2d59d06
    nice python benchmarks/against.py ../other

Each checkout computes in a process of its own, one of which waits while the other works. The ratio of the two times of
each turn is taken, and the median and the quartiles of these are printed: what slows the machine for longer than a turn
slows both. One thread, width 0.25, batches of 32 images of 3x32x32. The last column tells whether the weights of both
have the same sum of absolute values after all these steps.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import quantiles
from typing import Any

NETWORKS = ("vgg5", "vgg10", "resnet10")
ALGORITHMS = ("bp", "pc+s+f", "ipc+s")
TURNS, WARM = 16, 2


def worker() -> None:
    """Answer each line of the input: [network, algorithm] builds, [] takes a step and answers with its time."""
    import torch

    from deeppc import Algorithm
    from deeppc.models import build

    torch.set_num_threads(1)
    for line in sys.stdin:
        if wanted := json.loads(line):
            torch.manual_seed(0)
            net, algorithm = build(wanted[0], width=0.25), Algorithm.parse(wanted[1])
            optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
            images, labels = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
            print(json.dumps(None), flush=True)
            continue
        begun = time.perf_counter()
        algorithm.step(net, images, labels, optimizer)
        seconds = time.perf_counter() - begun
        print(json.dumps([seconds, sum(float(p.detach().abs().sum()) for p in net.parameters())]), flush=True)


def ask(process: "subprocess.Popen[str]", words: list[str]) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(words) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def main(other: Path) -> None:
    sources = [Path(__file__).resolve().parents[1] / "src", other.resolve() / "src"]
    command = [sys.executable, __file__, "--worker"]
    this, that = (
        subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env={**os.environ, "PYTHONPATH": str(source)})
        for source in sources
    )
    print("| network | algorithm | ms | time / other's | quartiles | weights |\n|---|---|---|---|---|---|")
    for network in NETWORKS:
        for algorithm in ALGORITHMS:
            for process in (this, that):
                ask(process, [network, algorithm])
            turns = [(ask(this, []), ask(that, [])) for _ in range(WARM + TURNS)]
            low, ratio, high = quantiles([mine[0] / theirs[0] for mine, theirs in turns[WARM:]])
            _, ms, _ = quantiles([1e3 * mine[0] for mine, _ in turns[WARM:]])
            same = "the same" if turns[-1][0][1] == turns[-1][1][1] else "differ"
            print(f"| {network} | {algorithm} | {ms:.0f} | {ratio:.2f} | {low:.2f}-{high:.2f} | {same} |", flush=True)
    for process in (this, that):
        process.kill()


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        worker()
    else:
        main(Path(sys.argv[1]))
