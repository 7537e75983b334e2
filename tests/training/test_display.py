"""What is shown: live bars in a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from deeppc.errors import Interrupted
from deeppc.training import TrainConfig, train
from deeppc.training.display import BAR, BLOCKS, Lines, LiveView, display, energy_chart
from deeppc.training.events import BatchDone, EpochDone, Note, Started, together
from deeppc.training.scores import ACCURACY

MakeConfig = Callable[..., TrainConfig]


def drawn(renderable: Any) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_energy_bars_are_logarithmic_with_the_output_on_top() -> None:
    lines = drawn(energy_chart({"first": 1e-8, "middle": 1e-4, "last": 1.0, "never": 0.0})).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["never", "last", "middle", "first"]
    bars = {line.split()[0]: line.count("█") for line in lines[1:]}
    assert bars == {"last": BAR, "middle": BAR // 2, "first": 0, "never": 0}  # 8 decades: half of them is 1e-4
    assert "none yet" in lines[1]


def test_deep_networks_are_drawn_side_by_side() -> None:
    energy = {str(i): 10.0 ** -(30 - i) for i in range(30)}
    line = drawn(energy_chart(energy)).splitlines()[1]
    assert len(line.strip()) == 30
    assert line.strip()[-1] == BLOCKS[-1]
    assert line.strip()[0] == BLOCKS[0]
    assert drawn(energy_chart(dict.fromkeys("abc", 0.0)))  # before any energy came


def test_a_terminal_gets_bars_and_one_line_per_epoch(tiny: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deeppc.training.display.REFRESH", 0.0)
    console = Console(file=io.StringIO(), force_terminal=True, width=100, highlight=False)
    with display(False, console) as view:
        assert isinstance(view, LiveView)
        train(tiny(), view)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for words in ("run folder", "epoch 1/3", "epoch 3/3", "best so far", "share, over 8 decades", "test accuracy"):
        assert words in text
    view.stop()  # again, and nothing happens


def test_elsewhere_only_plain_lines(tiny: MakeConfig) -> None:
    console = Console(file=io.StringIO(), width=60)
    with display(False, console) as lines:
        train(tiny(select="test", epochs=2), lines)
        lines(Note("a remark"))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b" not in text
    said = text.splitlines()
    assert [line.split()[0] for line in said[3:]] == ["epoch", "epoch", "test", "a"]
    assert " test " in said[3]
    assert "the paper's protocol" in said[5]


def lines_of(settings: dict[str, Any], *epochs: tuple[float, bool]) -> list[str]:
    """The lines of a run whose epochs had these accuracies on held-out samples, and were selected or not."""
    console = Console(file=io.StringIO(), width=200)
    lines = Lines(console)
    lines(Started(settings, None, "digits", 10, "cpu", 5, 1, len(epochs), 0, 0, ACCURACY))
    for number, (score, selected) in enumerate(epochs, start=1):
        metrics = {"epoch": number, "train_accuracy": 0.5, "validation_accuracy": score, "energy": {"1": 1.0}}
        lines(EpochDone({**metrics, "seconds": 0.1}, selected))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


def test_a_tie_is_not_the_best_so_far() -> None:
    settings = {"model": "mlp", "width": 0.5, "algorithm": "pc", "select": "validation"}
    opening, *said = lines_of(settings, (0.7, True), (0.7, False), (0.8, True))[1:]
    assert opening.startswith("mlp at width 0.5: 10 parameters")
    assert ["best so far" in line for line in said] == [True, False, True]
    assert not any("best" in line for line in lines_of({**settings, "select": "last"}, (0.7, True)))


def test_no_width_is_said_of_a_network_that_has_none(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def net(classes): ...\n")
    settings = {"model": f"{tmp_path}/mine.py:net", "width": 0.5, "algorithm": "pc"}
    assert "at width" not in "".join(lines_of(settings))


def test_top_5_of_five_classes_says_nothing(tiny: MakeConfig, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(60, 4)).astype("float32")
    for classes in (5, 6):
        np.savez(tmp_path / "mine.npz", x=x, y=np.arange(60) % classes)
        console = Console(file=io.StringIO(), width=200)
        with display(False, console) as lines:
            train(tiny(str(classes), dataset=str(tmp_path / "mine.npz"), epochs=1, limit=None), lines, report=False)
        assert ("top-5" in console.file.getvalue()) == (classes == 6)  # type: ignore[attr-defined]


def test_ctrl_c_is_acknowledged_above_the_bars(tiny: MakeConfig, capfd: pytest.CaptureFixture[str]) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=200)

    def press(event: Any) -> None:
        if isinstance(event, BatchDone) and event.epoch == 2:
            signal.raise_signal(signal.SIGINT)

    with display(False, console) as view, pytest.raises(Interrupted):
        train(tiny(), together([view, press]), report=False)
    assert "Stopping after this batch, then saving." in console.file.getvalue()  # type: ignore[attr-defined]
    assert capfd.readouterr().err == ""
