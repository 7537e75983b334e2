"""Strides against the exact algorithm (which equals the naive engine): the order of the error, the work, refusals."""

from itertools import pairwise

import pytest
import torch
from nets import Mix, Prior, batch, gradients, mlp, residual
from torch import nn

from deeppc import Algorithm, Bernoulli, Chain, Gaussian, Graph, Sum
from deeppc.core import reuse
from deeppc.core.algorithms.pc import PC
from deeppc.core.batch import Batch
from deeppc.core.inference import Descent
from deeppc.core.state import State
from deeppc.core.strides import Plan, Strides, enough, growth
from deeppc.models import build

TINY = (
    2.0**-14
)  # of the way to the target: all is linear then, but far above rounding; what is left is the order in alpha

TOLERATED = [("vgg10", 0.5, 0.01, 0), ("vgg10", 0.6, 0.005, 0), ("vgg10", 0.5, 0.01, 4)]
TOLERATED += [
    ("resnet10", 0.5, 0.01, 0),
    ("resnet18", 0.1, 0.01, 0),
    ("vgg10", 0.1, 0.05, 0),
    ("resnet18", 0.1, 0.02, 0),
    ("resnet18", 0.5, 0.005, 0),
    ("resnet18", 0.5, 0.01, 0),
]
RESTED = [("vgg10", 0.1, 0.01, 0), ("vgg10", 0.1, 0.005, 3), ("vgg10", 0.5, 0.001, 0)]  # some nodes, or all
RESTED += [("resnet10", 0.1, 0.01, 0), ("resnet18", 0.1, 0.01, 0), ("resnet18", 0.2, 0.001, 0)]


def nets():
    torch.manual_seed(0)
    return {"chain": mlp(9).double(), "residual": residual(4, aux=True).double()}


def error(net, images, labels, spec, strides, tolerance=None, **options):
    """The largest relative error of any node's gradient."""
    exact = gradients(Algorithm.parse(spec, **options), net, images, labels)
    ours = gradients(Algorithm.parse(spec, strides=strides, tolerance=tolerance, **options), net, images, labels)
    names = [[f"nodes.{v}.{n}" for n, _ in module.named_parameters()] for v, module in net.nodes.items()]
    found = [[(ours[n], exact[n]) for n in own if exact[n] is not None] for own in names]
    flat = [[torch.cat([x.flatten() for x in side]) for side in zip(*pairs, strict=True)] for pairs in found if pairs]
    return max(float((a - b).norm() / b.norm()) for a, b in flat)


