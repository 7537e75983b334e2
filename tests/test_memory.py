"""What a process frees, it keeps: the system's own count of page faults says so."""

import subprocess
import sys

import pytest

COUNT = """
import sys, resource, torch
from deeppc import Algorithm, memory
from deeppc.models import build

kept = memory.keep() if sys.argv[1] == "keep" else False
torch.set_num_threads(1)
net, algo = build("vgg5", width=0.1), Algorithm.parse("pc")
images, labels = torch.randn(64, 3, 32, 32), torch.randint(0, 10, (64,))

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

for _ in range(3):  # until every size has been asked for
    algo.gradients(net, images, labels)
before = faults()
algo.gradients(net, images, labels)
print(int(kept), faults() - before)
"""


def page_faults_of_a_step(how):
    done = subprocess.run([sys.executable, "-c", COUNT, how], capture_output=True, text=True, check=True)
    kept, count = map(int, done.stdout.split())
    return bool(kept), count


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of Linux")
def test_memory_that_was_freed_is_used_again_without_asking_the_system():
    kept, count = page_faults_of_a_step("keep")
    if not kept:
        pytest.skip("another libc than glibc")
    _, without = page_faults_of_a_step("give back")
    assert count < without / 10


def test_a_system_without_mallopt_is_left_alone(monkeypatch):
    from deeppc import memory

    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    assert memory.keep() is False
