"""Names and options of the algorithms, and their errors; and a family of one's own, defined in a test file."""

import dataclasses
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from nets import backprop, batch, gradients, mlp, one_hot, residual
from toy_family import Toy

from deeppc import Algorithm
from deeppc.core.algorithms import Option, describe, families, known_options, option, options_for, register
from deeppc.core.algorithms.ipc import IPC
from deeppc.core.algorithms.pc import PC


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ("bp", {"family": "bp"}),
        ("pc", {"family": "pc", "schedule": "fixed", "forward": False, "nudging": "none"}),
        ("pc+s+f", {"family": "pc", "schedule": "spiking", "forward": True}),
        ("ipc+s", {"family": "ipc", "schedule": "spiking"}),
        ("pc+d+f", {"schedule": "exponential", "forward": True}),
        ("pc+l", {"schedule": "linear"}),
        ("pc+s+f+cn", {"nudging": "centre"}),
        ("ipc+nn", {"nudging": "negative"}),
        ("pc+f+pn", {"nudging": "positive"}),
        ("PC + S + F", {"family": "pc", "schedule": "spiking", "forward": True}),
    ],
)
def test_names(spec, fields):
    algo = Algorithm.parse(spec)
    assert {k: getattr(algo, k) for k in fields} == fields
    assert algo.name == str(algo) == spec.replace(" ", "").lower()
    assert Algorithm.parse(str(algo)) == algo
    assert str(Algorithm.parse("pc+cn+f+s")) == "pc+s+f+cn"  # suffixes are named in one order


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("pc+x", {}, r"unknown algorithm 'pc\+x': choose bp, pc, ipc.* with \+s \+d \+l \+f \+pn \+nn \+cn"),
        ("backprop", {}, "unknown algorithm 'backprop': choose bp, pc, ipc"),
        ("pc+s+s", {}, "unknown algorithm"),
        ("", {}, "unknown algorithm ''"),
        ("pc+s+d", {}, r"'pc\+s\+d' sets schedule twice: choose one of \+s \+d \+l"),
        ("ipc+f", {}, r"ipc has no \+f \('ipc\+f'\): it takes \+s \+d \+l \+pn \+nn \+cn"),
        ("bp+s", {}, r"bp has no \+s \('bp\+s'\): it takes no suffix"),
        ("bp", {"depth_gain": True}, "unknown option 'depth_gain' for 'bp': The options are loss, repeats, last"),
        ("ipc", {"free_steps": 3}, "unknown option 'free_steps' for 'ipc'"),
        ("pc", {"presynaptic": "relaxed"}, r"presynaptic is 'relaxed', but means nothing for pc: add \+f"),
        ("pc+s", {"forward_last": 3}, r"means nothing for pc\+s: add \+f, or leave forward_last out"),
        ("pc+d", {"alpha": 0.1}, r"alpha is 0.1, but means nothing for pc\+d: add \+s, or leave alpha out"),
        ("pc", {"lrx": 0.1}, "unknown option 'lrx' for 'pc': did you mean 'lr_x'"),
        ("pc", {"family": "bp"}, "unknown option 'family'"),
        ("pc+f", {"forward": False}, "unknown option 'forward'"),
        ("pc", {"T": 0}, "T is 0, but must be a whole number at least 1 or None"),
        ("pc", {"T": 2.5}, "T is 2.5"),
        ("pc", {"T": True}, "T is True"),
        ("pc", {"T": "5"}, "T is '5'"),
        ("pc", {"lr_x": 0.0}, "lr_x is 0.0, but must be a number above 0"),
        ("pc", {"lr_x": math.nan}, "lr_x is nan"),
        ("pc", {"lr_x": True}, "lr_x is True"),
        ("pc", {"lr_x": None}, "lr_x is None"),
        ("pc", {"momentum_x": 1.5}, "momentum_x is 1.5, but must be a number at least 0 and at most 1"),
        ("pc+s", {"alpha": -0.1}, "alpha is -0.1"),
        ("pc", {"beta": 0.0}, "beta is 0.0, but must be a number above 0 and at most 1"),
        ("pc+f", {"free_steps": None}, "free_steps is None, but must be a whole number at least 0"),
        ("pc+f", {"forward_last": 0}, "forward_last is 0"),
        ("pc", {"loss": math.exp}, "choose squared_error or cross_entropy"),
        ("pc", {"loss": "hinge"}, "loss is 'hinge': choose squared_error or cross_entropy"),
        ("pc", {"precision_on": "edge"}, "precision_on is 'edge': choose energy or node"),
        ("pc", {"schedule": "spike"}, "schedule is 'spike': choose fixed or spiking or exponential or linear"),
        ("pc", {"forward": "no"}, "forward is 'no', but must be True or False"),
        ("pc", {"depth_gain": 2}, "depth_gain is 2, but must be True or False"),
        ("ipc", {"nudging": "left"}, "nudging is 'left': choose none or positive or negative or centre"),
    ],
)
def test_what_does_not_parse_is_refused_with_what_would(spec, options, message):
    with pytest.raises(ValueError, match=message):
        Algorithm.parse(spec, **options)


