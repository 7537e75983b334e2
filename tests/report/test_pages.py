"""The offline report: what it says, that it says it whatever the folder holds, and that it needs nothing else."""

import math
import re

import numpy as np
import pytest
from browser import DESKTOP, PHONE, check_layout, layout, photograph
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markupsafe import Markup
from matplotlib.colors import to_hex, to_rgb

from deeppc.errors import RunError
from deeppc.files import write_json
from deeppc.report import pages, plots
from deeppc.report.tables import Table

from .folders import MANIFEST, NODES, RESULT, Page, diagnosed, make_run, record


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return pages.write_run(make_run(tmp_path_factory.mktemp("run")))


def test_the_page_and_the_pictures_lie_in_the_folder(finished):
    pictures = {f"{stem}.{kind}" for stem in ("curves", "energy", "profile") for kind in ("svg", "png")}
    files = {"report.html", "manifest.json", "metrics.jsonl", "result.json"}
    assert {p.name for p in finished.parent.iterdir()} == pictures | files


@pytest.mark.outside
def test_the_page_suits_a_desktop_and_a_phone(finished, tmp_path):
    check_layout(finished, tmp_path)


@pytest.mark.outside
def test_a_page_that_does_not_is_seen(finished, tmp_path):
    wide = tmp_path / "wide.html"
    wide.write_text(finished.read_text().replace("</body>", "<div style='width: 800px'>wide</div></body>"))
    assert layout(wide, DESKTOP, tmp_path)["page"] == DESKTOP
    assert layout(wide, PHONE, tmp_path)["page"] > PHONE


def sheet(folder, content):
    """A page of one section."""
    page = folder / "page.html"
    page.write_text(pages.render("sections.html", title="T", sections=[("", content)]))
    return page


