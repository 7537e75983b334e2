"""Any torch module as a predictive coding network, with the same parameters and the same feed-forward pass.

>>> net = deeppc.from_torch(module, images[:2], balance=True)
>>> deeppc.fit(net, data, "pc+s+f")              # trains the parameters of module
>>> module(images)                               # as ever, now trained

The module is traced into a graph of operations. Some of them become value nodes, the *cuts*; what lies between a node's
parents and the node is its prediction, an ``fx.GraphModule`` that holds the very submodules and parameters of the
original. By default these are cut:

- layers with weights: modules of ``torch.nn`` with parameters (but norms and PReLU), ``F.linear(x, self.w)`` and such;
  ``nn.Transformer`` and its encoders and decoders are made of layers, and looked into;
- sums, differences, products and concatenations of tensors that stem from different value nodes;
- what has parameters, buffers or random numbers and feeds several nodes, so that it is computed once;
- the outputs. What follows the last layer is one node with it, if it has no parameters.

The rest (activations, norms, pooling, reshaping) joins the node that it feeds, and is computed again if it feeds
several. ``x.shape`` makes no edge: sizes are constants, but for the batch's, which is taken from a parent. Operations
in place work on a copy where they would change a parent's activity. What runs under ``torch.no_grad`` joins, too, and
its weights learn nothing. A ``torch.autograd.Function`` is one operation, with its own ``backward``.
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate, map_arg
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import is_lazy

from deeppc.core.graph import INPUT, Graph, Nodes
from deeppc.core.norm import random_state, set_random_state
from deeppc.errors import nearest
from deeppc.models.tracing import (
    BATCHES,
    SIZES,
    Leaf,
    Tracer,
    has_tensors,
    is_float,
    name_of,
    refuse,
    share_memory,
    trace,
)

Energies = Mapping[str, nn.Module] | None
Cut = str | type[nn.Module] | Callable[[str, nn.Module | None, fx.Node], bool]

JOINING = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.PReLU)  # have parameters, but are no layers
WEIGHING = {"linear", "bilinear", "embedding", "matmul", "mm", "bmm", "einsum", "conv1d", "conv2d", "conv3d"}
WEIGHING |= {"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}
MERGING = {"cat", "concat", "concatenate", "stack", "hstack", "vstack", "subtract", "multiply"}
MERGING |= {form.format(name) for name in ("add", "sub", "mul") for form in ("{}", "i{}", "{}_")}
RESHAPING = {"view": "reshape", "view_as": "reshape_as"}  # these work in every memory format
MODE = "_mode"  # the parts of a prediction that say whether it is training


def from_torch(
    module: nn.Module,
    example_input: Tensor | tuple[Tensor, ...],
    *,
    cut: Cut | Sequence[Cut] | None = None,
    leaves: Leaf | Sequence[Leaf] = (),
    balance: bool = False,
) -> Converted:
    """Return ``module`` as a graph that shares its parameters and whose feed-forward pass equals it, bit for bit.

    ``example_input``  a batch that the module can be called with; several inputs as a tuple. One sample is enough.
    ``cut``            where value nodes are, if not where the default puts them (see above): names of submodules, types
                       of modules, functions ``(name, module or None, fx node) -> bool``; one of these or a list. The
                       outputs always are nodes.
    ``leaves``         types (or names) of modules that are not looked into: each is a node, whatever it computes.
    ``balance``        add identity nodes on every edge that skips levels, as :meth:`Graph.balance` does.

    (In eval mode and without gradients torch may compute a layer of ``nn.Transformer`` by one kernel, which rounds
    otherwise.) The module is left as it is: its statistics, its mode, and torch's random numbers too. Raises
    ``TypeError`` for the wrong kind of thing, and ``ValueError``, with the line of the source, for what cannot be
    converted: control flow that depends on data, tensors that are changed in place and used under their old name,
    random numbers drawn by hand, autocast.
    """
    examples = _checked(module, example_input)
    if not isinstance(balance, bool):
        raise TypeError(f"balance is a {type(balance).__name__}, but must be True or False")
    rules, leaves = None if cut is None else _several(cut), _several(leaves)
    kind, device = type(module).__name__, examples[0].device
    before = random_state(device)
    try:
        try:
            twin = copy.deepcopy(module).eval()  # what happens to it happens to nobody
        except Exception as error:
            raise ValueError(f"{kind} cannot be copied, and is not traced but as a copy: {error}") from error
        with torch.no_grad():
            try:
                expected = twin(*(x.clone() for x in examples))  # clones, for it may change them in place
            except Exception as error:
                raise ValueError(f"{kind} cannot be called with the example: {error}") from error
            _require_there(twin, leaves)
            plan = _Plan(trace(twin, examples, leaves), rules)
            set_random_state(before, device)
            if not _equal(plan.converted(twin)(*examples), expected):
                raise ValueError(
                    f"{kind} answers otherwise once it is traced: something in it (a hook, a batch size written as a "
                    "number, isinstance, numpy) is hidden from torch.fx; pass the type of that submodule in leaves"
                )
        net = plan.converted(module)
    finally:
        set_random_state(before, device)
    return net.balance() if balance else net


class Converted(Graph):
    """A torch module as a graph. ``original`` is that module; ``state_dict`` has its keys, and so loads its files.

    (Energies with parameters, if it is given any, add theirs as ``energies.*``.)
    """

    def __init__(
        self, original: nn.Module, nodes: Nodes, inputs: Sequence[str], answer: Any, energies: Energies = None
    ) -> None:
        self._original = (original,)  # in a tuple: registered, its parameters would be there twice
        self._known: dict[str, Any] = {}
        super().__init__(nodes, inputs=inputs, energies=energies)
        self._known = {target: _attribute(original, target) for *_, target in self._held()}  # None for constants
        self._answer = answer
        order: list[Any] = []
        map_aggregate(answer, order.append)
        self.outputs = tuple(dict.fromkeys(v for v in order if v in self.outputs))  # as the original returns them
        for module in set(self.modules()) - set(original.modules()):
            module.training = original.training

    @property
    def original(self) -> nn.Module:
        return self._original[0]

    def forward(self, *xs: Tensor) -> Any:
        """Run the feed-forward pass, and return what the original returns: a tensor, or several in its structure."""
        out = super().forward(*xs)
        values = out if len(self.outputs) > 1 else {self.output: out}
        return map_aggregate(self._answer, lambda a: values.get(a, a) if isinstance(a, str) else a)

    def balance(self) -> Converted:
        balanced = super().balance()
        nodes = {v: (module, balanced.parents[v]) for v, module in balanced.nodes.items()}
        return Converted(self.original, nodes, self.inputs, self._answer, dict(self.energies.items()))

    def train(self, mode: bool = True) -> Converted:
        super().train(mode)
        self.original.train(mode)
        return self

    @property
    def nodes(self) -> nn.ModuleDict:  # type: ignore[override]
        """The predictions by node, with the tensors that the original has now."""
        self._follow()
        return cast(nn.ModuleDict, self._modules["nodes"])

    def named_modules(self, *args: Any, **kwargs: Any) -> Any:
        self._follow()
        return super().named_modules(*args, **kwargs)

    def _follow(self) -> None:
        """Let predictions have what the original has now where that is a new tensor, by ``.to(...)`` or ``assign``.

        (A tensor that is new in the predictions alone stays: ``torch.func.functional_call`` has put it there.)
        """
        now = {target: _attribute(self.original, target) for target in self._known}
        if torch.compiler.is_compiling() or all(now[target] is self._known[target] for target in now):
            return
        for holder, name, target in self._held():
            if (own := now[target]) is not self._known[target]:
                (holder._parameters if isinstance(own, nn.Parameter) else holder._buffers)[name] = own
        self._known = now

    def _held(self) -> list[tuple[nn.Module, str, str]]:
        """What predictions use that belongs to no layer: where they have it, its name there and in the original."""
        pieces = [
            piece for piece in cast(nn.ModuleDict, self._modules["nodes"]).values() if isinstance(piece, fx.GraphModule)
        ]
        found = [(piece, n.target.rpartition(".")) for piece in pieces for n in piece.graph.find_nodes(op="get_attr")]
        return [(piece.get_submodule(path), name, f"{path}{dot}{name}") for piece, (path, dot, name) in found]

    def state_dict(self, *, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        state = self.original.state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)
        return self.energies.state_dict(destination=state, prefix=f"{prefix}energies.", keep_vars=keep_vars)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load the original, and give the nodes, which torch comes to next, what they have then.

        This is called for the network on its own and in a module that has it. ``state_dict`` is a copy to be changed.
        """
        energies = self.energies.state_dict(prefix=f"{prefix}energies.")
        keys = [key for key in state_dict if key.startswith(prefix) and key not in energies]
        theirs = {key.removeprefix(prefix): state_dict.pop(key) for key in keys}
        assign = local_metadata.get("assign_to_params_buffers", False)
        try:
            missing, unexpected = self.original.load_state_dict(theirs, strict=False, assign=assign)
        except RuntimeError as error:
            error_msgs.append(str(error))
        else:
            missing_keys += [prefix + key for key in missing]
            unexpected_keys += [prefix + key for key in unexpected]
        state_dict.update(self.nodes.state_dict(prefix=f"{prefix}nodes.", keep_vars=True))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Converted:
        """Move the original (``.to(...)``), and the constants that were made in its ``forward``."""
        self.original._apply(fn)  # type: ignore[no-untyped-call]
        self.energies._apply(fn)  # type: ignore[no-untyped-call]
        self._follow()
        for holder, name, target in self._held():
            if self._known[target] is None:
                holder._buffers[name] = fn(holder._buffers[name])  # type: ignore[arg-type]
        return self


