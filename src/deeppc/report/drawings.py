"""Draw a network: its nodes by level, their shapes and weights, and the wave of energy that will cross it.

:func:`as_text` is a table for the terminal, :func:`as_svg` a drawing that stands on its own in a browser or a README
(there the wave moves). Both show, for each node, the step at which energy should reach it (``arrival``), and mark the
nodes that energy reaches earlier by a short cut (``hops < arrival``): the failure that auxiliary nodes repair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from deeppc.core.graph import Graph
from deeppc.diagnostics.contexts import evaluating
from deeppc.report.templates import render

if TYPE_CHECKING:
    from rich.console import RenderableType

Shape = Sequence[int] | Mapping[str, Sequence[int]]  # of one sample; by name where there are several inputs

RAMP = ("#e8590c", "#d6336c", "#8a3ab9", "#4263eb", "#1098ad")  # along arrival: from the hot output to the cool input
ALARM, GREY, WHITE = "#e03131", "#868e96", "#ffffff"
STEPS_SHOWN = 18  # of the wave in a terminal, so that 80 columns hold it; a deeper network's is drawn to scale
SECONDS = 0.35  # of the wave in an SVG, for one step
LEFT, TOP, ROW, BOX, GAP, EDGE = 62, 112, 70, 42, 28, 20  # pixels: margins, level to level, box height, between, border
LETTER, NAME_LETTER, TITLE_LETTER = 6.7, 7.9, 10.3  # pixels: the width of a character in the template's three sizes
FIXED = {"left": LEFT, "top": TOP, "box_height": BOX, "alarm": ALARM, "seconds": SECONDS}


@dataclass(frozen=True)
class Place:
    """One node as drawn: at ``level`` and ``lane`` (0 is the main path), with the shape of one sample's activity.

    ``relay``: the node only passes on what its parents hold, as auxiliary nodes do.
    """

    name: str
    parents: tuple[str, ...]
    level: int
    lane: int
    arrival: int
    hops: int
    shape: tuple[int, ...]
    parameters: int
    relay: bool

    @property
    def moves(self) -> bool:
        """All but the data do."""
        return bool(self.parents)

    @property
    def early(self) -> bool:
        """Energy takes a short cut and is here before the wave along the main path."""
        return self.moves and self.hops < self.arrival

    @property
    def size(self) -> str:
        return "×".join(map(str, self.shape)) or "1"

    @property
    def weights(self) -> str:
        return count(self.parameters)

    @property
    def badge(self) -> str:
        """When energy is there, in the corner of the box."""
        if not self.moves:
            return "data"
        return f"t={self.hops}, not {self.arrival}" if self.early else f"t={self.arrival}"


def survey(net: Graph, in_shape: Shape) -> list[Place]:
    """Return the nodes of ``net``, the input among them, by level and lane. ``in_shape`` is the shape of one sample."""
    shapes, lanes = activity_shapes(net, in_shape), _lanes(net)
    places = [
        Place(
            name=v,
            parents=net.parents.get(v, ()),
            level=net.level[v],
            lane=lanes[v],
            arrival=net.arrival[v],
            hops=net.hops[v],
            shape=shapes[v],
            parameters=0 if v in net.inputs else sum(p.numel() for p in net.nodes[v].parameters()),
            relay=v not in net.inputs
            and all(isinstance(m, nn.Identity | nn.Sequential) for m in net.nodes[v].modules()),
        )
        for v in net.level
    ]
    return sorted(places, key=lambda place: (place.level, place.lane))


def activity_shapes(net: Graph, in_shape: Shape) -> dict[str, tuple[int, ...]]:
    """Return the shape of one sample's activity at each node, from a pass of zeros that leaves ``net`` as it was."""
    like = next(net.parameters(), torch.empty(0))
    given = in_shape if isinstance(in_shape, Mapping) else dict.fromkeys(net.inputs, in_shape)
    zeros = {v: torch.zeros(2, *shape, dtype=like.dtype, device=like.device) for v, shape in given.items()}
    values: dict[str, Tensor] = dict(zeros)
    with evaluating(net):
        for v, module in net.nodes.items():
            try:
                values[v] = module(*(values[p] for p in net.parents[v]))
            except (RuntimeError, ValueError) as error:
                got = ", ".join(f"{p} {tuple(values[p].shape[1:])}" for p in net.parents[v])
                samples = ", ".join(str(tuple(shape)) for shape in given.values())
                raise ValueError(f"samples of {samples} do not fit: node {v!r} cannot take {got}: {error}") from error
    return {v: tuple(x.shape[1:]) for v, x in values.items()}