@pytest.mark.parametrize("more", [0, 4, -3])
@pytest.mark.parametrize("lr_x", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("spec", ["pc+s+f", "pc+s"])
@pytest.mark.parametrize("name", ["chain", "residual"])
@pytest.mark.filterwarnings("ignore:Nodes .* learnt nothing")
def test_the_error_is_of_second_order_in_alpha(name, spec, lr_x, more):
    """Half of alpha leaves a quarter of the error, for fewer steps than levels and for more, too."""
    net = nets()[name]
    images, labels = batch(net)
    options = {"lr_x": lr_x, "beta": TINY, "T": net.L + more}
    large, small = (error(net, images, labels, spec, 1, alpha=alpha, **options) for alpha in (5e-4, 2.5e-4))
    assert small < 1e-2
    assert large / small == pytest.approx(4, rel=0.1)


@pytest.mark.parametrize("name", ["chain", "residual"])
def test_more_strides_leave_a_smaller_error(name):
    net = nets()[name]
    images, labels = batch(net)
    errors = [error(net, images, labels, "pc+s+f", k, alpha=0.03, lr_x=0.5, beta=TINY) for k in (1, 2, 4)]
    assert errors[0] > 1.5 * errors[1] > 2.25 * errors[2]


def test_without_the_first_steps_share_the_error_would_be_of_first_order(monkeypatch):
    """In the step after a spike the parents have not fallen back yet: left out, half of alpha leaves half the error."""

    exact = State.error
    net = nets()["chain"]
    images, labels = batch(net)
    options = {"lr_x": 0.5, "beta": TINY}
    monkeypatch.setattr(State, "error", lambda self, v, mu_scale=1.0: exact(self, v))
    large, small = (error(net, images, labels, "pc+s+f", 1, alpha=alpha, **options) for alpha in (2e-4, 1e-4))
    assert large / small == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize("lr_x", [0.1, 0.5, 0.9])
def test_what_an_error_does_to_its_own_prediction_is_exact_for_orthogonal_layers(lr_x, monkeypatch):
    """``J J^T = 1`` there: of the second order only the parents' part is left, far less than without this."""
    torch.manual_seed(0)
    layers = [nn.Linear(6, 6, bias=False) for _ in range(9)]
    for layer in layers:
        nn.init.orthogonal_(layer.weight)
    net, images, target = Chain(*layers).double(), torch.randn(5, 6).double(), torch.randn(5, 6).double()
    options = {"alpha": 2e-3, "lr_x": lr_x, "beta": TINY}
    ours = error(net, images, target, "pc+s+f", 1, **options)
    sizes = Strides._sizes
    monkeypatch.setattr(Strides, "_sizes", lambda *args: (sizes(*args)[0], 0.0))
    assert error(net, images, target, "pc+s+f", 1, **options) > 6 * ours > 0


def test_the_slope_of_a_sum_is_known_without_a_look_at_numbers(monkeypatch):
    """``|J^T eps|^2 / |eps|^2`` is the number of parents, one that is added twice counting four times."""
    nodes = {"a": (nn.Linear(6, 6), "input"), "b": (nn.Linear(6, 6), "input")}
    sums = {"c": (Sum(), ["a", "b"]), "d": (Sum(), ["c", "c"]), "e": (nn.Identity(), "d"), "y": (nn.Linear(6, 3), "e")}
    net = Graph({**nodes, **sums}).double()
    images, labels = batch(net)
    options = {"lr_x": 0.5, "alpha": 0.05, "strides": 1, "T": 12}
    known = gradients(Algorithm.parse("pc+s+f", **options), net, images, labels)
    sizes = Strides._sizes

    def measured(self, *args):
        with monkeypatch.context() as m:
            m.setattr(State, "adds", lambda state, v: False)
            return sizes(self, *args)

    monkeypatch.setattr(Strides, "_sizes", measured)
    for n, g in gradients(Algorithm.parse("pc+s+f", **options), net, images, labels).items():
        torch.testing.assert_close(g, known[n], rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ["vgg5", "vgg10", "resnet10"])
def test_the_papers_networks_at_the_papers_settings(name):
    """alpha = 0.005, of its range 0.001 to 0.05; targets as they are, so that nothing is linear."""
    torch.manual_seed(0)
    net = build(name, width=0.0625, norm="none", activation="relu").double()
    images, labels = torch.randn(8, 3, 32, 32).double(), torch.randint(0, 10, (8,))
    assert error(net, images, labels, "pc+s+f", 1, alpha=0.005, lr_x=0.5) < 0.02
    assert error(net, images, labels, "pc+s+f", 1, alpha=0.005, lr_x=0.5) < error(
        net, images, labels, "pc+s+f", 1, alpha=0.01, lr_x=0.5
    )


@pytest.mark.parametrize("norm", ["none", "bf"])
@pytest.mark.parametrize(("name", "lr_x", "alpha", "more"), TOLERATED + RESTED)
def test_as_many_strides_as_a_tolerance_asks_for(name, lr_x, alpha, more, norm):
    torch.manual_seed(0)
    net = build(name, width=0.0625, norm=norm, activation="relu").double()
    images, labels = torch.randn(8, 3, 32, 32).double(), torch.randint(0, 10, (8,))
    options = {"lr_x": lr_x, "alpha": alpha, "T": net.L + more}
    assert 0 < error(net, images, labels, "pc+s+f", None, 0.02, **options) < 0.02


def test_the_number_of_strides_follows_from_the_path_of_the_relaxation():
    """``lr_x sum of (alpha n)^2 / 2 (1 - lr_x) / tolerance``; all steps as they are where that is no less work."""
    net = mlp(6).double()  # n = 5, 4, 3, 2, 1, 0: squares add up to 55, steps to 15, as in 2.5 strides
    for alpha, expected in {0.05: 1, 0.08: 2, 0.1: None, 1.0: None}.items():
        algo = Algorithm.parse("pc+s+f", lr_x=0.5, alpha=alpha, tolerance=0.1)
        assert algo.steps(net) == 6 + (expected or 0)
        exact = gradients(Algorithm.parse("pc+s+f", lr_x=0.5, alpha=alpha, strides=expected), net, *batch(net))
        assert all(torch.equal(g, exact[n]) for n, g in gradients(algo, net, *batch(net)).items())
    assert Algorithm.parse("pc+s+f", lr_x=0.9, alpha=0.01, tolerance=0.5).steps(net) == 6
    assert Algorithm.parse("pc+s+f", lr_x=0.5, alpha=0.01, tolerance=1e-320).steps(net) == 6  # of infinitely many
    with pytest.raises(ValueError, match="leave one of them out"):
        Algorithm.parse("pc+s", strides=1, tolerance=0.1)
    for wrong in (0.0, 1.5):
        with pytest.raises(ValueError, match="tolerance"):
            Algorithm.parse("pc+s", tolerance=wrong)
    with pytest.raises(ValueError, match="plain SGD"):
        Algorithm.parse("pc+s", tolerance=0.1, momentum_x=0.5)


def test_who_has_few_steps_left_rests():
    """Those whose error ``4.5 lr_x alpha (n - 1 + 1 / (1 - lr_x))`` is within half of the tolerance."""
    assert enough(10, 0.1, 0.01, 10, 0.02) == Plan(1, 2)  # 0.5 % and 0.95 %
    assert enough(10, 0.1, 0.01, 10, 0.0279) == Plan(1, 2)
    assert enough(10, 0.1, 0.01, 13, 0.0281) == Plan(1, 3)  # 1.4 %
    assert enough(10, 0.1, 0.01, 10, 0.09) == Plan(0, 9)
    assert enough(10, 0.5, 0.001, 10, 0.02) == Plan(1, 3)  # 0.225 % (3 + 1)
    assert enough(10, 0.5, 0.01, 10, 0.02) == Plan(1, 0)
    # Who rests takes from the tolerance: one stride of 17 nodes is less work than two of 15.
    assert enough(18, 0.15, 0.01, 18, 0.02) == Plan(1, 0)
    # All steps as they are: nothing follows the spikes, or kinks decide.
    assert enough(10, 0.5, 0.0, 10, 0.02) is enough(10, 0.5, 0.1, 1, 0.02) is enough(10, 0.9, 1e-4, 10, 0.02) is None
    assert enough(10, 0.5, 1e-320, 10**5, 0.02) == Plan(0, 10**5 - 1)


def branching():
    """Two nodes at each level, which both predict both of the next."""
    levels = [["input"], *([f"a{i}", f"b{i}"] for i in range(5)), ["y"]]
    nodes = {
        v: (Mix([5 if p == "input" else 4 for p in parents], 3 if v == "y" else 4, nn.Tanh()), parents)
        for parents, level in pairwise(levels)
        for v in level
    }
    return Graph(nodes).double()


@pytest.mark.parametrize("more", [0, 4, -3])
@pytest.mark.parametrize("spec", ["pc+s+f", "pc+s"])
@pytest.mark.parametrize("name", ["chain", "branching"])
@pytest.mark.filterwarnings("ignore:Nodes .* learnt nothing")
def test_to_rest_leaves_out_nothing_but_predictions(name, spec, more, monkeypatch):
    """Of order ``|J|^2``: halved weights leave a quarter of the error."""
    monkeypatch.setattr(PC, "_plan", lambda self, net: None if self.tolerance is None else Plan(0, 100))

    def of(size):
        torch.manual_seed(0)
        net = branching() if name == "branching" else nets()[name]
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(size)
        images, labels = batch(net)
        return error(net, images, labels, spec, None, 0.1, alpha=0.05, lr_x=0.3, T=net.L + more, beta=TINY)

    whole, half, quarter = of(1.0), of(0.5), of(0.25)
    assert quarter < half / 3 < whole / 6
    assert quarter < 1e-2


def test_the_growth_of_those_that_rest_by_hand():
    """Three hops, three steps; deviations by step: 0.5, 0.3, 0.335 of the second, 0, 0.25, 0.14 of the third.

    With precision 0 off the spike these are 0.5, 0.25, 0.25, and 0, 0.25, 0.125.
    """
    lr, alpha = 0.5, 0.1
    assert growth(lr, 0.0, 9, 12, 12) == (1,) * 9
    assert growth(lr, alpha, 3, 3, 0) == (1, 1, 1)
    assert growth(lr, alpha, 3, 3, 1) == pytest.approx(
        [1, 1 - 0.05, 0.14 / 0.125]
    )  # strides of the output move the second
    assert growth(lr, alpha, 3, 3, 2) == pytest.approx([1, 0.335 / 0.25, 0.14 / 0.125])
    assert growth(0.01, 1e-4, 400, 400, 1)[-2:] == pytest.approx([1 - 1e-6, 1 + 1e-4])  # far below float64's range


def test_who_rests_costs_no_more_than_backprop():
    net = mlp(8).double()
    images, labels = batch(net)
    options = {"lr_x": 0.1, "alpha": 0.01}
    spikes = Algorithm.parse("pc+s+f", lr_x=0.1, alpha=0.0).gradients(net, images, labels).work
    resting = Algorithm.parse("pc+s+f", tolerance=0.5, **options).gradients(net, images, labels).work
    assert resting == spikes
    some = Algorithm.parse("pc+s+f", tolerance=0.02, **options).gradients(net, images, labels).work
    levels = [str(level) for level in range(1, 9)]  # 0, 1, 2 steps are left to the first three
    assert [some.pull_backs[v] - spikes.pull_backs[v] for v in levels] == [0] * 3 + [1] * 5


@pytest.mark.parametrize("lr_x", [0.3, 1.0])
def test_energy_with_alpha_0_is_that_of_backprops_errors_as_the_wave_leaves_them(lr_x):
    """A node is moved by lr_x^a of backprop's error and falls back by lr_x of that; at a rate of 1, to where it was."""
    for net in nets().values():
        images, labels = batch(net)
        whole = Algorithm.parse("bp").gradients(net, images, labels).energy
        ours = Algorithm.parse("pc+s+f", lr_x=lr_x, alpha=0.0).gradients(net, images, labels).energy
        for v, energy in ours.items():
            factor = 1.0 if v in net.outputs else (1 - lr_x) * lr_x ** net.arrival[v]
            torch.testing.assert_close(energy, factor**2 * whole[v], rtol=1e-9, atol=1e-30)
        learnt = gradients(Algorithm.parse("pc+s+f", lr_x=lr_x, alpha=0.0), net, images, labels)
        assert all(gradient is not None for gradient in learnt.values())  # that of no error is 0


@pytest.mark.parametrize("T", [1, 2, 4])
def test_an_output_that_has_not_spiked_by_the_end_learns_what_backprop_teaches_it(T):
    """``z`` stands at level 2 of 4, so that it would spike at step 2; its distance from the target is there before."""
    torch.manual_seed(0)
    nodes = {v: (nn.Linear(4, 4), p) for v, p in {"a": "input", "b": "a", "c": "b", "y": "c", "z": "a"}.items()}
    net = Graph(nodes).double()
    images, targets = torch.randn(5, 4).double(), {v: torch.randn(5, 4).double() for v in ("y", "z")}
    whole = gradients(Algorithm.parse("bp"), net, images, targets)
    ours = gradients(Algorithm.parse("pc+s+f", alpha=0.0, lr_x=0.3, T=T), net, images, targets)
    for name in ("nodes.y.weight", "nodes.z.weight"):
        torch.testing.assert_close(ours[name], whole[name], rtol=1e-10, atol=0)


def test_units_of_their_own_precision_fall_back_each_by_its_own():
    """So a node does not end along its error, and what it learns is that of the definition: (1 - lr p) of each unit."""
    torch.manual_seed(0)
    net = mlp(3).double()
    images, labels = batch(net)
    plain = gradients(Algorithm.parse("pc+s+f", lr_x=0.3, alpha=0.0), net, images, labels)
    precision = torch.rand(net.nodes["1"](images).shape[1]).double() + 0.5
    net.energies["1"] = Gaussian(precision)
    ours = gradients(Algorithm.parse("pc+s+f", lr_x=0.3, alpha=0.0), net, images, labels)
    # what weights learn from is precision * deviation; the first level sends nothing on, so all else is as before
    factor = precision * (1 - 0.3 * precision) / (1 - 0.3)
    for parameter, expected in plain.items():
        rows = factor.view(-1, *[1] * (expected.dim() - 1)) if parameter.startswith("nodes.1.") else 1.0
        torch.testing.assert_close(ours[parameter], expected * rows, rtol=1e-9, atol=1e-14)


def test_with_alpha_0_strides_change_nothing():
    for net in nets().values():
        images, labels = batch(net)
        assert error(net, images, labels, "pc+s+f", 2, alpha=0.0, lr_x=0.5) == 0


@pytest.mark.parametrize("strides", [1, 3])
@pytest.mark.parametrize("L", [2, 5, 12])
def test_the_work_is_linear_in_depth(L, strides):
    """Each level is predicted and pulled back through once in the wave, and once a stride; the input does not move.

    Nodes of one size: their initial predictions are made anew for the weights, as in the exact algorithm.
    """
    net = mlp(L).double()
    images, labels = batch(net)
    work = Algorithm.parse("pc+s+f", strides=strides, lr_x=0.9).gradients(net, images, labels).work
    levels = [str(level) for level in range(1, L + 1)]
    assert [work.pull_backs[v] for v in levels] == [0] + [1 + strides] * (L - 1)
    assert [work.predictions[v] for v in levels] == [1] + [2 + strides] * (L - 1)
    assert [work.weight_gradients[v] for v in levels] == [1] * L


@pytest.mark.parametrize("more", [0, 4, -3])
@pytest.mark.parametrize("strides", [None, 1, 3])
@pytest.mark.parametrize("name", ["chain", "residual"])
@pytest.mark.filterwarnings("ignore:Nodes .* learnt nothing")
def test_the_order_of_turns_changes_no_bit(name, strides, more):
    """Observed, all nodes take a step before any takes the next; else each is done with behind the front."""
    net = nets()[name]
    images, labels = batch(net)
    alpha = 0.0 if strides is None else 0.05
    algo = Algorithm.parse("pc+s+f", lr_x=0.3, alpha=alpha, strides=strides, T=net.L + more)
    seen = []
    in_steps = gradients(algo, net, images, labels, observe=lambda t, state: seen.append(t))
    at_once = gradients(algo, net, images, labels)
    assert seen == list(range(net.L + more + (strides or 0) + 1))
    assert any(g is not None for g in at_once.values())
    assert all(g is in_steps[n] is None or torch.equal(g, in_steps[n]) for n, g in at_once.items())


@pytest.mark.parametrize("more", [0, 4, -3])
@pytest.mark.parametrize("name", ["chain", "residual"])
def test_a_turn_comes_after_those_that_it_needs(name, more):
    """Those of its successors at the same step; of itself and its parents at all steps before, and at none after."""
    net, strides = nets()[name], 3
    T = net.L + more
    turns = Strides(State(net, {"input": batch(net)[0]}), 0.5, 0.01, T, Plan(strides)).turns(T + strides)
    place = {turn: i for i, turn in enumerate(turns)}
    assert len(place) == len(turns)
    for (t, v), i in place.items():
        assert all(place[t, c] < i for c in net.successors[v] if (t, c) in place)
        assert all((s < t) == (j < i) for (s, u), j in place.items() if u == v and s != t)
        assert all((s < t) == (j < i) for (s, u), j in place.items() if u in net.parents[v])


@pytest.mark.parametrize("L", [5, 12, 40])
@pytest.mark.parametrize("strides", [0, 1, 2])
def test_turns_are_linear_in_depth_and_deviations_are_let_go_of(L, strides, monkeypatch):
    """Each node is moved by its successor and spikes, then takes its strides; the first level has no parent to move.

    When a node learns, in its last stride, the wave is ``strides`` hops ahead of it, and has moved the one beyond.
    Without strides it learns before its parent moves.
    """
    net = mlp(L).double()
    images, labels = batch(net)
    descent = Strides(State(net, {"input": images}), 0.5, 0.01, L, Plan(strides))
    assert len(descent.turns(L + strides)) == 2 * L - 1 + strides * L
    held, learn = [], Batch.learn

    def watched(self, v, *args, **kwargs):
        held.append(len(self.state.d.keys() - set(net.outputs)))
        return learn(self, v, *args, **kwargs)

    monkeypatch.setattr(Batch, "learn", watched)
    alpha = 0.01 if strides else 0.0
    Algorithm.parse("pc+s+f", strides=strides or None, alpha=alpha, lr_x=0.5).gradients(net, images, labels)
    assert len(held) == L
    assert max(held) == (min(strides + 2, L - 1) if strides else 1)


def test_what_strides_are_not_sound_for_is_refused():
    for options in ({"momentum_x": 0.5}, {"optimizer_x": "adam"}, {"precision_on": "node"}):
        with pytest.raises(ValueError, match="strides stand for plain SGD"):
            Algorithm.parse("pc+s+f", strides=1, **options)
    with pytest.raises(ValueError, match="strides need lr_x below 1"):
        Algorithm.parse("pc+s", strides=1, lr_x=1.0)
    for spec in ("pc", "pc+d+f", "ipc+s"):
        with pytest.raises(ValueError, match="strides"):
            Algorithm.parse(spec, strides=1)
    algo = Algorithm.parse("pc+s+f", strides=1)
    skipping = residual(1, aux=False)
    with pytest.raises(ValueError, match=r"balanced graph.*net\.balance\(\)"):
        algo.gradients(skipping, *batch(skipping, dtype=torch.float32))


def test_energies_of_ones_own_are_refused():
    from deeppc.core.energies import Energy

    class Huber(Energy):
        def value(self, x, mu):
            return nn.functional.huber_loss(mu, x, reduction="none").flatten(1).sum(1)

    layers = {"h": (nn.Linear(4, 4), "input"), "y": (nn.Linear(4, 2), "h")}
    images, target = torch.randn(3, 4), torch.rand(3, 2)
    with pytest.raises(ValueError, match="hidden nodes of precision 1"):
        Algorithm.parse("pc+s", strides=1).gradients(Graph(layers, energies={"y": Huber()}), images, target)
    weighed = Graph(layers, energies={"h": Gaussian(4.0)})
    with pytest.raises(ValueError, match="hidden nodes of precision 1"):
        Algorithm.parse("pc+s", strides=1).gradients(weighed, images, target)
    Algorithm.parse("pc+s", strides=1).gradients(Graph(layers, energies={"y": Bernoulli()}), images, target)
    assert all(p.grad is not None for p in Chain(*(f for f, _ in layers.values())).parameters())


def test_a_node_that_does_not_heed_its_parents_pulls_at_none():
    nodes = {"a": (nn.Linear(4, 4), "input"), "p": (Prior(4), "a"), "q": (nn.Linear(4, 4), "a")}
    net = Graph({**nodes, "y": (Mix([4, 4], 3, nn.Identity()), ["p", "q"])}).double()
    images, labels = batch(net)
    assert error(net, images, labels, "pc+s+f", 1, alpha=0.01, lr_x=0.5) < 0.01


def test_a_factor_weighs_the_force_on_a_node_and_what_it_pulls_at():
    """``x -= lr (pi force - pi J^T eps)``, both times a half."""
    net = mlp(2).double()
    images, _ = batch(net)
    state = State(net, {"input": images})
    descent = Descent(state, 0.1, 0.0, False, lambda v, t: 2.0, lambda v, t: float(v == "1"))
    force, pull = torch.rand(5, 6).double(), torch.rand(5, 6).double()
    expected = -0.1 * 2 * (force - pull) / 2
    half = torch.tensor(0.5).double()
    descent.push("2", 0, torch.zeros(5, 3).double(), ["1"], [pull.clone()], half)
    descent.push("1", 0, force.clone(), [], [], half)
    descent.move("1", 0)
    torch.testing.assert_close(state.d["1"], expected)


def test_errors_whose_squares_leave_float32_are_still_compared():
    """A linear network: the lesson does not depend on how far the output is moved."""
    torch.manual_seed(0)
    net = Chain(*(nn.Linear(6, 6) for _ in range(8)))
    images, target = torch.randn(5, 6), torch.randn(5, 6)
    algos = [Algorithm.parse("pc+s+f", lr_x=0.5, alpha=0.05, strides=1, beta=beta) for beta in (1.0, 1e-22)]
    whole, tiny = (gradients(algo, net, images, target) for algo in algos)
    for name, gradient in whole.items():
        torch.testing.assert_close(tiny[name], gradient, rtol=1e-3, atol=1e-4 * float(gradient.abs().max()))


def test_sizes_of_images_are_estimated_from_a_part_of_each():
    few, many = torch.randn(5, 7), torch.ones(100, 3, 32, 32)
    found = reuse.products(few, [2 * few, few])
    torch.testing.assert_close(torch.stack(found), torch.tensor([2.0, 1.0]).double() * few.double().square().sum())
    assert float(reuse.products(many, [3 * many])[0]) == pytest.approx(3 * many.numel(), rel=1e-12)
    shapes = {(9, 3, 32, 32): (9, 3, 4, 32), (9, 64, 32, 32): (9, 4, 4, 32), (9, 256, 4, 4): (9, 32, 4, 4)}
    shapes |= {shape: shape for shape in [(9, 10**4), (9, 50, 60), (9,), (), (9, 0, 4, 4)]}
    for shape, part in shapes.items():
        assert reuse.some(torch.ones(shape)).shape == part
    rows = torch.arange(32.0).view(1, 1, 32, 1)
    assert {int(row) % 2 for row in reuse.some(rows).flatten()} == {0, 1}  # of which a stride of 2 may skip one kind
    assert reuse.products(torch.zeros(0, 4), [torch.zeros(0, 4)]) == [0]
    torch.manual_seed(0)
    x = torch.randn(100, 30, 32, 32)
    assert float(reuse.products(x, [x])[0]) == pytest.approx(float(x.square().sum()), rel=0.02)
