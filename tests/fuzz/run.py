"""Try thousands of bad inputs and faults, and count what came of them: ``python tests/fuzz/run.py --help``."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # children are forked: no threads in their parent
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from cases import KINDS, MANY, try_case
from machine import BAD, VERDICTS

torch.set_num_threads(1)
Tally = Counter[str]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--cases", type=int, help="so many of each kind; else as many as cases.py says")
    arguments.add_argument("--seed", type=int, default=0, help="draws other cases")
    arguments.add_argument("--kind", choices=KINDS, action="append", help="of this kind only; may be repeated")
    arguments.add_argument("--case", type=int, help="this one case of the kind only, and say what it is")
    arguments.add_argument("--jobs", type=int, default=1, help="kinds at a time, each in a process of its own")
    arguments.add_argument("--markdown", type=Path, help="put the table into this file, between its two marks")
    given = arguments.parse_args()
    begun, names = time.monotonic(), given.kind or [*KINDS]
    numbers = [range(given.cases or MANY[name]) if given.case is None else [given.case] for name in names]
    todo = (names, numbers, [given.seed] * len(names), [given.case is not None] * len(names))
    if given.jobs == 1:
        tallies = [*map(count, *todo)]
    else:  # forked: torch is imported once, and nothing is computed before
        with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("fork")) as pool:
            tallies = [*pool.map(count, *todo)]
    found = table(dict(zip(names, tallies, strict=True)))
    print(found)
    if given.markdown is not None:
        write(given.markdown, f"{found}\n\n{circumstances(given.seed, given.cases, time.monotonic() - begun)}")
    return int(any(tally[verdict] for tally in tallies for verdict in BAD))


def count(name: str, numbers: Iterable[int], seed: int, show: bool) -> Tally:
    """Try cases of one kind. What is bad is printed, with the command that repeats it."""
    begun, tally = time.monotonic(), Tally()
    for number in numbers:
        outcome = try_case(name, random.Random(f"{name} {seed} {number}"))
        tally[outcome.verdict] += 1
        if show or outcome.verdict in BAD:
            again = f"python tests/fuzz/run.py --kind {name} --seed {seed} --case {number}"
            print(f"{outcome.verdict.upper()}: {outcome.case}\n    {outcome.said}\n    again: {again}", flush=True)
    print(f"{name}: {dict(tally)} in {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    return tally


def circumstances(seed: int, cases: int | None, seconds: float) -> str:
    """What was tried, and what it took."""
    git = [*("git", "-C", str(Path(__file__).parent)), "describe", "--always", "--dirty=, with changes"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in used)
    tried = f"Commit {commit or 'unknown'}, seed {seed}{f', --cases {cases}' if cases else ''}"
    return f"{tried}; {cpu / 60:.0f} minutes of one core ({seconds / 60:.0f} by the clock)."


def table(counts: dict[str, Tally]) -> str:
    """The counts by kind, in Markdown."""
    lines = ["| kind | tried | accepted | refused in words | tracebacks | lost |", "|---|---|---|---|---|---|"]
    rows = [(KINDS[name][0], [tally[verdict] for verdict in VERDICTS]) for name, tally in counts.items()]
    rows.append(("**all**", [sum(column) for column in zip(*(row for _, row in rows), strict=True)]))
    lines += [f"| {title} | {sum(row)} | {' | '.join(map(str, row))} |" for title, row in rows]
    return "\n".join(lines)


def write(path: Path, text: str) -> None:
    """Put ``text`` between the marks of a page."""
    begin, end = "<!-- counts -->", "<!-- end of counts -->"
    before, rest = path.read_text(encoding="utf-8").split(begin)
    path.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}", encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="fuzz-") as tempfile.tempdir:  # whatever is made, in any process
        os.chmod(tempfile.tempdir, 0o755)  # for children that are not root
        sys.exit(main())
