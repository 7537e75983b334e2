"""What the pictures show: the data behind their lines, equal to what a hand computes."""

import itertools
import math
import threading
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib._pylab_helpers import Gcf
from matplotlib.text import Text

from deeppc.diagnostics import EnergyTrace
from deeppc.diagnostics.calibration import Reliability
from deeppc.errors import RunError
from deeppc.report import plots
from deeppc.report.records import energy_shares, score_name

from .folders import NODES, diagnosed, record

METRICS = [record(e) for e in range(1, 5)]
SHARES = dict(zip(NODES, (1 / 273, 16 / 273, 256 / 273), strict=True))


def lines(figure, label):
    return [line for axes in figure.axes for line in axes.lines if line.get_label() == label]


def words(figure):
    return {t.get_text() for t in figure.texts} | {t.get_text() for axes in figure.axes for t in axes.texts}


def test_curves_show_accuracies_and_the_learning_rate_with_gaps_where_they_are_unknown():
    metrics = [record(1), record(2, train_accuracy="NaN"), record(3, train_accuracy=None), record(4)]
    figure = plots.curves(metrics, selected=3)
    expected = {"train": [0.55, math.nan, math.nan, 0.7], "validation": [0.45, 0.5, 0.55, 0.6], "lr_w": [0.001] * 4}
    for label, values in expected.items():
        (line,) = lines(figure, label)
        np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3, 4])
        np.testing.assert_allclose(line.get_ydata(), values)
    assert not lines(figure, "test")
    assert {"train 70.0%", "validation 60.0%", "kept"} <= words(figure)


def test_a_regression_has_curves_of_its_own_score():
    figure = plots.curves([{"epoch": e, "train_mse": 1 / e, "test_mse": 2 / e} for e in (1, 2)])
    np.testing.assert_allclose(lines(figure, "test")[0].get_ydata(), [2, 1])
    assert {"mse by epoch", "train 0.5", "test 1"} <= words(figure)
    assert score_name([{"test_cross_entropy": 1, "test_accuracy": 2}]) == score_name([]) == "accuracy"


def test_energy_is_drawn_in_shares_below_the_accuracy_and_above_the_cosine():
    figure = plots.energy_shares([diagnosed(e) for e in range(1, 5)])
    for node, cosine in zip(NODES, (0.5, 0.9, 1.0), strict=True):
        share, line = lines(figure, node)
        np.testing.assert_allclose(share.get_ydata(), [SHARES[node]] * 4, rtol=1e-12)
        np.testing.assert_allclose(line.get_ydata(), [cosine - 0.01 * e for e in range(1, 5)])
        assert share.axes.get_yscale() == "log"
        assert line.get_color() == share.get_color()
        assert line.axes.get_position().y1 < share.axes.get_position().y0
        assert node in words(figure)
    (accuracy,) = lines(figure, "validation")
    np.testing.assert_allclose(accuracy.get_ydata(), [0.45, 0.5, 0.55, 0.6])
    assert accuracy.axes.get_position().y0 > share.axes.get_position().y1, "in a panel of its own"
    assert {"train 70.0%", "validation 60.0%"} <= words(figure)
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    assert len(plots.energy_shares(METRICS).axes) == 2, "energy and accuracy, but no cosine where none is on record"
    assert len(plots.energy_shares([{"epoch": 1, "energy": {"a": 1.0}}]).axes) == 1


def test_cosines_below_0_and_odd_ones():
    metrics = [diagnosed(1, bp_cosine={"a": -0.37, "b": "nan", "c": 7.0}), diagnosed(2, bp_cosine={"a": 0.2, "b": 1.0})]
    figure = plots.energy_shares(metrics)
    a, b, c = (lines(figure, node)[0] for node in "abc")
    np.testing.assert_allclose(a.get_ydata(), [-0.37, 0.2])
    np.testing.assert_allclose(b.get_ydata(), [math.nan, 1.0])
    assert a.axes.get_ylim()[0] < -0.37
    assert np.isnan(c.get_ydata()).all()  # no cosine


def test_gap_ratios_are_lines_on_a_logarithmic_axis():
    metrics = [diagnosed(e) for e in (1, 2, 3)]
    metrics[1]["gap_ratio"] |= {"fc": "inf", "conv2": 0.0}
    figure = plots.gaps(metrics)
    expected = {"conv1": [1000, 2000, 3000], "conv2": [10, math.nan, 30], "fc": [0.1, math.nan, 0.3]}
    for node, values in expected.items():
        (line,) = lines(figure, node)
        np.testing.assert_allclose(line.get_ydata(), values)
        assert line.axes.get_yscale() == "log"
        low, high = line.axes.get_ylim()
        assert low <= np.nanmin(values) < np.nanmax(values) <= high


