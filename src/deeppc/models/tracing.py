"""Trace a torch module into a graph of operations, each run on batches of different sizes while it is traced.

``torch.fx`` writes down what a module computes, but knows no values. With them it is known what is a tensor and what a
size, which sizes are the batch's, and which operations change a tensor in place or draw random numbers. A node of the
traced graph has in its ``meta``

``values``    its result for each of ``BATCHES``; of what is no tensor (sizes), for each of ``SIZES``;
``changed``   the nodes whose tensors it changed in place;
``random``    whether it drew random numbers (what draws them and is no operation is refused);
``detached``  whether it ran under ``torch.no_grad``, or was taken out of what did;
``flags``     those of its arguments that are the training mode, with their value in training;
``owner``     the path of the module in whose ``forward`` it is;
``ends``      names and modules whose result it is;
``line``      the line of the user's source that it comes from, in words.
"""

from __future__ import annotations

import copy
import functools
import linecache
import math
import operator
import pickle
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.autograd.function import _SingleLevelFunction
from torch.fx.node import map_aggregate, map_arg
from torch.fx.proxy import TraceError

from deeppc.core.norm import random_state

Leaf = str | type[nn.Module]

BATCHES = (2, 3, 7)  # so many samples; one would be too few for a BatchNorm
SIZES = (*BATCHES, 1, 10007)  # no tensor is made for the last two; nothing but a line passes through all
FACTORIES = ("zeros", "ones", "empty", "full", "rand", "randn")  # these take no traced size by themselves
# What may be asked of a tensor without looking at its contents.
ATTRIBUTES = {"shape", "ndim", "dtype", "device", "layout", "is_cuda", "requires_grad", "itemsize", "nbytes"}
ATTRIBUTES |= {"is_nested"}
QUESTIONS = {"size", "dim", "ndimension", "numel", "nelement", "stride", "is_contiguous", "is_floating_point"}
QUESTIONS |= {"is_complex", "element_size", "get_device", "is_tensor", "result_type"}
# Modules of torch.nn that are looked into, for they are made of layers.
COMPOSED: tuple[type[nn.Module], ...] = (nn.Transformer, nn.TransformerEncoder, nn.TransformerEncoderLayer)
COMPOSED += (nn.TransformerDecoder, nn.TransformerDecoderLayer)


