"""Names and options of the algorithms, and their errors."""

import dataclasses
import math
import subprocess
import sys

import pytest

from deeppc import Algorithm
from deeppc.core.algorithms import describe, families, known_options, options_for
from deeppc.core.algorithms.ipc import IPC
from deeppc.core.algorithms.pc import PC


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ("bp", {"family": "bp"}),
        ("pc", {"family": "pc", "schedule": "fixed", "forward": False, "centred": False}),
        ("pc+s+f", {"family": "pc", "schedule": "spiking", "forward": True}),
        ("ipc+s", {"family": "ipc", "schedule": "spiking"}),
        ("pc+d+f", {"schedule": "exponential", "forward": True}),
        ("pc+l", {"schedule": "linear"}),
        ("pc+s+f+cn", {"centred": True}),
        ("PC + S + F", {"family": "pc", "schedule": "spiking", "forward": True}),
    ],
)
def test_names(spec, fields):
    algo = Algorithm.parse(spec)
    assert {k: getattr(algo, k) for k in fields} == fields
    assert algo.name == str(algo) == spec.replace(" ", "").lower()
    assert Algorithm.parse(str(algo)) == algo


def test_suffixes_are_named_in_one_order():
    assert str(Algorithm.parse("pc+cn+f+s")) == "pc+s+f+cn"


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("pc+x", {}, r"unknown algorithm 'pc\+x': choose bp, pc, ipc.* with \+s \+d \+l \+f \+cn"),
        ("backprop", {}, "unknown algorithm 'backprop': choose bp, pc, ipc"),
        ("pc+s+s", {}, "unknown algorithm"),
        ("", {}, "unknown algorithm ''"),
        ("pc+s+d", {}, r"'pc\+s\+d' sets schedule twice: choose one of \+s \+d \+l"),
        ("ipc+f", {}, r"ipc has no \+f \('ipc\+f'\): it takes \+s \+d \+l \+cn"),
        ("bp+s", {}, r"bp has no \+s \('bp\+s'\): it takes no suffix"),
        ("bp", {"depth_gain": True}, "unknown option 'depth_gain' for 'bp': The options are loss"),
        ("ipc", {"free_steps": 3}, "unknown option 'free_steps' for 'ipc'"),
        ("pc", {"presynaptic": "relaxed"}, r"presynaptic is 'relaxed', but means nothing for pc: add \+f"),
        ("pc", {"free_steps": 3}, r"add \+f"),
        ("pc+s", {"forward_last": 3}, r"means nothing for pc\+s: add \+f, or leave forward_last out"),
        ("pc+d", {"alpha": 0.1}, r"alpha is 0.1, but means nothing for pc\+d: add \+s, or leave alpha out"),
        ("ipc", {"k": 2}, r"k is 2, but means nothing for ipc: add \+d"),
        ("pc", {"lrx": 0.1}, "unknown option 'lrx' for 'pc': did you mean 'lr_x'"),
        ("pc", {"family": "bp"}, "unknown option 'family'"),
        ("pc+f", {"forward": False}, "unknown option 'forward'"),
        ("pc", {"T": 0}, "T is 0, but must be a whole number at least 1 or None"),
        ("pc", {"T": -3}, "T is -3"),
        ("pc", {"T": 2.5}, "T is 2.5"),
        ("pc", {"T": True}, "T is True"),
        ("pc", {"T": "5"}, "T is '5'"),
        ("pc", {"lr_x": 0.0}, "lr_x is 0.0, but must be a number above 0"),
        ("pc", {"lr_x": math.nan}, "lr_x is nan"),
        ("pc", {"lr_x": math.inf}, "lr_x is inf"),
        ("pc", {"lr_x": True}, "lr_x is True"),
        ("pc", {"lr_x": None}, "lr_x is None"),
        ("pc", {"momentum_x": 1.5}, "momentum_x is 1.5, but must be a number at least 0 and at most 1"),
        ("pc+s", {"alpha": -0.1}, "alpha is -0.1"),
        ("pc+d", {"k": -1}, "k is -1"),
        ("pc", {"beta": 0.0}, "beta is 0.0, but must be a number above 0 and at most 1"),
        ("pc", {"beta": -0.5}, "beta is -0.5"),
        ("pc+f", {"free_steps": -1}, "free_steps is -1"),
        ("pc+f", {"free_steps": None}, "free_steps is None, but must be a whole number at least 0"),
        ("pc+f", {"forward_last": 0}, "forward_last is 0"),
        ("pc", {"loss": math.exp}, "choose squared_error or cross_entropy"),
        ("pc", {"loss": "hinge"}, "loss is 'hinge': choose squared_error or cross_entropy"),
        ("pc", {"precision_on": "edge"}, "precision_on is 'edge': choose energy or node"),
        ("pc", {"schedule": "spike"}, "schedule is 'spike': choose fixed or spiking or exponential or linear"),
        ("pc", {"forward": "no"}, "forward is 'no', but must be True or False"),
        ("pc", {"nesterov": "yes"}, "nesterov is 'yes', but must be True or False"),
        ("pc", {"depth_gain": 2}, "depth_gain is 2, but must be True or False"),
        ("ipc", {"centred": 1}, "centred is 1, but must be True or False"),
    ],
)
def test_what_does_not_parse_is_refused_with_what_would(spec, options, message):
    with pytest.raises(ValueError, match=message):
        Algorithm.parse(spec, **options)


