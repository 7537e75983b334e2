"""Diagnostics of a network, a batch or a run: updates against backprop, energy, calibration, corruption, work."""

from deeppc.diagnostics import calibration, corruption, updates, work
from deeppc.diagnostics.energy import EnergyTrace, shares

__all__ = ["EnergyTrace", "calibration", "corruption", "shares", "updates", "work"]
