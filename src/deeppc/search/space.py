"""What a search may draw: dimensions in one small grammar, for ``spaces.toml``, files and the command line.

    lr_x = 0.01..0.5 log          momentum_x = 0..0.9 step 0.1          T = 5..8
    activation = gelu, relu       beta = 1 (fixed)                      affine = true, false if norm=bf

A setting that means nothing where it stands (``alpha`` without ``+s``, ``affine`` without a norm) is not drawn, and
what cannot work together is not in the space at all.
"""

from __future__ import annotations

import dataclasses
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from deeppc.errors import ConfigError
from deeppc.training.config import TrainConfig, algorithm_options, from_table, nearest, read_toml

if TYPE_CHECKING:
    import optuna

Value = float | int | bool | str | None

# What decides how well a network learns. The rest is the task, the budget, or where things are kept.
SEARCHABLE = (
    *("width", "activation", "norm", "affine", "aux", "T", "lr_x", "momentum_x", "nesterov", "alpha", "k", "beta"),
    *("loss", "precision_on", "presynaptic", "forward_last", "free_steps", "depth_gain"),
    *("lr_w", "weight_decay", "schedule_epochs", "batch_size"),
)
GRAMMAR = "e.g. lr_x=0.01..0.5 log, T=5..8, momentum_x=0..0.9 step 0.1, activation=gelu,relu, beta=1"


@dataclass(frozen=True)
class Condition:
    """``name`` is (or, ``negated``, is not) one of ``values``. For the algorithm, its family or one of its suffixes."""

    name: str
    values: tuple[Value, ...]
    negated: bool = False

    def holds(self, settings: Mapping[str, Any]) -> bool:
        return self.negated != bool(set(self.values) & _traits(self.name, settings[self.name]))

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

    @property
    def is_range(self) -> bool:
        return not self.choices

    def ends(self) -> tuple[Value, ...]:
        """The values that decide whether all of them are allowed."""
        return (self.low, self.high) if self.is_range else self.choices

    def suggest(self, trial: optuna.Trial) -> Value:
        if not self.is_range:
            return trial.suggest_categorical(self.name, self.choices)
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(self.name, self.low, self.high, step=int(self.step or 1), log=self.log)
        value = trial.suggest_float(self.name, self.low, self.high, step=self.step, log=self.log)
        return value if self.step is None else on_grid(value)

    def __str__(self) -> str:
        """In the grammar of :func:`parse`, so that a space can be written down and read again."""
        if not self.is_range:
            return ", ".join(map(_word, self.choices)) + self._if()
        how = " log" if self.log else f" step {self.step!r}" if self.step is not None else " linear"
        return f"{self.low!r}..{self.high!r}{how}{self._if()}"

    def _if(self) -> str:
        return "".join(f" if {condition}" for condition in self.when)


@dataclass(frozen=True)
class Space:
    """What is drawn, in an order in which conditions are known, and ``config`` for all that is not drawn."""

    config: TrainConfig
    dimensions: tuple[Dimension, ...]
    idle: dict[str, str] = field(default_factory=dict)  # named by the user, but without a meaning here; and why

    def draw(self, trial: optuna.Trial) -> dict[str, Value]:
        """Values for one trial. Those whose condition does not hold are left out."""
        settings, drawn = vars(self.config).copy(), {}
        for dimension in self.dimensions:
            if all(condition.holds(settings) for condition in dimension.when):
                settings[dimension.name] = drawn[dimension.name] = dimension.suggest(trial)
        return drawn

    def table(self) -> dict[str, str]:
        """Each dimension in the grammar: what is written down with a study."""
        return {dimension.name: str(dimension) for dimension in self.dimensions}


def build(config: TrainConfig, overrides: Iterable[str] = (), file: Path | None = None) -> Space:
    """The paper's space for ``config``, with what ``file`` and then ``overrides`` (``name=values``) say instead.

    Raises ConfigError for a setting that is unknown or cannot be searched, and for values that it may not have.
    """
    texts = {name: (text, "the paper's space") for name, text in shipped(config).items()}
    named: set[str] = set()
    for name, text, source in [*_from_file(file), *_from_flags(overrides)]:
        texts[name] = (_inherit(text, texts.get(name, ("", ""))[0]), source)
        named.add(name)
    dimensions = [parse(name, text, source) for name, (text, source) in texts.items()]
    return _assemble(config, dimensions, named)


def rebuild(config: TrainConfig, table: Mapping[str, str], source: str) -> Space:
    """The space that :meth:`Space.table` wrote down."""
    return Space(config, tuple(parse(name, text, source) for name, text in table.items()))


