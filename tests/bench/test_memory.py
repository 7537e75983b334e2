"""A process keeps what it frees: the system's own count of page faults says so."""

import os
import subprocess
import sys

import pytest

# 64 MiB is beyond what glibc ever keeps of its own accord (its threshold adapts, up to 32 MiB), so that nothing here
# depends on where in memory the allocations of torch and Python happen to lie.
COUNT = """
import resource, sys, torch
from deeppc.core import memory

kept = memory.keep() if sys.argv[1] == "keep" else False

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def use():
    torch.ones(2**24)

for _ in range(15):  # until the allocator has settled: aligned memory leaves a few small pieces between
    use()
before = faults()
for _ in range(5):
    use()
print(int(kept), faults() - before)
"""


def page_faults(how):
    single = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", COUNT, how], capture_output=True, text=True, check=True, env=single)
    kept, count = map(int, done.stdout.split())
    return bool(kept), count


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of Linux")
def test_memory_that_was_freed_is_used_again_without_asking_the_system():
    kept, count = page_faults("keep")
    if not kept:
        pytest.skip("another libc than glibc")
    _, without = page_faults("give back")
    assert without >= 5 * 32  # 32 huge pages of 2 MiB at least, each time
    assert count < 32


def test_a_system_without_mallopt_is_left_alone(monkeypatch):
    from deeppc.core import memory

    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    assert memory.keep() is False
