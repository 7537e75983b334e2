"""Where a run is computed, and whether that machine can do what it says."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import torch

from deeppc.errors import ConfigError
from deeppc.training import distributed

CPUINFO = Path("/proc/cpuinfo")
PRODUCT = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.functional.linear(x, x)"


def choose_device(name: str, precision: str = "fp32") -> torch.device:
    """Return the device called ``name``, if it can do ``precision``; ``auto`` takes cuda, then mps, then cpu."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, is_there in there.items() if is_there)
    if not there.get(name, False):
        raise ConfigError(f"This machine has no {name} device that torch can use: choose auto or cpu.")
    if precision == "bf16" and name == "cpu" and _announces_amx() and _kills():
        raise ConfigError(
            "bf16 kills a process on this machine, which announces matrix instructions (AMX) that it does not have: "
            "choose fp32, or set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment."
        )
    return distributed.own_gpu() if name == "cuda" and distributed.launched() else torch.device(name)


def _announces_amx() -> bool:
    return CPUINFO.exists() and "amx_tile" in CPUINFO.read_text(encoding="utf-8", errors="replace")


@cache
def _kills() -> bool:
    """Whether a product in bfloat16 kills a process without a word: tried on another one than this.

    Some virtual machines announce matrix instructions (AMX) that they do not have.
    """
    return subprocess.run([sys.executable, "-c", PRODUCT], capture_output=True, check=False).returncode < 0
