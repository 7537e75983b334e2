"""What a run or a batch has to show: energy by node, pictures, and an offline report.

Only the light part is imported here. ``deeppc.analysis.plots`` and ``deeppc.analysis.report`` need matplotlib: import
them where a picture is wanted.
"""

from deeppc.analysis.energy import EnergyTrace, shares

__all__ = ["EnergyTrace", "shares"]
