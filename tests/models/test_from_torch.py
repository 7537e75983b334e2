"""Torch modules as graphs: the same numbers, the same parameters, and refusals that name the line."""

import copy
import inspect
import pickle
import random
import re
import threading
from collections import namedtuple
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models.zoo import CLASSES, NETWORKS
from nets import assert_same, backprop, gradients
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

from deeppc import Algorithm, Graph, from_torch
from deeppc.core.energies import Gaussian

# On a balanced graph half of backprop's gradients (1 - lr_x), and the whole at outputs.
PARALLEL = Algorithm.parse("pc+s+f", alpha=0.0, lr_x=0.5, depth_gain=True)


def example(n=3, dtype=torch.float32):
    g = torch.Generator().manual_seed(1)
    return torch.rand(n, 1, 8, 8, generator=g, dtype=dtype), torch.randint(0, CLASSES, (n,), generator=g)


def made(name):
    if name.startswith("torchvision") and find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    torch.manual_seed(0)
    return NETWORKS[name]()


MARKS = {"torchvision resnet18": pytest.mark.slow, "torchvision vgg11_bn": pytest.mark.slow}
every_network = pytest.mark.parametrize("name", [pytest.param(n, marks=MARKS.get(n, ())) for n in NETWORKS])


def assert_converts(module, *xs, **options):
    """The converted module answers as the module does, for other batches, in both modes; returns it."""
    net = from_torch(module, xs if len(xs) > 1 else xs[0], **options)
    twin = copy.deepcopy(module)
    for mode in (True, False):
        for n in (2, 5):
            batch = [torch.randn(n, *x.shape[1:]).to(x.dtype) for x in xs]
            torch.manual_seed(2)
            expected = twin.train(mode)(*(x.clone() for x in batch))
            torch.manual_seed(2)
            answer = net.train(mode)(*batch)
            torch.testing.assert_close(answer, expected, rtol=0, atol=0)
    for name, part in module.named_modules():
        if part in set(net.modules()):  # else nothing depends on it
            torch.testing.assert_close(dict(part.named_buffers()), dict(twin.get_submodule(name).named_buffers()))
    return net.train()


@every_network
def test_the_forward_pass_and_the_parameters_are_the_modules(name):
    module, (images, _) = made(name), example()
    before, random = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    net = from_torch(module.eval(), images)
    assert torch.equal(torch.get_rng_state(), random)
    assert not module.training
    torch.testing.assert_close(dict(module.state_dict()), dict(before), rtol=0, atol=0)
    assert {id(p) for p in net.parameters()} == {id(p) for p in module.parameters()}
    assert list(net.state_dict()) == list(before) == list(net.balance().state_dict())
    net.load_state_dict({key: value + 1 for key, value in before.items()})
    torch.testing.assert_close(next(module.parameters()), next(iter(before.values())) + 1)
    assert_converts(module.train(), images)


def assert_learns(net, module, x, targets, expected):
    """By bp what torch finds, and by pc+s+f the same but for known factors."""
    gradients(Algorithm.parse("bp"), net, x, targets)
    assert_same({n: p.grad for n, p in module.named_parameters()}, expected, 1e-10)
    last = {id(p) for p in net.nodes[net.output].parameters()}
    scale = {n: 1.0 if id(p) in last else 0.5 for n, p in module.named_parameters()}
    gradients(PARALLEL, net.balance(), x, targets)
    ours = {n: None if p.grad is None else p.grad / scale[n] for n, p in module.named_parameters()}
    assert_same(ours, expected, 1e-10)


@every_network
def test_gradients_are_those_of_torch(name):
    module, (images, labels) = made(name).double(), example(dtype=torch.float64)
    expected = backprop(module, images, F.one_hot(labels, CLASSES))
    assert_learns(from_torch(module, images), module, images, labels, expected)


class Two(nn.Module):
    """Whatever stands between two layers."""

    def __init__(self, between, size=6):
        super().__init__()
        self.first, self.second, self.between = nn.Linear(4, 6), nn.Linear(size, 3), between

    def forward(self, x):
        return self.second(self.between(self.first(x)))


