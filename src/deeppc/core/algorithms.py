"""The algorithms by name: ``bp``, ``pc``, ``ipc`` with ``+s +d +l`` (precision), ``+f`` (learning), ``+cn`` (nudging).

An :class:`Algorithm` stands where ``loss.backward()`` stood:

    algo = Algorithm.parse("pc+s+f", T=10, lr_x=0.5, alpha=1e-3)
    optimizer.zero_grad()
    algo.gradients(net, images, labels)      # fills .grad
    optimizer.step()

or ``algo.step(net, images, labels, optimizer)``, which also does iPC, where weights move at every inference step.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from deeppc.core import engine, precision
from deeppc.core.engine import Observer
from deeppc.core.graph import INPUT, Graph
from deeppc.core.inputs import check, target_for
from deeppc.core.norm import unchanged_on_error


@dataclass(frozen=True)
class Result:
    """What one batch gave.

    ``logits``  the feed-forward answer, (batch, classes), without a graph.
    ``energy``  per node: ``1/2 |error|^2`` that its weights learnt from, mean over the batch (for cross-entropy, the
                output's cross-entropy; for bp, the error that backprop carries, in float32's range: below 1e-38
                it is 0). 0 where no energy came.
    ``work``    per node: predictions, pull-backs, weight gradients.
    """

    logits: Tensor
    energy: dict[str, Tensor]
    work: engine.Work


@dataclass(frozen=True)
class Algorithm:
    """How a batch becomes weight gradients. Build it by :meth:`parse`, or field by field.

    ``family``        ``bp``, ``pc`` (weights learn after inference) or ``ipc`` (weights learn at every step).
    ``schedule``      precision of a node's error by step: ``fixed``, ``spiking``, ``exponential``, ``linear``, or a
                      function ``(t, arrival, T) -> pi``.
    ``forward``       forward update: weights learn from ``x_T - mu0``.
    ``centred``       centre nudging: the sign of ``beta`` is drawn for each batch.
    ``T``             inference steps; None: as many as the network has levels.
    ``lr_x``, ``momentum_x``, ``nesterov``   SGD on the activities, fresh for each batch.
    ``alpha``         precision outside the spike. 0 makes the update backprop's up to a factor per layer.
    ``k``             rate of the exponential schedule.
    ``beta``          nudging strength, in (0, 1]; 1 clamps the output to the target.
    ``loss``          energy of the output: ``squared_error`` or ``cross_entropy``.
    ``precision_on``  ``energy``: precision weighs each error, the gradient of the energy (as released code does).
                      ``node``: it weighs a node's whole update (as the paper's Eq. 2), one step earlier. Weights
                      learnt by iPC are weighed by the energy's schedule in both.
    ``presynaptic``   forward update through the ``initial`` parents (as released code does) or the ``relaxed`` ones
                      (as the paper's text).
    ``forward_last``  forward update only for the last so many levels, the standard rule for the others.
    ``free_steps``    steps of free relaxation, whose state stands in for ``mu0``; 0: ``mu0`` is stored.
    ``depth_gain``    multiply a node's weight gradient by ``lr_x ** -arrival``, the factor that the wave lost.
    """

    family: Literal["bp", "pc", "ipc"] = "pc"
    schedule: str | precision.Schedule = "fixed"
    forward: bool = False
    centred: bool = False
    T: int | None = None
    lr_x: float = 0.1
    momentum_x: float = 0.0
    nesterov: bool = True
    alpha: float = 0.01
    k: float = 1.0
    beta: float = 1.0
    loss: Literal["squared_error", "cross_entropy"] = "squared_error"
    precision_on: Literal["energy", "node"] = "energy"
    presynaptic: Literal["initial", "relaxed"] = "initial"
    forward_last: int | None = None
    free_steps: int = 0
    depth_gain: bool = False

    @classmethod
    def parse(cls, spec: str, **options: Any) -> Algorithm:
        """``Algorithm.parse("pc+s+f", T=10, lr_x=0.5)``. Options are the fields that the name does not say."""
        family, *suffixes = spec.replace(" ", "").lower().split("+")
        if family not in ("bp", "pc", "ipc") or len(set(suffixes)) < len(suffixes) or not set(suffixes) <= _SAID.keys():
            raise ValueError(f"unknown algorithm {spec!r}: choose bp, pc, ipc with +s +d +l +f +cn, e.g. pc+s+f")
        said: dict[str, Any] = {"family": family}
        for suffix in suffixes:
            name, value = _SAID[suffix]
            if name in said:
                raise ValueError(f"algorithm {spec!r} names two precision schedules: choose one of +s +d +l")
            said[name] = value
        known = [f.name for f in dataclasses.fields(cls) if f.name not in said]
        for name in options:
            if name in said or name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}? " if near else ""
                raise ValueError(f"unknown option {name!r} for {spec!r}: {hint}The options are {', '.join(known)}")
        return cls(**said, **options)

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices and not (name == "schedule" and callable(value)):
                raise ValueError(f"{name} is {value!r}: choose {' or '.join(choices)}")
        for name, (holds, expected) in _RANGES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real | None) or not holds(value):
                raise ValueError(f"{name} is {value!r}, but must be {expected}")
        if self.family != "pc" and self.forward:
            why = "learns while it infers" if self.family == "ipc" else "has no inference"
            raise ValueError(f"{self.family} {why}, so it takes no forward update: drop +f, or choose pc")
        if self.family == "bp" and (self.schedule != "fixed" or self.centred):
            raise ValueError("bp has no inference, so it takes no precision schedule and no nudging: drop +s +d +l +cn")
        if not self.forward and (self.forward_last is not None or self.free_steps or self.presynaptic != "initial"):
            raise ValueError("forward_last, free_steps and presynaptic belong to the forward update: add +f")
        if self.depth_gain and self.family == "bp":
            raise ValueError("depth_gain undoes what inference loses; bp loses nothing: drop it")

    def __str__(self) -> str:
        said = [s for s, (name, value) in _SAID.items() if getattr(self, name) == value]
        return "+".join([self.family, *said])

    def gradients(self, net: Graph, images: Tensor, labels: Tensor, *, observe: Observer | None = None) -> Result:
        """Add to ``.grad`` of the net's parameters what this batch says (mean over the batch). For bp and pc.

        ``labels`` are class indices (batch,), or a float target of the output's shape. Nodes that no energy reached
        get no gradient. ``observe(t, state)`` is called before each inference step and after the last (never for bp);
        tensors of the state change in place later, so it clones what it keeps.
        """
        if self.family == "ipc":
            raise ValueError("ipc changes weights at every inference step: call step(net, images, labels, optimizer)")
        return self._run(net, images, labels, None, observe)

    def step(
        self, net: Graph, images: Tensor, labels: Tensor, optimizer: Optimizer, *, observe: Observer | None = None
    ) -> Result:
        """One whole training step with any torch optimiser: bp, pc, or ipc (which steps it T times).

        Weights whose node has no error yet have ``grad = None``: no decay, no moment of the optimiser touches them.
        """
        if isinstance(optimizer, torch.optim.LBFGS):
            raise ValueError("LBFGS needs a loss to evaluate again; predictive coding gives gradients only")
        result = self._run(net, images, labels, optimizer, observe)
        if self.family != "ipc":
            optimizer.step()
        return result

    @torch.no_grad()
    def _run(
        self, net: Graph, images: Tensor, labels: Tensor, optimizer: Optimizer | None, observe: Observer | None
    ) -> Result:
        last = math.inf if self.forward_last is None else self.forward_last
        forward = [v for v in net.nodes if self.forward and net.arrival[v] < last]
        learners = forward if self.presynaptic == "initial" and not self.free_steps else []
        state, beta = self._begin(net, images, labels, list(net.nodes) if self.family == "bp" else learners)
        if optimizer is not None:
            optimizer.zero_grad()
        T = self.T or net.L

        def scale(v: str, pi: float) -> engine.Scale:
            gain = self.lr_x ** -net.arrival[v] if self.depth_gain else 1.0
            return -pi * gain / (state.batch * beta)

        def update() -> None:
            assert optimizer is not None
            optimizer.step()
            optimizer.zero_grad()

        lessons = engine.Lessons(state, net.trainable(), scale)
        if self.family == "bp":
            engine.backpropagate(lessons)
        elif self.family == "ipc":
            lessons.pi, lessons.update = lambda v, t: self._pi(t, net.arrival[v], T), update
            engine.infer(state, T, self._descent(net, T), lessons=lessons, observe=observe)
        else:
            engine.infer(state, T, self._descent(net, T), lessons=lessons, observe=observe)
            free = (lambda: self._relax_freely(state)) if self.free_steps else None
            engine.learn(lessons, forward=forward, presynaptic=self.presynaptic, free_relaxation=free)
        energy = lessons.energy
        zero = torch.zeros((), device=images.device)
        return Result(state.mu0[net.output], {v: energy.get(v, zero) for v in net.nodes}, state.work)

    def _begin(
        self, net: Graph, images: Tensor, labels: Tensor, learners: list[str]
    ) -> tuple[engine.State, engine.Scale]:
        """Initialise and clamp. Whatever is wrong with the input is found here, and leaves no trace."""
        check(images, labels)
        if self.depth_gain and self.lr_x**-net.L > torch.finfo(torch.float32).max:
            raise ValueError(f"depth_gain is lr_x^-{net.L}, too large for float32: choose a larger lr_x")
        softmax = (lambda mu: torch.softmax(mu, dim=1)) if self.loss == "cross_entropy" else None
        with unchanged_on_error(net, images.device):
            state = engine.State(net, images, respond=softmax, learners=learners)
            if any(mu.dtype == torch.float16 for mu in state.mu0.values()):
                raise ValueError("float16 cannot hold the small errors of deep layers: use float32 or bfloat16")
            target = target_for(labels, state.mu0[net.output], distribution=softmax is not None)
        beta: engine.Scale = self.beta if self.family != "bp" else 1.0
        if self.centred:
            sign = 2 * torch.randint(0, 2, (), device=target.device) - 1
            beta = self.beta * sign.to(target.dtype)
        state.clamp(target, beta)
        return state, beta

    def _pi(self, t: int, arrival: int, T: int) -> float:
        """The precision of a node that the wave reaches at step ``arrival``."""
        pi = self.schedule if callable(self.schedule) else _SCHEDULES[self.schedule](self)
        return pi(t, arrival, T)

    def _descent(self, net: Graph, T: int) -> engine.Descent:
        """Precision on the sender's error (the energy's gradient), or on the receiver's whole update."""
        still = (INPUT, net.output)
        if self.precision_on == "energy":
            return self._sgd(lambda v, t: self._pi(t, net.arrival[v], T), lambda v, t: float(v not in still))
        return self._sgd(lambda v, t: 1.0, lambda v, t: 0.0 if v in still else self._pi(t, net.arrival[v] - 1, T))

    def _relax_freely(self, state: engine.State) -> None:
        """Unclamp the output and let the network settle towards its feed-forward state, with precision 1."""
        engine.infer(state, self.free_steps, self._sgd(lambda v, t: 1.0, lambda v, t: float(v != INPUT)))

    def _sgd(self, send: engine.Weight, receive: engine.Weight) -> engine.Descent:
        return engine.Descent(self.lr_x, self.momentum_x, self.nesterov, send, receive)