def _lanes(net: Graph) -> dict[str, int]:
    """The main path in lane 0; every other node beside it, below its leftmost parent where there is room."""
    lanes = {v: lane for lane, v in enumerate(net.inputs)}
    v = net.outputs[-1]
    while v not in net.inputs:  # among the parents one level down, a node with weights rather than one beside it
        lanes[v] = 0
        below = [p for p in net.parents[v] if net.level[p] == net.level[v] - 1]
        v = max(below, key=lambda p: p in net.inputs or any(True for _ in net.nodes[p].parameters()))
    taken = {(net.level[v], lane) for v, lane in lanes.items()}
    for v, parents in net.parents.items():
        if v not in lanes:
            lane = max(1, min(lanes[p] for p in parents))
            while (net.level[v], lane) in taken:
                lane += 1
            lanes[v] = lane
            taken.add((net.level[v], lane))
    return lanes


def summary(places: Sequence[Place]) -> str:
    """``18 levels, 34 nodes, 11,164,362 parameters``."""
    nodes = [p for p in places if p.moves]
    return f"{nodes[-1].level} levels, {len(nodes)} nodes, {sum(p.parameters for p in nodes):,} parameters"


def warning(places: Sequence[Place]) -> str:
    """Say how many nodes short cuts reach early; empty for a balanced network."""
    early = sum(p.early for p in places)
    return f"energy arrives early at {early} of {len(places) - 1} nodes" if early else ""


def as_text(net: Graph, in_shape: Shape, title: str = "") -> RenderableType:
    """Return the network as a table for ``rich.print``: a row per node, and on the right when energy is there.

    ``●`` is the step at which the wave arrives (``○`` at a node that only passes on), ``▲`` where energy is early.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    places = survey(net, in_shape)
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1, 0, 0))
    for name in ("level", "node", "predicted from", "shape", "weights", "step", f"0 to {net.L}"):
        right, dim = name in ("level", "shape", "weights", "step"), name in ("level", "predicted from")
        style = "dim" if dim else ""
        whole = name != "predicted from"  # which is folded where there is no room, for the end of a name tells most
        table.add_column(name, justify="right" if right else "left", style=style, no_wrap=whole, overflow="fold")
    level_above = -1
    for place in places:
        hue = colour(place.arrival, net.L)
        table.add_row(
            "" if place.level == level_above else str(place.level),
            Text(place.name, style="dim" if place.relay else f"bold {hue}"),
            " + ".join(place.parents),
            Text(place.size, style="dim" if place.relay else ""),
            f"{place.parameters:,}" if place.parameters else "",
            Text(str(place.arrival), style=hue) if place.moves else "",
            Text.assemble(*_timeline(place, net.L)) if place.moves else "",
        )
        level_above = place.level
    heading = f"{title}: {summary(places)}" if title else summary(places)
    lines: list[RenderableType] = [Text(heading, style="bold"), "", table]
    if warning(places):
        lines += ["", Text(f"▲ {warning(places)}: aux=True or net.balance() repairs it", style=ALARM)]
    return Group(*lines)


def _timeline(place: Place, L: int) -> list[tuple[str, str]]:
    """Pieces of text with their styles: nothing until energy comes, a mark when it does, a line from then on."""
    cells = min(L, STEPS_SHOWN)
    arrival, hops = (round(step * cells / L) for step in (place.arrival, place.hops))
    hue = colour(place.arrival, L)
    early = [("▲" + "╌" * (arrival - hops - 1), ALARM)] if hops < arrival else []
    return [(" " * hops, ""), *early, ("○" if place.relay else "●", hue), ("─" * (cells - arrival), f"dim {hue}")]


def colour(arrival: int, L: int) -> str:
    """Return the colour along the wave, from the output (0) to the input (L)."""
    position = arrival / L * (len(RAMP) - 1)
    i = min(int(position), len(RAMP) - 2)
    return mix(RAMP[i], RAMP[i + 1], position - i)


def mix(first: str, second: str, share: float) -> str:
    """Mix ``share`` of the second colour into the first; both as ``#rrggbb``."""
    channels = zip(bytes.fromhex(first[1:]), bytes.fromhex(second[1:]), strict=True)
    return "#" + bytes(round(a + (b - a) * share) for a, b in channels).hex()


