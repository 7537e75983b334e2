"""The kept searches: whole again in a folder, where a search goes on with what is missing."""

import json
import sys
from pathlib import Path

import pytest

from deeppc.search.storage import read_study

RECORDS = Path(__file__).resolve().parents[2] / "records"
SEARCHES = sorted((RECORDS / "searches").glob("*.json"))


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(RECORDS))
    import search_records

    yield search_records
    del sys.modules["search_records"]


@pytest.mark.parametrize("path", SEARCHES, ids=lambda path: path.stem)
def test_a_kept_search_is_restored_and_kept_again(path, script, tmp_path):
    script.restore(path, tmp_path / "s")
    again = script.keep(tmp_path / "s", tmp_path)
    assert again.name == path.name
    before, after = (json.loads(p.read_text()) for p in (path, again))
    assert after["trials"] == before["trials"]
    assert (after["study"]["space"], after["study"]["trials"]) == (before["study"]["space"], before["study"]["trials"])
    both = before["study"]["config"].keys() & after["study"]["config"].keys()
    assert {key: before["study"]["config"][key] for key in both} == {key: after["study"]["config"][key] for key in both}


def test_numbers_of_lost_trials_stay_taken(script, tmp_path):
    content = json.loads(SEARCHES[0].read_text())
    kept = [trial for trial in content["trials"] if trial["number"] not in (0, 2)]
    (tmp_path / "gaps.json").write_text(json.dumps({**content, "trials": kept}))
    script.restore(tmp_path / "gaps.json", tmp_path / "s")
    _, trials = read_study(tmp_path / "s")
    assert {t.number: t.params for t in trials if t.state == "complete"} == {t["number"]: t["params"] for t in kept}
    assert [t.number for t in trials if t.state == "lost"] == [0, 2]
    with pytest.raises(SystemExit, match="holds a search already"):
        script.restore(SEARCHES[0], tmp_path / "s")
