"""A probe is a training step that changes nothing; its updates are compared with theory, numpy and the naive engine."""

import copy
import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from naive import Naive
from nets import algorithms, backprop, batch, dags, gradients, mlp, one_hot, residual, vgg
from torch import nn

from deeppc import Algorithm, Chain
from deeppc.core.norm import thaw
from deeppc.diagnostics.stability import stability
from deeppc.diagnostics.updates import Updates, compare_updates, compare_with_backprop, diagnose, gap_ratios, probe

ALGORITHMS = ["bp", "pc", "pc+s+f+cn", "ipc+s"]
NETS = {"chain": lambda: mlp(5), "residual": lambda: residual(2, aux=True), "images": vgg}


def cosines_and_sizes(algo, net, inputs, targets):
    found = compare_with_backprop(algo, net, inputs, targets)
    return {v: x.cosine for v, x in found.items()}, {v: x.size for v, x in found.items()}


class Counter(nn.Module):
    """Puts another tensor in the place of its buffer, as some modules do."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen = self.seen + 1
        return x


def everything():
    """A net that draws random numbers, tracks statistics (frozen and thawed) and counts."""
    first = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.3))
    second = thaw(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6, affine=False), Counter()))
    return Chain(first, second, nn.Linear(6, 3))


@pytest.mark.parametrize("refused", [False, True], ids=["", "refused"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_probe_changes_nothing(name, refused):
    net = everything()
    inputs, targets = batch(net, dtype=torch.float32)
    marked = next(net.parameters())
    marked.grad = mark = torch.full_like(marked, 7.0)
    buffers, random = list(net.buffers()), torch.get_rng_state()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(ValueError, match="class indices from 0 to 2") if refused else nullcontext():
        probe(Algorithm.parse(name), net, inputs, targets + 3 * refused)
    assert net.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(a is b for a, b in zip(net.buffers(), buffers, strict=True))
    assert torch.equal(torch.get_rng_state(), random)
    assert marked.grad is mark
    assert (mark == 7.0).all()
    assert all(p.grad is None for p in net.parameters() if p is not marked)


@pytest.mark.parametrize("name", ["bp", "pc", "pc+s+f"])
def test_it_is_what_a_training_step_would_have_got(name):
    net = vgg().double()
    inputs, targets = batch(net)
    algo = Algorithm.parse(name)
    found = probe(algo, net, inputs, targets)
    expected = gradients(algo, net, inputs, targets)
    for v, updates in found.updates.items():
        for (weight, _), update in zip(net.nodes[v].named_parameters(), updates, strict=True):
            assert torch.equal(update, expected[f"nodes.{v}.{weight}"])


@pytest.mark.filterwarnings("error")
def test_a_weight_of_two_nodes_is_caught_once():
    torch.manual_seed(0)
    shared = nn.Linear(6, 6)
    net = Chain(nn.Sequential(shared, nn.Tanh()), nn.Sequential(shared, nn.Tanh()), nn.Linear(6, 3)).double()
    inputs, targets = batch(net)
    algo = Algorithm.parse("pc", lr_x=0.1)
    found = probe(algo, net, inputs, targets).updates
    expected = gradients(algo, net, inputs, targets)["nodes.1.0.weight"]
    assert torch.equal(found["1"][0], expected)
    assert torch.equal(found["2"][0], expected)


def test_ipc_is_the_limit_of_sgd_with_a_small_learning_rate():
    torch.manual_seed(0)
    net = mlp(3).double()
    inputs, targets = batch(net)
    algo = Algorithm.parse("ipc+s", lr_x=0.4, alpha=0.3, T=5)
    found = probe(algo, net, inputs, targets)
    moved, lr = copy.deepcopy(net), 1e-7
    algo.step(moved, inputs, targets, torch.optim.SGD(moved.parameters(), lr=lr))
    for v, updates in found.updates.items():
        for before, after, update in zip(net.nodes[v].parameters(), moved.nodes[v].parameters(), updates, strict=True):
            torch.testing.assert_close((before - after) / lr, update, rtol=1e-4, atol=1e-7)


def test_only_nodes_that_learn_are_here():
    net = vgg()  # its third node is a flatten
    net.nodes["1"].requires_grad_(False)
    found = probe(Algorithm.parse("pc"), net, *batch(net, dtype=torch.float32))
    assert list(found.updates) == list(found.energy) == list(found.drift) == ["2", "4"]
    for frozen in net.parameters():
        frozen.requires_grad_(False)
    with pytest.raises(ValueError, match="no trainable weights"):
        probe(Algorithm.parse("pc"), net, *batch(net, dtype=torch.float32))


@pytest.mark.parametrize(
    ("drift", "energy", "ratio"),
    [(3.0, 2.0, 1.5), (0.0, 2.0, 0.0), (1.0, 0.0, math.inf), (0.0, 0.0, math.nan), (1.0, -1.0, math.nan)],
)
def test_the_gap_ratio_where_something_is_missing(drift, energy, ratio):
    assert gap_ratios(Updates({}, {"v": energy}, {"v": drift}))["v"] == pytest.approx(ratio, nan_ok=True)


def compared(mine, theirs):
    return compare_updates(Updates({"v": mine}, {}, {}), Updates({"v": theirs}, {}, {}))["v"]


def test_updates_side_by_side_by_hand():
    a, b = [torch.tensor([3.0]), torch.tensor([[0.0], [4.0]])], [torch.tensor([0.0]), torch.tensor([[6.0], [8.0]])]
    assert compared(a, b) == pytest.approx((32 / 50, 0.5))  # (3, 0, 4) and (0, 6, 8)
    assert compared(a, [-2 * x for x in a]) == pytest.approx((-1.0, 0.5))
    assert compared([None, a[1]], b) == pytest.approx((0.8, 0.4))  # (0, 0, 4)


@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1e30])
def test_no_scale_is_too_small_or_too_large_to_compare(scale):
    a = torch.tensor([1.0, 2.0, -3.0])
    assert compared([a * scale], [a]) == pytest.approx((1.0, scale), rel=1e-4)


@pytest.mark.parametrize(
    ("a", "b", "size"),
    [
        (torch.zeros(2), torch.ones(2), 0.0),
        (None, torch.ones(2), 0.0),
        (torch.ones(2), torch.zeros(2), math.nan),
        (torch.zeros(2), torch.zeros(2), math.nan),
        (torch.tensor([1.0, math.nan]), torch.ones(2), math.nan),
        (torch.ones(2), torch.tensor([1.0, math.inf]), math.nan),
    ],
)
def test_what_has_no_direction(a, b, size):
    assert compared([a], [b]) == pytest.approx((math.nan, size), nan_ok=True)


# --- compared with backprop ----------------------------------------------------------------------------------------


def with_dropout():
    return Chain(*(nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Dropout(0.4)) for _ in range(3)), nn.Linear(6, 3))


@pytest.mark.parametrize("make", [*NETS.values(), with_dropout], ids=[*NETS, "dropout"])
@pytest.mark.parametrize("loss", ["squared_error", "cross_entropy"])
def test_spiking_precision_and_forward_update_with_alpha_0_are_parallel_to_backprop(make, loss):
    torch.manual_seed(0)
    net = make().double()
    inputs, targets = batch(net)
    algo = Algorithm.parse("pc+s+f", alpha=0.0, lr_x=0.3, loss=loss)
    found, sizes = cosines_and_sizes(algo, net, inputs, targets)
    assert list(found) == [v for v, module in net.nodes.items() if list(module.parameters())]
    assert list(found.values()) == pytest.approx([1.0] * len(found), abs=1e-12)
    expected = {v: 0.3 ** net.arrival[v] * (0.7 if v != net.output else 1.0) for v in found}
    assert sizes == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("make", [*NETS.values(), with_dropout], ids=[*NETS, "dropout"])
@pytest.mark.parametrize(("name", "options"), [("bp", {}), ("ipc+s", {"alpha": 0.0, "lr_x": 1.0})])
def test_backprop_and_the_sum_of_ipc_steps_are_backprop(make, name, options):
    torch.manual_seed(0)
    net = make().double()
    found = compare_with_backprop(Algorithm.parse(name, **options), net, *batch(net))
    assert np.array(list(found.values())) == pytest.approx(1.0, abs=1e-12)  # cosines and sizes


@settings(max_examples=12, deadline=None)
@given(net=dags(), algo=algorithms(families=("pc",)))
def test_it_is_what_numpy_makes_of_the_naive_engine_and_of_backward(net, algo):
    inputs, targets = batch(net, shape=(4,))
    if not any(p.requires_grad for p in net.parameters()):
        return
    target = one_hot(net, inputs, targets)
    naive = Naive(algo, net, inputs, target).run().gradients
    bp = backprop(net, inputs, target, algo.loss)
    net.zero_grad()
    for v, cosine in cosines_and_sizes(algo, net, inputs, targets)[0].items():
        names = [f"nodes.{v}.{name}" for name, _ in net.nodes[v].named_parameters()]
        a, b = (
            np.concatenate([np.zeros(0) if g[n] is None else g[n].numpy().ravel() for n in names]) for g in (naive, bp)
        )
        if len(a) != len(b) or min(np.linalg.norm(a), np.linalg.norm(b)) < 1e-9:
            continue  # not reached, or rounding noise of the naive engine's activities
        assert cosine == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-5)


def test_updates_too_small_for_float32_to_square_have_a_direction():
    torch.manual_seed(0)
    net = mlp(10)
    inputs, targets = batch(net, dtype=torch.float32)
    algo = Algorithm.parse("pc+s+f", alpha=0.0, lr_x=1e-3)
    cosines, sizes = cosines_and_sizes(algo, net, inputs, targets)
    assert cosines["1"] == pytest.approx(1.0, abs=1e-5)
    assert sizes["1"] == pytest.approx(1e-27 * 0.999, rel=1e-3)


# --- the gap ratio -------------------------------------------------------------------------------------------------


def naive_gaps(algo, net, inputs, targets):
    """From the activities and errors of the naive engine, in numpy."""
    naive = Naive(algo, net, inputs, one_hot(net, inputs, targets))
    x_0 = {v: x.numpy() for v, x in naive.feed_forward().items()}
    outcome = naive.run()
    found = {}
    for v, x in outcome.activities[-1].items():
        drift = x.numpy() - x_0[v]
        forward = algo.forward and naive.a[v] < (algo.forward_last or math.inf)
        error = drift if forward else outcome.errors[-1][v].numpy()
        found[v] = np.sqrt((drift**2).mean()) / ((error**2).sum() / 2 / len(inputs))
    return {v: found[v] for v, module in net.nodes.items() if list(module.parameters())}


@pytest.mark.parametrize("make", NETS)
@pytest.mark.parametrize(
    ("name", "options"), [("pc", {}), ("pc+s", {}), ("pc+f", {}), ("pc+s+f", {}), ("pc+f", {"forward_last": 2})]
)
def test_it_is_what_the_naive_engine_gives(make, name, options):
    torch.manual_seed(0)
    net = NETS[make]().double()
    inputs, targets = batch(net)
    algo = Algorithm.parse(name, lr_x=0.3, **options)
    found = gap_ratios(probe(algo, net, inputs, targets))
    expected = naive_gaps(algo, net, inputs, targets)
    assert list(found) == list(expected)
    np.testing.assert_allclose(list(found.values()), list(expected.values()), rtol=1e-6)  # the naive one rounds x


def test_by_hand():
    """Output (1, 2), target (1, 0): the output moves by (0, -2); mean square 2, energy 2."""
    net = Chain(nn.Linear(2, 2, bias=False))
    net.nodes["1"].weight.data = torch.eye(2)
    found = probe(Algorithm.parse("pc"), net, torch.tensor([[1.0, 2.0]]), torch.tensor([0]))
    assert gap_ratios(found) == {"1": pytest.approx(math.sqrt(2) / 2)}


def test_without_the_forward_update_the_last_layer_has_the_larger_gap():
    """The paper's finding: relaxing moves the output's prediction after its target, so less energy is left.

    Two scalar nodes, the second with weight 3: at the minimum of the energy the output keeps 1 / (1 + 3^2) of its
    error, so the gap ratio is 100 times that of the forward update, which learns from the whole of it.
    """
    net = Chain(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)).double()
    net.nodes["2"].weight.data.fill_(3.0)
    inputs, targets = torch.ones(1, 1, dtype=torch.float64), torch.full((1, 1), 5.0, dtype=torch.float64)
    standard, forward = (
        gap_ratios(probe(Algorithm.parse(name, T=300, lr_x=0.05), net, inputs, targets))["2"] for name in ("pc", "pc+f")
    )
    assert standard == pytest.approx(100 * forward)


@pytest.mark.parametrize("name", ["bp", "ipc+s"])
def test_others_than_pc_have_no_gap_ratio(name):
    net = mlp(2)
    with pytest.raises(ValueError, match=r"bp has no inference and ipc no single x_T.*probe a pc algorithm"):
        gap_ratios(probe(Algorithm.parse(name), net, *batch(net, dtype=torch.float32)))


# --- the record of a run --------------------------------------------------------------------------------------------


def test_a_record_of_a_node_that_the_wave_has_not_reached_is_written_in_words():
    net = mlp(4)
    record = diagnose(Algorithm.parse("pc", T=1), net, *batch(net, dtype=torch.float32))
    for v in "12":
        assert [record[key][v] for key in ("bp_cosine", "bp_size", "gap_ratio")] == ["nan", 0.0, "nan"]
    for v in "34":
        assert all(record[key][v] > 0 for key in ("bp_cosine", "bp_size", "gap_ratio"))


def test_a_record_of_backprop_has_no_gap():
    net = mlp(3)
    record = diagnose(Algorithm.parse("bp"), net, *batch(net, dtype=torch.float32))
    assert list(record) == ["bp_cosine", "bp_size"]
    assert list(record["bp_size"].values()) == pytest.approx([1.0] * 3)


@pytest.mark.parametrize("algo", [Algorithm.parse("pc", lr_x=0.1), Algorithm.parse("ipc+s", alpha=0.0)], ids=str)
def test_a_record_has_what_inference_bears(algo):
    net = mlp(3)
    inputs, targets = batch(net, dtype=torch.float32)
    found = stability(algo, net, inputs)
    limit = found.limit if found.limit < math.inf else "inf"
    assert diagnose(algo, net, inputs, targets)["stability"] == {"curvature": found.curvature, "limit": limit}


def test_a_record_of_precision_that_decays_has_no_stability():
    net = mlp(3)
    assert "stability" not in diagnose(Algorithm.parse("pc+d"), net, *batch(net, dtype=torch.float32))