_SCHEDULES: dict[str, Callable[[Algorithm], precision.Schedule]] = {
    "fixed": lambda algo: precision.fixed,
    "spiking": lambda algo: precision.spiking(algo.alpha),
    "exponential": lambda algo: precision.exponential(algo.k),
    "linear": lambda algo: precision.linear,
}
_SAID: dict[str, tuple[str, Any]] = {
    "s": ("schedule", "spiking"),
    "d": ("schedule", "exponential"),
    "l": ("schedule", "linear"),
    "f": ("forward", True),
    "cn": ("centred", True),
}
_CHOICES = {
    "family": ("bp", "pc", "ipc"),
    "schedule": tuple(_SCHEDULES),
    "loss": ("squared_error", "cross_entropy"),
    "precision_on": ("energy", "node"),
    "presynaptic": ("initial", "relaxed"),
}
_RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "T": (lambda T: T is None or (isinstance(T, int) and T >= 1), "a whole number of steps, at least 1"),
    "lr_x": (lambda x: x is not None and 0 < x < math.inf, "positive"),
    "momentum_x": (lambda m: m is not None and 0 <= m <= 1, "between 0 and 1"),
    "alpha": (lambda a: a is not None and 0 <= a < math.inf, "0 or more"),
    "k": (lambda k: k is not None and 0 <= k < math.inf, "0 or more"),
    "beta": (lambda b: b is not None and 0 < b <= 1, "in (0, 1]; for negative nudging add +cn"),
    "forward_last": (lambda n: n is None or (isinstance(n, int) and n >= 1), "a whole number of levels, at least 1"),
    "free_steps": (lambda n: isinstance(n, int) and n >= 0, "a whole number of steps, 0 or more"),
}
