"""A network is an ordinary ``nn.Module``; a graph that is none is refused in words."""

import copy

import pytest
import torch
from hypothesis import given, settings
from nets import dags, mlp, residual
from torch import nn

from deeppc import Chain, Graph, Sum


def lin():
    return nn.Linear(4, 4)


def test_levels_hops_and_arrival_by_hand():
    """input - a - b - c - y with skips a - c and a - y."""
    net = Graph(
        {"a": (lin(), "input"), "b": (lin(), "a"), "c": (Sum(lin()), ["b", "a"]), "y": (Sum(lin()), ["c", "a"])}
    )
    assert net.L == 4
    assert net.output == "y"
    assert net.level == {"input": 0, "a": 1, "b": 2, "c": 3, "y": 4}
    assert net.hops == {"y": 0, "c": 1, "a": 1, "b": 2, "input": 2}
    assert net.arrival == {"input": 4, "a": 3, "b": 2, "c": 1, "y": 0}
    balanced = net.balance()
    assert {v: balanced.parents[v] for v in balanced.nodes} == {
        "a": ("input",),
        "b": ("a",),
        "a_aux1": ("a",),
        "c": ("b", "a_aux1"),
        "a_aux2": ("a_aux1",),
        "y": ("c", "a_aux2"),
    }


@settings(max_examples=25, deadline=None, derandomize=True)
@given(dags())
def test_levels_and_hops_against_a_walk_over_all_paths(net):
    def paths(v, step):
        return [0] if not step(v) else [1 + n for u in step(v) for n in paths(u, step)]

    for v in net.nodes:
        assert net.level[v] == max(paths(v, lambda u: net.parents.get(u, ())))
        assert net.hops[v] == min(paths(v, lambda u: net.successors[u]))
        assert net.arrival[v] == net.L - net.level[v]


def test_a_chain_is_its_modules_in_sequence_and_a_sum_adds_its_parents():
    torch.manual_seed(0)
    modules = [nn.Sequential(lin(), nn.GELU()), nn.Sequential(lin(), nn.GELU()), nn.Linear(4, 2)]
    x = torch.randn(5, 4)
    net = Chain(*modules)
    assert torch.equal(net(x), nn.Sequential(*modules)(x))
    assert net.L == 3
    assert list(net.nodes) == ["1", "2", "3"]
    a, b, c = torch.randn(3, 2, 4).unbind()
    assert torch.equal(Sum(nn.Tanh())(a, b, c), (a + b + c).tanh())


@pytest.mark.parametrize("make", [lambda: mlp(4), lambda: residual(1, True)])
def test_it_behaves_as_any_module_does(make):
    torch.manual_seed(0)
    net = make()
    x = torch.randn(2, 3, 8, 8) if next(net.parameters()).dim() == 4 else torch.randn(2, 6)
    expected = net(x)

    other = make()
    other.load_state_dict(net.state_dict())
    assert torch.equal(other(x), expected)
    assert torch.equal(copy.deepcopy(net)(x), expected)
    torch.testing.assert_close(copy.deepcopy(net).double()(x.double()), expected.double(), rtol=1e-4, atol=1e-5)
    if x.dim() == 4:
        last = copy.deepcopy(net).to(memory_format=torch.channels_last)
        torch.testing.assert_close(last(x.to(memory_format=torch.channels_last)), expected, rtol=1e-4, atol=1e-5)
    exported = torch.export.export(net.eval(), (x,)).module()
    torch.testing.assert_close(exported(x), net(x))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ({}, "at least one node"),
        ({"a": (lin(), "nowhere")}, "unknown parent 'nowhere': the nodes are input, a"),
        ({"a": (lin(), "b"), "b": (lin(), "a")}, "cycle among a, b"),
        ({"a": (lin(), "a")}, "cycle among a"),
        ({"a": (lin(), [])}, "'a' has no parents"),
        ({"input": (lin(), "input")}, "cannot name a node"),
        ({"a.b": (lin(), "input")}, "cannot name a node"),
        ({"keys": (lin(), "input")}, "cannot name a node"),
    ],
)
def test_a_graph_that_is_none_is_refused(nodes, message):
    with pytest.raises(ValueError, match=message):
        Graph(nodes)


def test_a_node_without_a_module_is_refused():
    with pytest.raises(TypeError, match=r"'a' needs a torch\.nn\.Module that predicts it, not function"):
        Graph({"a": (lambda x: x, "input")})


def test_outputs_are_balanced_to_the_last_level():
    """So that their lessons arrive with equal weight: all of them begin at step 0."""
    net = Graph({"a": (lin(), "input"), "early": (lin(), "a"), "b": (lin(), "a"), "late": (lin(), "b")})
    assert net.outputs == ("early", "late")
    assert net.arrival == {"input": 3, "a": 2, "early": 1, "b": 1, "late": 0}
    balanced = net.balance()
    assert balanced.parents["early"] == ("a_aux1",)
    assert balanced.arrival["early"] == balanced.arrival["late"] == 0
    assert all(balanced.hops[v] == balanced.arrival[v] for v in balanced.nodes)
    x = torch.randn(2, 4)
    assert all(torch.equal(net(x)[v], balanced(x)[v]) for v in net.outputs)


def test_balancing_refuses_a_taken_name():
    net = Graph({"a": (lin(), "input"), "a_aux1": (lin(), "a"), "y": (Sum(lin()), ["a_aux1", "a"])})
    with pytest.raises(ValueError, match="the name 'a_aux1' is taken"):
        net.balance()