def test_the_ends_of_a_range_are_in_it_where_they_make_sense():
    for options in ({"T": 1}, {"momentum_x": 0}, {"momentum_x": 1}, {"beta": 1}, {"alpha": 0}, {"lr_x": 1e-9}):
        assert Algorithm.parse("pc+s+f", forward_last=1, **options).family == "pc"


def test_a_family_may_be_built_field_by_field():
    algo = PC(schedule="spiking", forward=True, lr_x=0.3)
    assert algo == Algorithm.parse("pc+s+f", lr_x=0.3)
    assert hash(algo) == hash(Algorithm.parse("pc+s+f", lr_x=0.3))
    with pytest.raises(dataclasses.FrozenInstanceError):
        algo.lr_x = 0.1
    with pytest.raises(ValueError, match=r"add \+f"):
        PC(free_steps=2)
    with pytest.raises(TypeError, match="forward"):
        IPC(forward=True)
    with pytest.raises(TypeError, match="what all families have in common"):
        Algorithm()


def test_settings_are_all_that_mean_something_as_plain_values():
    assert Algorithm.parse("bp").settings() == {"loss": "squared_error", "repeats": 1, "last": None}
    inference = {"loss": "squared_error", "T": None, "lr_x": 1.0, "momentum_x": 0.0, "nesterov": True, "beta": 1.0}
    inference |= {"precision_on": "energy", "depth_gain": False, "optimizer_x": "sgd", "resolve": True}
    following = inference | {"follow": False}
    assert Algorithm.parse("ipc", lr_x=1).settings() == following
    assert type(Algorithm.parse("ipc", lr_x=1).settings()["lr_x"]) is float
    assert Algorithm.parse("ipc+s+cn", lr_x=1).settings() == following | {"alpha": 0.01}
    update = {"presynaptic": "initial", "forward_last": None, "free_steps": 3}
    assert Algorithm.parse("pc+d+f", lr_x=1, free_steps=3).settings() == inference | {"k": 1.0} | update


def test_a_schedule_of_your_own_is_shown():
    def mine(t, arrival, T):
        return 1.0

    algo = Algorithm.parse("pc+f", schedule=mine)
    assert str(algo) == "pc+f[schedule=mine]"
    assert algo.settings()["schedule"] == "mine"
    with pytest.raises(ValueError, match=r"alpha is 0\.5, but means nothing"):
        Algorithm.parse("pc", schedule=mine, alpha=0.5)


def test_options_by_name():
    assert {"bp", "pc", "ipc"} <= families().keys()
    assert describe().startswith("bp, pc, ipc")
    for words in ("+s spiking", "+d exponential", "+l linear", "+f forward update", "+cn centre nudging"):
        assert words in describe()
    assert list(options_for("bp")) == ["loss", "repeats", "last"]
    assert "alpha" in options_for("pc+s")
    assert "alpha" not in options_for("pc+d")
    assert {"presynaptic", "free_steps"} <= options_for("pc+f").keys()
    assert not {"presynaptic", "free_steps"} & options_for("ipc").keys()
    for suffix_sets in ("schedule", "forward", "nudging"):
        assert suffix_sets not in known_options()
    for spec in ("bp", "pc+s+f+cn", "pc+d", "ipc+l"):
        assert options_for(spec).items() <= known_options().items()
        assert set(options_for(spec)) == set(Algorithm.parse(spec).settings())


