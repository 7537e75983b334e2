"""What someone needs to know to get the same numbers again: versions, commit, machine, command."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import deeppc
from deeppc.runs.folder import now


def provenance(device: str = "cpu") -> dict[str, Any]:
    """Return the part of a manifest that does not depend on what is run."""
    import numpy
    import safetensors
    import torch

    return {
        "started": now(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "versions": {
            "deeppc": deeppc.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
            "safetensors": safetensors.__version__,
        },
        "git": _git(),
        "machine": {
            "host": platform.node(),
            "system": platform.platform(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "device": device,
            "accelerator": torch.cuda.get_device_name() if device == "cuda" else None,
        },
    }


def _git() -> dict[str, Any] | None:
    """The commit of this source; None where it is not tracked (installed within another repository, say)."""

    def ask(*words: str) -> str:
        where = str(Path(__file__).parent)
        done = subprocess.run(["git", "-C", where, *words], capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        ask("ls-files", "--error-unmatch", Path(__file__).name)
        return {"commit": ask("rev-parse", "HEAD"), "dirty": bool(ask("status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
