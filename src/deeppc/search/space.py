"""What a search may draw: dimensions in one small grammar, for ``spaces.toml``, options, files and the command line.

    lr_x = 0.01..0.5 log          momentum_x = 0..0.9 step 0.1          T = 5..8
    activation = gelu, relu       beta = 1 (fixed)                      affine = true, false if norm=bf

An algorithm's options say themselves what is searched (``search=``), of any registered family. A setting that means
nothing where it stands (``alpha`` without ``+s``, ``affine`` without a norm) is not drawn.
"""

from __future__ import annotations

import dataclasses
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from deeppc.core.algorithms import families, known_options, options_for
from deeppc.errors import ConfigError, nearest
from deeppc.training.config import TrainConfig, fitted, read_toml, replace
from deeppc.training.config import settings as known_settings

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

Value = float | int | bool | str | None
V = TypeVar("V")

# Settings of the training that decide how well a network learns. The rest is the task, the budget, or a place.
TRAINING = ("width", "activation", "norm", "affine", "aux", "lr_w", "weight_decay", "schedule_epochs", "batch_size")
NETWORK = ("width", "activation", "norm", "affine", "aux")  # those that a network of one's own need not take
GRAMMAR = "e.g. lr_x=0.01..0.5 log, T=5..8, momentum_x=0..0.9 step 0.1, activation=gelu,relu, beta=1"


@dataclass(frozen=True)
class Condition:
    """``name`` is (or, ``negated``, is not) one of ``values``. For the algorithm, its family or one of its suffixes."""

    name: str
    values: tuple[Value, ...]
    negated: bool = False

    def holds(self, config: TrainConfig, drawn: Mapping[str, Value]) -> bool:
        value = drawn[self.name] if self.name in drawn else self._of(config)
        if self.name == "algorithm":
            family, *suffixes = str(value).split("+")
            return self.negated != bool({value, family, *(f"+{s}" for s in suffixes)} & set(self.values))
        return self.negated != (value in self.values)

    def _of(self, config: TrainConfig) -> Value:
        """A setting, or a field of the algorithm that its suffixes decide."""
        algorithm = config.algorithm_object()
        return cast(
            Value, getattr(algorithm, self.name) if hasattr(algorithm, self.name) else config.setting(self.name)
        )

    def __str__(self) -> str:
        return f"{self.name}{'!=' if self.negated else '='}{','.join(map(_word, self.values))}"


@dataclass(frozen=True)
class Dimension:
    """One setting and what may be drawn for it: ``choices``, or the numbers from ``low`` to ``high``."""

    name: str
    choices: tuple[Value, ...] = ()
    low: float = math.nan
    high: float = math.nan
    step: float | None = None
    log: bool = False
    when: tuple[Condition, ...] = ()

    def distribution(self) -> BaseDistribution:
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.choices:
            return CategoricalDistribution(self.choices)
        if isinstance(self.low, int) and isinstance(self.high, int):
            return IntDistribution(self.low, self.high, log=self.log, step=int(self.step or 1))
        return FloatDistribution(self.low, self.high, log=self.log, step=self.step)

    def __str__(self) -> str:
        """In the grammar of :func:`parse`, so that a space can be written down and read again."""
        how = " log" if self.log else f" step {self.step!r}" if self.step is not None else " linear"
        values = ", ".join(map(_word, self.choices)) if self.choices else f"{self.low!r}..{self.high!r}{how}"
        return values + "".join(f" if {condition}" for condition in self.when)