def test_a_node_without_energy_is_marked_on_the_floor():
    metrics = [record(e, energy={"a": 0.0, "b": 0.0, "c": 1e-9 if e > 2 else 0, "d": 1.0}) for e in range(1, 5)]
    figure = plots.energy_shares(metrics)
    never, _, later = lines(figure, plots.NOT_REACHED)
    assert list(never.get_xdata()) == [1, 2, 3, 4]
    assert list(later.get_xdata()) == [1, 2]
    low, _ = never.axes.get_ylim()
    assert all(low <= y < 1e-9 for y in never.get_ydata())
    assert np.isnan(lines(figure, "a")[0].get_ydata()).all()
    assert {"a…b", "c", "d"} <= words(figure)


def test_a_reliability_diagram_has_bins_and_the_diagonal():
    table = Reliability(np.array([2, 2]), np.array([0.65, 0.85]), np.array([0.5, 1.0]))
    figure = plots.reliability({"pc": table})
    (line,), (diagonal,) = lines(figure, "pc"), lines(figure, "calibrated")
    np.testing.assert_allclose(line.get_xydata(), [[0.65, 0.5], [0.85, 1.0]])
    np.testing.assert_allclose(diagonal.get_xydata(), [[0, 0], [1, 1]])


def test_profiles_go_from_the_output_to_the_input():
    figure = plots.profiles({"pc": METRICS, "ipc": METRICS[:1], "none": []})
    for name in ("pc", "ipc"):
        (line,) = lines(figure, name)
        np.testing.assert_allclose(line.get_ydata(), [SHARES[v] for v in reversed(NODES)])
    assert not lines(figure, "none")
    assert {line.get_ydata()[0] for line in lines(figure, "equal")} == {1 / 3}
    assert [t.get_text() for t in figure.axes[0].get_xticklabels()] == list(reversed(NODES))


def test_a_comparison_shows_every_seed_the_mean_and_the_deviation():
    rows = [
        {"algorithm": "pc", "test_accuracy": [0.5, 0.6, 0.7], "seconds": [60, 150]},
        {"algorithm": "bp", "test_accuracy": [0.9], "seconds": [30]},
        {"algorithm": "ipc"},
    ]
    figure = plots.comparison(rows)
    accuracy, time = figure.axes
    seeds = [np.asarray(dots.get_offsets())[:, 0].tolist() for dots in (*accuracy.collections, *time.collections)]
    assert seeds == [[0.5, 0.6, 0.7], [0.9], [1, 2.5], [0.5]]
    assert time.get_xlabel() == "minutes per run"
    means, bars = ([line.get_xdata() for line in accuracy.lines if line.get_label() == k] for k in ("mean", "std"))
    np.testing.assert_allclose(means, [[0.6], [0.9]])
    np.testing.assert_allclose(bars, [[0.5, 0.7], [0.9, 0.9]])  # the sample deviation of 0.5, 0.6, 0.7 is 0.1
    assert [t.get_text() for t in accuracy.get_yticklabels()] == ["ipc", "bp", "pc"], "the first on top"
    assert "no result" in words(figure)


def test_a_heat_map_is_the_logarithm_and_leaves_unreached_cells_blank():
    trace = EnergyTrace()
    trace.nodes, trace.arrival, trace._steps = ("a", "b"), (1, 0), [[0.0, 1.0], [1e-4, 0.01]]
    axes, _ = plots.heat_map(trace).axes
    mesh, *rings = axes.collections
    shown = np.ma.asarray(mesh.get_array()).reshape(2, 2)
    np.testing.assert_allclose(shown.filled(-99.0), [[-99, -4], [0, -2]], atol=1e-12)
    assert [t.get_text() for t in axes.get_yticklabels()] == ["a", "b"], "the input below"
    assert {tuple(place) for ring in rings for place in np.asarray(ring.get_offsets())} == {(1, 0), (0, 1)}


@pytest.mark.parametrize(
    ("figure", "said"),
    [
        (lambda: plots.curves([]), "No epoch has finished yet."),
        (lambda: plots.energy_shares([]), plots.NO_ENERGY),
        (lambda: plots.profiles({}), plots.NO_ENERGY),
        (lambda: plots.gaps(METRICS), "Nothing on record: train with --diagnostics."),
        (lambda: plots.heat_map(EnergyTrace()), "No inference step was observed (backprop has none)."),
        (lambda: plots.comparison([]), "No run has finished yet."),
        (lambda: plots.reliability({}), "Nothing has been measured."),
    ],
)
def test_empty_pictures_say_so(figure, said):
    assert said in words(figure())


