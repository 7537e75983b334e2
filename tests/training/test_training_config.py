"""One table for flags, TOML and manifest: round trips, and errors that name the nearest match."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeppc.cli.main import Train, _parse
from deeppc.training.config import (
    ConfigError,
    TrainConfig,
    fingerprint,
    flag,
    for_algorithm,
    from_table,
    horizon,
    read_toml,
    require_same_run,
    to_table,
    to_toml,
)

positive = st.floats(1e-6, 1e3)
configs = st.builds(
    TrainConfig,
    dataset=st.sampled_from(["digits", "cifar10", "odd name"]),
    algorithm=st.sampled_from(["bp", "pc+s+f", "ipc+s"]),
    width=positive,
    activation=st.sampled_from(["gelu", "relu", "leaky_relu", "hard_tanh"]),
    norm=st.sampled_from(["none", "bf", "bn"]),
    aux=st.booleans(),
    T=st.none() | st.integers(1, 100),
    lr_x=positive,
    depth_gain=st.booleans(),
    lr_w=positive,
    epochs=st.integers(1, 100),
    patience=st.none() | st.integers(1, 50),
    seed=st.integers(0, 2**63 - 1),
    select=st.sampled_from(["validation", "test"]),
    limit=st.none() | st.integers(1, 10**6),
    data_dir=st.sampled_from([Path("data"), Path("/elsewhere/my data")]),
    checkpoint_every=st.none() | st.floats(0, 100),
)


@given(configs)
def test_round_trip_by_manifest_and_by_toml(config: TrainConfig) -> None:
    assert from_table(json.loads(json.dumps(to_table(config))), "manifest") == config
    assert from_table(tomllib.loads(to_toml(config)), "file") == config


@given(configs)
def test_round_trip_by_flags(config: TrainConfig) -> None:
    words = ["train"]
    for name, value in to_table(config).items():
        if isinstance(value, bool):
            words.append(flag(name) if value else flag("no_" + name))
        else:
            words += [flag(name), str(value)]
    command = _parse(words)
    assert isinstance(command, Train)
    assert command.settings == config


@pytest.mark.parametrize(
    ("key", "meant"), [("lrx", "lr_x"), ("lr-w", "lr_w"), ("t", "T"), ("epoch", "epochs"), ("momentum", "momentum_x")]
)
def test_unknown_key_names_the_nearest(key: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"my.toml: unknown key '{key}': did you mean '{meant}'"):
        from_table({key: 1}, "my.toml")


def test_a_key_like_nothing_lists_all() -> None:
    with pytest.raises(ConfigError, match="the keys are dataset, labels, model"):
        from_table({"zzzzzzzz": 1}, "my.toml")


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("epochs", "ten", "a whole number"),
        ("epochs", 1.5, "a whole number"),
        ("epochs", True, "a whole number"),
        ("lr_x", "fast", "a number"),
        ("lr_x", False, "a number"),
        ("aux", 1, "true or false"),
        ("T", "many", 'a whole number or "none"'),
        ("loss", "hinge", "'squared_error' or 'cross_entropy'"),
        ("model", 5, "text"),
        ("data_dir", 5, "a path"),
        ("epochs", 0, "1 or more"),
        ("lr_w", -1.0, "positive"),
        ("lr_w", float("nan"), "positive"),
        ("validation", 1.0, "above 0 and below 1"),
        ("seed", -1, "a whole number from 0"),
    ],
)
def test_wrong_values_say_what_was_expected(key: str, value: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match=f"^f.toml: {key} is {value!r}, but must be {expected}"):
        from_table({key: value}, "f.toml")


def test_whole_numbers_are_numbers() -> None:
    assert from_table({"lr_x": 1}, "f").lr_x == 1.0


def test_files_that_cannot_be_read_or_are_no_toml(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("epochs = = 3")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        read_toml(tmp_path / "bad.toml")
    (tmp_path / "latin.toml").write_bytes(b"dataset = '\xe9'")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        read_toml(tmp_path / "latin.toml")


def test_what_may_change_when_a_run_goes_on() -> None:
    begun = TrainConfig(epochs=30, schedule_epochs=25)
    for free in (
        {"data_dir": Path("x")},
        {"device": "cpu"},
        {"checkpoint_every": 1.0},
        {"epochs": 40},
        {"diagnostics": True},
    ):
        now = dataclasses.replace(begun, **free)  # type: ignore[arg-type]
        require_same_run(begun, now)
        assert fingerprint(now) == fingerprint(begun)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lr_w": 0.5}, "--lr-w is 0.5, but this run was begun with 0.001"),
        ({"T": 7}, "--T is 7, but this run was begun with None"),
        ({"epochs": 5}, "--epochs is 5, but this run was begun with 10"),
        ({"epochs": 11}, "--epochs cannot be raised from 10 to 11: the learning rate was planned to fall over 10"),
    ],
)
def test_what_may_not_change_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        require_same_run(TrainConfig(), dataclasses.replace(TrainConfig(), **change))


def test_horizon_is_the_shorter_of_the_two() -> None:
    assert horizon(TrainConfig(epochs=10)) == 10
    assert horizon(TrainConfig(epochs=50)) == 25


def test_another_algorithm_drops_options_that_mean_nothing_to_it() -> None:
    config = TrainConfig(presynaptic="relaxed", free_steps=3, forward_last=2, depth_gain=True)
    assert for_algorithm(config, "pc+d+f", seed=4) == dataclasses.replace(config, algorithm="pc+d+f", seed=4)
    pc = for_algorithm(config, "pc+s")
    assert (pc.presynaptic, pc.free_steps, pc.forward_last, pc.depth_gain) == ("initial", 0, None, True)
    assert not for_algorithm(config, "bp").depth_gain