class Tracer(fx.Tracer):
    """Trace modules of ``torch.nn`` and those that ``leaves`` names as single operations, all others through.

    ``into`` are types of ``torch.nn`` that are looked into, too.
    """

    proxy_buffer_attributes = True

    def __init__(self, leaves: Sequence[Leaf], examples: Sequence[Tensor], into: tuple[type[nn.Module], ...]) -> None:
        super().__init__(autowrap_modules=(math,))
        self._into = into
        self._types = tuple(leaf for leaf in leaves if isinstance(leaf, type))
        self._names = {leaf for leaf in leaves if isinstance(leaf, str)}
        self._batches = [[x[torch.arange(n, device=x.device) % len(x)] for x in examples] for n in BATCHES]
        self._running = False
        self._random: bytes | None = None  # the generators' states after the last operation
        self._functions: dict[type, str] = {}

    def chosen(self, module: nn.Module, name: str) -> bool:
        """Whether ``leaves`` names this module."""
        return isinstance(module, self._types) or name in self._names

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if self.chosen(m, module_qualified_name) or isinstance(m, torch.jit.ScriptModule):
            return True
        return super().is_leaf_module(m, module_qualified_name) and not isinstance(m, self._into)

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> tuple[Any, list[Any]]:
        """One placeholder for each example; other arguments of ``forward`` keep their defaults."""
        names = root_fn.__code__.co_varnames[1 : root_fn.__code__.co_argcount]
        names += tuple(f"input_{i}" for i in range(len(self._batches[0])))  # forward(self, *inputs) has no names
        inputs = [(self.create_proxy("placeholder", names[i], (), {}), xs) for i, *xs in self._numbered()]
        for proxy, xs in inputs:
            proxy.node.meta["values"] = xs
        return root_fn, [self.root, *(proxy for proxy, _ in inputs)]

    def _numbered(self) -> list[tuple[Any, ...]]:
        return [(i, *xs) for i, xs in enumerate(zip(*self._batches, strict=True))]

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self._running:
            return forward(*args, **kwargs)
        out = super().call_module(m, forward, args, kwargs)
        for proxy in _found(fx.Proxy, out):
            proxy.node.meta["ends"].append((self.path_of_module(m), m))
        return out

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, fx.Proxy]) -> Any:
        return attr_val if self._running else super().getattr(attr, attr_val, parameter_proxy_cache)

    def create_arg(self, a: Any) -> Any:
        """Let a named tuple be one, not an operation."""
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return type(a)(*map(self.create_arg, a))
        if is_dataclass(a) and not isinstance(a, type) and _found(fx.Proxy, vars(a)):
            raise TraceError(f"it makes a {type(a).__name__} of tensors: make a tuple, a list or a dict of them")
        return super().create_arg(a)

    def to_bool(self, obj: fx.Proxy) -> bool:
        """Let sizes decide a branch, as long as the batch's does not matter."""
        first, *others = obj.node.meta["values"]
        if isinstance(first, bool) and all(other == first for other in others):
            return first
        raise TraceError("which way it goes depends on the data, or on the size of the batch")

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        """Let loops run over what is not the batch: the parts of ``x.chunk(3)``, the steps of ``x.unbind(1)``."""
        lengths = set(map(len, obj.node.meta["values"]))
        if len(lengths) > 1:
            raise TraceError("it loops over the samples of the batch")
        return iter([obj[i] for i in range(lengths.pop())])  # type: ignore[index]

    def apply(self, function: type, args: tuple[Any, ...]) -> fx.Proxy:
        """Record a ``torch.autograd.Function`` as one operation, for its ``backward`` is not that of its parts."""
        if any(callable(a) and not isinstance(a, fx.Proxy) for a in args):
            raise TraceError(
                f"{function.__name__} takes a function (torch's checkpoint does not if use_reentrant=False)"
            )
        if function not in self._functions:
            name = f"_{function.__name__}"
            while hasattr(self.root, name):
                name += "_"
            self.root.__dict__[name] = Applied(function)  # beside its submodules: it may be looping over them
            self._functions[function] = name
        return self.create_proxy("call_module", self._functions[function], args, {})

    def create_node(self, kind: str, target: Any, args: Any, kwargs: Any, *rest: Any, **named: Any) -> fx.Node:
        if self._random not in (None, _random_state(self._device)):
            raise TraceError(
                "random numbers are drawn before it that are no part of the graph, and so would be drawn once and for "
                "all: draw them in the shape of an input (torch.rand_like), or in a module such as nn.Dropout"
            )
        node = super().create_node(kind, target, args, kwargs, *rest, **named)
        node.meta.update(values=[], changed=[], random=False, flags={}, ends=[])
        node.meta.update(line=_line(sys._getframe()), owner=self.scope.module_path)
        taken = node.target is operator.getitem and node.all_input_nodes[0].meta["detached"]
        node.meta["detached"] = taken or not torch.is_grad_enabled()
        if kind not in ("placeholder", "output"):
            self._running = True
            try:
                with torch.no_grad():
                    self._run(node)
            finally:
                self._running = False
        before, self._random = self._random, _random_state(self._device)
        node.meta["random"] = before not in (None, self._random)
        return node

    @property
    def _device(self) -> torch.device:
        return self._batches[0][0].device

    def _run(self, node: fx.Node) -> None:
        """Run the operation on all batches, and note what it does besides."""
        given = {n: n.meta["values"][0] for n in node.all_input_nodes}
        versions = {n: _version(x, node) for n, x in given.items() if isinstance(x, Tensor)}
        values = node.meta["values"] = [self._result(node, i) for i in range(len(BATCHES))]
        node.meta["changed"] = [n for n, version in versions.items() if _version(given[n], node) != version]
        if has_tensors(node):
            return
        if any(map(has_tensors, given)):
            if values[0] is not None:
                _require_question(node)
            values += [_extrapolated(values[0], values[1], n) for n in SIZES[len(BATCHES) :]]
        else:
            values += [self._result(node, i) for i in range(len(BATCHES), len(SIZES))]

    def _result(self, node: fx.Node, batch: int) -> Any:
        if node.op == "get_attr":
            return operator.attrgetter(str(node.target))(self.root)
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: n.meta["values"][batch])
        if node.op == "call_module":
            return self.root.get_submodule(str(node.target))(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        return node.target(*args, **kwargs)  # type: ignore[operator]


class Applied(nn.Module):
    """A ``torch.autograd.Function`` as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function.apply(*args)


def trace(root: nn.Module, examples: Sequence[Tensor], leaves: Sequence[Leaf]) -> Tracer:
    """Trace copies of ``root`` in training and in eval mode, which may differ in arguments that are the mode alone.

    Raises ``ValueError`` with the line that cannot be traced.
    """
    try:
        return _trace(root, examples, leaves, COMPOSED)
    except ValueError:
        if not any(isinstance(m, COMPOSED) for m in root.modules()):
            raise
        return _trace(root, examples, leaves, ())  # they may have masks that depend on data


def _trace(
    root: nn.Module, examples: Sequence[Tensor], leaves: Sequence[Leaf], into: tuple[type[nn.Module], ...]
) -> Tracer:
    tracers = []
    for mode in (True, False):
        tracer = Tracer(leaves, examples, into)
        try:
            with _traceable(tracer), torch.enable_grad():
                tracer.trace(copy.deepcopy(root).train(mode))
        except Exception as error:
            raise ValueError(_advice(root, error)) from error
        _refuse_aliases(list(tracer.graph.nodes))
        tracers.append(tracer)
    for a, b in zip(*(tracer.graph.nodes for tracer in tracers), strict=False):
        ours, theirs = ({**dict(enumerate(n.args)), **n.kwargs} for n in (a, b))
        differ = {key: value for key, value in ours.items() if repr(value) != repr(theirs.get(key))}
        only_modes = all(isinstance(value, bool) and theirs.get(key) is not value for key, value in differ.items())
        if (a.op, a.target, len(ours)) != (b.op, b.target, len(theirs)) or not only_modes:
            refuse(a, "it is another in training than in eval mode: use a module such as nn.Dropout for that")
        a.meta["flags"] = differ
    return tracers[0]


def has_tensors(n: fx.Node) -> bool:
    """Whether the result is a tensor, or a structure with tensors."""
    return bool(_found(Tensor, n.meta["values"]))


def is_float(n: fx.Node) -> bool:
    """Whether the result is one tensor of floats, as activities are."""
    return n.op != "output" and isinstance(x := n.meta["values"][0], Tensor) and x.is_floating_point()


def share_memory(a: fx.Node, b: fx.Node) -> bool:
    """Whether two results are tensors in the same memory."""
    both = [n.meta["values"][0] for n in (a, b) if n.op != "output" and isinstance(n.meta["values"][0], Tensor)]
    return len(both) == 2 and len({x.untyped_storage()._cdata for x in both}) == 1  # data_ptr() is 0 on "meta"


def name_of(n: fx.Node) -> str:
    """The name of the function or method that an operation calls."""
    return n.target if isinstance(n.target, str) else n.target.__name__


def refuse(node: fx.Node, why: str) -> NoReturn:
    raise ValueError(f"{node.meta['line']} cannot be converted: {why}.")


def _found(kind: type, structure: Any) -> list[Any]:
    """All objects of a kind in nested lists, tuples and dictionaries."""
    found: list[Any] = []
    map_aggregate(structure, lambda a: found.append(a) if isinstance(a, kind) else None)
    return found


def _version(x: Tensor, node: fx.Node) -> Any:
    """What differs once ``node`` has changed ``x`` in place: torch's count, which leaves out running statistics."""
    statistics = name_of(node) == "batch_norm" and x.dim() == 1 and not x.is_meta
    return (x._version, x.tolist()) if statistics else x._version


def _require_question(node: fx.Node) -> None:
    """Raise unless a plain value of a tensor is one that is the same in every training and prediction."""
    question = node.args[1] if node.target is getattr else name_of(node)
    if question not in (ATTRIBUTES if node.target is getattr else QUESTIONS):
        raise TraceError("it makes a plain Python value of a tensor's contents")
    if question == "requires_grad" and node.all_input_nodes[0].op != "get_attr":
        raise TraceError("it asks whether a tensor requires a gradient, which is so in training alone")


def _extrapolated(first: Any, second: Any, n: int) -> Any:
    """What is ``first`` and ``second`` for the first two of ``BATCHES``, for ``n`` samples, if it is on a line."""
    if isinstance(first, tuple | list):
        return type(first)(_extrapolated(a, b, n) for a, b in zip(first, second, strict=False))
    return first if first == second else first + (second - first) * (n - BATCHES[0])


def _random_state(device: torch.device) -> bytes:
    """The states of torch's, Python's and numpy's generators."""
    states = [state.numpy() for state in random_state(device)]
    return pickle.dumps((states, random.getstate(), np.random.get_state()))


def _refuse_aliases(order: list[fx.Node]) -> None:
    """Raise if a tensor that is changed in place is read afterwards by another name than the result's.

    Nodes compute out of place, so whoever reads it by its old name would see the old value.
    """
    place = {n: i for i, n in enumerate(order)}
    for n in order:
        if n.meta["detached"] and not all(old.meta["detached"] for old in n.meta["changed"]):
            refuse(n, "it changes a tensor in place and hides that from its gradient: compute a new one")
        for old in (o for changed in n.meta["changed"] for o in order[: place[n]] if share_memory(o, changed)):
            if old.op == "get_attr":
                refuse(n, f"it changes {old.target} in place, which only a module such as nn.BatchNorm2d may do")
            if any(place[u] > place[n] and (u.op == "output" or has_tensors(u)) for u in old.users):
                why = "it changes a tensor in place that is used again under its old name"
                refuse(n, f"{why}: use what it returns, or compute a new one")


@contextmanager
def _traceable(tracer: Tracer) -> Iterator[None]:
    """Within, ``torch.zeros(x.size(0), 8)``, ``len(x.shape)``, ``range(x.size(1))``, masks and a
    ``torch.autograd.Function`` can be traced, and autocast is refused.
    """

    def recorded(make: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make)
        def call(*args: Any, **kwargs: Any) -> Any:
            traced = _found(fx.Proxy, (args, kwargs))
            return (
                traced[0].tracer.create_proxy("call_function", make, args, kwargs) if traced else make(*args, **kwargs)
            )

        return call

    def constant(of: Callable[[Any], int]) -> Callable[[fx.Proxy], int]:
        def number(proxy: fx.Proxy) -> int:
            values = proxy.node.meta["values"]
            if of is operator.index and isinstance(values[0], Tensor):
                raise TraceError("it makes a plain Python value of a tensor's contents")
            first, *others = map(of, values)
            if any(other != first for other in others):
                raise TraceError("it needs the size of the batch as a plain number: use x.size(0)")
            return first

        return number

    def known(ask: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(ask)
        def call(*args: Any) -> Any:
            each = ([a.node.meta["values"][i] if isinstance(a, fx.Proxy) else a for a in args] for i in batches)
            first, *others = (ask(*one) for one in each)
            if any(other != first for other in others):
                raise TraceError("what follows from a mask depends on the batch")
            return first

        return call

    def applied(function: type, *args: Any) -> Any:
        if _found(fx.Proxy, args):
            return tracer.apply(function, args)
        return super(_SingleLevelFunction, function).apply(*args)  # type: ignore[misc]

    def entered(context: torch.autocast) -> Any:
        if tracer._running:
            return enter(context)  # type: ignore[no-untyped-call]
        raise TraceError("it enters autocast, which the nodes would not: enter it around the training instead")

    batches, enter = range(len(BATCHES)), torch.autocast.__enter__

    with ExitStack() as stack:
        stack.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)  # one kernel for a whole layer, in eval mode alone
        for owner, name in ((nn.functional, "_none_or_dtype"), (nn.modules.transformer, "_detect_is_causal_mask")):
            stack.enter_context(patch.object(owner, name, known(getattr(owner, name))))
        for name in FACTORIES:
            stack.enter_context(patch.object(torch, name, recorded(getattr(torch, name))))
        stack.enter_context(patch.object(_SingleLevelFunction, "apply", classmethod(applied), create=True))
        stack.enter_context(patch.object(torch.autocast, "__enter__", entered))
        stack.enter_context(patch.object(fx.Proxy, "__len__", constant(len)))
        stack.enter_context(patch.object(fx.Proxy, "__index__", constant(operator.index), create=True))
        yield


def _is_users(frame: FrameType) -> bool:
    """Whether a frame runs the user's source: neither torch's nor ours."""
    file = frame.f_code.co_filename
    return not file.startswith((str(Path(__file__).parent), str(Path(torch.__file__).parent), "<"))


def _words(file: str, line: int) -> str:
    return f"line {line} of {file}, `{linecache.getline(file, line).strip()}`,"


def _line(frame: FrameType | None) -> str:
    while frame is not None and not _is_users(frame):
        frame = frame.f_back
    return "a line" if frame is None else _words(frame.f_code.co_filename, frame.f_lineno)


def _advice(root: nn.Module, error: Exception) -> str:
    """What cannot be traced, on which line of the user's source, and what to do."""
    where, owner = "its forward", None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        if _is_users(trace.tb_frame):
            where = _words(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
            owner = trace.tb_frame.f_locals.get("self")
        trace = trace.tb_next
    reason = str(error).strip().partition("\n")[0]
    if not isinstance(error, TraceError):
        reason = f"{type(error).__name__}: {reason}"
    leaf = "put it into a submodule and pass the type of that in leaves"
    if isinstance(owner, nn.Module) and type(owner) is not type(root):
        leaf = f"pass leaves={type(owner).__name__}"
    return (
        f"cannot convert {type(root).__name__}: {where} cannot be traced ({reason}). Write it without that "
        f"(torch.where for a branch); or {leaf}, which makes one node of it; or build a deeppc.Graph."
    )