def shipped(config: TrainConfig) -> dict[str, str]:
    """The paper's space for this algorithm and network, by setting."""
    sections = _sections()
    family, *suffixes = config.algorithm.split("+")
    found = dict(sections["bp" if family == "bp" else "pcn"])
    for suffix in suffixes:
        found |= sections.get(f"+{suffix}", {})
    if family != "bp" and config.model in sections["T"]:
        found["T"] = sections["T"][config.model]
    return found


def parse(name: str, text: str, source: str) -> Dimension:
    """``text`` in the grammar as a dimension, its values checked against the setting's type and range."""
    if name not in SEARCHABLE:
        raise ConfigError(f"{source}: {name!r} cannot be searched: {nearest(name, SEARCHABLE)}")
    values, *conditions = re.split(r"\s+if\s+", text.strip())
    when = tuple(_condition(c, source) for c in conditions)
    if ".." in values:
        dimension = _range(name, values, source)
    else:
        choices = tuple(_fitted(name, part, source) for part in values.split(",") if part.strip())
        if not choices or len(set(choices)) < len(choices):
            raise ConfigError(f"{source}: {name}={text!r} names no value, or one twice: {GRAMMAR}.")
        dimension = Dimension(name, choices)
    return dataclasses.replace(dimension, when=when)


def _range(name: str, text: str, source: str) -> Dimension:
    found = re.fullmatch(r"(\S+?)\s*\.\.\s*(\S+)(?:\s+(log|linear|step\s+(\S+)))?", text.strip())
    if not found:
        raise ConfigError(f"{source}: {name}={text!r} is not a range: {GRAMMAR}.")
    low, high = (_number(name, end, source) for end in found.group(1, 2))
    log = found.group(3) == "log"
    step = None if found.group(4) is None else _number(name, found.group(4), source)
    if not low < high:
        raise ConfigError(f"{source}: {name}={text!r} must rise, from a lower to a higher value.")
    if log and low <= 0:
        raise ConfigError(f"{source}: {name}={text!r} has no logarithm at {low:g}: begin above 0, or leave out log.")
    if step is not None and not 0 < step <= high - low:
        raise ConfigError(f"{source}: {name}={text!r} has a step that does not fit into the range.")
    if step is not None:
        high = _last(low, high, step)
    return Dimension(name, low=low, high=high, step=step, log=log)


def _last(low: float, high: float, step: float) -> float:
    """The highest value of the grid, which need not be ``high`` itself."""
    last = low + step * math.floor((high - low) / step + 1e-9)
    return last if isinstance(last, int) else on_grid(last)


def on_grid(value: float) -> float:
    """0.3 instead of 0.30000000000000004."""
    return round(value, 12)


def _number(name: str, text: str, source: str) -> float:
    value = _fitted(name, text, source)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{source}: {name} takes no range, only a list of values: {GRAMMAR}.")
    return value


def _fitted(name: str, text: str, source: str) -> Value:
    """The word as the setting's own type, within the setting's range."""
    return cast(Value, getattr(from_table({name: _value(text)}, source), name))


