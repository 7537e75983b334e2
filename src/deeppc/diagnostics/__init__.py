"""What a network, a batch or a run has to show: energy, gap ratio, alignment with backprop, calibration, pictures.

Only the light part is imported here. ``deeppc.report.plots`` and ``deeppc.report.report`` need matplotlib: import
them where a picture is wanted.
"""

from deeppc.diagnostics import alignment, calibration, corruption, gap, robustness
from deeppc.diagnostics.energy import EnergyTrace, shares

__all__ = ["EnergyTrace", "alignment", "calibration", "corruption", "gap", "robustness", "shares"]