@dataclass(frozen=True)
class Space:
    """What is drawn, in an order in which conditions are known, and ``config`` for all that is not drawn."""

    config: TrainConfig
    dimensions: tuple[Dimension, ...]
    idle: dict[str, str] = field(default_factory=dict)  # named by the user, but without a meaning here; and why

    def draw(self, trial: optuna.Trial) -> dict[str, Value]:
        """Values for one trial. Those whose condition does not hold are left out."""
        drawn: dict[str, Value] = {}
        for dimension in self.dimensions:
            if all(condition.holds(self.config, drawn) for condition in dimension.when):
                value = trial._suggest(dimension.name, dimension.distribution())
                drawn[dimension.name] = on_grid(value, dimension.step)
        return drawn

    def example(self) -> dict[str, Value]:
        """Values that a trial may draw: the first or lowest of each dimension."""
        drawn: dict[str, Value] = {}
        for dimension in self.dimensions:
            if all(condition.holds(self.config, drawn) for condition in dimension.when):
                drawn[dimension.name] = dimension.choices[0] if dimension.choices else dimension.low
        return drawn

    def within(self, settings: Mapping[str, Any], source: str) -> dict[str, Value]:
        """Those of ``settings`` that are drawn. Raises ConfigError for a value that a trial cannot draw."""
        found: dict[str, Value] = {}
        for dimension in self.dimensions:
            if dimension.name in settings:
                value, distribution = settings[dimension.name], dimension.distribution()
                try:
                    inside = distribution._contains(distribution.to_internal_repr(value))
                except (TypeError, ValueError):  # no such choice
                    inside = False
                if not inside:
                    said = f"{source}: {dimension.name} is {value!r}, but is searched in {dimension}"
                    raise ConfigError(f"{said}: widen that with --space, or leave {source} out.")
                found[dimension.name] = value
        return found

    def table(self) -> dict[str, str]:
        """Each dimension in the grammar: what is written down with a study."""
        return {dimension.name: str(dimension) for dimension in self.dimensions}


def build(config: TrainConfig, overrides: Iterable[str] = (), file: Path | None = None) -> Space:
    """The paper's space for ``config``, with what ``file`` and then ``overrides`` (``name=values``) say instead.

    Raises ConfigError for a setting that is unknown or cannot be searched, and for values that it may not have.
    """
    paper, own, idle, network = shipped(config), options_for(config.algorithm), {}, taken(config)
    dimensions = {name: parse(name, text, "the paper's space") for name, text in paper.items()}
    for name, text, source in _said(file, overrides):
        if name not in (*TRAINING, *known_options()):
            raise ConfigError(f"{source}: {name!r} cannot be searched: {nearest(name, (*TRAINING, *own))}")
        if name in NETWORK and name not in network:
            idle[name] = f"it means nothing to {config.model}"
        elif name in TRAINING or name in own:
            before = dimensions.get(name)
            dimensions[name] = parse(name, text, source, by_log=before is not None and before.log)
        else:
            idle[name] = f"it means nothing with {config.algorithm}"
    return _assemble(config, list(dimensions.values()), idle, named=dimensions.keys() - paper.keys())


def rebuild(config: TrainConfig, table: Mapping[str, str], source: str) -> Space:
    """The space that :meth:`Space.table` wrote down."""
    return Space(config, tuple(parse(name, text, source) for name, text in table.items()))


def shipped(config: TrainConfig) -> dict[str, str]:
    """The paper's space for this algorithm and network, by setting."""
    sections, options, network = _sections(), options_for(config.algorithm), taken(config)
    family = families()[config.algorithm.split("+")[0]]
    found = {name: option.search for name, option in options.items() if option.search}
    found |= {**sections["training"], **getattr(family, "searched", {})}
    if "T" in options and config.model in sections["T"]:
        found["T"] = sections["T"][config.model]
    return {name: text for name, text in found.items() if name not in NETWORK or name in network}


def taken(config: TrainConfig) -> frozenset[str]:
    """Return which settings the network takes. ConfigError if there is no such network."""
    from deeppc.models import takes

    try:
        return takes(config.model)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def parse(name: str, text: str, source: str, by_log: bool = False) -> Dimension:
    """``text`` in the grammar as a dimension, its values checked against the setting's type and range.

    ``by_log``: a range that does not say how it is spaced is so by the logarithm.
    """
    values, *conditions = re.split(r"\s+if\s+", text.strip())
    when = tuple(_condition(condition, source) for condition in conditions)
    if ".." in values:
        return dataclasses.replace(_range(name, values, source, by_log), when=when)
    choices = tuple(_fitted(name, part, source) for part in values.split(",") if part.strip())
    if not choices or len(set(choices)) < len(choices):
        raise ConfigError(f"{source}: {name}={text!r} names no value, or one twice: {GRAMMAR}.")
    return Dimension(name, choices, when=when)