ODD = {
    "one epoch": [record(1)],
    "all zero": [record(e, energy={"a": 0.0, "b": 0}) for e in (1, 2)],
    "not finite": [record(1, energy={"a": "NaN", "b": math.inf}, train_accuracy=math.nan, validation_accuracy="inf")],
    "names": [record(e, energy={"$a_{": 1.0, "<b>": 2.0, "\x00\ud800": 1e-30, "_c": 1.0}) for e in (1, 2)],
    "many nodes": [record(e, energy={f"layer{i}": 10.0**-i for i in range(50)}) for e in (1, 2)],
    "absurd": [record(e, lr_w=1e308, train_accuracy=-1e308, energy={"a": 1e308, "b": 5e-324}) for e in (1e300, 2)],
    "no epochs": [{"energy": {"a": 1}}, {"energy": {"b": 1e-300}}],
}


@pytest.mark.parametrize("metrics", ODD.values(), ids=ODD)
def test_odd_runs_are_drawn(metrics):
    for figure in (plots.curves(metrics), plots.energy_shares(metrics), plots.profiles({"x": metrics})):
        assert ElementTree.fromstring(plots.svg(figure)).tag.endswith("svg")


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_names_stand_beside_the_ends_of_their_lines(scale):
    """As drawn: in the order of the ends, no two overlapping, all within the picture."""
    with plots.styled():
        figure = plots.sheet("Names")
        axes = figure.subplots()
        axes.set_yscale(scale)
        heights = [1.0, 1.01, 1.02, 50.0, 3.0, math.nan]
        for y in heights:
            axes.plot([0, 1], [1, y])
        plots.label_ends(axes, [(f"line {i}", "black", 1.0, y) for i, y in enumerate(heights)])
        figure.draw_without_rendering()
        boxes = {t.get_text(): Text.get_window_extent(t) for t in axes.texts}  # without the leader
    drawn = sorted(boxes, key=lambda name: boxes[name].y0)
    assert drawn == [f"line {i}" for i in (0, 1, 2, 4, 3)], "nan has no place"
    assert all(boxes[a].y1 <= boxes[b].y0 + 1 for a, b in itertools.pairwise(drawn))
    assert all(box.x0 > axes.transData.transform((1, 1))[0] and box.x1 <= figure.bbox.width for box in boxes.values())


def test_of_more_names_than_fit_every_so_many_is_written():
    with plots.styled():
        axes = plots.sheet("Names", height=2).subplots()
        axes.set_ylim(0, 1)
        plots.label_ends(axes, [(str(i), "black", 1.0, i / 99) for i in range(100)])
    written = [int(t.get_text()) for t in axes.texts]
    assert written[0] == 99
    assert 3 < len(written) < 15
    assert len(set(np.diff(written))) == 1


def test_places_are_apart_in_order_and_near():
    places = plots.apart([0.5, 0.52, 0.1, 0.51, 0.98], 0.1, 0.0, 1.0)
    np.testing.assert_allclose(places, [0.41, 0.61, 0.1, 0.51, 0.98], atol=1e-12)
    np.testing.assert_allclose(plots.apart([1.0, 1.0, 1.0], 0.1, 0.0, 1.0), [0.8, 0.9, 1.0])
    assert plots.apart([], 0.1, 0.0, 1.0) == []


def test_save_writes_both_kinds_and_nothing_else(tmp_path):
    svg, png = plots.save(plots.curves(METRICS), tmp_path / "run.v1")
    assert {svg, png} == set(tmp_path.iterdir()) == {tmp_path / "run.v1.svg", tmp_path / "run.v1.png"}
    assert "<text" not in svg.read_text(), "letters are shapes"
    assert svg.read_text() == plots.svg(plots.curves(METRICS)), "the same picture is the same file"
    assert png.read_bytes().startswith(b"\x89PNG")


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    (tmp_path / "a.svg").write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(RunError, match="disk full"):
        plots.save(plots.curves([]), tmp_path / "a")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a.svg", "old")]


def test_pictures_leave_no_global_trace():
    before = dict(matplotlib.rcParams)
    workers = [threading.Thread(target=lambda: plots.svg(plots.curves([]))) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert dict(matplotlib.rcParams) == before
    assert not Gcf.get_all_fig_managers(), "pyplot knows of no figure"


def test_epochs_may_know_different_nodes():
    table = energy_shares([{"epoch": 1, "energy": {"a": 1}}, {"epoch": 2}, {"epoch": 3, "energy": {"a": 1, "b": "3"}}])
    assert table.nodes == ("a", "b")
    np.testing.assert_array_equal(table.epochs, [1, 3])
    np.testing.assert_allclose(table.values, [[1, math.nan], [0.25, 0.75]])