def _value(text: str) -> Value:
    text = text.strip()
    known: dict[str, Value] = {"true": True, "false": False, "none": None}
    if text in known:
        # "none" is a word as well (norm = none); the config takes it as whichever the setting wants
        return "none" if text == "none" else known[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _word(value: Value) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return value if isinstance(value, str) else repr(value)


def _condition(text: str, source: str) -> Condition:
    name, sign, values = (part.strip() for part in re.split(r"(!?=)", text, maxsplit=1)) if "=" in text else ("",) * 3
    if name not in {f.name for f in dataclasses.fields(TrainConfig)} or not values:
        raise ConfigError(f"{source}: the condition {text!r} is not of the form norm=bf,bn or momentum_x!=0.")
    words = [word.strip() for word in values.split(",")]
    fitted = tuple(words) if name == "algorithm" else tuple(_fitted(name, word, source) for word in words)
    return Condition(name, fitted, sign == "!=")


def _traits(name: str, value: Value) -> set[Value]:
    if name != "algorithm":
        return {value}
    family, *suffixes = str(value).split("+")
    return {value, family, *(f"+{suffix}" for suffix in suffixes)}


@cache
def _sections() -> dict[str, dict[str, str]]:
    return tomllib.loads((files("deeppc.search") / "spaces.toml").read_text(encoding="utf-8"))


def needs(name: str) -> tuple[Condition, ...]:
    """What the setting needs in order to mean anything."""
    text = _sections()["needs"].get(name)
    return () if text is None else (_condition(text, "spaces.toml"),)


def _from_flags(overrides: Iterable[str]) -> list[tuple[str, str, str]]:
    found = []
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals or not text.strip():
            raise ConfigError(f"--space {override!r} is not of the form name=values, {GRAMMAR}.")
        found.append((name.strip().replace("-", "_"), text, f"--space {override!r}"))
    return found


def _from_file(file: Path | None) -> list[tuple[str, str, str]]:
    """Strings in the grammar; TOML's own lists and numbers say the same."""
    if file is None:
        return []
    found = []
    for name, value in read_toml(file).items():
        if isinstance(value, dict):
            raise ConfigError(f"{file}: {name} is a table, but must be a text, {GRAMMAR}.")
        words = value if isinstance(value, list) else [value]
        found.append((name, ",".join(w if isinstance(w, str) else _word(w) for w in words), str(file)))
    return found


def _inherit(text: str, before: str) -> str:
    """A range that does not say how it is spaced is spaced as the one that it narrows, if that is by the logarithm."""
    bare = ".." in text and not re.search(r"\b(log|linear|step)\b", text)
    if bare and re.search(r"\blog\b", before):
        values, *conditions = re.split(r"\s+if\s+", text)
        return " if ".join([f"{values} log", *conditions])
    return text


def _assemble(config: TrainConfig, dimensions: list[Dimension], named: set[str]) -> Space:
    """Fix what has a single value, drop what means nothing, put the rest in order."""
    fixed = {d.name: d.choices[0] for d in dimensions if len(d.choices) == 1 and not d.when}
    config = dataclasses.replace(config, **fixed)  # type: ignore[arg-type]  # each was fitted to its field
    rest = [
        dataclasses.replace(d, when=tuple(dict.fromkeys((*d.when, *needs(d.name)))))
        for d in dimensions
        if d.name not in fixed
    ]
    settings, idle = vars(config), {}
    while unmet := next((d for d in rest if _unmet(d, rest, settings)), None):  # each may take others with it
        rest.remove(unmet)
        if unmet.name in named:
            idle[unmet.name] = str(_unmet(unmet, rest, settings))
    searched = {d.name for d in rest}
    rest = [dataclasses.replace(d, when=tuple(c for c in d.when if c.name in searched)) for d in rest]
    rest = _keep_gain_finite(config, rest)
    for dimension in rest:
        _require_accepted(config, dimension)
    if not rest:
        raise ConfigError("There is nothing to search: every setting is fixed. Widen one, " + GRAMMAR + ".")
    return Space(config, tuple(_ordered(rest)), idle)


def _unmet(dimension: Dimension, searched: list[Dimension], settings: Mapping[str, Any]) -> Condition | None:
    """A condition that cannot hold, whatever is drawn."""
    names = {d.name for d in searched}
    return next((c for c in dimension.when if c.name not in names and not c.holds(settings)), None)


def _ordered(dimensions: list[Dimension]) -> list[Dimension]:
    """Each after those that its conditions ask for."""
    done: list[Dimension] = []
    rest = list(dimensions)
    while rest:
        known = {d.name for d in done}
        ready = [d for d in rest if {c.name for c in d.when} <= known]
        if not ready:
            raise ConfigError(f"The conditions of {', '.join(d.name for d in rest)} wait for each other: drop one.")
        done += ready
        rest = [d for d in rest if d not in ready]
    return done


def _keep_gain_finite(config: TrainConfig, dimensions: list[Dimension]) -> list[Dimension]:
    """``depth_gain`` multiplies by ``lr_x^-L``, which float32 must hold: lower rates are not drawn where it may be on.

    For all trials alike, because a range that changes from trial to trial cannot be analysed afterwards.
    """
    by_name = {d.name: d for d in dimensions}
    gain = by_name["depth_gain"].choices if "depth_gain" in by_name else (config.depth_gain,)
    if True not in gain:
        return dimensions
    lowest = 1.001 * (2.0**128) ** (-1 / _levels(config.model))
    rates = by_name.get("lr_x", Dimension("lr_x", (config.lr_x,)))
    if rates.is_range:
        rates = dataclasses.replace(rates, low=max(rates.low, lowest))
    else:
        rates = dataclasses.replace(rates, choices=tuple(c for c in rates.choices if cast(float, c) > lowest))
    if not (rates.choices or rates.low < rates.high):
        raise ConfigError(f"depth_gain needs lr_x above {lowest:.2g} in {config.model}: raise lr_x, or leave it out.")
    return [rates if d.name == "lr_x" else d for d in dimensions]


@cache
def _levels(model: str) -> int:
    from deeppc.models import build as build_network

    try:
        return build_network(model, width=0.01).L
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _require_accepted(config: TrainConfig, dimension: Dimension) -> None:
    """Every value must suit the algorithm, too."""
    from deeppc.core.algorithms import Algorithm

    for value in dimension.ends():
        try:
            changed = dataclasses.replace(config, **{dimension.name: value})  # type: ignore[arg-type]
            Algorithm.parse(config.algorithm, **algorithm_options(changed))
        except ValueError as error:
            raise ConfigError(f"The space of {dimension.name} is {dimension}, but {error}.") from error
