"""The table in all its forms, and numbers in words."""

import csv
import io
import math

import pytest
from markupsafe import Markup
from rich.console import Console

from deeppc.report.tables import Table, duration, mean_and_deviation, number, percent, plain, scientific

TABLE = Table(["name", "value"], [["a|b", 1], ["<c>\n", None]], title="Title", note="A note.", chosen=1)


def test_markdown_and_csv_have_a_line_per_row_and_escape():
    table = "| name | value |\n| --- | --- |\n| a\\|b | 1 |\n| <c>  |  |"
    assert TABLE.markdown() == f"**Title**\n\n{table}\n\nA note.\n"
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
    assert [line.split() for line in out.getvalue().splitlines()] == [["[red]x", "y"], ["[bold]a", "1"], ["b", "22"]]


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="a row has 1 cells, but the table 2 columns"):
        Table(["a", "b"], [[1]])


def test_numbers_in_words():
    seconds = {0: "0.0 s", 8.26: "8.3 s", 42.4: "42 s", 754: "13 min", 7500: "2 h 05 min", None: "–", "inf": "–"}
    assert {x: duration(x) for x in seconds} == seconds
    assert (percent(0.5432), percent(0.5, 0), percent(None), percent("nan")) == ("54.32%", "50%", "–", "not finite")
    values = {0: "0", 0.01: "0.01", 999: "999", 3.21e-9: "3.2 × 10⁻⁹", -4.56e12: "-4.6 × 10¹²", None: "–"}
    assert {x: scientific(x) for x in (*values, "inf")} == {**values, "inf": "not finite"}
    assert mean_and_deviation([45.4, 45.9, 46.4], digits=1) == "45.9 ± 0.5"  # of n - 1
    assert (mean_and_deviation([0.5], scale=100), mean_and_deviation([])) == ("50.00", "–")


def test_numbers_and_names_are_read_whatever_they_are():
    assert (number("1e3"), number(2), number("inf")) == (1000.0, 2.0, math.inf)
    assert all(math.isnan(number(odd)) for odd in ("x", None, [1], 10**400))
    assert (plain("a\x00b"), plain("x" * 40)) == ("a�b", "x" * 27 + "…")