class Of(nn.Module):
    """A module from a function of itself and its inputs; ``parts`` become its attributes."""

    def __init__(self, function, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.function = function

    def forward(self, *xs):
        return self.function(self, *xs)


@dataclass
class Pair:
    a: torch.Tensor
    b: torch.Tensor


Named = namedtuple("Named", "a b")
halved = torch.autocast("cpu", dtype=torch.bfloat16)
X = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
LAYER = nn.Linear(4, 4)


@pytest.mark.parametrize(
    ("module", "nodes"),
    [
        (Two(nn.ReLU(inplace=True)), "first second"),
        (Two(nn.Dropout(0.5, inplace=True)), "first second"),
        (Two(Of(lambda s, x: F.dropout(x, 0.5, s.training))), "first second"),
        (Two(Of(lambda s, x: F.dropout(x, 0.5, not s.training))), "first second"),
        (Two(Of(lambda s, x: x.relu_().mul_(2))), "first second"),
        (Two(Of(lambda s, x: x + s.b, b=nn.Parameter(torch.randn(6)))), "first second"),
        (Two(Of(lambda s, x: x @ s.w, w=nn.Parameter(torch.randn(6, 6)))), "first matmul second"),
        (Two(Of(lambda s, x: x * s.m.relu(), m=nn.Buffer(torch.randn(6)))), "first second"),
        (Two(Of(lambda s, x: x * torch.arange(6))), "first second"),
        (Two(Of(lambda s, x: x + x * x.size(-1))), "first second"),
        (Two(Of(lambda s, x: x.relu() if x.dim() == 2 else x)), "first second"),
        (Two(Of(lambda s, x: torch.cat([p.tanh() for p in x.chunk(2, 1)], 1))), "first second"),
        (Two(Of(lambda s, x: x + torch.zeros(x.size(0), 6, device=x.device, dtype=x.dtype))), "first second"),
        (Two(Of(lambda s, x: x.view(x.shape[0] * 2, 3).tanh().view(-1, 6))), "first second"),
        (Two(Of(lambda s, x: torch.arange(len(x.shape) and x.size(0) + 1)[1:, None] * x)), "first second"),
        (Two(Of(lambda s, x: torch.stack([x[:, i] for i in range(x.size(1))], 1))), "first second"),
        (Two(Of(lambda s, x: torch.topk(x, 6, dim=1)[0])), "first second"),
        (Two(Of(lambda s, x: x[: max(x.size(0), 1)] if x.numel() > 0 else x)), "first second"),
        (Two(Of(lambda s, x: x if 2 * x.size(0) == x.shape[0] + len(x.T) - 6 + x.shape[0] else -x)), "first second"),
        (Two(Of(lambda s, x: x * (x @ x.T).reshape(-1, 1, 1).shape[1])), "first second"),
        (Two(Of(lambda s, x: x * s.b if s.b.requires_grad else x, b=nn.Parameter(torch.randn(6)))), "first second"),
        (
            Two(Of(lambda s, x: F.batch_norm(x, s.m, s.v), m=nn.Buffer(torch.randn(6)), v=nn.Buffer(torch.rand(6)))),
            "first second",
        ),
        (Two(Of(lambda s, x: s.d(x) + s.d(x).relu() + x, d=nn.Dropout(0.5))), "first second"),
        (
            Two(Of(lambda s, x: s.l(x.unsqueeze(1))[0].squeeze(1), l=nn.LSTM(6, 6, batch_first=True))),
            "first getitem second",
        ),
        (Of(lambda s, x: s.l(x).relu(), l=LAYER), "relu"),
        (Of(lambda s, x: F.log_softmax(s.l(x), 1), l=LAYER), "log_softmax"),
        (Of(lambda s, x: s.l(x) + x, l=LAYER), "l add"),
        (Of(lambda s, x: s.l(x) * 2 + x.sum(1, keepdim=True) - 1, l=LAYER), "l sub"),
        (Of(lambda s, x: s.n(s.l(x)).relu() * s.n(x), l=LAYER, n=nn.LayerNorm(4)), "l mul"),
        (Of(lambda s, x, mask=None: s.l(x) if mask is None else x, l=LAYER), "l"),
        (Of(lambda s, x: s.keys(s.items(x)), keys=nn.Linear(4, 2), items=nn.Linear(4, 4)), "items_ keys_"),
        (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)), "_0 _3"),
        (nn.Linear(4, 2), "linear"),
        (nn.Identity(), "input_out"),
    ],
)
def test_value_nodes_are_after_layers_and_where_paths_meet(module, nodes):
    net = assert_converts(module, X)
    assert " ".join(net.nodes) == nodes


