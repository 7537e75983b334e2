"""An independent, slow predictive coding engine: the oracle of the fast one.

It holds activities as they are (no deviations), rebuilds the whole energy at every step, calls autograd once on it,
moves activities by ``torch.optim.SGD``, skips nothing, and shares no code with ``deeppc.core``. It works on a copy of
the network, so that whatever it does to weights and statistics stays its own.
"""

import copy
import functools
import math
from dataclasses import dataclass, field

import torch
from torch import Tensor


def arrivals(net):
    """``L - level`` by walking every path from the output to the input."""

    @functools.cache
    def longest(v):
        return 0 if v == "input" else 1 + max(longest(p) for p in net.parents[v])

    return {v: longest(net.output) - longest(v) for v in net.nodes}


def schedule(algo, t, a, T):
    if callable(algo.schedule):
        return algo.schedule(t, a, T)
    if algo.schedule == "fixed":
        return 1.0
    if algo.schedule == "spiking":
        return 1.0 if t == a else algo.alpha
    if t < a:
        return 1.0
    shape = {
        "exponential": [math.exp(-algo.k * j) for j in range(T - a)],
        "linear": [float(T - a - j) for j in range(T - a)],
    }[algo.schedule]
    return shape[t - a] / sum(shape)


@dataclass
class Outcome:
    gradients: dict[str, Tensor | None]  # pc: by parameter name
    weights: dict[str, Tensor]  # ipc: after the step
    errors: list[dict[str, Tensor]] = field(default_factory=list)  # by step, before it; and after the last (pc)
    activities: list[dict[str, Tensor]] = field(default_factory=list)  # x_0 .. x_T


class Naive:
    def __init__(self, algo, net, images, target, beta=None):
        self.algo, self.images, self.target = algo, images, target
        self.net = copy.deepcopy(net)
        self.beta = algo.beta if beta is None else beta
        self.T = algo.T or max(arrivals(net).values()) + 1
        self.a = arrivals(net)
        self.params = {v: dict(f.named_parameters(prefix=f"nodes.{v}")) for v, f in self.net.nodes.items()}
        self.outcome = Outcome({}, {})

    def predict(self, xs):
        values = {"input": self.images, **xs}
        return {v: f(*(values[p] for p in self.net.parents[v])) for v, f in self.net.nodes.items()}

    def respond(self, v, mu):
        return mu.softmax(1) if v == self.net.output and self.algo.loss == "cross_entropy" else mu

    def terms(self, xs, mus):
        """Energy of each node, summed over the batch."""
        xs = {**xs, self.net.output: xs[self.net.output].detach()}
        energy = {v: (xs[v] - mus[v]).square().sum() / 2 for v in self.net.nodes}
        if self.algo.loss == "cross_entropy":
            energy[self.net.output] = -(xs[self.net.output] * mus[self.net.output].log_softmax(1)).sum()
        return energy

    def feed_forward(self):
        values = {"input": self.images}
        for v, f in self.net.nodes.items():
            values[v] = f(*(values[p] for p in self.net.parents[v])).detach()
        return {v: self.respond(v, x) for v, x in values.items() if v != "input"}

    def relax(self, xs, steps, weigh, optimizer=None, free=False):
        """``weigh(v, t) -> (energy, node)``: the precision in the energy, and on the node's whole update."""
        out = self.net.output
        moving = [v for v in self.net.nodes if free or v != out]
        for v in moving:
            xs[v] = xs[v].clone().requires_grad_()
        m = self.algo.momentum_x
        moved = [xs[v] for v in moving] or [torch.zeros(1)]
        sgd = torch.optim.SGD(moved, lr=self.algo.lr_x, momentum=m, nesterov=self.algo.nesterov and m > 0)
        for t in range(steps):
            mus = self.predict(xs)
            errors = {v: (xs[v] - self.respond(v, mus[v])).detach() for v in self.net.nodes}
            self.outcome.errors.append(errors)
            self.outcome.activities.append({v: x.detach().clone() for v, x in xs.items()})
            terms = self.terms(xs, mus)
            energy = sum(weigh(v, t)[0] * e for v, e in terms.items())
            hidden = [v for v in moving if v != out]
            if hidden:
                forces = torch.autograd.grad(energy, [xs[v] for v in hidden], retain_graph=True)
                for v, g in zip(hidden, forces, strict=True):
                    xs[v].grad = g * weigh(v, t)[1]
            if free:  # the output has no successors: its force is its own error, in the squared and the softmax case
                xs[out].grad = errors[out].clone()
            follow = getattr(self.algo, "follow", False)
            before = {v: x.clone() for v, x in self.feed_forward().items()} if follow else {}
            if optimizer is not None:
                self.weight_step(t, terms, errors, optimizer)
            sgd.step()
            for v, x in self.feed_forward().items() if follow else ():
                if v != out:
                    xs[v].data = x + (xs[v].data - before[v])
        self.outcome.activities.append({v: x.detach().clone() for v, x in xs.items()})
        if optimizer is None:
            mus = self.predict(xs)
            self.outcome.errors.append({v: (xs[v] - self.respond(v, mus[v])).detach() for v in self.net.nodes})
        return {v: x.detach() for v, x in xs.items()}

    def weight_step(self, t, terms, errors, optimizer):
        gradients = {}
        for v, params in self.params.items():
            pi = schedule(self.algo, t, self.a[v], self.T)
            gain = self.algo.lr_x ** -self.a[v] if self.algo.depth_gain else 1.0
            reached = pi != 0 and bool((errors[v] != 0).any())
            for p in params.values():
                g = torch.autograd.grad(terms[v], p, retain_graph=True)[0] if reached and p.requires_grad else None
                gradients[p] = None if g is None else pi * gain * g / (len(self.images) * self.beta)
        for p, g in gradients.items():
            p.grad = g
        optimizer.step()

    def weigh(self, v, t):
        if self.algo.precision_on == "energy":
            return schedule(self.algo, t, self.a[v], self.T), 1.0
        return 1.0, schedule(self.algo, t, self.a[v] - 1, self.T) if v != self.net.output else 1.0

    def learnt(self, optimizer):
        """What ``nets.learnt`` gives, for comparison."""
        return self.run(optimizer).weights if self.algo.updates_weights else self.run().gradients

    def run(self, make_optimizer=None):
        algo, out = self.algo, self.net.output
        x0 = self.feed_forward()
        start = dict(x0)
        start[out] = x0[out] + self.beta * (self.target - x0[out])
        optimizer = make_optimizer(self.net.parameters()) if make_optimizer else None
        x_T = self.relax(start, self.T, self.weigh, optimizer)
        if optimizer is not None:
            self.outcome.weights = {n: p.detach() for n, p in self.net.named_parameters()}
            return self.outcome
        rest = x0
        if algo.free_steps:
            rest = self.relax(dict(x_T), algo.free_steps, lambda v, t: (1.0, 1.0), free=True)
        for v, params in self.params.items():
            forward = algo.forward and (algo.forward_last is None or self.a[v] < algo.forward_last)
            place = rest if forward and algo.presynaptic == "initial" else x_T
            mu = self.predict(place)[v]
            error = x_T[v] - (rest[v] if forward else self.respond(v, mu).detach())
            gain = algo.lr_x ** -self.a[v] if algo.depth_gain else 1.0
            for name, p in params.items():
                self.outcome.gradients[name] = None
                if p.requires_grad and bool((error != 0).any()):
                    g = torch.autograd.grad(-(error * mu).sum(), p, retain_graph=True)[0]
                    self.outcome.gradients[name] = g * gain / (len(self.images) * self.beta)
        return self.outcome
