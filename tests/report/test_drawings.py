"""The picture says what the network is, fits the terminal, and leaves no trace in the network."""

import io
import re
from xml.etree import ElementTree

import pytest
import torch
from rich.console import Console
from torch import nn

from deeppc import Chain, Graph, Sum
from deeppc.models import build
from deeppc.report.drawings import activity_shapes, as_svg, as_text, colour, count, survey

SHAPE = (3, 32, 32)
SVG = "{http://www.w3.org/2000/svg}"
RED = "#e03131"


def linear(*parents: str) -> tuple[nn.Module, list[str]]:
    return Sum(nn.Linear(4, 4)), list(parents)


def short_cut() -> Graph:
    """``a`` leads to the output by b and c, and at once."""
    return Graph({"a": linear("input"), "b": linear("a"), "c": linear("b"), "y": linear("c", "a")})


def printed(net: Graph, in_shape: tuple[int, ...], title: str = "") -> list[str]:
    """The lines that a pipe of 80 columns gets."""
    out = io.StringIO()
    Console(file=out, width=80).print(as_text(net, in_shape, title))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def boxes(svg: str) -> dict[str, list[str]]:
    """The texts in each node's box, by its name."""
    groups = ElementTree.fromstring(svg).findall(f"{SVG}g")
    texts = [[text.text or "" for text in group.findall(f"{SVG}text")] for group in groups]
    return {name: rest for name, *rest in texts}


def without_style(svg: str) -> str:
    return re.sub(r"<style>.*</style>", "", svg, flags=re.DOTALL)


def test_survey_knows_shapes_weights_steps_and_the_main_path() -> None:
    places = survey(build("resnet18"), SHAPE)
    by_name = {p.name: p for p in places}
    first = by_name["s2b1_m1"]
    assert (first.shape, first.parameters, first.arrival) == ((128, 16, 16), 64 * 128 * 9, 12)
    assert by_name["s2b1_a1"].arrival == 12
    assert by_name["head"].shape == (10,)
    assert sum(p.parameters for p in places) == 11_164_362
    assert not any(p.early for p in places)
    main = [f"s{s}b{b}_{m}" for s in (1, 2, 3, 4) for b in (1, 2) for m in ("m1", "m2")]
    assert [p.name for p in places if p.lane == 0] == ["input", "stem", *main, "head"]
    assert len({(p.level, p.lane) for p in places}) == len(places) == 1 + 34
    assert [p.level for p in places] == sorted(p.level for p in places)


def test_relays_are_the_nodes_that_only_pass_on() -> None:
    relays = {p.name for p in survey(build("resnet10", width=0.05), SHAPE) if p.relay}
    assert relays == {"s1b1_a1", "s1b1_a2", "s2b1_a2", "s3b1_a2", "s4b1_a2"}, "a1 of stages 2 to 4 is a convolution"


def test_nodes_beside_the_main_path_keep_their_lanes() -> None:
    net = Graph(
        {"a": linear("input"), "b": linear("a"), "p": linear("a"), "q": linear("a")}
        | {"c": linear("b", "p"), "q2": linear("q"), "y": linear("c", "q2")}
    )
    lanes = {p.name: p.lane for p in survey(net, (4,))}
    assert lanes == {"input": 0, "a": 0, "b": 0, "p": 1, "q": 2, "c": 0, "q2": 2, "y": 0}


def test_the_data_do_not_move_and_so_are_never_early() -> None:
    net = Graph({"a": linear("input"), "y": linear("a", "input")})
    assert net.hops["input"] < net.arrival["input"]
    assert RED not in without_style(as_svg(net, (4,)))


def test_drawing_leaves_running_statistics_modes_and_gradients_alone() -> None:
    net = build("resnet10", width=0.05, norm="bf").train()
    net.nodes["stem"].eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    modes = [m.training for m in net.modules()]
    as_svg(net, SHAPE)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert [m.training for m in net.modules()] == modes
    assert all(p.grad is None for p in net.parameters())


def test_modes_come_back_after_an_error_that_names_the_node() -> None:
    net = Chain(nn.Linear(4, 3), nn.Linear(4, 3))
    with pytest.raises(ValueError, match=r"samples of \(4,\) do not fit: node '2' cannot take 1 \(3,\)"):
        activity_shapes(net, (4,))
    assert net.training


