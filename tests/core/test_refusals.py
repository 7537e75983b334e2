"""What the core is given wrongly is refused in words, by TypeError or ValueError, before anything has changed."""

import math
import warnings

import numpy as np
import pytest
import torch
from nets import line
from torch import nn

from deeppc import Algorithm, Chain, Graph
from deeppc.core.algorithms import families, options_for
from deeppc.core.algorithms.bp import BP
from deeppc.core.algorithms.pc import PC
from deeppc.core.inputs import UntaughtWarning

X, Y = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])


def net(levels=3):
    hidden = [nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(levels - 1)]
    return Chain(*hidden, nn.Linear(4, 3))


class Wrapped(nn.Module):
    """As DataParallel: the network is inside."""

    def __init__(self):
        super().__init__()
        self.module = net()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (nn.Sequential(nn.Linear(4, 3)), TypeError, "net is a torch Sequential.*deeppc.Chain"),
        (Wrapped(), TypeError, r"Wrapped.*net\.module"),
        (None, TypeError, "net is None.*deeppc.from_torch"),
        (Wrapped, TypeError, "net is the class Wrapped"),
    ],
)
def test_a_net_that_is_no_graph(given, error, message):
    with pytest.raises(error, match=message):
        PC().gradients(given, X, Y)


@pytest.mark.parametrize("spec", ["bp", "pc+s+f", "ipc"])
@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        (X.numpy(), Y, "inputs are a numpy ndarray.*torch.from_numpy"),
        ({"x": X}, Y, "inputs are a dict"),
        (X.tolist(), Y, "inputs are a list"),
        (None, Y, "inputs are None"),
        (X, Y.numpy(), "targets are a numpy ndarray"),
        (X, None, "targets are None"),
    ],
)
def test_a_batch_that_is_no_tensor(spec, inputs, targets, message):
    graph = net()
    with pytest.raises(TypeError, match=message):
        Algorithm.parse(spec).step(graph, inputs, targets, torch.optim.SGD(graph.parameters(), lr=0.1))


@pytest.mark.parametrize("optimizer", [None, 3, torch.optim.SGD])
def test_an_optimizer_that_is_none(optimizer):
    for spec in ("pc", "ipc"):
        with pytest.raises(TypeError, match=r"optimizer is .*must be a torch optimiser"):
            Algorithm.parse(spec).step(net(), X, Y, optimizer)


def test_an_observer_that_cannot_be_called():
    with pytest.raises(TypeError, match="observe is a int"):
        PC().gradients(net(), X, Y, observe=3)


@pytest.mark.parametrize("spec", [3, None, b"pc", ["pc"], {}])
def test_a_name_that_is_no_text(spec):
    for function in (Algorithm.parse, options_for):
        with pytest.raises(TypeError, match="an algorithm is named by text"):
            function(spec)


@pytest.mark.parametrize("options", [{"forward": "no"}, {"nesterov": "yes"}, {"depth_gain": 2}])
def test_options_that_are_no_truth_values(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name} is .*must be"):
        PC(**options)


def test_numbers_of_numpy_become_plain():
    algorithm = PC(T=np.int64(3), lr_x=np.float32(0.5))
    assert type(algorithm.T) is int
    assert type(algorithm.lr_x) is float
    assert algorithm == PC(T=3, lr_x=0.5)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (None, TypeError),
        ("1", TypeError),
        (torch.tensor(1.0), TypeError),
        (nn.Parameter(torch.tensor(1.0)), TypeError),
        (math.nan, ValueError),
        (math.inf, ValueError),
        (1e39, ValueError),  # beyond float32
        (-0.1, ValueError),
    ],
)
@pytest.mark.parametrize("family", ["pc", "ipc"])
def test_a_schedule_that_gives_no_precision(value, error, family):
    """It says so at its last step only, and still nothing has changed."""
    graph = net()
    optimizer = torch.optim.SGD(graph.parameters(), lr=0.1)
    before = [p.clone() for p in graph.parameters()]

    def late(t, arrival, T):
        return value if t == T - 1 else 1.0

    with pytest.raises(error, match="the schedule 'late' at t=2, arrival=0, T=3 gave"):
        families()[family](schedule=late).step(graph, X, Y, optimizer)
    assert all(torch.equal(a, b) and b.grad is None for a, b in zip(before, graph.parameters(), strict=True))


def test_a_schedule_may_say_yes_or_no_and_raise_its_own_errors():
    def gradients(schedule):
        torch.manual_seed(0)
        graph = net()
        PC(schedule=schedule, forward=True).gradients(graph, X, Y)
        return [p.grad for p in graph.parameters()]

    by_truth = gradients(lambda t, arrival, T: t == arrival)
    by_number = gradients(lambda t, arrival, T: np.float64(t == arrival))
    assert all(map(torch.equal, by_truth, by_number))

    with pytest.raises(TypeError, match="takes 1 positional argument") as caught:
        gradients(lambda t: 1.0)
    assert "while asking the schedule" in caught.value.__notes__[0]


def test_a_custom_schedule_is_in_the_name():
    def mine(t, arrival, T):
        return 1.0

    assert str(PC(schedule=mine)) == "pc[schedule=mine]"


def test_an_optimiser_of_another_network_is_refused():
    graph = net(levels=2)
    other = torch.optim.SGD(net(levels=2).parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"no weight of this network: make it of net.parameters\(\)"):
        PC().step(graph, X, Y, other)
    PC().step(graph, X, Y, torch.optim.SGD([next(graph.parameters())], lr=0.1))  # one of them is enough


def test_a_compiled_network_is_told_what_to_give():
    compiled = torch.compile(net(levels=2), backend="eager")
    with pytest.raises(TypeError, match=r"give the network that it wraps, net\._orig_mod"):
        PC().gradients(compiled, X, Y)


