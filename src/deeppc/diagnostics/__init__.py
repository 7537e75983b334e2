"""Diagnostics of a network, a batch or a run: updates, energy, epsilon, stability, calibration, corruption, work."""

from deeppc.diagnostics import calibration, corruption, epsilon, stability, updates, work
from deeppc.diagnostics.energy import EnergyTrace, shares

__all__ = ["EnergyTrace", "calibration", "corruption", "epsilon", "shares", "stability", "updates", "work"]
