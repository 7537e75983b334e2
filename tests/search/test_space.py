"""Spaces: as the paper's table says, in one grammar, and never with what cannot work together."""

from __future__ import annotations

import importlib
from pathlib import Path

import optuna
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deeppc.errors import ConfigError
from deeppc.models import build as build_network
from deeppc.models import names
from deeppc.search.space import Dimension, Space, build, rebuild
from deeppc.training import TrainConfig
from deeppc.training.config import replace

ALGORITHMS = ("bp", "pc", "ipc", "pc+s", "pc+d", "pc+l", "pc+f", "pc+s+f", "pc+d+f", "ipc+s", "pc+cn", "ipc+s+cn")


def space(algorithm: str = "pc+s+f", *overrides: str, model: str = "vgg5", **changes: object) -> Space:
    return build(TrainConfig.of(algorithm=algorithm, model=model, **changes), overrides)


def dimension(found: Space, name: str) -> Dimension:
    return next(d for d in found.dimensions if d.name == name)


def draws(found: Space, n: int, seed: int = 0) -> list[dict[str, object]]:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    return [dict(found.draw(study.ask())) for _ in range(n)]


def log_range(found: Space, name: str) -> tuple[float, float]:
    d = dimension(found, name)
    assert d.log
    return d.low, d.high


# --- the paper's table, typed from it ----------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["bp", "pc", "ipc", "pc+s+f", "ipc+s", "pc+d+f"])
def test_space_is_the_papers(algorithm: str) -> None:
    found = space(algorithm)
    assert set(dimension(found, "activation").choices) == {"leaky_relu", "gelu", "hard_tanh", "relu"}
    assert log_range(found, "lr_w") == (1e-5, 3e-4 if algorithm == "bp" else 3e-2)
    assert log_range(found, "weight_decay") == (1e-5, 1e-2)
    if algorithm == "bp":
        assert {d.name for d in found.dimensions} == {"activation", "lr_w", "weight_decay"}
    else:
        assert log_range(found, "lr_x") == (5e-3, 9e-1)
        momenta = {draw["momentum_x"] for draw in draws(found, 100)}
        assert momenta == {0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0}


@pytest.mark.parametrize(
    ("model", "steps"),
    [
        ("vgg5", {5, 6, 7, 8}),
        ("vgg7", {7, 9, 11, 13}),
        ("vgg10", {10, 12, 14, 16}),
        ("vgg15", {15, 17, 19, 21}),
        ("resnet10", {10, 12, 14, 16}),
        ("resnet18", {18, 20, 22, 24}),
    ],
)
def test_steps_are_the_papers(model: str, steps: set[int]) -> None:
    assert {draw["T"] for draw in draws(space("ipc+s", model=model), 60)} == steps
    assert min(steps) == build_network(model, width=0.02).L  # the wave can reach the first layer


def test_the_schedules_own_settings() -> None:
    assert set(dimension(space("pc+s"), "alpha").choices) == {0.01, 0.05, 0.001, 0.005}
    assert set(dimension(space("pc+d+f"), "k").choices) == {1.0, 1.5, 2.0}
    # a sequence from 0 to 1 with step 0.15, without 0, where nothing is learnt
    assert {draw["beta"] for draw in draws(space("pc+cn"), 100)} == {0.15, 0.3, 0.45, 0.6, 0.75, 0.9}
    assert "beta" not in space("pc+s+f").table()


# --- nothing is drawn that cannot work -----------------------------------------------------------------------------

WIDE = (
    *("norm=none,bf,bn", "affine=true,false", "aux=true,false", "nesterov=true,false", "beta=0.1..1", "alpha=0,0.1"),
    *("k=0.5..3", "loss=squared_error,cross_entropy", "precision_on=energy,node", "presynaptic=initial,relaxed"),
    *("forward_last=none,1,3", "free_steps=0..4", "depth_gain=true,false", "batch_size=32..128 step 32"),
    *("width=0.1,0.2", "schedule_epochs=5..25"),
)


@given(st.sampled_from(ALGORITHMS), st.sampled_from(sorted(names())), st.integers(0, 2**31), st.booleans())
@settings(max_examples=15, deadline=None)
def test_every_draw_is_accepted_and_means_something(algorithm: str, model: str, seed: int, wide: bool) -> None:
    found = space(algorithm, *(WIDE if wide else ()), model=model)
    for draw in draws(found, 5, seed):
        config = replace(found.config, **draw)  # checks ranges, and what goes together
        suffixes = algorithm.split("+")[1:]
        assert ("alpha" in draw) == ("s" in suffixes)
        assert ("k" in draw) == ("d" in suffixes)
        assert algorithm != "bp" or not draw.keys() & {"T", "lr_x", "momentum_x", "beta", "depth_gain", "nesterov"}
        assert "f" in suffixes or not draw.keys() & {"presynaptic", "forward_last", "free_steps"}
        assert ("affine" in draw) == (wide and config.norm != "none")
        assert ("aux" in draw) == (wide and model.startswith("resnet"))
        assert "nesterov" not in draw or draw["momentum_x"] > 0


def test_depth_gain_never_overflows() -> None:
    found = space("pc+s+f", "depth_gain=true,false", model="resnet18")
    levels = build_network("resnet18", width=0.02).L
    for draw in draws(found, 300):
        assert torch.tensor(float(draw["lr_x"]) ** -levels).isfinite()  # type: ignore[arg-type]
    assert dimension(found, "lr_x").low > 5e-3
    with pytest.raises(ConfigError, match="depth_gain needs lr_x above"):
        space("pc+s+f", "lr_x=0.001", "depth_gain=true", model="resnet18")


# --- the grammar ---------------------------------------------------------------------------------------------------


