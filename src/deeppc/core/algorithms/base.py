"""The algorithm that every family derives from, and the register that finds a family by its name.

A family is a frozen dataclass with options for fields and one method, ``run(batch)``:

    @register
    @dataclass(frozen=True)
    class Readout(Algorithm):
        family: ClassVar[str] = "readout"
        strength: float = option(1.0, "Multiplies the gradient.", above=0, search="0.1..10 log")

        def run(self, batch):
            out = batch.net.output
            state = batch.initialise(keep=[out])          # the feed-forward pass
            batch.clamp()                                 # move the output to the target
            batch.learn(out, self.strength * state.d[out], state.initial(out))

Files in this folder are imported by themselves, so that such a file is all that a new algorithm needs: its name is then
known to :meth:`Algorithm.parse`, and through it to the command line, to comparisons and to the search. Nothing here
imports torch before a step is taken.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

from deeppc.core.algorithms.options import Option, declared, option

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from deeppc.core.batch import Batch, Workers
    from deeppc.core.graph import Graph
    from deeppc.core.state import Observer, Work


@dataclass(frozen=True)
class Result:
    """Outcome of one batch.

    ``logits``  the feed-forward output, (batch, classes) or the target's shape, without a graph; several by name.
    ``energy``  per node: ``1/2 |error|^2`` that its weights learnt from, mean over the batch (for cross-entropy, the
                output's cross-entropy; for bp, the error that backprop carries, in float32's range: below 1e-38
                it is 0). 0 where no energy came.
    ``work``    per node: predictions, pull-backs, weight gradients.
    ``loss``    energy of the feed-forward output and its target, mean over the batch: what backprop would descend.
    """

    logits: Any
    energy: dict[str, Tensor]
    work: Work
    loss: Tensor


@dataclass(frozen=True)
class Algorithm(ABC):
    """How a batch becomes weight gradients: a drop-in for ``loss.backward()``.

    >>> algo = Algorithm.parse("pc+s+f", T=10, lr_x=0.5, alpha=1e-3)
    >>> optimizer.zero_grad()
    >>> algo.gradients(net, images, labels)      # fills .grad
    >>> optimizer.step()

    or ``algo.step(net, images, labels, optimizer)``, which also does iPC, where weights move at every inference step.

    A family declares the following, and its options.
    """

    family: ClassVar[str]  # its name
    suffixes: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # fields that +s etc. set; they are no options then
    searched: ClassVar[Mapping[str, str]] = {}  # search spaces of training settings that depend on the family (lr_w)
    updates_weights: ClassVar[bool] = False  # whether run() steps the optimiser itself
    second_order: ClassVar[bool] = False  # whether modules are differentiated twice, which compiled ones cannot be

    loss: Literal["squared_error", "cross_entropy"] = option("squared_error", "Energy of the output node.")

    def __new__(cls, *_: object, **__: object) -> Self:
        if cls is Algorithm:
            raise TypeError("Algorithm is what all families have in common: name one, as in Algorithm.parse('pc+s+f')")
        return super().__new__(cls)

    @abstractmethod
    def run(self, batch: Batch) -> None:
        """Fill ``.grad`` by ``batch.learn``. Called without autograd's recording, which predictions switch on."""

    def horizon(self, net: Graph) -> int:
        """The number of inference steps that the wave of energy has on ``net``; 0 for a family without inference."""
        return 0

    def steps(self, net: Graph) -> int:
        """The number of all inference steps: as many, or more."""
        return self.horizon(net)

    @staticmethod
    def parse(spec: str, **options: Any) -> Algorithm:
        """Build an algorithm by name: ``Algorithm.parse("pc+s+f", T=10, lr_x=0.5)``.

        Raises ``ValueError`` for an unknown name, option or value, and for an option that means nothing there.
        """
        family, fields = _read(spec)
        for name in options:
            if name in fields or name not in declared(family):
                known = list(options_for(spec))
                near = "".join(f"did you mean {n!r}? " for n in difflib.get_close_matches(name, known, n=1))
                raise ValueError(f"unknown option {name!r} for {spec!r}: {near}The options are {', '.join(known)}")
        return family(**fields, **options)

    def __post_init__(self) -> None:
        for name, declaration in declared(type(self)).items():
            value = declaration.check(getattr(self, name))
            object.__setattr__(self, name, value)  # a plain number, if it was numpy's
            if value != declaration.default and not _hold(declaration.needs, self):
                suffix = [s for s, fields in self.suffixes.items() if fields.items() >= declaration.needs.items()]
                add = f"add +{suffix[0]}, or leave {name} out" if suffix else f"leave {name} out"
                raise ValueError(f"{name} is {value!r}, but means nothing for {self}: {add}")

    @property
    def name(self) -> str:
        """``pc+s+f``; with what no suffix says in brackets: ``pc+f[schedule=my_schedule]``."""
        suffixes = [s for s, fields in self.suffixes.items() if _hold(fields, self)]
        return "+".join([self.family, *suffixes]) + "".join(f"[{k}={v}]" for k, v in self._functions().items())

    def __str__(self) -> str:
        return self.name

    def settings(self) -> dict[str, Any]:
        """Return every option that means something here, as plain values. A custom schedule is there by its name."""
        own = _own_options(type(self)).items()
        return {n: o.check(getattr(self, n)) for n, o in own if _hold(o.needs, self)} | self._functions()

    def _functions(self) -> dict[str, str]:
        """Names of the functions among the fields that suffixes set, by field."""
        values = {name: getattr(self, name) for fields in self.suffixes.values() for name in fields}
        return {name: getattr(v, "__name__", type(v).__name__) for name, v in values.items() if callable(v)}

    @property
    def rounds(self) -> int:
        """How often :meth:`step` is taken on a batch. Its result is that of the first, with the work of all."""
        return 1

    def gradients(
        self,
        net: Graph,
        inputs: Any,
        targets: Any,
        *,
        sample_weights: Tensor | None = None,
        observe: Observer | None = None,
    ) -> Result:
        """Add this batch's weight gradients (mean over the batch) to ``.grad``. Not for ipc, which moves weights.

        ``targets`` are class indices (batch,), or floats of the output's shape. A network with several inputs or
        outputs takes dicts by name, or tuples. ``sample_weights`` (batch,) multiply what weights learn from each
        sample; BatchNorm's batch statistics, and gradients through them, are not weighted. Nodes that no energy reached
        get no gradient, and an ``UntaughtWarning`` names them. ``observe(t, state)`` is called before each inference
        step and after the last (never for bp); tensors of the state change in place later, so it clones what it keeps.
        """
        if self.updates_weights:
            raise ValueError(f"{self.family} changes weights at every step: call step(net, inputs, targets, optimizer)")
        return self._run(net, inputs, targets, None, observe, sample_weights)

    def step(
        self,
        net: Graph,
        inputs: Any,
        targets: Any,
        optimizer: Optimizer,
        *,
        sample_weights: Tensor | None = None,
        observe: Observer | None = None,
        workers: Workers | None = None,
    ) -> Result:
        """Take one whole training step with any torch optimiser but LBFGS (ipc steps it T times).

        Weights whose node has no error yet have ``grad = None``: no decay, no moment of the optimiser touches them.
        The rest is as for :meth:`gradients`, but that ipc calls ``observe`` before each inference step only.
        ``workers`` are other processes that take the same step with other samples of the same batch (see
        :mod:`deeppc.training.distributed`); energies and loss of the result are then our parts of the batch's.
        """
        if optimizer is None:
            raise TypeError("optimizer is None, but must be a torch optimiser: to fill .grad only, call gradients()")

        def once() -> Result:
            result = self._run(net, inputs, targets, optimizer, observe, sample_weights, workers)
            if not self.updates_weights:
                if workers is not None:
                    workers.wait()
                optimizer.step()
            return result

        first = once()
        for _ in range(self.rounds - 1):
            first.work.add(once().work)
        return first

    def _run(
        self,
        net: Graph,
        inputs: Any,
        targets: Any,
        optimizer: Optimizer | None,
        observe: Observer | None,
        sample_weights: Tensor | None,
        workers: Workers | None = None,
    ) -> Result:
        import torch

        from deeppc.core.batch import Batch

        batch = Batch(net, inputs, targets, self.loss, optimizer, observe, sample_weights, workers)
        with torch.no_grad():
            self.run(batch)
            result = batch.result()
        if horizon := self.horizon(net):
            batch.warn_of_untaught(horizon)
        return result


