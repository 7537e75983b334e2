"""What is shown: live bars in a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from deeppc.training import TrainConfig, train
from deeppc.training.display import BAR, BLOCKS, LiveView, display, energy_chart
from deeppc.training.events import Note

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
