"""Measure how long a person waits: for the help, for torch, for the first batch of a training.

    python benchmarks/startup.py

Whole processes, each started 5 times; medians. The first batch is that of ``deeppc train`` on the digits, from the
start of the process to the end of the first step, as its own events tell.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from deeppc.bench.timing import in_words, origin

FIRST_BATCH = """
import sys
from pathlib import Path
from deeppc.training import TrainConfig, train
from deeppc.training.events import BatchDone

class Enough(BaseException): pass

def listen(event):
    if isinstance(event, BatchDone):
        raise Enough

try:
    train(TrainConfig(run_dir=Path(sys.argv[1])), listen)
except Enough:
    pass
"""


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    python = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            "`deeppc --help`": lambda i: [python, "-m", "deeppc", "--help"],
            "`python -c 'import torch'`": lambda i: [python, "-c", "import torch"],
            "first batch of `deeppc train`": lambda i: [python, "-c", FIRST_BATCH, str(Path(folder) / str(i))],
        }
        print("| what | seconds |\n|---|---|")
        for name, command in commands.items():
            print(f"| {name} | {statistics.median(seconds(command(i)) for i in range(5)):.2f} |", flush=True)
    print(f"\n{in_words(origin())}")


if __name__ == "__main__":
    main()