FAMILIES: dict[str, type[Algorithm]] = {}
Family = TypeVar("Family", bound=type[Algorithm])


def register(family: Family) -> Family:
    """Class decorator: make a family known by its name. Options that families share have one type, default and range.

    A class of the same name (run again in a notebook, say) replaces its earlier self.
    """
    taken = FAMILIES.get(family.family, family)
    if taken.__qualname__ != family.__qualname__:
        raise ValueError(f"the family {family.family!r} is {taken.__qualname__} already: choose another name")
    for other in FAMILIES.values():
        for name, o in _own_options(other).items():
            mine = declared(family).get(name, o)
            shared = replace(mine, help=o.help, needs=o.needs, unless=o.unless, search=o.search)  # these may differ
            if other is not taken and shared != o:
                raise ValueError(f"option {name!r} of {family.family!r} is not that of {other.family!r}: rename it")
    FAMILIES[family.family] = family
    _known_options.cache_clear()
    _options_for.cache_clear()
    return family


def families() -> dict[str, type[Algorithm]]:
    """Return every registered family by name."""
    return dict(FAMILIES)


def known_options() -> dict[str, Option]:
    """Return the options of all families by name, without those that suffixes set."""
    return dict(_known_options())


def options_for(spec: str) -> dict[str, Option]:
    """Return the options that mean something for the algorithm named ``spec``, by name."""
    _require_text(spec)
    return dict(_options_for(spec))


