"""Arithmetic of tables, by hand."""

from __future__ import annotations

import csv
import io
import json

import pytest

from deeppc.paper.matrix import Entry, Matrix, by_value, from_json, number

ENTRY = Entry((60.0, 62.0, 64.0), paper=(89.45, 0.18))


def table(**entries: Entry) -> Matrix:
    return Matrix("t", "A title", {(row, "VGG5"): entry for row, entry in entries.items()})


def test_mean_and_sample_deviation():
    assert ENTRY.mean == 62.0
    assert ENTRY.deviation == 2.0  # squares of -2, 0, 2 sum to 8; 8 / (3 - 1) = 4
    assert Entry((60.0,)).deviation is None
    assert Entry(()).mean is None


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (ENTRY, "62.00 ± 2.00 n=3 (89.45)"),
        (Entry((60.0,)), "60.00"),
        (Entry((60.0,), note="BF"), "60.00 BF"),
        (Entry((60.0,), diverged=2), "60.00, 2 diverged"),
        (Entry((), diverged=2, paper=(15.63, 7.22)), "2 diverged (15.63)"),
        (Entry((), paper=(15.63, 7.22)), "– (15.63)"),
        (Entry(()), "–"),
    ],
)
def test_text_of_an_entry(entry, text):
    assert table(PC=entry).text("PC", "VGG5") == text


def test_a_place_that_is_missing_is_empty():
    assert table(PC=ENTRY).text("iPC", "VGG7") == "–"


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.00"), (0.004, "4.0e-03"), (-0.004, "-4.0e-03"), (12.345, "12.35"), (2.5e7, "2.5e+07")]
)
def test_digits_hide_no_number(value, text):
    assert number(value, 2) == text


def test_a_table_has_a_line_for_each_row():
    assert table(PC=ENTRY, iPC=Entry()).table().rows == [["PC", "62.00 ± 2.00 n=3 (89.45)"], ["iPC", "–"]]


def test_csv_has_a_line_for_each_value():
    rows = list(csv.DictReader(io.StringIO(by_value([table(PC=ENTRY, iPC=Entry((), diverged=1))]).csv())))
    assert [(r["row"], r["value"], r["paper"], r["diverged"]) for r in rows] == [
        ("PC", "60.0", "89.45", "0"),
        ("PC", "62.0", "89.45", "0"),
        ("PC", "64.0", "89.45", "0"),
        ("iPC", "", "", "1"),
    ]


def test_json_and_back():
    before = table(PC=ENTRY, iPC=Entry((), diverged=1, note="odd"))
    assert from_json(json.loads(json.dumps(before.to_json()))) == before
