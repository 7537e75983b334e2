"""The table in all its forms, and numbers in words."""

import csv
import io
import math
import statistics

import pytest
from markupsafe import Markup
from rich.console import Console

from deeppc.report.tables import Table, duration, mean_and_deviation, number, percent, plain, scientific, spread

TABLE = Table(["name", "value"], [["a|b", 1], ["<c>\n", None]], title="Title", note="A note.", chosen=1)


def test_markdown_has_a_line_per_row_and_escapes_bars():
    assert TABLE.markdown().splitlines() == [
        "**Title**",
        "",
        "| name | value |",
        "| --- | --- |",
        "| a\\|b | 1 |",
        "| <c>  |  |",
        "",
        "A note.",
    ]
    assert Table(["x"], []).markdown() == "| x |\n| --- |\n"


def test_csv_can_be_read_back():
    assert list(csv.reader(io.StringIO(TABLE.csv()))) == [["name", "value"], ["a|b", "1"], ["<c>\n", ""]]


def test_html_is_escaped_but_for_markup():
    html = TABLE.html()
    assert "<tr><td>a|b</td><td>1</td></tr>" in html
    assert '<tr class="chosen"><td>&lt;c&gt;\n</td><td></td></tr>' in html
    assert html.endswith('<p class="small">A note.</p>')
    assert "<td><b>x</b></td>" in Table(["x"], [[Markup("<b>x</b>")]]).html()


def test_a_terminal_shows_words_as_they_are():
    out = io.StringIO()
    Console(file=out, width=60).print(Table(["[red]x", "y"], [["[bold]a", 1], [Markup("<b>b</b>"), 22]]).rich())
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert lines == [["[red]x", "y"], ["[bold]a", "1"], ["b", "22"]]


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="a row has 1 cells, but the table 2 columns"):
        Table(["a", "b"], [[1]])


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0.0 s"), (8.26, "8.3 s"), (42.4, "42 s"), (754, "13 min"), (7500, "2 h 05 min"), (None, "–"), ("inf", "–")],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_percent_and_scientific():
    assert (percent(0.5432), percent(0.5, 0), percent(None), percent("nan")) == ("54.32%", "50%", "–", "not finite")
    assert [scientific(x) for x in (0, 0.01, 999, 3.21e-9, -4.56e12)] == [
        "0",
        "0.01",
        "999",
        "3.2 × 10⁻⁹",
        "-4.6 × 10¹²",
    ]
    assert (scientific(None), scientific("inf")) == ("–", "not finite")


def test_mean_and_sample_deviation():
    values = [45.4, 45.9, 46.4]
    assert mean_and_deviation(values, digits=1) == "45.9 ± 0.5"
    assert spread(values) == (pytest.approx(45.9), pytest.approx(statistics.stdev(values)))
    assert (mean_and_deviation([0.5], scale=100), mean_and_deviation([])) == ("50.00", "–")


def test_numbers_and_names():
    assert (number("1e3"), number(2), number("inf")) == (1000.0, 2.0, math.inf)
    assert all(math.isnan(number(odd)) for odd in ("x", None, [1], 10**400))
    assert plain("a\x00b") == "a�b"
    assert plain("x" * 40) == "x" * 27 + "…"
