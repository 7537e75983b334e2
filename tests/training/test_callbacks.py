"""JSON lines and TensorBoard as users of the events."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deeppc.errors import ConfigError
from deeppc.training import TrainConfig, train
from deeppc.training.callbacks import JsonLines, TensorBoard
from deeppc.training.events import Note, together

MakeConfig = Callable[..., TrainConfig]


def test_json_lines(tiny: MakeConfig, capsys: pytest.CaptureFixture[str]) -> None:
    file = io.StringIO()
    result = train(tiny(epochs=2), together([JsonLines(file), JsonLines()]))
    records = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [record["event"] for record in records] == ["epoch", "epoch", "result"]
    assert records[2] == {"event": "result", "run_dir": str(result.run_dir), **result.table()}
    kept = [json.loads(line) for line in (Path(str(result.run_dir)) / "metrics.jsonl").read_text().splitlines()]
    assert [{"event": "epoch", "run_dir": str(result.run_dir), **line} for line in kept] == records[:2]
    assert capsys.readouterr().out == file.getvalue()
    JsonLines()(Note("a remark"))
    assert capsys.readouterr() == ("", "a remark\n")


def test_tensorboard_has_the_numbers_of_each_epoch(tiny: MakeConfig) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_dir = train(tiny(epochs=2), TensorBoard()).run_dir
    found = EventAccumulator(str(run_dir)).Reload()
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    for tag, value in (("train_accuracy", lines[1]["train_accuracy"]), ("lr_w", lines[1]["lr_w"])):
        last = found.Scalars(tag)[-1]
        assert (last.step, last.value) == (2, pytest.approx(value))
    for node, energy in lines[0]["energy"].items():
        assert found.Scalars(f"energy/{node}")[0].value == pytest.approx(energy)


def test_without_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setattr("deeppc.training.callbacks.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'deeppc\[tensorboard\]'"):
        TensorBoard()
