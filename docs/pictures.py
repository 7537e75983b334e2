"""Draws the pictures of docs/idea.md into docs/pictures, and docs/wave.svg, from one batch of digits.

python docs/pictures.py                 # all of them
python docs/pictures.py spikes work     # some
"""

import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from torch import nn

import deeppc
from deeppc.core.norm import thaw
from deeppc.data import Batches, load
from deeppc.diagnostics import EnergyTrace, shares
from deeppc.diagnostics.updates import compare_with_backprop, probe
from deeppc.files import write_bytes, write_text
from deeppc.models import build
from deeppc.report import plots

HERE = Path(__file__).parent
DIGITS = load("digits")
IMAGES, LABELS = next(iter(Batches(DIGITS.train, DIGITS, batch_size=128, seed=0).epoch(0)))


def network(name: str = "vgg10", **settings: object) -> deeppc.Graph:
    """An untrained network at a quarter of its width; always the same."""
    torch.manual_seed(0)
    return build(name, width=0.25, in_shape=DIGITS.in_shape, **settings)


def traced(net: deeppc.Graph, algorithm: str, **options: object) -> EnergyTrace:
    """The energy of each node before each step and after the last, in one batch."""
    trace = EnergyTrace()
    deeppc.Algorithm.parse(algorithm, **options).gradients(net, IMAGES, LABELS, observe=trace)
    return trace


# --- tools -----------------------------------------------------------------------------------------------------------


def by_layer(axes: Axes, lines: Mapping[str, Mapping[str, float]]) -> None:
    """Draw a line for each entry over the layers, from the output on, where energy enters."""
    ends = []
    for i, (name, values) in enumerate(lines.items()):
        nodes = list(values)[::-1]
        y = np.array([values[v] for v in nodes])
        axes.plot(plots.depths(len(nodes)), y, color=plots.hue(i), marker="o", label=name)
        ends.append((name, plots.hue(i), 1.0, float(y[-1])))
    plots.name_depths(axes, [nodes[::-1]])
    plots.label_ends(axes, ends)


def maps(figure: Figure, traces: Sequence[EnergyTrace], titles: Sequence[str]) -> None:
    """Waves side by side on one scale of colours, with a ring where each is due."""
    values = [np.log10(trace.energy[trace.energy > 0]) for trace in traces]
    limits = {"vmin": min(v.min() for v in values), "vmax": max(v.max() for v in values)}
    beside = plots.panels(figure, len(traces), 2)
    for axes, trace, title in zip(beside, traces, titles, strict=True):
        axes.grid(False)
        axes.patch.set(facecolor="#f8f9fa", edgecolor="#ced4da", hatch="////", linewidth=0)
        cells = plots.wave(axes, trace.energy, **limits)
        axes.scatter(trace.arrival, range(len(trace.nodes)), s=16, facecolor="none", edgecolor="white", linewidth=1.1)
        plots.rows(axes, trace.nodes)
        axes.set(title=title, xlabel="inference step", ylim=(-0.5, len(trace.nodes) - 0.5))
    plots.heat_scale(figure, cells, beside)


# --- the pictures ----------------------------------------------------------------------------------------------------


def wave() -> Figure:
    return plots.heat_map(traced(network(), "pc", T=16, lr_x=0.5))


@plots.styled()
def moving() -> FuncAnimation:
    """The wave, animated: a bar for each layer, a frame for each step, for a small and a large rate."""
    found = {lr_x: traced(network(), "pc", T=12, lr_x=lr_x) for lr_x in (0.05, 0.5)}
    figure = plots.sheet("The wave of energy", "plain pc in a VGG10; a step further in every picture", height=3.6)
    figure.set_size_inches(6, 3.6)  # so that it can be read on a phone
    panels, bars = plots.panels(figure, 2, 2, sharey=True), []
    low = -32.0
    for axes, (lr_x, trace) in zip(panels, found.items(), strict=True):
        plots.log_axis(axes, "y", low, 2.0)
        plots.name_depths(axes, [trace.nodes])
        width = 0.7 / len(trace.nodes)
        colours = plots.by_depth(len(trace.nodes))[::-1]
        bars.append(axes.bar(plots.depths(len(trace.nodes)), 10.0**low, width=width, color=colours))
        axes.set(title=f"lr_x = {lr_x}", xlim=(-0.06, 1.06), xlabel="from output to input")
        axes.set_xticks([0, 1], ["output", "input"])
    panels[0].set_ylabel("energy of the layer")
    words = figure.text(0.985, 1 - 0.12 / 3.6, "", size=plots.TITLE, va="top", ha="right", color=plots.GREY)
    steps = [*range(13), *[12] * 6]  # and a rest on the last

    def draw(step: int) -> None:
        words.set_text(f"step {step} of 12")
        for drawn, trace in zip(bars, found.values(), strict=True):
            for bar, energy in zip(drawn, trace.energy[::-1, step], strict=True):
                bar.set_height(max(energy, 10.0**low))

    return FuncAnimation(figure, draw, frames=steps, interval=600)


