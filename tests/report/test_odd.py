"""Odd and damaged runs: the page says what is known, in valid HTML, says what is damaged, and leaves the run alone."""

import json
import math
import re
import warnings
from xml.etree import ElementTree

import pytest

from deeppc.files import write_json
from deeppc.report import pages
from deeppc.runs.folder import RunFolder

from .folders import MANIFEST, RESULT, Page, diagnosed, make_run, record

EVIL = "a<b>&amp;\"'</svg>"
ODD = {
    "zero epochs": ([], None),
    "zero epochs, finished": ([], {"epochs": 0, "selected_epoch": 0, "seconds": 0.0}),
    "one epoch": ([diagnosed(1)], {**RESULT, "selected_epoch": 1, "epochs": 1}),
    "not finite": (
        [diagnosed(1, energy={"a": math.nan, "b": math.inf}, gap_ratio={"a": -math.inf}, lr_w=math.nan)],
        {**RESULT, "test_accuracy": math.nan, "selected_epoch": math.inf, "seconds": -math.inf},
    ),
    "one node": ([record(e, energy={"only": 1.0}) for e in (1, 2)], RESULT),
    "100 nodes": ([record(e, energy={f"layer{i}": 10.0 ** (-i / 4) for i in range(100)}) for e in (1, 2)], RESULT),
    "unicode": ([record(e, energy={"卷积": 1e-3, "слой": 1.0, "🙂\u202e\x07": 0.5, "": 2.0}) for e in (1, 2)], RESULT),
    "markup": ([record(e, energy={EVIL: 1.0, "$x_{": 2.0}) for e in (1, 2)], {**RESULT, "select": EVIL}),
}


@pytest.mark.parametrize(("records", "result"), ODD.values(), ids=ODD)
def test_odd_runs_have_a_page_and_pictures(tmp_path, records, result):
    manifest = {**MANIFEST, "config": {"algorithm": EVIL, "model": "模型", "note": None, "epochs": math.nan}}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        page = Page(pages.write_run(make_run(tmp_path, records, manifest=manifest, result=result)))
    assert not said
    assert f"{EVIL} on 模型" in page.text
    assert "svg" not in page.tags
    assert not re.search(r"[^\n -~\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", page.html)
    assert ("No epoch has finished yet" in page.text) == (not records)
    drawn = list(tmp_path.glob("*.svg"))
    assert bool(drawn) == bool(records)
    for picture in drawn:
        ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    assert "damaged" not in page.text


DAMAGE = {
    "flipped": lambda content: content[:40] + bytes([content[40] ^ 1]) + content[41:],
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2] + b"\n",
    "not UTF-8": lambda content: b"\xff\xfe\x00\n",
    "a list": lambda content: b"[1]\n",
    "deep": lambda content: b"[" * 100_000 + b"\n",
    "no seal": lambda content: b'{"epoch": 1}\n',
    "newer": lambda content: json.dumps({**json.loads(content), "format": 99}).encode(),
}


CASES = [(name, how) for name in ("manifest.json", "result.json", "comparison.json") for how in DAMAGE]
CASES += [("metrics.jsonl", how) for how in DAMAGE if how not in ("newer", "empty")]  # empty is a run that begins


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(("name", "how"), CASES)
def test_damage_is_said_and_all_else_is_shown(tmp_path, name, how):
    damage = DAMAGE[how]
    make_run(tmp_path)
    write_json(tmp_path / "comparison.json", {"rows": [{"algorithm": "pc", "runs": ["."], "test_accuracy": [0.5]}]})
    (tmp_path / name).write_bytes(damage((tmp_path / name).read_bytes()))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    wrong = "was written by a newer deeppc" if how == "newer" else "is damaged"
    run, comparison = Page(pages.write_run(tmp_path)).text, Page(pages.write_comparison(tmp_path)).text
    for text in (run, comparison):
        assert "No epoch" not in text
        assert "No run" not in text
        assert str(tmp_path) not in text
    assert (f"{name} {wrong}" in run) == (name != "comparison.json")
    assert (f"{name} {wrong}" in comparison) == (name in ("comparison.json", "metrics.jsonl"))
    assert ("vgg7" in run) == (name != "manifest.json")
    assert "Unfinished" not in run
    report = RunFolder(tmp_path).report.name
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != report} == before


@pytest.mark.usefixtures("no_pictures")
def test_metrics_that_lack_epochs_of_the_result_are_said(tmp_path):
    make_run(tmp_path, [])
    assert "metrics.jsonl has 0 epochs, but result.json counts 4" in Page(pages.write_run(tmp_path)).text


@pytest.mark.usefixtures("no_pictures")
def test_of_equally_good_epochs_the_page_marks_the_one_that_was_kept_and_says_which(tmp_path):
    tied = [record(e, validation_accuracy=0.5) for e in (1, 2, 3)]
    page = Page(pages.write_run(make_run(tmp_path, tied, result={**RESULT, "selected_epoch": 1, "epochs": 3})))
    assert page.html.count('<tr class="chosen"><td>1</td>') == page.html.count('class="chosen"') == 1
    assert "of equally good epochs the first" in page.text