def test_what_has_state_and_feeds_several_nodes_is_a_node():
    def forward(s, x):
        y = s.norm(s.stem(x))
        return s.a(F.dropout(y, 0.5, s.training).relu()) + s.b(y)

    layers = {name: nn.Linear(4, 4) for name in ("stem", "a", "b")}
    net = assert_converts(Of(forward, norm=nn.BatchNorm1d(4), **layers), X)
    assert net.parents == {"stem": ("input",), "norm": ("stem",), "a": ("norm",), "b": ("norm",), "add": ("a", "b")}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x):
        return x + self.b(self.a(self.norm(x)).relu())


@pytest.mark.parametrize(
    ("options", "nodes"),
    [
        ({}, "_0_a _0_b add _1_a _1_b add_1 _2"),
        ({"cut": Block}, "add add_1 _2"),
        ({"cut": "0"}, "add _2"),
        ({"cut": ["1.a", nn.LayerNorm]}, "_0_norm _0_b _1_norm _1_a _2"),
        ({"cut": lambda name, module, node: name == "1.a" or node.name == "relu"}, "relu _0_b _1_a _2"),
        ({"cut": []}, "_2"),
        ({"leaves": Block}, "_0 _1 _2"),
        ({"leaves": ["1"]}, "_0_a _0_b add _1 _2"),
    ],
)
def test_cuts_are_where_the_user_says(options, nodes):
    module = nn.Sequential(Block(), Block(), nn.Linear(4, 2))
    net = assert_converts(module, X, **options)
    assert " ".join(net.nodes) == nodes
    balanced = from_torch(module, X, balance=True, **options)
    assert all(balanced.hops[v] == balanced.arrival[v] for v in balanced.nodes)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda s, x: s.l(x) if x.sum() > 0 else x, "depends on the data"),
        (lambda s, x: s.l(x) if len(x) > 9 else x, "size of the batch"),
        (lambda s, x: s.l(x) / x.max().item(), "plain Python value"),
        (lambda s, x: s.l(x) if float(x.norm()) > 1 else x, "plain Python value"),
        (lambda s, x: torch.no_grad()(lambda y: y.relu_())(s.l(x)), "hides that from its gradient"),
        (lambda s, x: s.l(torch.stack(list(x))), "loops over the samples"),
        (lambda s, x: (lambda y: (y.relu_(), y)[1])(s.l(x)), "old name"),
        (lambda s, x: (lambda y: y.view(-1)[:2].zero_().sum() + y)(s.l(x)), "old name"),
        (lambda s, x: s.l(x) * s.b.add_(1), "changes b in place"),
        (lambda s, x: s.l(x) if s.training else x, "in training than in eval mode"),
        (lambda s, x: s.l(x).argmax(1), "tensors of floats"),
        (lambda s, x: torch.ones(x.size(0), 1), "does not depend on the input"),
        (lambda s, x: s.l(x) * (1 / x.size(0)), "size of the batch"),
        (lambda s, x: (lambda r: s.l(s.l(x) + r) + r)(torch.rand(x.size(0), 4)), "draws random numbers"),
        (lambda s, x: s.l(x.view(4, 4)), "invalid for input"),
        (lambda s, x: s.l(torch.cat([x[x.size(0) // 2 :], x[: x.size(0) // 2]])), "size of the batch n"),
        (lambda s, x: s.l(x[: x.size(0) // 50]), "size of the batch n"),
        (lambda s, x: s.l(x) / (x.size(0) * x.size(0)), "size of the batch n"),
        (lambda s, x: s.l(x) / (x @ x.T).numel(), "size of the batch n"),
        (lambda s, x: s.l(x.repeat(2, 1).split([2] * x.size(0))[0]), "size of the batch n"),
        (lambda s, x: s.l(x[: min(x.size(0), 4)]), "or on the size of the batch"),
        (lambda s, x: s.l(x) if x.shape[0] > 3 else x, "or on the size of the batch"),
        (lambda s, x: s.l(x) if x.shape[0] > 64 else x, "or on the size of the batch"),
        (lambda s, x: s.l(x) if x.shape[0] == 1 else x, "or on the size of the batch"),
        (lambda s, x: s.l(x) * torch.randn(4), "random numbers are drawn"),
        (lambda s, x: halved(s.l)(x), "enters autocast"),
        (lambda s, x: torch.autocast("cpu", enabled=False)(s.l)(x), "enters autocast"),
        (lambda s, x: (h := s.l(x), h.requires_grad and h.register_hook(print))[0], "requires a gradient"),
        (lambda s, x: s.l(F.batch_norm(x, s.b, s.b + 1, training=s.training)), "such as nn.BatchNorm2d"),
        (lambda s, x: s.l(torch.batch_norm(x, None, None, s.b, s.b, s.training, 0.1, 0.1, False)), "nn.BatchNorm2d"),
        (lambda s, x: checkpoint(s.l, x.requires_grad_(), use_reentrant=True), "CheckpointFunction takes a function"),
    ],
)
def test_what_cannot_be_converted_is_refused_with_its_line(function, words):
    module = Of(function, l=nn.Linear(4, 4), b=nn.Buffer(torch.zeros(4)))
    line = inspect.unwrap(function).__code__.co_firstlineno
    with pytest.raises(ValueError, match=f"line {line} of {re.escape(__file__)}, `[^`]*`,[^`]*{words}"):
        from_torch(module, X)


class Shallower(nn.Module):
    """Stochastic depth: in training, blocks are left out at random."""

    def __init__(self, draw):
        super().__init__()
        self.blocks, self.head, self.draw = nn.ModuleList(nn.Linear(4, 4) for _ in range(3)), nn.Linear(4, 2), draw

    def forward(self, x):
        for block in self.blocks:
            if self.training and self.draw() < 0.3:
                continue
            x = x + block(x)
        return self.head(x)


@pytest.mark.parametrize("draw", [lambda: torch.rand(1).item(), random.random, lambda: np.random.rand()])
def test_layers_that_are_left_out_at_random_are_always_refused(draw):
    for seed in range(20):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        with pytest.raises(ValueError, match=f"of {re.escape(__file__)}.*random numbers are drawn"):
            from_torch(Shallower(draw), X)


def test_the_advice_names_the_type_that_can_be_a_leaf():
    class Branching(nn.Module):
        def forward(self, x):
            return x.relu() if x.sum() > 0 else x

    with pytest.raises(ValueError, match="pass leaves=Branching, which makes one node of it"):
        from_torch(Two(Branching()), X)
    assert " ".join(assert_converts(Two(Branching()), X, leaves=Branching).nodes) == "first between second"


@pytest.mark.parametrize(
    ("args", "options", "error", "words"),
    [
        ((nn.Linear, X), {}, TypeError, "make an object of it"),
        ((len, X), {}, TypeError, "must be a torch.nn.Module"),
        ((Graph({"y": (nn.Linear(4, 2), "input")}), X), {}, TypeError, "Graph already"),
        ((LAYER, [1, 2]), {}, TypeError, "must be a tensor"),
        ((LAYER, ()), {}, TypeError, "empty"),
        ((LAYER, X[:0]), {}, ValueError, r"shape \(0, 4\)"),
        ((LAYER, torch.zeros(2, 5)), {}, ValueError, "cannot be called with the example"),
        ((nn.LazyLinear(3), X), {}, ValueError, "no shape yet"),
        ((torch.compile(LAYER, backend="eager"), X), {}, TypeError, "module is compiled"),
        ((Of(lambda s, x: s.l(x), l=LAYER, lock=threading.Lock()), X), {}, ValueError, "cannot be copied"),
        ((Of(lambda s, x: Pair(s.l(x), x), l=LAYER), X), {}, ValueError, "makes a Pair of tensors: make a tuple"),
        ((Of(lambda s, x: s.l(x) if isinstance(x, torch.Tensor) else x, l=LAYER), X), {}, ValueError, "from torch.fx"),
        ((Two(nn.ReLU()), X), {"cut": "secnd"}, ValueError, "did you mean 'second'"),
        ((Two(nn.ReLU()), X), {"cut": nn.Conv2d}, ValueError, "Conv2d"),
        ((Two(nn.ReLU()), X), {"cut": 3}, TypeError, "names of submodules"),
        ((Two(nn.ReLU()), X), {"leaves": "secnd"}, ValueError, "did you mean 'second'"),
        ((Two(nn.ReLU()), X), {"leaves": [nn.Conv2d]}, ValueError, "leaves names Conv2d"),
        ((Two(nn.ReLU()), X), {"leaves": len}, TypeError, "names no leaf"),
        ((nn.LSTM(4, 2, batch_first=True), X[:, None]), {}, ValueError, f"of {re.escape(__file__)}.*tensors of floats"),
    ],
)
def test_wrong_arguments_are_refused_in_words(args, options, error, words):
    with pytest.raises(error, match=words):
        from_torch(*args, **options)


def test_what_is_frozen_may_be_computed_without_gradients():
    module = Of(torch.no_grad()(lambda s, x: s.l(x)), l=nn.Linear(4, 4).requires_grad_(False))
    assert torch.equal(from_torch(module, X)(X), module(X))


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.m, self.n = nn.Buffer(torch.ones(6)), nn.BatchNorm1d(6)

    def forward(self, x):
        return F.dropout(x * self.m + F.relu(self.n(x), inplace=True), 0.5, self.training)


def test_a_converted_network_is_a_module_like_others():
    """It can be copied, pickled, moved to another precision, and follows what the original loads."""
    module = Two(Scaled())
    net = from_torch(module, X)
    for copied in (copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))):
        other = copied(net)
        for mode in (True, False):
            torch.manual_seed(0)
            expected = net.train(mode)(X)
            torch.manual_seed(0)
            assert torch.equal(other.train(mode)(X), expected)
        assert {id(p) for p in other.parameters()} == {id(p) for p in other.original.parameters()}
    with torch.device("meta"):
        assert list(from_torch(Two(Scaled()), torch.empty(2, 4)).nodes) == list(net.nodes)
    net.double()
    assert net(X.double()).dtype == torch.float64
    module.load_state_dict({key: value * 2 for key, value in module.state_dict().items()})
    assert torch.equal(net(X.double()), module(X.double()))
    assert torch.equal(module.half().between.m, net.half().nodes["second"].between.m)


def test_a_view_works_in_every_memory_format():
    """As the command line trains images, which the module itself could not be called with."""

    def forward(s, x):
        h = s.conv(x).relu()
        count = (x > 0).view(torch.uint8).sum((1, 2, 3))[:, None]  # this one is about the kind of numbers
        return s.head(h.view(x.size(0), -1) + s.conv(x).view_as(h.flatten(1))) + count

    module = Of(forward, conv=nn.Conv2d(1, 2, 3, padding=1), head=nn.Linear(32, 3))
    images = torch.randn(4, 1, 4, 4)
    net, expected = from_torch(module, images), module(images)
    assert torch.equal(net(images), expected)
    net.to(memory_format=torch.channels_last)
    last = images.to(memory_format=torch.channels_last)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        module(last)
    torch.testing.assert_close(net(last), expected)


class Placed(nn.Module):
    """A parameter and buffers that ``forward`` uses itself, one of which is not saved; and a part that it does not."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.unused = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(2, 2)
        self.place, self.scale = nn.Parameter(torch.randn(4)), nn.Buffer(torch.rand(4))
        self.one = nn.Buffer(torch.ones(4), persistent=False)

    def forward(self, x):
        return self.b(self.a(x + self.place).relu() * self.scale / self.one + self.place)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("loads", ["the network", "the module", "a parent", "an average"])
def test_what_is_loaded_reaches_network_and_module(loads, assign):
    module, other = Placed(), Placed()
    net, state = from_torch(module, X), other.state_dict()
    if loads == "the network":
        assert list(net.state_dict()) == list(state)
        net.load_state_dict(state, assign=assign)
    elif loads == "the module":
        module.load_state_dict(state, assign=assign)
    elif loads == "a parent":
        nn.Sequential(nn.ReLU(), net).load_state_dict({f"1.{k}": v for k, v in state.items()}, assign=assign)
    else:
        average = AveragedModel(net)
        assert list(average.state_dict()) == ["n_averaged", *(f"module.{name}" for name in state)]
        average.load_state_dict(
            {f"module.{k}": v for k, v in state.items()} | {"n_averaged": torch.tensor(1)}, assign=assign
        )
        net, module = average.module, average.module.original
    used = {id(p) for name, p in module.named_parameters() if "unused" not in name}
    assert {id(p) for p in net.parameters()} == used
    assert torch.equal(net(X), other(X))
    assert torch.equal(module(X), other(X))
    assert torch.equal(module.unused.weight, other.unused.weight)
    gradients(Algorithm.parse("bp"), net, X, target := torch.zeros(4, 2))
    assert_same({n: p.grad for n, p in module.named_parameters()}, backprop(other, X, target), 1e-6)


def test_what_does_not_fit_is_said_by_the_names_of_the_module():
    module = Placed()
    net = from_torch(module, X)
    for network, prefix in ((net, ""), (nn.ModuleDict({"net": net}), "net.")):
        state = {prefix + k: v for k, v in module.state_dict().items()}
        lacks = {k: v for k, v in state.items() if k != f"{prefix}place"}
        found = network.load_state_dict(lacks | {f"{prefix}more": X}, strict=False)
        assert found == ([f"{prefix}place"], [f"{prefix}more"])
        for wrong, words in (
            (lacks, f'Missing.*"{prefix}place"'),
            ({**state, f"{prefix}a.bias": X}, "mismatch.*a.bias"),
        ):
            with pytest.raises(RuntimeError, match=words):
                network.load_state_dict(wrong)


def test_a_call_with_other_tensors_uses_these():
    module, other = Placed(), Placed()
    other.scale.copy_(module.scale)
    net, names = from_torch(module, X), {id(p): name for name, p in module.named_parameters()}
    given = {name: other.get_parameter(names[id(p)]) for name, p in net.named_parameters()}
    assert torch.equal(torch.func.functional_call(net, given, (X,)), other(X))
    assert torch.equal(net(X), module(X))
    assert torch.equal(torch.export.export(net, (X,)).module()(X), module(X))
    assert torch.equal(torch.compile(net, backend="eager")(X), module(X))


def test_functions_follow_the_mode_of_network_and_module():
    module = Two(Of(lambda s, x: F.dropout(x, 0.5, s.training)))
    net = from_torch(module, X)
    for asks in (module, net):
        for mode in (False, True):
            asks.train(mode)
            drops = not torch.equal(net(X), net(X))
            assert drops is mode
    module.between.eval()
    assert torch.equal(net(X), module(X))


class Tied(nn.Module):
    """A layer twice, and an autoencoder's decoder that is its encoder."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        x = self.a(self.a(x).relu()).relu()
        return F.linear(self.b(x), self.b.weight.t())


def test_lessons_of_shared_parameters_add_up():
    module, x = Tied().double(), X.double()
    expected = backprop(module, x, target := torch.randn_like(x))
    gradients(Algorithm.parse("bp"), from_torch(module, x), x, target)
    assert_same({n: p.grad for n, p in module.named_parameters()}, expected, 1e-10)


def test_several_inputs_and_outputs():
    parts = {"a": nn.Linear(4, 3), "b": nn.Linear(4, 3)}
    net = assert_converts(Of(lambda s, x: {"a": s.a(x), "h": [s.b(x), s.a(x), None]}, **parts), X)
    assert net.outputs == ("a", "b", "a_1")
    net = assert_converts(Of(lambda s, x: Named(b=s.b(x), a=s.a(x)), **parts), X)
    assert net(X).a.shape == (4, 3)
    net = assert_converts(Of(lambda s, x: (h := s.a(x), s.b(h.repeat(1, 2)[:, :4])), **parts), X)
    assert list(net.nodes) == ["a", "b", "a_out"]
    assert net.outputs == ("a_out", "b")
    parts = {"a": nn.Linear(4, 4), "a_out": nn.Linear(4, 3), "items": nn.Linear(4, 4), "items_": nn.Linear(4, 4)}
    net = assert_converts(Of(lambda s, x: (h := s.items_(s.items(s.a(x))), s.a_out(h), s.a(x)), **parts), X)
    assert list(net.nodes) == ["a", "items_", "items__", "a_out", "a_1", "items___out"]
    net = assert_converts(Of(lambda s, x: (h := s.a(x), s.a_out(h)), **parts), X)
    assert net.outputs == ("a_out_", "a_out")


class Encoders(nn.Module):
    """torch's own transformer, which sees no future, and decides by a mask that is a buffer."""

    def __init__(self, hint):
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True)
        self.encoders, self.hint = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), hint
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(5))

    def forward(self, x):
        return self.encoders(x, mask=self.mask, is_causal=self.hint)


@pytest.mark.parametrize("hint", [None, True])
def test_a_transformer_of_torch_has_nodes_after_its_layers(hint):
    module, x, target = Encoders(hint).double(), *torch.randn(2, 3, 5, 4, dtype=torch.float64)
    net = from_torch(module, x)
    for i in (0, 1):
        assert {f"encoders_layers_{i}_linear{j}" for j in (1, 2)} <= set(net.nodes)
    assert torch.equal(net(x), module(x))
    assert torch.backends.mha.get_fastpath_enabled()
    torch.testing.assert_close(net.eval()(x), module.eval()(x))
    assert_learns(net.train(), module, x, target, backprop(module, x, target))
    pair = from_torch(nn.Transformer(4, 2, 1, 1, 6, batch_first=True), (X[:, None], X[:, None]))
    assert {"encoder_layers_0_linear2", "decoder_layers_0_linear2"} <= set(pair.nodes)


class Drawn(Encoders):
    def forward(self, x):
        return self.encoders(x, mask=self.mask - x[2:].abs().sum())  # which sees no future in a batch of two alone


class Branching(nn.TransformerEncoderLayer):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def test_a_transformer_that_cannot_be_looked_into_is_one_node():
    assert list(from_torch(Drawn(None), torch.randn(2, 5, 4)).nodes) == ["encoders"]
    with pytest.raises(ValueError, match="depends on the data"):
        from_torch(nn.Sequential(Branching(4, 2, 6), nn.Linear(4, 2)), X)


class Unlearnt(nn.Module):
    """A first part that is not to learn, as people write it."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        with torch.no_grad():
            parts = self.b(self.a(x).relu_()).chunk(2, 1)
        return self.c(x + torch.cat([parts[0], parts[1].tanh()], 1))


def test_what_runs_without_gradients_learns_nothing():
    module, x, target = Unlearnt().double(), X.double(), torch.randn(4, 4, dtype=torch.float64)
    net = assert_converts(module, x)
    assert list(net.nodes) == ["c"]
    expected = backprop(module, x, target)
    assert {name for name, g in expected.items() if g is not None} == {"c.weight", "c.bias"}
    assert_learns(net, module, x, target, expected)


class Sign(torch.autograd.Function):
    """A straight-through estimator."""

    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Reversed(torch.autograd.Function):
    """The identity, whose gradient is turned round."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.factor * gradient, None


sign = Sign.apply  # as people write it


class Custom(nn.Module):
    """Operations with a backward of their own, on activities and on weights."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self._Sign = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        h = F.linear(Sign.apply(self.a(x)), sign(self.b.weight), self.b.bias)
        return self._Sign(Reversed.apply(h, 0.5) + sign(h))


def test_a_function_of_autograd_keeps_its_own_backward():
    module, x, target = Custom().double(), X.double(), torch.randn(4, 3, dtype=torch.float64)
    net = from_torch(module, x)
    assert list(net.nodes) == ["a", "linear", "_sign"]
    expected = backprop(module, x, target)
    assert all(gradient.any() for gradient in expected.values())
    assert_learns(net, module, x, target, expected)
    assert_converts(module.float(), X)
    assert_converts(nn.Sequential(module, Of(lambda s, x: sign(x)), nn.Linear(3, 2)), X)
    assert torch.equal(pickle.loads(pickle.dumps(net))(X), module(X))


class Text(nn.Module):
    """A language model of one block: whole numbers in, positions that depend on no input, tied embeddings."""

    def __init__(self):
        super().__init__()
        self.words, self.places, self.norm = nn.Embedding(7, 4), nn.Embedding(6, 4), nn.LayerNorm(4)
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.1, batch_first=True)
        self.register_buffer("future", torch.ones(6, 6, dtype=torch.bool).triu(1))

    def forward(self, ids):
        n = ids.shape[1]
        x = self.words(ids) + self.places(torch.arange(n, device=ids.device))
        y = self.norm(x)
        x = x + self.attention(y, y, y, attn_mask=self.future[:n, :n], need_weights=False)[0]
        return x @ self.words.weight.t()


def test_a_language_model():
    ids = torch.randint(0, 7, (3, 5))
    module, target = Text().double(), torch.randn(3, 5, 7, dtype=torch.float64)
    net = from_torch(module, ids)
    assert list(net.nodes) == ["words", "add", "getitem_2", "add_1", "matmul"]
    module.eval()
    expected = backprop(module, ids, target)
    gradients(Algorithm.parse("bp"), net.eval(), ids, target)
    assert_same({n: p.grad for n, p in module.named_parameters()}, expected, 1e-10)


def test_each_output_has_its_target():
    def forward(s, x, y):
        h = s.a(x).tanh() * s.b(y)
        return s.late(s.middle(h).relu()), s.early(h)

    sizes = {"a": (4, 4), "b": (2, 4), "middle": (4, 5), "late": (5, 3), "early": (4, 2)}
    layers = {name: nn.Linear(*size) for name, size in sizes.items()}
    module, x, y = Of(forward, **layers).double(), X.double(), X[:, :2].double()
    targets = tuple(torch.randn(4, n, dtype=torch.float64) for n in (3, 2))
    loss = sum((out - target).square().sum() / 2 for out, target in zip(module(x, y), targets, strict=True))
    expected = dict(
        zip(layers, torch.autograd.grad(loss / 4, [layer.weight for layer in layers.values()]), strict=True)
    )
    net = from_torch(module, (x, y), balance=True)
    assert net.outputs == ("late", "early")
    for algo, factor in ((Algorithm.parse("bp"), 1.0), (PARALLEL, 0.5)):
        gradients(algo, net, (x, y), targets)
        scale = dict.fromkeys(layers, factor) | {"late": 1.0, "early": 1.0}
        assert_same({name: layer.weight.grad / scale[name] for name, layer in layers.items()}, expected, 1e-10)


def test_energies_of_a_converted_network_are_saved_with_it():
    net = from_torch(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), X)
    keys = list(net.state_dict())
    net.energies["_0"] = energy = Gaussian(torch.ones(4), learnt=True)
    state = net.balance().double().state_dict()
    assert list(state) == [*keys, "energies._0.log_precision"]
    net.load_state_dict({key: value + 1 for key, value in state.items()})
    assert torch.equal(energy.log_precision, torch.ones(4, dtype=torch.float64))
    parent = nn.ModuleDict({"net": net})
    assert list(parent.state_dict()) == [f"net.{key}" for key in state]
    parent.load_state_dict({f"net.{key}": torch.full_like(value, 2) for key, value in state.items()})
    assert torch.equal(energy.log_precision, torch.full((4,), 2.0, dtype=torch.float64))


@st.composite
def programs(draw):
    """A module that runs a random list of operations on earlier results."""
    steps, count = [], 1
    for _ in range(draw(st.integers(1, 9))):
        kind = draw(st.sampled_from(["layer", "layer", "relu", "relu_", "norm", "add", "mul", "cat", "iadd"]))
        steps.append((kind, draw(st.integers(0, count - 1)), draw(st.integers(0, count - 1))))
        count += 1
    return steps


class Program(nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.steps = steps
        self.layers = nn.ModuleList(nn.BatchNorm1d(4) if k == "norm" else nn.Linear(4, 4) for k, _, _ in steps)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        results = [x]
        for (kind, i, j), layer in zip(self.steps, self.layers, strict=True):
            a, b = results[i], results[j]
            if kind in ("layer", "norm"):
                out = layer(a)
            elif kind == "cat":
                out = torch.cat([a[:, :2], b[:, 2:]], 1)
            elif kind in ("relu_", "iadd"):  # in place, on a tensor of its own
                out = a + 0
                out = out.relu_() if kind == "relu_" else operator_iadd(out, b)
            else:
                out = {"relu": a.relu(), "add": a + b, "mul": a * b}[kind]
            results.append(out)
        return self.head(results[-1] + results[len(results) // 2])


def operator_iadd(a, b):
    a += b
    return a


@given(programs())
@settings(max_examples=30, deadline=None, derandomize=True)
def test_random_modules(steps):
    torch.manual_seed(0)
    module = Program(steps).double()
    x, target = X.double(), torch.randn(4, 3, dtype=torch.float64)
    net = assert_converts(module, x)
    assert_learns(net, module, x, target, backprop(module, x, target))


def test_a_sparse_example_is_refused() -> None:
    with pytest.raises(TypeError, match=r"example_input is sparse, .* to_dense"):
        from_torch(nn.Linear(4, 2), torch.ones(6, 4).to_sparse())