@pytest.mark.outside
def test_colours_are_those_that_words_name_on_dark_screens_too(tmp_path):
    """Stripes of every colour that lines have: on a dark screen only dimmed, all by the same factor."""
    colours = [to_rgb(colour) for colour in (*plots.HUES, *plots.by_depth(5), plots.INK, plots.PALE, "white")]
    stripes = "".join(f'<rect x="{i}" width="1" height="10" fill="{to_hex(c)}"/>' for i, c in enumerate(colours))
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="{len(colours)}" height="10">{stripes}</svg>'
    page = sheet(tmp_path, [pages.Picture(svg, "")])
    light, dark = (photograph(page, DESKTOP, tmp_path, dark=dark) for dark in (False, True))
    row = next(y for y in range(300) if (light[y] == light[y, DESKTOP // 2]).all(axis=1).mean() < 0.5)
    inside = np.arange(len(colours)) + 0.5
    left, right = np.flatnonzero(np.abs(light[row + 20] - 1).max(axis=1) > 0.01)[[0, -1]]  # the last stripe is white
    width = (right - left + 1) / (len(colours) - 1)
    middles = (left + inside * width).astype(int)
    np.testing.assert_allclose(light[row + 20, middles], colours, atol=0.01)
    np.testing.assert_allclose(dark[row + 20, middles], 0.88 * np.array(colours), atol=0.01)
    assert dark[0, 0].max() < 0.2


@pytest.mark.outside
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("columns", "goes_on"), [(3, False), (40, True)])
def test_a_table_that_goes_on_has_a_shadow_at_its_edge(tmp_path, columns, goes_on, dark):
    table = Table(["node"] + ["value"] * (columns - 1), [["–"] + [""] * (columns - 1)] * 3)
    shown = photograph(sheet(tmp_path, [table]), PHONE, tmp_path, dark=dark)
    paper, edge = shown[0, 0], shown[:, PHONE - 16 - 4]  # four pixels within the frame, which begins after the margin
    other = (np.abs(edge - paper).max(axis=1) > 0.1).sum()
    assert (other > 60) == goes_on  # three rows of 25 pixels


def test_it_tells_the_result_the_settings_and_where_they_come_from(finished):
    text = Page(finished).text
    for said in ("pc+s+f on vgg7, cifar10", "54.32%", "98.76%", "3 of 4", "13 min", "5,000 held-out training samples"):
        assert said in text
    for said in ("070bf82c0ffee", "2.99.1", "Babbage 9000", "17", "2025-06-01", "deeppc train --algorithm pc+s+f"):
        assert said in text
    assert "conv1, the node nearest to the input, holds 3.7 × 10⁻³ of the energy, 2.4 orders of magnitude below" in text
    for absent in ("Unfinished", "/somewhere", "backprop's", "Gap"):
        assert absent not in text


def test_the_table_has_every_epoch_and_marks_the_chosen_one(finished):
    rows = re.findall(r"<tr.*?</tr>", finished.read_text())
    for epoch in range(1, 5):
        cells = f"<td>{epoch}</td><td>{50 + 5 * epoch}.00%</td><td>{40 + 5 * epoch}.00%</td><td>90.00%</td>"
        assert sum(cells in row for row in rows) == 1
    (chosen,) = [row for row in rows if "chosen" in row]
    assert "<td>3</td>" in chosen
    assert any("<td>3.9 × 10⁻³</td><td>1</td>" in row for row in rows)  # 2^-8 and 1


def test_it_needs_nothing_from_elsewhere(finished):
    page = Page(finished)
    assert not page.tags & {"script", "link", "iframe", "object"}
    assert len(page.sources) == 3
    assert all(source.startswith("data:image/svg+xml;base64,") for source in page.sources)
    assert all((finished.parent / link).is_file() for link in page.links)
    assert not re.search(r"https?://|@import|url\(", page.html)


@pytest.mark.usefixtures("no_pictures")
def test_the_command_can_be_typed_again(tmp_path):
    command = ["/somewhere/deeppc/__main__.py", "train", "--run-dir", "a b"]
    page = Page(pages.write_run(make_run(tmp_path, manifest={**MANIFEST, "command": command})))
    assert "python -m deeppc train --run-dir 'a b'" in page.text


@pytest.mark.usefixtures("no_pictures")
def test_diagnostics_have_a_table_and_a_picture_of_the_gap_if_there_is_one(tmp_path):
    page = Page(pages.write_run(make_run(tmp_path, [diagnosed(1), diagnosed(2)])))
    assert re.search(
        r"<td>fc</td><td>0.9800</td><td>1.5</td><td>0.2</td>.*"
        r"<td>conv1</td><td>0.4800</td><td>2.0 × 10⁻⁷</td><td>2.0 × 10³</td>",
        page.html,
        re.DOTALL,
    )
    for said in ("Compared with backprop", "Below: the cosine", "Gap ratio"):
        assert said in page.text
    page = Page(pages.write_run(make_run(tmp_path, [diagnosed(1, gap_ratio=None, bp_cosine={"a": 1.0, "b": "nan"})])))
    assert "<td>b</td><td>nan</td><td>–</td><td>–</td>" in page.html
    assert "Gap ratio" not in page.text


@pytest.mark.usefixtures("no_pictures")
def test_inference_that_overshoots_is_named_with_its_worst_epoch(tmp_path):
    def after(*found):
        lines = [record(i, stability=x) for i, x in enumerate(found, 1)]
        return Page(pages.write_run(make_run(tmp_path, lines))).text

    fine = {"curvature": 5.0, "limit": 6.82}
    said = "after epoch 3 the energy curved by up to 48.6 in .*, which settle .* by less than 6.82.*: lower lr_x"
    assert re.search(said, after(fine, {**fine, "curvature": 18.0}, {**fine, "curvature": 48.6}, fine))
    for harmless in (fine, {"curvature": 5.0, "limit": "inf"}, {"curvature": "nan", "limit": 6.82}, {}, None, "odd"):
        assert "overshoots" not in after(fine, harmless)


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(
    ("config", "advice"),
    [
        ({"lr_x": 0.2, "momentum_x": 0.0}, "lower lr_x."),
        ({"lr_x": 0.2, "momentum_x": 0.5, "nesterov": True}, "lower lr_x, take momentum_x 0."),
        ({"lr_x": 0.2, "momentum_x": 0.5, "nesterov": False}, "lower lr_x."),  # which bears more than none
        ({"lr_x": 0.2, "momentum_x": 0.0, "alpha": 0.9}, "lower lr_x, or alpha."),
    ],
)
def test_what_to_do_where_inference_overshoots(tmp_path, config, advice):
    over = [record(1, stability={"curvature": 9.0, "limit": 5.0})]
    page = Page(pages.write_run(make_run(tmp_path, over, manifest={**MANIFEST, "config": config})))
    assert f"ruins the updates: {advice}" in page.text


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(
    ("config", "advice"),
    [
        ({"depth_gain": False}, "it is: set depth_gain, or lower epsilon,"),
        ({"depth_gain": True}, "it is: lower epsilon,"),
        ({}, "it is: lower epsilon,"),
    ],
)
def test_updates_that_epsilon_swallows_are_named(tmp_path, config, advice):
    left = {"conv1": 0.014, "conv2": 0.4999, "fc": 0.99}
    lines = [diagnosed(1, left_by_epsilon=left)]
    page = Page(pages.write_run(make_run(tmp_path, lines, manifest={**MANIFEST, "config": config})))
    assert "less than half of the steps of 2 of 3 nodes, of conv1 1.4%" in page.text
    assert advice in page.text
    assert "<td>99.0%</td>" in page.html


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("left", [{"conv1": 0.5, "fc": 1.0}, {"fc": "nan"}, {}, None, "odd"])
def test_updates_that_epsilon_leaves_are_no_matter(tmp_path, left):
    page = Page(pages.write_run(make_run(tmp_path, [diagnosed(1, left_by_epsilon=left)])))
    assert "optimiser's epsilon" not in page.text.partition("Compared with backprop")[0]


@pytest.mark.usefixtures("no_pictures")
def test_an_epsilon_that_float32_cannot_use_is_named(tmp_path):
    lines = [diagnosed(1, left_by_epsilon={"conv1": 4e5, "conv2": 0.1, "fc": 1.0})]
    page = Page(pages.write_run(make_run(tmp_path, lines)))
    assert "the steps of 1 of 3 nodes are up to 4.0 × 10⁵ times too long" in page.text


UNFINISHED = {"records": [record(1), record(2)], "result": None, "tail": '{"epoch": 3, "tr'}


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(
    ("run", "said", "absent"),
    [
        ({"result": {**RESULT, "select": "test"}}, ["chosen on the test set", "luckiest epoch"], "held-out"),
        (UNFINISHED, ["Unfinished: 2 of 4 epochs.", "60.00%", "train accuracy so far"], "test top-1"),
        (UNFINISHED | {"manifest": {**MANIFEST, "status": "failed"}}, ["Unfinished (failed): 2 of 4"], "test top-1"),
        (
            {"records": [record(1), record(2, energy=dict.fromkeys(NODES, "NaN"))], "result": None},
            ["Diverged at epoch 2", "not finite"],
            "Unfinished",
        ),
        ({"records": [record(1), record(2, train_accuracy=math.inf)]}, ["Diverged at epoch 2", "not finite"], "Unf"),
        ({"records": [], "result": None}, ["No epoch has finished yet", "vgg7"], "Energy"),
        (
            {"records": [record(1, energy={"a": 0.0, "b": 1.0})]},
            ["No energy reached a, the node nearest to the input: its weights did not learn."],
            "orders of magnitude",
        ),
    ],
    ids=["by test", "unfinished", "failed", "nan energy", "infinite accuracy", "empty", "unreached"],
)
def test_what_a_reader_must_know_is_said(tmp_path, run, said, absent):
    text = Page(pages.write_run(make_run(tmp_path, **run))).text
    for words in said:
        assert words in text
    assert absent not in text


@pytest.mark.usefixtures("no_pictures")
def test_a_regression_is_reported_by_its_own_score(tmp_path):
    records = [{"epoch": e, "train_mse": 1 / e, "validation_mse": 2 / e} for e in (1, 2, 3, 4)]
    result = {"test_mse": 0.123, "validation_mse": 0.5, "selected_epoch": 4, "select": "validation", "epochs": 4}
    page = Page(pages.write_run(make_run(tmp_path, records, manifest={}, result=result)))
    assert "<b>0.123</b><span>test mse</span>" in page.html
    assert "<td>4</td><td>0.25</td><td>0.5</td>" in page.html
    assert "%" not in page.text


@pytest.mark.usefixtures("no_pictures")
def test_no_name_can_become_html(tmp_path):
    evil = "<script>alert('&\"')</script>"
    manifest = {"config": {"algorithm": evil, "model": evil, evil: evil}, "git": {evil: evil}, "command": [evil]}
    records = [record(e, energy={evil: 1.0, "b": 2.0}) for e in (1, 2)]
    result = {"select": evil, "epochs": evil}
    page = Page(pages.write_run(make_run(tmp_path, records, manifest=manifest, result=result)))
    assert "script" not in page.tags
    assert evil in page.text


def test_a_missing_folder_is_an_error(tmp_path):
    for write in (pages.write_run, pages.write_comparison):
        with pytest.raises(RunError, match="no folder"):
            write(tmp_path / "nowhere")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)
KEYS = [*diagnosed(1), *RESULT, *MANIFEST, "status", "runs", "algorithm"]
TABLES = st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(manifest=TABLES, result=TABLES, rows=JSON | st.lists(TABLES), records=st.lists(TABLES, max_size=3))
@example(manifest={}, result={}, rows=[{"seconds": -1}], records=[])  # nothing between 0 and the longest
@example(manifest={}, result={}, rows=[{"test_accuracy": [-1, 2], "seconds": [0]}, {"test_accuracy": 0}], records=[])
@example(manifest={}, result={}, rows=[{"test_accuracy": -1}], records=[])
def test_whatever_the_files_hold_there_is_a_page(tmp_path, manifest, result, rows, records):
    numbered = [{**r, "epoch": epoch} for epoch, r in enumerate(records, start=1)]
    page = Page(pages.write_run(make_run(tmp_path, numbered, manifest=manifest, result=result)))
    assert "damaged" not in page.text
    write_json(tmp_path / "comparison.json", {"rows": rows, "config": manifest})
    Page(pages.write_comparison(tmp_path))


def test_a_comparison_has_means_deviations_pictures_and_links(tmp_path):
    runs = [make_run(tmp_path / f"pc+s seed {i}") for i in range(2)]
    (runs[0] / "report.html").write_text("a report")
    scores = {"test_accuracy": [0.7, 0.8, 0.9], "test_top5": [0.95, 0.95, 0.95], "seconds": [60, 180, 120]}
    rows = [
        {"algorithm": "pc+s", "runs": [run.name for run in runs], **scores},
        {"algorithm": "<b>bp", "runs": ["gone"], "test_accuracy": [0.91], "diverged": ["lost", "too"]},
    ]
    table = {"rows": rows, "config": {"dataset": "digits", "select": "test"}}
    write_json(tmp_path / "comparison.json", table)
    page = Page(pages.write_comparison(tmp_path))
    assert "<td>pc+s</td><td>80.00 ± 10.00%</td><td>95.00 ± 0.00%</td><td>2 min</td><td>3</td>" in page.html
    assert "<td>&lt;b&gt;bp</td><td>91.00%</td><td>–</td><td>–</td><td>1 (2 diverged)</td>" in page.html
    pictures = [f"{name}.{kind}" for name in ("comparison", "profiles") for kind in ("svg", "png")]
    assert sorted(page.links) == sorted([*pictures, "pc%2Bs%20seed%200/report.html"])
    assert "chosen on the test set" in page.text


def test_sections_hold_blocks_of_every_kind():
    picture = pages.Picture("<svg/>", "a <caption>", "pictures/a b")
    blocks = ["one <p>", {"a": {"b": 1, "c": None}}, Table(["x"], [["<y>"]], title="T"), picture, Markup("<hr>")]
    notes, numbers = [("<n>", "warn")], {"n": "7"}
    html = pages.render("sections.html", title="<T>", notes=notes, numbers=numbers, sections=[("H", blocks)])
    for part in (
        *("<title>&lt;T&gt; · deeppc</title>", '<p class="notice warn">&lt;n&gt;</p>', "<b>7</b><span>n</span>"),
        *("<h2>H</h2>", "<p>one &lt;p&gt;</p>", '<th scope="row">a.b</th><td>1</td>', "<td>&lt;y&gt;</td>"),
        *('alt="a &lt;caption&gt;"', 'href="pictures/a%20b.svg"', "<hr>"),
    ):
        assert part in html
    assert "a.c" not in html