def _range(name: str, text: str, source: str, by_log: bool) -> Dimension:
    said = f"{source}: {name}={text!r}"
    found = re.fullmatch(r"(\S+?)\s*\.\.\s*(\S+)(?:\s+(log|linear|step\s+(\S+)))?", text.strip())
    if not found:
        raise ConfigError(f"{said} is not a range: {GRAMMAR}.")
    low, high = (cast(float, _fitted(name, end, source)) for end in found.group(1, 2))
    step = cast(float, _fitted(name, found[4], source)) if found[4] else None
    if not {type(low), type(high)} <= {int, float}:
        raise ConfigError(f"{source}: {name} takes no range, only a list of values: {GRAMMAR}.")
    log = found[3] == "log" or (by_log and found[3] is None)
    if not low < high:
        raise ConfigError(f"{said} must rise, from a lower to a higher value.")
    if log and low <= 0:
        raise ConfigError(f"{said} has no logarithm at {low:g}: begin above 0, or leave out log.")
    if step is not None:
        if not 0 < step <= high - low:
            raise ConfigError(f"{said} has a step that does not fit into the range.")
        # the last value of the grid need not be the one that was named
        high = on_grid(low + step * math.floor((high - low) / step + 1e-9), step)
    return Dimension(name, low=low, high=high, step=step, log=log)


def on_grid(value: V, step: float | None) -> V:
    """Return 0.3 for 0.30000000000000004, if values go by steps."""
    return round(value, 12) if isinstance(value, float) and step is not None else value  # type: ignore[return-value]


def _fitted(name: str, text: str, source: str) -> Value:
    """The word as the setting's own type, within the setting's range."""
    text = text.strip()
    value: Value = {"true": True, "false": False}.get(text, text)  # "none" is None or a word, as the setting wants it
    for kind in (float, int):
        with suppress(ValueError):
            value = kind(text)
    return cast(Value, fitted(name, value, source))


def _word(value: Value) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return value if isinstance(value, str) else repr(value)


def _condition(text: str, source: str) -> Condition:
    found = re.fullmatch(r"\s*(\w+)\s*(!?)=\s*(\S.*)", text)
    if not found or found[1] not in known_settings():
        raise ConfigError(f"{source}: the condition {text!r} is not of the form norm=bf,bn or momentum_x!=0.")
    values = tuple(_fitted(found[1], word, source) for word in found[3].split(","))
    return Condition(found[1], values, bool(found[2]))


@cache
def _sections() -> dict[str, dict[str, str]]:
    return tomllib.loads((files("deeppc.search") / "spaces.toml").read_text(encoding="utf-8"))