def test_the_ends_of_a_range_are_in_it_where_they_make_sense():
    for options in ({"T": 1}, {"momentum_x": 0}, {"momentum_x": 1}, {"beta": 1}, {"alpha": 0}, {"lr_x": 1e-9}):
        assert Algorithm.parse("pc+s+f", forward_last=1, **options).family == "pc"


def test_a_family_may_be_built_field_by_field():
    assert PC(schedule="spiking", forward=True, lr_x=0.3) == Algorithm.parse("pc+s+f", lr_x=0.3)
    with pytest.raises(ValueError, match=r"add \+f"):
        PC(free_steps=2)
    with pytest.raises(TypeError, match="forward"):
        IPC(forward=True)
    with pytest.raises(TypeError, match="abstract"):
        Algorithm()


def test_settings_are_all_that_mean_something_as_plain_values():
    assert Algorithm.parse("bp").settings() == {"loss": "squared_error"}
    inference = {"loss": "squared_error", "T": None, "lr_x": 1.0, "momentum_x": 0.0, "nesterov": True, "beta": 1.0}
    inference |= {"precision_on": "energy", "depth_gain": False}
    assert Algorithm.parse("ipc", lr_x=1).settings() == inference
    assert type(Algorithm.parse("ipc", lr_x=1).settings()["lr_x"]) is float
    assert Algorithm.parse("ipc+s+cn", lr_x=1).settings() == inference | {"alpha": 0.01}
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
    assert list(options_for("bp")) == ["loss"]
    assert "alpha" in options_for("pc+s")
    assert "alpha" not in options_for("pc+d")
    assert {"presynaptic", "free_steps"} <= options_for("pc+f").keys()
    assert not {"presynaptic", "free_steps"} & options_for("ipc").keys()
    for suffix_sets in ("schedule", "forward", "centred"):
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
    assert known_options()["alpha"].needs == {"schedule": "spiking"}
    assert known_options()["nesterov"].unless == {"momentum_x": 0}
    assert all(o.help.endswith(".") and o.default == o.check(o.default) for o in known_options().values())


def test_the_line_for_help_names_every_family_and_suffix():
    assert describe().startswith("bp, pc, ipc")
    for words in ("+s spiking", "+d exponential", "+l linear", "+f forward update", "+cn centre nudging"):
        assert words in describe()


def test_an_algorithm_is_a_value():
    algo = Algorithm.parse("pc+s+f")
    assert hash(algo) == hash(Algorithm.parse("pc+s+f"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        algo.lr_x = 0.1


def test_names_and_options_need_no_torch():
    code = "import sys; from deeppc.core.algorithms import describe; describe(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
