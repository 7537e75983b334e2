"""Diagnostics of a network, a batch or a run: updates, energy, stability, calibration, corruption, work."""

from deeppc.diagnostics import calibration, corruption, stability, updates, work
from deeppc.diagnostics.energy import EnergyTrace, shares

__all__ = ["EnergyTrace", "calibration", "corruption", "shares", "stability", "updates", "work"]
