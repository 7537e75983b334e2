"""JSON lines and TensorBoard as users of the events."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest

from deeppc.errors import ConfigError
from deeppc.runs.folder import RunFolder
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
    for record, line in zip(records, RunFolder(result.run_dir).metrics(), strict=False):
        assert record == {"event": "epoch", "run_dir": str(result.run_dir), **line}
    assert capsys.readouterr().out == file.getvalue()
    JsonLines()(Note("a remark"))
    assert capsys.readouterr() == ("", "a remark\n")


def test_tensorboard_has_the_numbers_of_each_epoch(tiny: MakeConfig) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_dir = train(tiny(epochs=2), TensorBoard()).run_dir
    found = EventAccumulator(str(run_dir)).Reload()
    lines = RunFolder(run_dir).metrics()
    for tag in ("train_accuracy", "lr_w"):
        last = found.Scalars(tag)[-1]
        assert (last.step, last.value) == (2, pytest.approx(lines[1][tag]))
    for node, energy in lines[0]["energy"].items():
        assert found.Scalars(f"energy/{node}")[0].value == pytest.approx(energy)


def test_without_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deeppc.training.callbacks.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'deeppc\[tensorboard\]'"):
        TensorBoard()