class Mode(nn.Module):
    """Return whether ``module`` is training, for functions that ask (``F.dropout(x, training=self.training)``)."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._module = (module,)  # in a tuple: its parameters are others' too

    def forward(self) -> bool:
        return self._module[0].training


class _Plan:
    """A traced module, and which of its operations become value nodes.

    ``order``    the operations on tensors that the outputs need, and the inputs.
    ``fed``      those of them that depend on an input.
    ``cuts``     those that become value nodes.
    ``sources``  by operation, the value nodes and inputs that it is computed from.
    ``homes``    by operation, the value nodes in whose predictions it takes part.
    ``merged``   those that would be cut, but are one node with the output.
    """

    def __init__(self, tracer: Tracer, rules: Sequence[Cut] | None) -> None:
        self.tracer, self.root, self.default = tracer, tracer.root, rules is None
        traced = list(tracer.graph.nodes)
        self.answer = traced[-1].args[0]
        self.inputs = [n for n in traced if n.op == "placeholder"]
        self.outputs = self._outputs(traced[-1])
        self.order = self._needed(traced)
        self.fed = set(self.inputs)
        for n in self.order:
            self.fed |= {n} if self.fed.intersection(_tensors_of(n)) else set()
        self.sources: dict[fx.Node, set[fx.Node]] = {}
        self.homes: dict[fx.Node, set[fx.Node]] = {}
        self.merged: set[fx.Node] = set()
        chosen = set(filter(self._is_layer, self.order)) if rules is None else self._asked(rules)
        self.cuts = (chosen & self.fed | set(self.outputs)) - set(self.inputs)
        self._settle()
        if rules is None:
            self._merge_tails()

    def _outputs(self, output: fx.Node) -> list[fx.Node]:
        for n in output.all_input_nodes:
            if not is_float(n):
                refuse(n, "what the module returns must be tensors of floats: take them out of what this returns")
        if not output.all_input_nodes:
            refuse(output, "the module returns nothing that depends on its input")
        return output.all_input_nodes

    def _needed(self, traced: list[fx.Node]) -> list[fx.Node]:
        needed = {*self.inputs, *self.outputs}
        for n in reversed(traced):
            needed |= set(_tensors_of(n)) if n in needed else set()
        return [n for n in traced if n in needed]

    def _is_layer(self, n: fx.Node) -> bool:
        """Whether a value node comes after ``n`` for its own sake: a layer, or a tensor out of the tuple of one."""
        source: Any = n
        if n.meta["detached"]:
            return False
        while source.target is operator.getitem and not isinstance(source.args[0].meta["values"][0], Tensor):
            source = source.args[0]
        if not is_float(n) or source.op != "call_module":
            return (
                is_float(n)
                and name_of(n) in WEIGHING
                and n.op != "get_attr"
                and any(map(self._is_learnt, _tensors_of(n)))
            )
        module = self.root.get_submodule(source.target)
        learns = any(True for _ in module.parameters()) and not isinstance(module, JOINING)
        return learns or self.tracer.chosen(module, source.target)

    def _asked(self, rules: Sequence[Cut]) -> set[fx.Node]:
        """The operations that the rules of ``cut`` name."""
        ends: list[tuple[fx.Node, str, nn.Module | None]]
        ends = [(n, name, module) for n in self.order for name, module in n.meta["ends"]]
        others = [(n, n.name, None) for n in self.order if is_float(n) and not n.meta["ends"] and n.op != "placeholder"]
        cuts: set[fx.Node] = set()
        for rule in rules:
            if isinstance(rule, str):
                found = [n for n, name, _ in ends if name == rule]
            elif isinstance(rule, type):
                found = [n for n, _, module in ends if isinstance(module, rule)]
            else:
                found = [n for n, name, module in [*ends, *others] if rule(name, module, n)]
            if not found and isinstance(rule, str):
                known = sorted({name for _, name, _ in ends})
                raise ValueError(f"cut names {rule!r}, but no such submodule is called: {nearest(rule, known)}")
            if not found and isinstance(rule, type):
                raise ValueError(f"cut names {rule.__name__}, but no module of this type is called")
            for n in found:  # of a tuple, what is taken out of it
                cuts |= {u for u in ([n] if is_float(n) else n.users) if u in self.order and is_float(u)}
        return cuts

    def _settle(self) -> None:
        """Add the cuts that follow from others, until there are no more."""
        count = -1
        while count != len(self.cuts):
            count = len(self.cuts)
            for n in self.order:
                origins = [{p} if p in self.cuts or p in self.inputs else self.sources[p] for p in _tensors_of(n)]
                self.sources[n] = set().union(*origins)
                merges = name_of(n) in MERGING and is_float(n) and n.op in ("call_function", "call_method")
                merges = merges and not n.meta["detached"]
                if (
                    self.default
                    and merges
                    and n not in self.merged
                    and len(self.sources[n]) > 1
                    and sum(map(bool, origins)) > 1
                ):
                    self.cuts.add(n)
            for n in reversed(self.order):
                users = [u for u in n.users if u in self.order and has_tensors(u)]
                self.homes[n] = set().union(*({u} if u in self.cuts else self.homes[u] for u in users))
                if n not in self.cuts and len(self.homes[n]) > 1:
                    learns, remembers = self._state(n)
                    if n in self.fed and is_float(n) and (learns or remembers):
                        self.cuts.add(n)
                    elif remembers:
                        refuse(n, "it draws random numbers or has buffers, and several nodes need what it returns")

    def _state(self, n: fx.Node) -> tuple[bool, bool]:
        """Whether ``n`` has parameters, and whether it has buffers or draws random numbers."""
        if n.op != "call_module":
            return any(map(self._is_learnt, _tensors_of(n))), n.meta["random"]
        module = self.root.get_submodule(str(n.target))
        return any(True for _ in module.parameters()), n.meta["random"] or any(True for _ in module.buffers())

    def _is_learnt(self, n: fx.Node) -> bool:
        """Whether ``n`` is computed from parameters (or buffers) and no input."""
        if n.op == "get_attr":
            return not str(n.target).startswith("_tensor_constant")
        return n not in self.fed and any((*self._state(n), *map(self._is_learnt, _tensors_of(n))))

    def _merge_tails(self) -> None:
        """Let a layer and what follows it be one node where that is an output and has no parameters.

        Else it would be a level that learns nothing.
        """
        for output in set(self.outputs) & self.cuts:
            learns = any(n.op == "get_attr" or any(self._state(n)) for n in self.piece(output))
            for layer in (self.sources[output] & self.cuts) - set(self.outputs):
                if len(self.sources[output]) == 1 and self.homes[layer] == {output} and not learns:
                    self.cuts.discard(layer)
                    self.merged.add(layer)
        self._settle()

    def piece(self, v: fx.Node) -> list[fx.Node]:
        """The operations of the prediction of ``v``, in order."""
        inside = {v}
        for n in reversed(self.order):
            if n in inside:
                inside |= {p for p in _tensors_of(n) if p not in self.cuts and p not in self.inputs}
        return [n for n in self.order if n in inside]

    def converted(self, root: nn.Module) -> Converted:
        """Return the graph over the submodules and parameters of ``root``: the module that was traced, or its like."""
        reserved = [*dir(nn.ModuleDict()), INPUT]  # what cannot name a node
        cuts = [n for n in self.order if n in self.cuts]
        names = {self.inputs[0]: INPUT} if len(self.inputs) == 1 else {}
        for n in (*self.inputs, *cuts):
            names.setdefault(n, _free(n.name, [*reserved, *names.values()]))
        nodes: dict[str, tuple[nn.Module, Sequence[str]]] = {}
        for v in cuts:
            parents = [n for n in self.order if n in self.sources[v]]
            nodes[names[v]] = (_Piece(self, root, parents).predict(v), [names[p] for p in parents])
        ends = {n: names[n] for n in self.outputs}
        for n in self.outputs:
            if n in self.inputs or self.homes[n]:  # an output is a node that feeds none
                ends[n] = _free(f"{names[n]}_out", [*reserved, *names.values(), *ends.values()])
                nodes[ends[n]] = (nn.Identity(), [names[n]])
        return Converted(root, nodes, [names[n] for n in self.inputs], map_arg(self.answer, lambda n: ends[n]))


class _Piece:
    """A prediction being built: operations from ``parents`` to a value node, on parts of ``root``."""

    def __init__(self, plan: _Plan, root: nn.Module, parents: list[fx.Node]) -> None:
        self.plan, self.root, self.parents = plan, root, parents
        self.graph = fx.Graph()
        self.parts: dict[str, Any] = {}
        self.copies = {p: self.graph.placeholder(p.name) for p in parents}

    def predict(self, v: fx.Node) -> fx.GraphModule:
        if not self.parents:
            refuse(v, "it does not depend on the input")
        for n in self.plan.piece(v):
            self.copies[n] = self._copied(n)
        self.graph.output(self.copies[v])
        return fx.GraphModule(self.parts, self.graph, class_name=type(self.root).__name__)

    def _copied(self, n: fx.Node) -> fx.Node:
        kept = dict(self.copies)
        for changed in n.meta["changed"]:
            if any(share_memory(changed, p) for p in self.parents):  # an activity stays what it is
                kept[changed] = self.graph.call_method("clone", (self.copies[changed],))
        arguments: dict[Any, Any] = {**dict(enumerate(n.args)), **n.kwargs}
        arguments = {
            key: map_arg(a, lambda a: kept[a] if a in kept else self._plain(a)) for key, a in arguments.items()
        }
        for key, in_training in n.meta["flags"].items():
            self.parts[f"{MODE}_{n.name}"] = Mode(self.root.get_submodule(n.meta["owner"]))
            flag = self.graph.call_module(f"{MODE}_{n.name}")
            arguments[key] = flag if in_training else self.graph.call_function(operator.not_, (flag,))
        if n.op in ("call_module", "get_attr"):
            own = _attribute(self.root, str(n.target))  # there is none for a constant that was made in forward
            self.parts[str(n.target)] = _attribute(self.plan.root, str(n.target)) if own is None else own
        args = tuple(arguments.pop(i) for i in range(len(n.args)))
        sizes = n.op == "call_method" and not any(isinstance(a, torch.dtype) for a in args)
        target = RESHAPING.get(str(n.target), n.target) if sizes else n.target
        made = self.graph.create_node(n.op, target, args, arguments, n.name)
        return self.graph.call_method("detach", (made,)) if n.meta["detached"] and is_float(n) else made

    def _plain(self, n: fx.Node) -> Any:
        """What is no tensor: a constant, or computed from the batch's size, or a parent's device or dtype."""

        def plain(values: Sequence[Any]) -> Any:
            first = values[0]
            if isinstance(first, tuple | list) and len(set(map(len, values))) == 1:
                return tuple(map(plain, zip(*values, strict=True)))
            if isinstance(first, torch.device | torch.dtype):  # follow the network to another
                what = "device" if isinstance(first, torch.device) else "dtype"
                like = [p for p in self.parents if getattr(p.meta["values"][0], what) == first]
                return self.graph.call_function(getattr, (self.copies[like[0]], what)) if like else first
            if all(value == first for value in values):
                return first
            if not isinstance(first, int) or not (line := _line_through(values)):
                refuse(
                    n,
                    "it depends on the size of the batch n, but not as a * n + b with whole numbers a and b: compute "
                    "it otherwise, or put it into a submodule and pass the type of that in leaves",
                )
            return self._line(self._batch(n), *line)

        return plain(n.meta["values"])

    def _line(self, x: fx.Node, slope: int, offset: int) -> fx.Node:
        x = x if slope == 1 else self.graph.call_function(operator.mul, (x, slope))
        return x if offset == 0 else self.graph.call_function(operator.add, (x, offset))

    def _batch(self, n: fx.Node) -> fx.Node:
        """The number of samples, from a parent; a parent may have several entries for each of them."""
        for p in self.parents:
            for dimension, sizes in enumerate(zip(*(x.shape for x in p.meta["values"]), strict=True)):
                if (each := sizes[1] - sizes[0]) and list(sizes) == [each * n for n in BATCHES]:
                    size = self.graph.call_method("size", (self.copies[p], dimension))
                    return size if each == 1 else self.graph.call_function(operator.floordiv, (size, each))
        return refuse(n, "the size of the batch is not known where this is needed")


def _checked(module: object, example: object) -> tuple[Tensor, ...]:
    """Return the examples, once the arguments are what they should be."""
    if not isinstance(module, nn.Module):
        hint = ": make an object of it, by its arguments" if isinstance(module, type) else ""
        raise TypeError(f"module is a {type(module).__name__}, but must be a torch.nn.Module{hint}")
    if isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_orig_mod"):
        raise TypeError("module is compiled: give the one that it was made from (of torch.compile, its _orig_mod)")
    if isinstance(module, Graph):
        raise TypeError("module is a deeppc.Graph already: train it as it is")
    examples = example if isinstance(example, tuple) else (example,)
    if not examples or not all(isinstance(x, Tensor) for x in examples):
        kinds = " and ".join(type(x).__name__ for x in examples) or "empty"
        raise TypeError(f"example_input is {kinds}, but must be a tensor, or a tuple of tensors for several inputs")
    if any(x.layout != torch.strided for x in examples):
        raise TypeError("example_input is sparse, but networks take dense tensors: call its to_dense()")
    if any(x.dim() == 0 or len(x) == 0 for x in examples) or len({len(x) for x in examples}) > 1:
        shapes = " and ".join(str(tuple(x.shape)) for x in examples)
        raise ValueError(f"example_input has the shape {shapes}: expected a batch, with an entry for each sample")
    lazy = [name for name, x in [*module.named_parameters(), *module.named_buffers()] if is_lazy(x)]
    if lazy:
        raise ValueError(f"{lazy[0]!r} has no shape yet: call the module once before it is converted")
    return examples


def _several(given: Any) -> list[Any]:
    several = list(given) if isinstance(given, tuple | list | set | frozenset) else [given]
    for one in several:
        if not isinstance(one, str) and not callable(one):
            raise TypeError(f"{one!r} does not say where to cut: give names of submodules, their types, or functions")
    return several


def _require_there(module: nn.Module, leaves: Sequence[Any]) -> None:
    for leaf in leaves:
        if isinstance(leaf, str) and leaf not in (known := [name for name, _ in module.named_modules() if name]):
            raise ValueError(f"leaves names {leaf!r}, but there is no such submodule: {nearest(leaf, known)}")
        if isinstance(leaf, type) and not any(isinstance(m, leaf) for m in module.modules()):
            raise ValueError(f"leaves names {leaf.__name__}, but no submodule is of this type")
        if not isinstance(leaf, str | type):
            raise TypeError(f"{leaf!r} names no leaf: give types of modules, or names of submodules")


def _free(name: str, taken: Container[str]) -> str:
    """A name that is not taken: ``name``, if need be with underscores."""
    while name in taken:
        name += "_"
    return name


def _line_through(values: Sequence[int]) -> tuple[int, int] | None:
    """``a`` and ``b`` if the values for batches of ``SIZES`` are ``a * size + b``."""
    slope = values[1] - values[0]
    offset = values[0] - slope * SIZES[0]
    return (slope, offset) if list(values) == [slope * n + offset for n in SIZES] else None


def _tensors_of(n: fx.Node) -> list[fx.Node]:
    return [p for p in n.all_input_nodes if has_tensors(p)]


def _attribute(root: nn.Module, name: str) -> Any:
    """What ``root`` has under a dotted name; None if nothing."""
    return functools.reduce(lambda thing, part: getattr(thing, part, None), name.split("."), root)  # type: ignore


def _equal(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, Tensor):
        if not isinstance(ours, Tensor) or ours.dtype != theirs.dtype:
            return False
        return ours.is_meta or torch.allclose(ours, theirs, equal_nan=True)
    if isinstance(theirs, Mapping):
        return all(_equal(ours[key], value) for key, value in theirs.items())
    if isinstance(theirs, tuple | list):
        return all(map(_equal, ours, theirs))
    return bool(ours == theirs)