def test_narrowed_added_and_fixed() -> None:
    found = space("pc+s+f", "lr_x=0.01..0.5", "activation=gelu,relu", "alpha=0.02", "norm=none,bf", "T=5..9 step 2")
    assert log_range(found, "lr_x") == (0.01, 0.5)  # a narrower range keeps the logarithm
    assert dimension(found, "activation").choices == ("gelu", "relu")
    assert found.config.setting("alpha") == 0.02
    assert "alpha" not in found.table()
    assert dimension(found, "norm").choices == ("none", "bf")
    assert {draw["T"] for draw in draws(found, 40)} == {5, 7, 9}
    linear = dimension(space("pc", "lr_x=0.1..0.5 linear"), "lr_x")
    assert (linear.low, linear.high, linear.log) == (0.1, 0.5, False)


def test_a_condition_of_ones_own() -> None:
    found = space("pc", "norm=none,bf", "lr_w=1e-4..1e-3 if norm=bf")
    for draw in draws(found, 40):
        assert ("lr_w" in draw) == (draw["norm"] == "bf")


def test_what_means_nothing_is_not_drawn_and_said() -> None:
    found = space("pc", "alpha=0.1,0.2", "momentum_x=0", "nesterov=true,false")
    assert found.idle == {"alpha": "it means nothing with pc", "nesterov": "it needs momentum_x!=0.0"}
    assert not {"alpha", "nesterov"} & found.table().keys()


def test_written_down_and_read_again() -> None:
    found = space("pc+s+f", *WIDE, model="resnet18")
    again = rebuild(found.config, found.table(), "study.json")
    assert again.dimensions == found.dimensions
    assert draws(again, 10, seed=3) == draws(found, 10, seed=3)


def test_from_a_file_and_flags_win(tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text('lr_x = "0.1..0.2"\nactivation = ["gelu", "relu"]\nmomentum_x = 0.5\nnesterov = [true, false]\n')
    found = build(TrainConfig.of(algorithm="pc"), ["lr_x=0.3..0.4"], file)
    assert log_range(found, "lr_x") == (0.3, 0.4)
    assert dimension(found, "activation").choices == ("gelu", "relu")
    assert dimension(found, "nesterov").choices == (True, False)
    assert found.config.setting("momentum_x") == 0.5
    file.write_text("[lr_x]\nlow = 1\n")
    with pytest.raises(ConfigError, match="is a table"):
        build(TrainConfig(), (), file)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("lr_y=1..2", "did you mean 'lr_x'"),
        ("dataset=cifar10,cifar100", "cannot be searched"),
        ("lr_x", "not of the form name=values"),
        ("lr_x=", "not of the form name=values"),
        ("lr_x=0.5..0.1", "must rise"),
        ("momentum_x=0..1 log", "no logarithm at 0"),
        ("lr_x=1..2 often", "not a range"),
        ("lr_x=fast,slow", "must be a number"),
        ("momentum_x=0.5..1 step 0.7", "step that does not fit"),
        ("T=5.5..8", "must be a whole number"),
        ("activation=gelu,sigmoid", "choose gelu or"),
        ("activation=gelu..relu", "takes no range"),
        ("activation=gelu,gelu", "twice"),
        ("beta=0..1", "beta is 0, but must be a number above 0"),
        ("lr_w=-1..1", "lr_w is -1, but must be a number above 0"),
        ("alpha=0.1,0.2 if weather=fine", "the condition 'weather=fine'"),
        ("alpha=0.1,0.2 if norm", "the condition 'norm'"),
        ("width=0.1,0.2 if norm=bf;norm=bf,bn if width=0.1", "wait for each other"),
        ("activation=gelu;lr_w=1;weight_decay=0;lr_x=1;momentum_x=0;T=5;alpha=0", "nothing to search"),
    ],
)
def test_mistakes_are_explained(override: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        space("pc+s+f", *override.split(";"))


def test_a_strangers_family_brings_its_space() -> None:
    importlib.import_module("toy_family")  # registers it
    found = space("toy", "reach=1..3")
    assert {"strength", "reach", "activation", "lr_w", "weight_decay"} == set(found.table())
    assert log_range(found, "strength") == (0.5, 2.0)
    assert log_range(found, "lr_w") == (1e-3, 1e-1)
    assert {draw["reach"] for draw in draws(found, 30)} == {1, 2, 3}
    assert space("toy+whole", "reach=1..3").idle == {"reach": "it means nothing with toy+whole"}


def test_a_network_is_not_asked_for_what_it_does_not_take(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import deeppc\nfrom torch import nn\n"
        "def net(classes, in_shape):\n    return deeppc.Chain(nn.Sequential(nn.Flatten(), nn.Linear(64, classes)))\n"
    )
    space = build(TrainConfig.of(model="mine.py:net"), ["norm=bf,none", "width=0.1..0.5"])
    assert not {"activation", "norm", "width"} & space.table().keys()
    assert set(space.idle) == {"norm", "width"}
    assert space.idle["norm"] == "it means nothing to mine.py:net"
    assert "activation" in build(TrainConfig.of(model="mlp")).table()
    with pytest.raises(ConfigError, match="unknown model 'vgg6'"):
        build(TrainConfig.of(model="vgg6"))


def test_an_example_is_what_a_trial_may_draw():
    space = build(TrainConfig.of(model="mlp"), ["norm=bf,none", "affine=false,true", "lr_w=1e-4..1e-2"])
    drawn = space.example()
    assert (drawn["norm"], drawn["affine"], drawn["lr_w"]) == ("bf", False, 1e-4)
    assert "affine" not in build(TrainConfig.of(model="mlp"), ["norm=none,bf", "affine=false,true"]).example()