@plots.styled()
def imbalance() -> Figure:
    figure = plots.sheet(
        "The energy imbalance", "share of the energy that each layer's weights learn from, plain pc with T = L"
    )
    axes = figure.subplots()
    net, lines = network(), {}
    for lr_x in (0.5, 0.2, 0.05, 0.01):
        energy = deeppc.Algorithm.parse("pc", lr_x=lr_x).gradients(net, IMAGES, LABELS).energy
        lines[f"lr_x = {lr_x}"] = shares(energy)
    plots.log_axis(axes, "y")
    axes.set_ylabel("share of energy")
    by_layer(axes, lines)
    return figure


@plots.styled()
def schedules() -> Figure:
    """Precision by layer and step of the four schedules, as the algorithms use them."""
    note, levels = "one row for each layer, the output on top; L = T = 10", 10
    figure = plots.sheet("Precision by layer and step", note, height=4.6)
    named = {"fixed: pc": "pc", "spiking: pc+s, alpha = 0.05": "pc+s"}
    named |= {"exponential: pc+d": "pc+d", "linear: pc+l": "pc+l"}
    panels = plots.panels(figure, len(named), 2, sharex=True, sharey=True)
    for axes, (title, name) in zip(panels, named.items(), strict=True):
        algorithm = deeppc.Algorithm.parse(name, **({"alpha": 0.05} if name == "pc+s" else {}))
        pi = [[algorithm.pi(t, a, levels) if t >= a else np.nan for t in range(levels)] for a in range(levels)]
        cells = axes.pcolormesh(pi, cmap="Purples", vmin=0, vmax=1, edgecolor="white", linewidth=1)
        axes.grid(False)
        axes.set(title=title, yticks=[0.5, levels - 0.5], yticklabels=["output", "first layer"])
        axes.set_xticks(np.arange(0, levels, 3) + 0.5, [str(t) for t in range(0, levels, 3)])
    panels[0].invert_yaxis()
    for axes in panels[2:]:
        axes.set_xlabel("inference step")
    bar = figure.colorbar(cells, ax=panels, fraction=0.03, pad=0.02, label="precision (blank: no energy yet)")
    bar.outline.set_visible(False)
    return figure


def cosines(names: Mapping[str, str], note: str, title: str, **options: float) -> Figure:
    figure = plots.sheet(title, note)
    axes = figure.subplots()
    net = network()
    found = {
        label: compare_with_backprop(deeppc.Algorithm.parse(name, **options), net, IMAGES, LABELS)
        for label, name in names.items()
    }
    axes.set_ylabel("cosine with backprop")
    by_layer(axes, {label: {v: s.cosine for v, s in similar.items()} for label, similar in found.items()})
    return figure


@plots.styled()
def spikes() -> Figure:
    note = "direction of each layer's update beside backprop's, one batch, T = L, lr_x = 0.5"
    return cosines({"pc": "pc", "pc+s": "pc+s", "pc+d": "pc+d"}, note, "What a schedule does at a large rate", lr_x=0.5)


@plots.styled()
def forward() -> Figure:
    note = "direction of each layer's update beside backprop's, one batch, T = L, lr_x = 0.5"
    names = {name: name for name in ("pc", "pc+f", "pc+s", "pc+s+f")}
    return cosines(names, note, "What the forward update does", lr_x=0.5)


@plots.styled()
def batchnorm() -> Figure:
    """The variance that a norm layer remembers of one batch, beside that of the feed-forward pass, as tests have it."""
    note = "variance that BatchNorm remembers of one batch, relative to the feed-forward pass; pc+f, lr_x = 0.5"
    figure = plots.sheet("What BatchNorm freezing does", note)
    axes = figure.subplots()
    net = averaging(network(norm="bf"))
    net(IMAGES)
    aim, lines = variances(net), {}
    for name, prepare in (("BatchNorm", thaw), ("frozen", lambda net: net)):
        net = prepare(averaging(network(norm="bf")))
        deeppc.Algorithm.parse("pc+f", lr_x=0.5).gradients(net, IMAGES, LABELS)
        lines[name] = {v: float((var / aim[v]).mean()) for v, var in variances(net).items()}
    axes.set_ylabel("remembered / feed-forward")
    by_layer(axes, lines)
    return figure