def describe() -> str:
    """Return all families and suffixes in one line, for help texts."""
    words: dict[str, str] = {}
    for family in FAMILIES.values():
        for suffix, fields in family.suffixes.items():
            name, value = next(iter(fields.items()))
            words[suffix] = f"{value} {name}" if isinstance(value, str) else declared(family)[name].help.split(":")[0]
    return ", ".join(FAMILIES) + ", with " + ", ".join(f"+{suffix} {word}" for suffix, word in words.items())


@cache
def _known_options() -> dict[str, Option]:
    return {name: o for family in FAMILIES.values() for name, o in _own_options(family).items()}


@cache
def _options_for(spec: str) -> dict[str, Option]:
    family, fields = _read(spec)
    algorithm = family(**fields)
    return {name: o for name, o in _own_options(family).items() if _hold(o.needs, algorithm)}


@cache
def _own_options(family: type[Algorithm]) -> dict[str, Option]:
    by_suffix = {name for fields in family.suffixes.values() for name in fields}
    return {name: o for name, o in declared(family).items() if name not in by_suffix}


def _read(spec: str) -> tuple[type[Algorithm], dict[str, Any]]:
    """Split a name into its family and the fields that its suffixes set."""
    _require_text(spec)
    name, *suffixes = spec.replace(" ", "").lower().split("+")
    every = dict.fromkeys(s for family in FAMILIES.values() for s in family.suffixes)
    if name not in FAMILIES or len(set(suffixes)) < len(suffixes) or not set(suffixes) <= every.keys():
        offered = f"choose {', '.join(FAMILIES)} with {' '.join('+' + s for s in every)}, e.g. pc+s+f"
        raise ValueError(f"unknown algorithm {spec!r}: {offered}")
    family, fields = FAMILIES[name], dict[str, Any]()
    for suffix in suffixes:
        if suffix not in family.suffixes:
            offered = " ".join("+" + s for s in family.suffixes) or "no suffix"
            raise ValueError(f"{name} has no +{suffix} ({spec!r}): it takes {offered}")
        added = family.suffixes[suffix]
        if twice := fields.keys() & added.keys():
            rivals = " ".join("+" + s for s, other in family.suffixes.items() if other.keys() & twice)
            raise ValueError(f"{spec!r} sets {', '.join(twice)} twice: choose one of {rivals}")
        fields.update(added)
    return family, fields


def _require_text(spec: object) -> None:
    if not isinstance(spec, str):
        raise TypeError(f"an algorithm is named by text, e.g. 'pc+s+f', not by {spec!r}")


def _hold(needs: Mapping[str, Any], algorithm: Algorithm) -> bool:
    return all(getattr(algorithm, name) == value for name, value in needs.items())