def as_svg(net: Graph, in_shape: Shape, title: str = "") -> str:
    """Return the network as an SVG document: a row per level, predictions going down, the wave of energy coming up.

    Colour is the step at which the wave arrives. Dashed nodes only pass on; red marks short cuts and nodes that energy
    reaches early. Where animation is shown, each node lights up when energy reaches it.
    """
    places, L = survey(net, in_shape), net.L
    upper = max(NAME_LETTER * len(p.name) + LETTER * len(p.badge) for p in places)
    box = round(max(upper, *(LETTER * len(p.size + p.weights) for p in places))) + 34
    corner = {p.name: (LEFT + p.lane * (box + GAP), TOP + p.level * ROW) for p in places}
    edges = [(u, p.name, p.level - net.level[u]) for p in places for u in p.parents]
    longest = max(jump for _, _, jump in edges)
    axis = max(x for x, _ in corner.values()) + box + (_bow(longest) if longest > 1 else 0) + 26
    notes = ["t: the step at which energy arrives"]
    notes += ["dashed: only passes its parents' sum on"] if any(p.relay for p in places) else []
    notes += ["red: energy takes a short cut and is early"] if any(p.early for p in places) else []
    letters = max(len(line) for line in (summary(places), *notes))
    bottom = TOP + L * ROW + BOX
    boxes = []
    for p in places:
        hue = colour(p.arrival, L) if p.moves else GREY
        boxes.append((p, *corner[p.name], ALARM if p.early else hue, WHITE if p.relay else mix(hue, WHITE, 0.86)))
    return render(
        "network.svg",
        title=title,
        summary=summary(places),
        warning=warning(places),
        width=round(max(axis + 52, TITLE_LETTER * len(title) + 2 * EDGE, LETTER * letters + 2 * EDGE)),
        height=bottom + 24 + 17 * len(notes),
        L=L,
        middles=[TOP + level * ROW + BOX / 2 for level in range(L + 1)],
        ramp=[colour(L - level, L) for level in range(L + 1)],
        edges=[(_curve(corner[u], corner[v], box, jump), _edge_colour(u, v, net)) for u, v, jump in edges],
        boxes=boxes,
        notes=notes,
        box=box,
        bottom=bottom,
        axis=axis,
        **FIXED,
    )


def _curve(start: tuple[float, float], end: tuple[float, float], box: float, jump: int) -> str:
    """A path from a parent down to its child; one that skips levels goes around the boxes between."""
    (x0, y0), (x1, y1) = start, end
    if jump == 1:
        x0, x1, y0 = x0 + box / 2, x1 + box / 2, y0 + BOX
        handles = f"{x0},{(y0 + y1) / 2} {x1},{(y0 + y1) / 2}"
    else:
        x0, x1, y0, y1 = x0 + box, x1 + box, y0 + BOX / 2, y1 + BOX / 2
        bow = round(max(x0, x1) + _bow(jump) / 0.75)  # a Bezier curve goes three quarters of the way to its handles
        handles = f"{bow},{y0} {bow},{y1}"
    return f"M{x0},{y0} C{handles} {x1},{y1}"


def _edge_colour(parent: str, child: str, net: Graph) -> str:
    """The child's, but red for a short cut. None leads to the data, which stand still."""
    if parent not in net.inputs and net.level[child] - net.level[parent] > 1:
        return ALARM
    return colour(net.arrival[child], net.L)


def _bow(jump: int) -> int:
    """How far an edge that skips levels swings out: further, the more it skips."""
    return 12 + 8 * min(jump, 16)


def count(n: int) -> str:
    """``2359296`` as ``2.36M``; nothing for 0."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if n >= 0.9995 * unit:  # what three digits round up to it
            return f"{n / unit:.3g}{letter}"
    return str(n or "")
