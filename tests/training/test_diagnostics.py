"""Diagnostics of a run: the training does not notice them, they survive a stop, and theory foretells some of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deeppc.diagnostics import updates
from deeppc.training import TrainConfig, train
from deeppc.training.builder import build, saved_config
from deeppc.training.config import replace

MakeConfig = Callable[..., TrainConfig]
RECORDED = ("bp_cosine", "bp_size", "gap_ratio", "stability", "left_by_epsilon")


def lines(run_dir: Path) -> list[dict[str, Any]]:
    """Strictly JSON: no NaN, no Infinity."""
    texts = (run_dir / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")) for text in texts]
    return [{k: v for k, v in record.items() if k not in ("seconds", "sha256")} for record in records]


def without(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in record.items() if k not in RECORDED} for record in records]


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("pc+s+f+cn", {}),  # draws random numbers
        ("ipc+s", {}),  # moves weights in the middle of a step
        ("pc", {"norm": "bn"}),  # moves statistics in every prediction
        ("pc+s+f", {"norm": "bf", "precision": "bf16"}),
    ],
)
def test_training_does_not_notice(
    tiny: MakeConfig, assert_same_state: Callable[[Path, Path], None], algorithm: str, options: dict[str, Any]
) -> None:
    options |= {"algorithm": algorithm, "epochs": 2}
    plain = train(tiny("plain", **options)).run_dir
    watched = train(tiny("watched", diagnostics=True, **options)).run_dir
    assert_same_state(plain, watched)
    assert without(lines(watched)) == lines(plain)
    assert all("bp_cosine" in record for record in lines(watched))


@pytest.mark.parametrize("algorithm", ["pc+s+f", "ipc", "bp"])
def test_on_an_epoch_costs_one_step_and_one_of_backprop(
    tiny: MakeConfig, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    taken, real = [], updates.probe
    monkeypatch.setattr(updates, "probe", lambda algo, *rest: (taken.append(str(algo)), real(algo, *rest))[1])
    train(tiny(algorithm=algorithm, diagnostics=True, epochs=2))
    assert taken == 2 * list(dict.fromkeys([algorithm, "bp"]))


def test_what_theory_foretells_is_on_record(tiny: MakeConfig) -> None:
    """With alpha = 0, pc+s+f is backprop up to lr_x^arrival (1 - lr_x); the sizes tell it from backprop itself."""
    config = tiny(diagnostics=True, alpha=0.0, lr_x=0.3)
    net = build(config).net
    expected = {v: 0.3 ** net.arrival[v] * (0.7 if v != net.output else 1.0) for v in net.nodes}
    for record in lines(train(config).run_dir):
        assert record["bp_cosine"] == pytest.approx(dict.fromkeys(net.nodes, 1.0), abs=1e-5)
        assert record["bp_size"] == pytest.approx(expected, rel=1e-4)
        assert list(record["gap_ratio"]) == list(net.nodes)
        assert all(value > 0 for value in record["gap_ratio"].values())


def test_backprop_is_beside_itself_and_has_no_gap(tiny: MakeConfig) -> None:
    (record,) = lines(train(tiny(algorithm="bp", diagnostics=True, epochs=1)).run_dir)
    for key in ("bp_cosine", "bp_size"):
        assert list(record[key].values()) == pytest.approx([1.0] * len(record[key]))
    assert "gap_ratio" not in record


def test_what_no_energy_reaches_is_written_as_words(tiny: MakeConfig) -> None:
    (record,) = lines(train(tiny(algorithm="pc", T=1, diagnostics=True, epochs=1)).run_dir)
    first = next(iter(record["bp_cosine"]))
    assert (record["bp_cosine"][first], record["bp_size"][first], record["gap_ratio"][first]) == ("nan", 0.0, "nan")


def test_they_may_be_turned_on_when_a_run_is_resumed(tiny: MakeConfig) -> None:
    short = train(tiny(epochs=2, schedule_epochs=1)).run_dir
    train(replace(saved_config(short), epochs=3, diagnostics=True))
    assert ["bp_cosine" in record for record in lines(short)] == [False, False, True]
