"""The recipe on alpha: epochs between two looks on a straight line, and the cost of a step by its counted work."""

import pytest

from deeppc.paper.recipes import alpha
from deeppc.paper.work import relative_cost
from deeppc.training.config import TrainConfig


@pytest.mark.parametrize(
    ("goal", "epochs"), [(0.1, 1.0), (0.05, 0.5), (0.2, 1.5), (0.3, 2.0), (0.4, 3 + 2 / 3), (0.6, None)]
)
def test_epochs_until_a_goal(goal, epochs):
    """The held-out accuracy was 10, 30, 20 and 50 %."""
    lines = [{"epoch": e, "validation_accuracy": a} for e, a in ((1, 0.1), (2, 0.3), (3, 0.2), (4, 0.5))]
    assert alpha.epochs_until(goal, lines) == (None if epochs is None else pytest.approx(epochs))


@pytest.mark.parametrize("algorithm", ["pc+s+f", "ipc+s", "bp"])
def test_with_alpha_0_an_epoch_costs_a_backprop_epoch(algorithm):
    options = {} if algorithm == "bp" else {"alpha": 0.0}
    assert relative_cost(TrainConfig.of(model="vgg5", algorithm=algorithm, width=0.05, **options)) == 1


def test_otherwise_it_costs_what_the_engine_counts():
    """VGG5 by hand, in multiply-adds of its five layers: a pass to and fro, inference, and layer 2 once more."""
    c1, c2, c3, c4, c5 = 27 * 128 * 1024, 1152 * 256 * 256, 2304 * 512 * 64, 4608 * 512 * 4, 5120
    forward = c1 + c2 + c3 + c4 + c5
    expected = (2 * forward + 3 * c2 + 5 * c3 + 7 * c4 + 9 * c5 + c2) / (3 * forward - c1)
    config = TrainConfig.of(dataset="cifar10", model="vgg5", algorithm="pc+s+f", alpha=0.01, width=1.0)
    assert relative_cost(config) == pytest.approx(expected)