def _said(file: Path | None, overrides: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield name, values and source of what the user says. In a file, TOML's own lists and numbers will do, too."""
    for name, value in ({} if file is None else read_toml(file)).items():
        if isinstance(value, dict):
            raise ConfigError(f"{file}: {name} is a table, but must be a text, {GRAMMAR}.")
        yield name, ",".join(map(_word, value if isinstance(value, list) else [value])), str(file)
    for override in overrides:
        name, _, text = override.partition("=")
        if not text.strip():
            raise ConfigError(f"--space {override!r} is not of the form name=values, {GRAMMAR}.")
        yield name.strip().replace("-", "_"), text, f"--space {override!r}"


def _assemble(config: TrainConfig, dimensions: list[Dimension], idle: dict[str, str], named: Iterable[str]) -> Space:
    """Fix what has a single value, drop what means nothing, put the rest in order."""
    fixed: dict[str, Any] = {d.name: d.choices[0] for d in dimensions if len(d.choices) == 1 and not d.when}
    config = replace(config, **fixed)
    rest = [
        dataclasses.replace(d, when=tuple(dict.fromkeys((*d.when, *_needs(d.name, config)))))
        for d in dimensions
        if d.name not in fixed
    ]
    while unmet := _unmet(rest, config):
        dimension, condition = unmet
        rest.remove(dimension)  # which may take others with it
        if dimension.name in named:
            idle[dimension.name] = f"it needs {condition}"
    searched = {d.name for d in rest}
    rest = [dataclasses.replace(d, when=tuple(c for c in d.when if c.name in searched)) for d in rest]
    rest = _keep_gain_finite(config, rest)
    for dimension in rest:
        for value in dimension.choices or (dimension.low, dimension.high):
            replace(config, **{dimension.name: value})  # raises ConfigError for what does not suit the algorithm
    if not rest:
        raise ConfigError("There is nothing to search: every setting is fixed. Widen one, " + GRAMMAR + ".")
    return Space(config, tuple(_ordered(rest)), idle)


def _needs(name: str, config: TrainConfig) -> list[Condition]:
    """What a setting needs in order to change anything: by ``spaces.toml``, or as the algorithm's option says."""
    if (text := _sections()["needs"].get(name)) is not None:
        return [_condition(text, "spaces.toml")]
    option = options_for(config.algorithm).get(name)
    return [Condition(n, (v,), negated=True) for n, v in option.unless.items()] if option else []


def _unmet(dimensions: list[Dimension], config: TrainConfig) -> tuple[Dimension, Condition] | None:
    """Return a dimension with a condition that cannot hold, whatever is drawn."""
    names = {d.name for d in dimensions}
    return next(((d, c) for d in dimensions for c in d.when if c.name not in names and not c.holds(config, {})), None)


def _ordered(dimensions: list[Dimension]) -> list[Dimension]:
    """Put each after those that its conditions ask for."""
    done: list[Dimension] = []
    while rest := [d for d in dimensions if d not in done]:
        known = {d.name for d in done}
        ready = [d for d in rest if {c.name for c in d.when} <= known]
        if not ready:
            raise ConfigError(f"The conditions of {', '.join(d.name for d in rest)} wait for each other: drop one.")
        done += ready
    return done


def _keep_gain_finite(config: TrainConfig, dimensions: list[Dimension]) -> list[Dimension]:
    """``depth_gain`` multiplies by ``lr_x^-L``, which float32 must hold: lower rates are not drawn where it may be on.

    For all trials alike, because a range that changes from trial to trial cannot be analysed afterwards.
    """
    if not {"depth_gain", "lr_x"} <= options_for(config.algorithm).keys():
        return dimensions
    by_name = {d.name: d for d in dimensions}
    gain = by_name.get("depth_gain", Dimension("depth_gain", (config.setting("depth_gain"),)))
    rates = by_name.get("lr_x", Dimension("lr_x", (config.setting("lr_x"),)))
    if True not in gain.choices:
        return dimensions
    lowest = 1.001 * (2.0**128) ** (-1 / levels(config))
    choices = tuple(c for c in rates.choices if cast(float, c) > lowest)
    rates = dataclasses.replace(rates, low=max(rates.low, lowest), choices=choices)
    if not (rates.choices or rates.low < rates.high):
        raise ConfigError(f"depth_gain needs lr_x above {lowest:.2g} in {config.model}: raise lr_x, or leave it out.")
    return [rates if d.name == "lr_x" else d for d in dimensions]


def levels(config: TrainConfig) -> int:
    """Return L, the number of steps that the wave needs."""
    from deeppc.data import load
    from deeppc.models import build as build_network
    from deeppc.models import names

    sizes: dict[str, Any] = {}
    if config.model not in names():  # a module is converted for samples of the shape that it takes
        dataset = load(config.dataset, config.data_dir, config.labels)
        sizes = {"in_shape": dataset.in_shape, "classes": dataset.outputs}
    try:
        return build_network(config.model, width=0.01, aux=config.aux, **sizes).L
    except ValueError as error:
        raise ConfigError(str(error)) from error
