"""The learning rate of the weights as a pure function of the step, so that there is nothing to save or restore.

1.1 lr      .·'¨'·.
 lr      .·'       '·.
                      '·.
0.1 lr                   '·.............
        0   10 %       horizon
"""

from __future__ import annotations

import math

WARM, PEAK, FLOOR = 0.1, 1.1, 0.1  # share of the horizon that warms; highest and lowest factor


def learning_rate(lr: float, step: int, horizon: int) -> float:
    """The rate for ``step`` (from 0): linear from ``lr`` to ``1.1 lr`` over the first tenth of ``horizon`` steps, by a
    cosine to ``0.1 lr`` at ``horizon``, constant after it."""
    if step >= horizon:
        return FLOOR * lr
    warm = WARM * horizon
    if step < warm:
        return lr * (1 + (PEAK - 1) * step / warm)
    fallen = (step - warm) / (horizon - warm)  # 0 at the peak, 1 at the horizon
    return lr * (FLOOR + (PEAK - FLOOR) * (1 + math.cos(math.pi * fallen)) / 2)