def test_rows_of_integers_are_told_to_be_floats():
    with pytest.raises(ValueError, match=r"targets.float\(\)"):
        PC().gradients(net(levels=2), X, torch.nn.functional.one_hot(Y, net(levels=2)(X).shape[1]))


def test_strides_bring_the_wave_no_further():
    algorithm = Algorithm.parse("pc+s+f", T=2, lr_x=0.1, alpha=0.01, strides=3)
    with pytest.warns(UntaughtWarning, match="^Nodes 1 learnt nothing.* in 2 inference steps.*4 levels"):
        algorithm.gradients(net(levels=4), X, Y)


@pytest.mark.parametrize(
    ("spec", "T", "levels"), [("pc", 2, "1"), ("pc", 1, "1, 2"), ("ipc", 3, "1"), ("ipc", 1, "1, 2, 3")]
)
def test_levels_that_learn_nothing_are_named(spec, T, levels):
    """PC's level l has moved after L - l steps; iPC learns from the state before a step, so it wants one more."""
    graph = net(levels=4)
    step = Algorithm.parse(spec, T=T).step
    with pytest.warns(UntaughtWarning, match=f"^Nodes {levels} learnt nothing.*{T} inference steps.*4 levels"):
        step(graph, X, Y, torch.optim.SGD(graph.parameters(), lr=0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Algorithm.parse(spec).step(graph, X, Y, torch.optim.SGD(graph.parameters(), lr=0.1))
        BP().gradients(graph, X, Y)
        for p in graph.nodes["1"].parameters():
            p.requires_grad_(False)  # what should not learn is not missed
        if levels == "1":
            Algorithm.parse(spec, T=T).step(graph, X, Y, torch.optim.SGD(graph.parameters(), lr=0.1))


@pytest.mark.parametrize("bare", [nn.ReLU(), nn.Flatten(), nn.MaxPool2d(2), nn.Dropout(), nn.ReLU(inplace=True)])
def test_a_chain_refuses_what_has_no_parameters(bare):
    with pytest.raises(ValueError, match=rf"module 2 of the chain, {type(bare).__name__}, .*nn\.Sequential\(layer"):
        Chain(*nn.Sequential(nn.Linear(4, 4), bare, nn.Linear(4, 3)))


def test_changes_in_place_are_refused_in_our_words():
    graph = line(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 3))
    for spec in ("bp", "pc+s+f", "ipc"):
        with pytest.raises(ValueError, match="node '2' changes its input in place: use inplace=False"):
            Algorithm.parse(spec).step(graph, X, Y, torch.optim.SGD(graph.parameters(), lr=0.1))


@pytest.mark.parametrize(
    ("nodes", "error", "message"),
    [
        ([nn.Linear(4, 3)], TypeError, "nodes are a list, but must be a dict"),
        (nn.Linear(4, 3), TypeError, "nodes are a Linear, but must be a dict"),
        ({"a": nn.Linear(4, 3)}, TypeError, r"node 'a' is given by Linear, but must be \(module, parents\)"),
        ({"a": (nn.Linear(4, 3),)}, TypeError, r"node 'a' is given by tuple, but must be \(module, parents\)"),
        ({1: (nn.Linear(4, 3), "input")}, TypeError, "1 cannot name a node: names are text"),
        ({"a": (nn.Linear(4, 3), 1)}, TypeError, "node 'a' has the parents 1"),
        ({"a": (nn.Linear(4, 3), ["input", 2])}, TypeError, "node 'a' has the parents"),
        ({"a": (nn.Linear(4, 3), None)}, TypeError, "node 'a' has the parents None"),
        ({"a": (nn.Linear(4, 3), [])}, ValueError, "node 'a' has no parents"),
        ({}, ValueError, "at least one node"),
    ],
)
def test_tables_of_nodes_that_are_none(nodes, error, message):
    with pytest.raises(error, match=message):
        Graph(nodes)


class Rounded(nn.Module):
    def forward(self, x):
        return x.round().long()


def test_a_hidden_node_of_whole_numbers():
    graph = Graph({"a": (Rounded(), "input"), "b": (nn.Embedding(9, 3), "a")})
    for spec in ("bp", "pc"):
        with pytest.raises(TypeError, match=r"node 'a' returns torch.int64, but activities are floats"):
            Algorithm.parse(spec).gradients(graph, X.abs(), Y)


def test_outputs_without_classes_or_without_samples():
    flat = Chain(nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)))
    with pytest.raises(ValueError, match=r"cross-entropy needs an output of \(batch, classes\), not \(6,\)"):
        PC(loss="cross_entropy").gradients(flat, X, Y)
    one = Chain(nn.Sequential(nn.Flatten(0), nn.Linear(24, 3)))
    with pytest.raises(
        ValueError, match=r"the output '1' has the shape \(3,\), but must have an entry for each of 6 samples"
    ):
        PC().gradients(one, X, Y)


def test_an_algorithm_without_a_family_says_how_to_name_one():
    with pytest.raises(TypeError, match=r"Algorithm\.parse\('pc\+s\+f'\)"):
        Algorithm(forward="no")


def test_nodes_behind_a_detached_one_are_named_for_what_they_are():
    """No number of steps would do: the advice is not to raise T."""

    class Detached(nn.Linear):
        def forward(self, x):
            return super().forward(x.detach())

    graph = Chain(nn.Linear(4, 4), Detached(4, 3))
    with pytest.warns(UntaughtWarning, match="^Nodes 1 learnt nothing: what follows them passes no gradient on"):
        PC().gradients(graph, X, Y)
