"""Random numbers addressed by name instead of drawn from a stream.

``generator("order", seed, epoch)`` gives the same numbers whenever and wherever it is asked, so nothing has to
be saved or replayed to resume a run, and torch's global random state is never touched.

The key is hashed because the obvious ways collide: ``torch.Generator.manual_seed`` keeps only the low 32 bits
of its seed, and numpy's ``SeedSequence`` takes ``[1, 2]`` and ``[1, 2, 0]`` for the same entropy. The numbers are
drawn by numpy on the CPU, hence do not depend on the device that uses them.
"""

from __future__ import annotations

import hashlib

import numpy as np


def generator(purpose: str, *key: int) -> np.random.Generator:
    """Return a fresh generator that depends only on ``purpose`` and the integers of ``key``."""
    digest = hashlib.sha256(repr((purpose, *key)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest))