def test_an_option_says_what_it_is():
    lr_x, loss = known_options()["lr_x"], known_options()["loss"]
    assert (lr_x.name, lr_x.type, lr_x.default, lr_x.search) == ("lr_x", float, 0.5, "5e-3..9e-1 log")
    assert "Learning rate" in lr_x.help
    assert loss.choices == ("squared_error", "cross_entropy")
    assert loss.check("cross_entropy") == "cross_entropy"
    assert loss.expected == "squared_error or cross_entropy"
    assert Option("", None, type=Path | None).expected == "a path or None"
    assert known_options()["alpha"].needs == {"schedule": "spiking"}
    assert known_options()["nesterov"].unless == {"momentum_x": 0}
    assert all(o.help.endswith(".") and o.default == o.check(o.default) for o in known_options().values())


def test_names_and_options_need_no_torch():
    code = "import sys; from deeppc.core.algorithms import describe; describe(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_family_of_ones_own_is_found_by_name_with_its_options():
    assert families()["toy"] is Toy
    assert Algorithm.parse("toy", strength=2, reach=3) == Toy(strength=2, reach=3)
    assert str(Algorithm.parse("toy+whole")) == "toy+whole"
    assert Algorithm.parse("toy").steps(mlp(2)) == 0
    assert "+whole whole network" in describe()
    assert known_options()["strength"].search == "0.5..2 log"
    assert list(options_for("toy")) == ["loss", "strength", "reach"]
    assert list(options_for("toy+whole")) == ["loss", "strength"]
    assert Algorithm.parse("toy").settings() == {"loss": "squared_error", "strength": 1.0, "reach": 1}
    for options, message in [
        ({"strength": 0}, "strength is 0, but must be a number above 0"),
        ({"reach": 2.0}, "reach is 2.0, but must be a whole number at least 1"),
        ({"lr_x": 0.1}, "unknown option 'lr_x' for 'toy'"),
    ]:
        with pytest.raises(ValueError, match=message):
            Algorithm.parse("toy", **options)


@pytest.mark.parametrize("make", [lambda: mlp(4), lambda: residual(1, aux=False)])
@pytest.mark.parametrize("loss", ["squared_error", "cross_entropy"])
def test_the_gradients_of_a_family_are_those_it_defines(make, loss):
    torch.manual_seed(0)
    net = make().double()
    images, labels = batch(net)
    expected = backprop(net, images, one_hot(net, images, labels), loss)
    whole = gradients(Algorithm.parse("toy+whole", strength=2.0, loss=loss), net, images, labels)
    cut = gradients(Algorithm.parse("toy", reach=2, loss=loss), net, images, labels)
    for name, g in expected.items():
        torch.testing.assert_close(whole[name], 2 * g, rtol=1e-10, atol=1e-14)
        if net.arrival[name.split(".")[1]] < 2:
            torch.testing.assert_close(cut[name], g, rtol=1e-10, atol=1e-14)
        else:
            assert cut[name] is None


def family(name, field, class_name="Other"):
    """A family called ``name`` with one option ``lr_x`` or ``strength``."""
    members = {"__annotations__": {field[0]: type(field[1])}, field[0]: option(field[1], "Some number.", above=0)}
    members |= {"family": name, "run": lambda self, batch: None, "__qualname__": class_name}
    return dataclass(frozen=True)(type(class_name, (Algorithm,), members))


def test_families_have_names_of_their_own_and_agree_on_the_options_that_they_share():
    for name, field, message in [
        ("other", ("lr_x", 1), "option 'lr_x' of 'other' is not that of 'pc': rename it"),
        ("other", ("beta", 1.0), "option 'beta' of 'other' is not that of 'pc'"),  # another range
        ("pc", ("mine", 1.0), "the family 'pc' is PC already: choose another name"),
    ]:
        with pytest.raises(ValueError, match=message):
            register(family(name, field))
    assert families()["pc"] is PC
    assert "other" not in families()


def test_a_family_may_be_defined_again_and_its_options_are_known_at_once(monkeypatch):
    monkeypatch.setattr("deeppc.core.algorithms.base.FAMILIES", families())
    for default in (1.0, 2.0):
        register(family("again", ("mine", default)))
        assert options_for("again")["mine"].default == known_options()["mine"].default == default
    register(family("third", ("strength", 1.0)))  # to be told from toy's by its help and search space only
    assert options_for("third")["strength"] != options_for("toy")["strength"]
