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
from deeppc.report.drawings import activity_shapes, as_svg, as_text, colour, count, mix, survey

SHAPE = (3, 32, 32)
SVG = "{http://www.w3.org/2000/svg}"


def linear(*parents: str) -> tuple[nn.Module, list[str]]:
    return Sum(nn.Linear(4, 4)), list(parents)


def short_cut() -> Graph:
    """``a`` leads to the output by b and c, and at once."""
    return Graph({"a": linear("input"), "b": linear("a"), "c": linear("b"), "y": linear("c", "a")})


def printed(net: Graph, in_shape: tuple[int, ...], columns: int = 80, title: str = "") -> list[str]:
    """The lines that a pipe of so many columns gets."""
    out = io.StringIO()
    Console(file=out, width=columns).print(as_text(net, in_shape, title))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def boxes(svg: str) -> dict[str, list[str]]:
    """The texts in each node's box, by its name."""
    groups = ElementTree.fromstring(svg).findall(f"{SVG}g")
    texts = [[text.text or "" for text in group.findall(f"{SVG}text")] for group in groups]
    return {name: rest for name, *rest in texts}


# --- what is drawn


def test_survey_knows_shapes_weights_and_steps() -> None:
    by_name = {p.name: p for p in survey(build("resnet18"), SHAPE)}
    assert len(by_name) == 1 + 34
    assert by_name["s2b1_m1"].shape == (128, 16, 16)
    assert by_name["s2b1_m1"].parameters == 64 * 128 * 9
    assert by_name["s2b1_m1"].arrival == by_name["s2b1_a1"].arrival == 12
    assert by_name["head"].shape == (10,)
    assert sum(p.parameters for p in by_name.values()) == 11_164_362
    assert not any(p.early for p in by_name.values())


def test_relays_are_the_nodes_that_only_pass_on() -> None:
    relays = {p.name for p in survey(build("resnet10", width=0.05), SHAPE) if p.relay}
    assert relays == {"s1b1_a1", "s1b1_a2", "s2b1_a2", "s3b1_a2", "s4b1_a2"}, "a1 of stages 2 to 4 is a convolution"


def test_the_main_path_is_lane_0_and_no_two_nodes_share_a_place() -> None:
    net = build("resnet18", width=0.05)
    places = survey(net, SHAPE)
    assert [p.name for p in places if p.lane == 0] == ["input", "stem"] + [
        f"s{s}b{b}_{m}" for s in (1, 2, 3, 4) for b in (1, 2) for m in ("m1", "m2")
    ] + ["head"]
    for each in (net, short_cut(), short_cut().balance()):
        places = survey(each, SHAPE if each is net else (4,))
        assert len({(p.level, p.lane) for p in places}) == len(places)
        assert [p.level for p in places] == sorted(p.level for p in places)


def test_early_nodes_are_found() -> None:
    assert {p.name for p in survey(short_cut(), (4,)) if p.early} == {"a"}
    assert not any(p.early for p in survey(short_cut().balance(), (4,)))


def test_the_data_do_not_move_and_so_are_never_early() -> None:
    net = Graph({"a": linear("input"), "y": linear("a", "input")})
    assert net.hops["input"] < net.arrival["input"]
    assert not any(p.early for p in survey(net, (4,)))
    assert "#e03131" not in re.sub(r"<style>.*</style>", "", as_svg(net, (4,)), flags=re.DOTALL)


def test_nodes_beside_the_main_path_keep_their_lanes() -> None:
    net = Graph(
        {"a": linear("input"), "b": linear("a"), "p": linear("a"), "q": linear("a")}
        | {"c": linear("b", "p"), "q2": linear("q"), "y": linear("c", "q2")}
    )
    lanes = {p.name: p.lane for p in survey(net, (4,))}
    assert lanes == {"input": 0, "a": 0, "b": 0, "p": 1, "q": 2, "c": 0, "q2": 2, "y": 0}


# --- no trace


@pytest.mark.parametrize("norm", ["bn", "bf"])
def test_drawing_leaves_running_statistics_modes_and_gradients_alone(norm: str) -> None:
    net = build("resnet10", width=0.05, norm=norm).train()
    frozen_by_the_user = net.nodes["stem"].eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    modes = [m.training for m in net.modules()]
    as_svg(net, SHAPE)
    printed(net, SHAPE)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert [m.training for m in net.modules()] == modes
    assert not frozen_by_the_user.training
    assert all(p.grad is None for p in net.parameters())


def test_modes_come_back_after_an_error_that_names_the_node() -> None:
    net = Chain(nn.Linear(4, 3), nn.Linear(4, 3))
    with pytest.raises(ValueError, match=r"samples of \(4,\) do not fit: node '2' cannot take 1 \(3,\)"):
        activity_shapes(net, (4,))
    assert net.training