def test_networks_of_other_types_and_without_weights_have_shapes() -> None:
    assert activity_shapes(Chain(nn.Linear(4, 2).double()), (4,))["1"] == (2,)
    assert activity_shapes(Graph({"1": (nn.Flatten(), "input")}), SHAPE) == {"input": SHAPE, "1": (3 * 32 * 32,)}
    assert activity_shapes(Chain(nn.BatchNorm1d(4, track_running_stats=False)), (4,))["1"] == (4,)


def test_80_columns_hold_a_row_per_node() -> None:
    net = build("resnet18")
    heading, _, _, _, *rows = printed(net, SHAPE, "resnet18")
    assert heading == "resnet18: 18 levels, 34 nodes, 11,164,362 parameters"
    assert max(map(len, rows)) <= 80
    for place, row in zip(survey(net, SHAPE)[1:], rows, strict=True):
        assert f" {place.name} " in row


def test_a_piped_table_is_plain_text() -> None:
    assert printed(short_cut(), (4,)) == [
        "4 levels, 4 nodes, 80 parameters",
        "",
        "level node  predicted from shape weights step 0 to 4",
        "    0 input                    4",
        "    1 a     input              4      20    3  ▲╌●─",
        "    2 b     a                  4      20    2   ●──",
        "    3 c     b                  4      20    1  ●───",
        "    4 y     c + a              4      20    0 ●────",
        "",
        "▲ energy arrives early at 1 of 4 nodes: aux=True or net.balance() repairs it",
    ]
    balanced = printed(short_cut().balance(), (4,))
    assert balanced[6] == "      a_aux1 a                  4            2   ○──"
    assert not any("early" in line for line in balanced)


def test_a_deep_wave_is_drawn_to_scale() -> None:
    lines = printed(Chain(*(nn.Linear(1, 1) for _ in range(100))), (1,))
    assert lines[-1].endswith("0 ●" + "─" * 18)
    assert max(map(len, lines)) <= 80


def test_svg_has_a_box_per_node_and_a_curve_per_edge_within_its_frame() -> None:
    net = build("resnet18", width=0.05)
    svg = as_svg(net, SHAPE, "resnet18")
    root = ElementTree.fromstring(svg)
    assert set(boxes(svg)) == {"input", *net.nodes}
    assert len(root.findall(f"{SVG}path[@class='edge']")) == sum(len(parents) for parents in net.parents.values())
    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.get(key, 0)) for key in ("x", "y", "width", "height"))
        assert x + w <= float(root.get("width", 0))
        assert y + h <= float(root.get("height", 0))


def test_svg_says_name_step_shape_and_weights() -> None:
    drawn = boxes(as_svg(build("vgg5"), SHAPE))
    assert drawn["input"] == ["data", "3×32×32", ""]
    assert drawn["conv3"] == ["t=2", "512×4×4", "1.18M"]
    assert drawn["linear"] == ["t=0", "10", "5.13k"]


def test_svg_explains_itself_marks_short_cuts_in_red_and_lights_each_node_when_energy_is_there() -> None:
    svg = as_svg(short_cut(), (4,), "a <short> & cut")
    root = ElementTree.fromstring(svg)
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert titles[:2] == ["a <short> & cut: 4 levels, 4 nodes, 80 parameters", "the data, 4"]
    assert "y = f(c, a), 4, 20 parameters. Level 4: the wave arrives at step 0." in titles
    assert any("the wave arrives at step 3, but energy is there at step 1." in title for title in titles)
    assert re.findall(r"https?://[^\"]*", svg) == ["http://www.w3.org/2000/svg"]
    assert boxes(svg)["a"][0] == "t=1, not 3"
    assert len(root.findall(f"{SVG}path[@stroke='{RED}']")) == 1
    assert "energy arrives early at 1 of 4 nodes" in svg
    delays = re.findall(r"animation-delay: ([\d.]+)s", svg)
    assert delays == ["0.35", "0.70", "0.35", "0.00"], "a is lit with c, by the short cut"
    assert RED not in without_style(as_svg(short_cut().balance(), (4,)))


def test_counts_and_colours() -> None:
    written = {0: "", 999: "999", 1000: "1k", 36_864: "36.9k", 999_999: "1M", 2_359_296: "2.36M", 10**9: "1G"}
    assert {n: count(n) for n in written} == written
    assert (colour(0, 18), colour(18, 18)) == ("#e8590c", "#1098ad")
    assert len({colour(t, 18) for t in range(19)}) == 19
