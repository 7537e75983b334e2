"""Draws docs/wave.svg: the wave of energy in one batch, layer by step. Run it as ``python docs/wave.py``."""

from pathlib import Path

import torch

import deeppc
from deeppc.data import Batches, load
from deeppc.diagnostics.energy import EnergyTrace
from deeppc.models import build
from deeppc.report import plots

torch.manual_seed(0)
digits = load("digits")
images, labels = next(iter(Batches(digits.train, digits, batch_size=128, seed=0).epoch(0)))
net = build("vgg10", width=0.25, in_shape=digits.in_shape)
trace = EnergyTrace()
deeppc.Algorithm.parse("pc", T=16, lr_x=0.5).gradients(net, images, labels, observe=trace)
plots.save(plots.heat_map(trace), Path(__file__).with_name("wave"))