def averaging(net: deeppc.Graph) -> deeppc.Graph:
    """Let norm layers remember the plain average of all that they see."""
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None
    return net


def variances(net: deeppc.Graph) -> dict[str, torch.Tensor]:
    norms = ((v, layer) for v, node in net.nodes.items() for layer in node.modules())
    return {v: layer.running_var.clone() for v, layer in norms if isinstance(layer, nn.BatchNorm2d)}


@plots.styled()
def auxiliary() -> Figure:
    note = "ResNet10, plain pc, lr_x = 0.5; hatched: no energy yet; ring: where the wave is due"
    figure = plots.sheet("What auxiliary nodes do", note, height=5.0)
    traces = [traced(network("resnet10", aux=aux), "pc", lr_x=0.5) for aux in (False, True)]
    maps(figure, traces, ["without: energy takes the short cut", "with: one wave, on time"])
    return figure


@plots.styled()
def gain() -> Figure:
    """Root mean square of a layer's weight gradients, beside the epsilon that Adam divides by."""
    note = "size of each layer's weight gradients in one batch; pc+s+f, alpha = 0, T = L"
    figure = plots.sheet("Small gradients and the optimiser's epsilon", note)
    axes = figure.subplots()
    net, lines = network(), {}
    sorts = {"bp": ("bp", {}), "lr_x = 0.5": ("pc+s+f", {"lr_x": 0.5}), "lr_x = 0.1": ("pc+s+f", {"lr_x": 0.1})}
    sorts["lr_x = 0.1, depth_gain"] = ("pc+s+f", {"lr_x": 0.1, "depth_gain": True})
    for label, (name, options) in sorts.items():
        algorithm = deeppc.Algorithm.parse(name, **options | ({} if name == "bp" else {"alpha": 0.0}))
        updates = probe(algorithm, net, IMAGES, LABELS).updates
        flat = {v: torch.cat([w.flatten() for w in weights]).double() for v, weights in updates.items()}
        lines[label] = {v: float(weights.square().mean().sqrt()) for v, weights in flat.items()}
    plots.log_axis(axes, "y")
    axes.axhline(1e-8, color=plots.GREY, linewidth=1, linestyle=plots.DASHED)
    plots.write(axes, "epsilon of Adam, 1e-8", 0.0, 1e-8, dy=7, color=plots.GREY)
    axes.set_ylabel("root mean square")
    by_layer(axes, lines)
    return figure


@plots.styled()
def work() -> Figure:
    """Pull-backs of each layer, as the engine counts them; the first is never pulled back through."""
    note = "how often each layer is pulled back through in one batch, counted; VGG10, T = L"
    figure = plots.sheet("What a step costs", note)
    axes = figure.subplots()
    net, lines = network(), {}
    sorts = {"pc+s+f, alpha = 0.01": {}, "strides = 1": {"strides": 1}, "alpha = 0": {"alpha": 0.0}}
    for label, options in sorts.items():
        counted = deeppc.Algorithm.parse("pc+s+f", **options).gradients(net, IMAGES, LABELS).work
        lines[label] = {v: counted.pull_backs[v] for v in list(net.nodes)[1:]}
    axes.set(ylim=(0, 10.5), ylabel="pull-backs")
    by_layer(axes, lines)
    return figure


PICTURES = (imbalance, schedules, spikes, forward, batchnorm, auxiliary, gain, work)


def as_gif(animation: FuncAnimation) -> bytes:
    """Few colours, and only what changes from picture to picture."""
    drawn = HERE / "pictures" / "moving.tmp.gif"
    animation.save(drawn, writer=PillowWriter(fps=2), dpi=120, savefig_kwargs={"facecolor": "white"})
    with Image.open(drawn) as frames:
        pictures = []
        for i in range(frames.n_frames):
            frames.seek(i)
            pictures.append(frames.convert("RGB").quantize(48))
    drawn.unlink()
    made = io.BytesIO()
    pictures[0].save(made, "gif", save_all=True, append_images=pictures[1:], duration=600, loop=0, optimize=True)
    return made.getvalue()


def main(wanted: Sequence[str]) -> None:
    for draw in PICTURES:
        if not wanted or draw.__name__ in wanted:
            write_text(HERE / "pictures" / f"{draw.__name__}.svg", plots.svg(draw()))
    if not wanted or "wave" in wanted:
        write_text(HERE / "wave.svg", plots.svg(wave()))
    if not wanted or "moving" in wanted:
        write_bytes(HERE / "pictures" / "moving.gif", as_gif(moving()))


if __name__ == "__main__":
    main(sys.argv[1:])
