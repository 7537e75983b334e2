"""One table for flags, TOML and manifest: round trips, "the same run", and errors that name the nearest match."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeppc.core.algorithms import Algorithm, options_for
from deeppc.training.config import (
    ConfigError,
    TrainConfig,
    canonical,
    from_table,
    layered,
    meaningful,
    read_toml,
    replace,
    require_resumable,
    to_table,
    to_toml,
)

positive = st.floats(1e-6, 1e3)
own = st.fixed_dictionaries(
    {
        "dataset": st.sampled_from(["digits", "cifar10", "odd name"]),
        "width": positive,
        "activation": st.sampled_from(["gelu", "relu", "leaky_relu", "hard_tanh"]),
        "norm": st.sampled_from(["none", "bf", "bn"]),
        "aux": st.booleans(),
        "lr_w": positive,
        "epochs": st.integers(1, 100),
        "patience": st.none() | st.integers(1, 50),
        "seed": st.integers(0, 2**63 - 1),
        "select": st.sampled_from(["validation", "test"]),
        "limit": st.none() | st.integers(1, 10**6),
        "data_dir": st.sampled_from([Path("data"), Path("/elsewhere/my data")]),
        "checkpoint_every": st.none() | st.floats(0, 100),
    }
)
options = {
    "T": st.none() | st.integers(1, 100),
    "lr_x": positive,
    "alpha": st.floats(0, 1),
    "presynaptic": st.sampled_from(["initial", "relaxed"]),
    "depth_gain": st.booleans(),
    "loss": st.sampled_from(["squared_error", "cross_entropy"]),
}


@st.composite
def configs(draw: st.DrawFn) -> TrainConfig:
    algorithm = draw(st.sampled_from(["bp", "pc", "pc+s+f", "ipc+s"]))
    given = draw(st.fixed_dictionaries({}, optional={n: v for n, v in options.items() if n in options_for(algorithm)}))
    return TrainConfig.of(algorithm=algorithm, **draw(own), **given)


@settings(deadline=None, max_examples=30)
@given(configs())
def test_round_trip_by_manifest_and_by_toml(config: TrainConfig) -> None:
    table = to_table(config)
    for again in (
        from_table(json.loads(json.dumps(table)), "manifest"),
        from_table(tomllib.loads(to_toml(config)), ""),
    ):
        assert to_table(again) == table
        assert again.algorithm_object() == config.algorithm_object()


def test_settings_are_flat_and_an_algorithms_own() -> None:
    config = TrainConfig.of(model="mlp", lr_x=1, epochs=3)
    assert (config.model, config.options) == ("mlp", {"lr_x": 1.0})
    assert (config.setting("lr_x"), config.setting("T")) == (1.0, None)
    table = to_table(config)
    assert (table["lr_x"], table["alpha"], table["epochs"]) == (1.0, 0.01, 3)  # in full
    assert "k" not in table  # which is of +d
    assert not {"run_dir", "resume"} & table.keys()
    with pytest.raises(ConfigError, match="unknown setting 'lrx': did you mean 'lr_x'"):
        config.setting("lrx")


def test_python_and_the_command_line_have_the_same_defaults() -> None:
    for spec in ("bp", "pc", "pc+s+f", "pc+d", "ipc+s"):
        algorithm, config = Algorithm.parse(spec), TrainConfig(algorithm=spec)
        assert {name: config.setting(name) for name in options_for(spec)} == {
            name: getattr(algorithm, name) for name in options_for(spec)
        }


def test_another_algorithm_drops_options_that_mean_nothing_to_it() -> None:
    config = TrainConfig.of(presynaptic="relaxed", lr_x=0.3, alpha=0.1)
    assert replace(config, algorithm="pc+d", seed=4).options == {"lr_x": 0.3}
    assert replace(config, algorithm="bp").options == {}
    for refused in ({"algorithm": "bp", "lr_x": 0.1}, {"k": 2.0}, {"algorithm": "pc", "alpha": 0.01}):
        with pytest.raises(ConfigError, match=r"--\S+ means nothing to "):
            replace(config, **refused)
    with pytest.raises(ConfigError, match=r"unknown algorithm 'pc[+]x'"):
        TrainConfig(algorithm="pc+x")


def test_layers_win_in_order_and_only_an_earlier_one_may_hold_what_means_nothing() -> None:
    low = ({"algorithm": "pc+s", "alpha": 0.1, "lr_w": 0.1, "epochs": 2}, "preset")
    found = layered([low, ({"lr_w": 0.2}, "file"), ({"algorithm": "pc+d", "k": 2}, "")])
    assert (found.algorithm, found.options, found.lr_w, found.epochs) == ("pc+d", {"k": 2.0}, 0.2, 2)
    with pytest.raises(ConfigError, match=r"^file: --k means nothing to pc[+]s:"):
        layered([low, ({"k": 2}, "file")])
    with pytest.raises(ConfigError, match=r"^--k means nothing to pc[+]s:"):
        layered([low, ({"k": 2}, "")])


@pytest.mark.parametrize(
    ("key", "hint"),
    [("lrx", "did you mean 'lr_x'"), ("lr-w", "did you mean 'lr_w'"), ("zzzzzzzz", "choose dataset, labels, model")],
)
def test_unknown_keys_get_a_hint(key: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"my.toml: unknown key '{key}': {hint}"):
        from_table({key: 1}, "my.toml")


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("epochs", "ten", "but must be a whole number"),
        ("epochs", 1.5, "but must be a whole number"),
        ("epochs", True, "but must be a whole number"),
        ("lr_x", False, "but must be a number"),
        ("aux", 1, "but must be True or False"),
        ("T", "many", "but must be a whole number at least 1 or None"),
        ("loss", "hinge", "choose squared_error or cross_entropy"),
        ("model", 5, "but must be text"),
        ("epochs", 0, "but must be a whole number at least 1"),
        ("lr_w", float("nan"), "but must be a number above 0"),
        ("validation", 1.0, "but must be a number above 0 and at most 0.99"),
    ],
)
def test_wrong_values_say_what_was_expected(key: str, value: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match=f"^f.toml: {key} is {value!r}[:,] {expected}"):
        from_table({key: value}, "f.toml")


@pytest.mark.parametrize("key", ["lr_w", "lr_x", "weight_decay", "alpha"])
def test_numbers_beyond_float32_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key} is 1e\+39, but must be a number .* and at most 1e\+06"):
        from_table({key: 1e39}, "f.toml")


def test_files_that_cannot_be_read_or_are_no_toml(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_toml(tmp_path / "bad.toml")
    for text in (b"epochs = = 3", b"dataset = '\xe9'"):
        (tmp_path / "bad.toml").write_bytes(text)
        with pytest.raises(ConfigError, match="is not valid TOML"):
            read_toml(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[train]\nepochs = 3", r"mine.toml: \[train\] is a section, but settings stand at the top"),
        ("[affine]\nx = 3", r"\[affine\] is a section"),
        ('run_dir = ""', "mine.toml: run_dir is '': give it a value, or leave it out"),
        ('model = "  "', "model is '  '"),
        ('dataset = "a\\u0000b"', "dataset is 'a"),
        ("aux = " + 9999 * "[", "is not valid TOML"),
    ],
)
def test_sections_and_empty_text_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        from_table(read_toml(tmp_path / "mine.toml"), "mine.toml")


# --- the same run --------------------------------------------------------------------------------------------------


def test_the_same_run() -> None:
    begun = to_table(TrainConfig(epochs=30))
    same = canonical(begun)
    for free in ({"data_dir": "x"}, {"device": "cpu"}, {"checkpoint_every": 1.0}, {"diagnostics": True}):
        assert canonical({**begun, **free}) == same
    for idle in ({"k": 9.0}, {"affine": False}):  # of +d; of a norm
        assert canonical({**begun, **idle}) == same
    for other in ({"lr_w": 0.5}, {"alpha": 0.5}, {"seed": 1}, {"epochs": 31}, {"norm": "bf"}, {"validation": 0.2}):
        assert canonical({**begun, **other}) != same
    older = {name: value for name, value in begun.items() if name not in ("precision", "depth_gain", "limit")}
    assert canonical(older) == same  # what a record does not know had its default
    assert canonical({**begun, "select": "test"}) == canonical({**begun, "select": "test", "validation": 0.2})
    assert canonical({"algorithm": "unknown", "k": 3})["k"] == 3  # of a family that is not registered here


def test_older_records_hold_idle_options() -> None:
    table = {**to_table(TrainConfig(algorithm="bp")), "lr_x": 0.5, "alpha": 0.01}
    with pytest.raises(ConfigError, match="means nothing to bp"):
        from_table(table, "manifest")
    assert from_table(meaningful(table), "manifest") == TrainConfig.of(
        algorithm="bp", loss="squared_error", repeats=1, last=None
    )


def test_what_may_change_when_a_run_is_resumed() -> None:
    begun = to_table(TrainConfig(epochs=30, schedule_epochs=25))
    free = [{"data_dir": "x"}, {"device": "cpu"}, {"checkpoint_every": 1.0}, {"epochs": 40}]
    for change in [*free, {"patience": 20}, {"patience": None}]:
        assert require_resumable(begun, {**begun, **change}) == {**begun, **change}
    short = to_table(TrainConfig(epochs=10, schedule_epochs=25))
    longer = require_resumable(short, {**short, "epochs": 20})  # the rate has fallen by epoch 10, and stays there
    assert canonical(longer) == canonical(to_table(TrainConfig(epochs=20, schedule_epochs=10)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lr_w": 0.5}, "--lr-w is 0.5, but this run was begun with 0.001"),
        ({"T": 7}, "--T is 7, but this run was begun with None"),
        ({"epochs": 5}, "--epochs is 5, but this run was begun with 10"),
        ({"patience": 5}, "--patience is 5, but this run was begun with 10: it can only be raised"),
        ({"epochs": 20, "schedule_epochs": 15}, "The learning rate would fall over another number of epochs"),
    ],
)
def test_what_may_not_change_is_named(change: dict[str, Any], words: str) -> None:
    begun = to_table(TrainConfig())
    with pytest.raises(ConfigError, match=words):
        require_resumable(begun, {**begun, **change})


def test_a_whole_number_and_the_order_of_suffixes_make_no_other_run() -> None:
    assert TrainConfig(width=1).width == 1.0
    assert to_table(TrainConfig(width=1)) == to_table(TrainConfig(width=1.0))
    assert canonical(to_table(TrainConfig(algorithm="pc+f+s"))) == canonical(to_table(TrainConfig(algorithm="PC+S+F")))


@pytest.mark.parametrize("options", [3, [("T", 3)], {3: 3}])
def test_options_that_are_no_table(options: Any) -> None:
    with pytest.raises(ConfigError, match=r"options is .* must be a table|--3 means nothing"):
        TrainConfig(options=options)
