"""A family of algorithms that the package does not know: importing this file registers it as ``toy``.

It is backprop cut short: the error of the output is carried down ``reach`` levels, and every weight gradient is
multiplied by ``strength``. So with ``reach`` as deep as the network and ``strength = 1`` it *is* backprop.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from deeppc.core.algorithms import Algorithm, option, register


@register
@dataclass(frozen=True)
class Toy(Algorithm):
    family: ClassVar[str] = "toy"
    suffixes: ClassVar[Mapping[str, Mapping[str, Any]]] = {"whole": {"whole": True}}
    searched: ClassVar[Mapping[str, str]] = {"lr_w": "1e-3..1e-1 log"}

    whole: bool = option(False, "whole network: carry the error down to the input")
    strength: float = option(1.0, "Factor on every weight gradient.", above=0, search="0.5..2 log")
    reach: int = option(1, "Levels that learn, from the output down.", least=1, needs={"whole": False})

    def run(self, batch):
        net = batch.net
        state = batch.initialise(keep=list(net.nodes))
        batch.clamp()
        errors = {net.output: state.d[net.output]}
        for v in reversed(list(net.nodes)):
            prediction = state.initial(v)
            if v in errors and (self.whole or net.arrival[v] < self.reach):
                parents = net.hidden_parents(v)
                pulls = batch.learn(v, errors.pop(v), prediction, parents=parents, pi=self.strength)
                for p, pull in zip(parents, pulls, strict=True):
                    errors[p] = errors[p] + pull if p in errors else pull