def test_networks_of_other_types_and_without_weights_are_drawn() -> None:
    assert activity_shapes(build("vgg5", width=0.05).double(), SHAPE)["conv1"] == (6, 16, 16)
    assert activity_shapes(Chain(nn.Flatten()), SHAPE) == {"input": SHAPE, "1": (3 * 32 * 32,)}
    statistics_of_the_batch = nn.BatchNorm1d(4, track_running_stats=False)
    assert activity_shapes(Chain(statistics_of_the_batch), (4,))["1"] == (4,)


# --- in the terminal


@pytest.mark.parametrize("name", ["vgg15", "resnet18"])
def test_80_columns_hold_a_row_per_node(name: str) -> None:
    net = build(name)
    lines = printed(net, SHAPE, title=name)
    assert max(map(len, lines)) <= 80
    assert (
        lines[0]
        == f"{name}: {net.L} levels, {len(net.nodes)} nodes, {sum(p.numel() for p in net.parameters()):,} parameters"
    )
    assert len(lines) == len(["summary", "", "header", "input"]) + len(net.nodes)
    for v, line in zip([p.name for p in survey(net, SHAPE)], lines[3:], strict=True):
        assert f" {v} " in f"{line} "


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


def test_relays_are_hollow_and_a_balanced_network_needs_no_warning() -> None:
    lines = printed(short_cut().balance(), (4,))
    assert [line for line in lines if "○" in line] == [
        "      a_aux1 a                  4            2   ○──",
        "      a_aux2 a_aux1             4            1  ○───",
    ]
    assert not any("early" in line for line in lines)


def test_a_deep_wave_is_drawn_to_scale() -> None:
    net = Chain(*(nn.Identity() for _ in range(100)))
    lines = printed(net, (1,))
    assert lines[-1].endswith("0 ○" + "─" * 18)
    assert max(map(len, lines)) <= 80


# --- as SVG


@pytest.mark.parametrize("name", ["vgg5", "resnet18"])
def test_svg_has_a_box_per_node_and_a_curve_per_edge(name: str) -> None:
    net = build(name, width=0.05)
    svg = as_svg(net, SHAPE, name)
    root = ElementTree.fromstring(svg)
    assert set(boxes(svg)) == {"input", *net.nodes}
    edges = root.findall(f"{SVG}path[@class='edge']")
    assert len(edges) == sum(len(parents) for parents in net.parents.values())
    assert len(svg) < 40_000
    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.get(key, 0)) for key in ("x", "y", "width", "height"))
        assert x + w <= float(root.get("width", 0))
        assert y + h <= float(root.get("height", 0))


def test_svg_says_name_step_shape_and_weights() -> None:
    drawn = boxes(as_svg(build("vgg5"), SHAPE))
    assert drawn["input"] == ["data", "3×32×32", ""]
    assert drawn["conv3"] == ["t=2", "512×4×4", "1.18M"]
    assert drawn["linear"] == ["t=0", "10", "5.13k"]


def test_svg_has_tooltips_and_stands_alone() -> None:
    svg = as_svg(short_cut(), (4,), "a <short> & cut")
    titles = [title.text for title in ElementTree.fromstring(svg).iter(f"{SVG}title")]
    assert titles[0] == "a <short> & cut: 4 levels, 4 nodes, 80 parameters"
    assert "y = f(c, a), 4, 20 parameters. Level 4: the wave arrives at step 0." in titles
    assert any("the wave arrives at step 3, but energy is there at step 1" in (title or "") for title in titles)
    assert re.findall(r"https?://[^\"]*", svg) == ["http://www.w3.org/2000/svg"]


def test_svg_marks_short_cuts_and_early_nodes_in_red() -> None:
    svg = as_svg(short_cut(), (4,))
    assert boxes(svg)["a"][0] == "t=1, not 3"
    root = ElementTree.fromstring(svg)
    assert len(root.findall(f"{SVG}path[@stroke='#e03131']")) == 1
    assert "energy arrives early at 1 of 4 nodes" in svg
    assert "#e03131" not in re.sub(r"<style>.*</style>", "", as_svg(short_cut().balance(), (4,)), flags=re.DOTALL)


def test_svg_lights_each_node_up_when_energy_is_there() -> None:
    delays = re.findall(r"animation-delay: ([\d.]+)s", as_svg(short_cut(), (4,)))
    assert delays == ["0.35", "0.70", "0.35", "0.00"], "a is lit with c, by the short cut"


# --- small things


@pytest.mark.parametrize(
    ("n", "text"),
    [(0, ""), (999, "999"), (1000, "1k"), (36_864, "36.9k"), (999_999, "1M"), (2_359_296, "2.36M"), (10**9, "1G")],
)
def test_count(n: int, text: str) -> None:
    assert count(n) == text


def test_the_ramp_goes_from_the_output_to_the_input() -> None:
    assert (colour(0, 18), colour(18, 18)) == ("#e8590c", "#1098ad")
    assert len({colour(t, 18) for t in range(19)}) == 19
    assert mix("#000000", "#ff8040", 0.5) == "#804020"
