"""What a search draws for each rival: nothing that another does not, but for its own options."""

import pytest

from deeppc.search.space import build
from deeppc.training.config import TrainConfig

COMMON = {"activation", "lr_w", "weight_decay"}
PC = {"T", "lr_x", "momentum_x"}


@pytest.mark.parametrize(
    ("algorithm", "own"),
    [
        ("bp", set()),
        ("zil", set()),
        ("fa", set()),
        ("dfa", set()),
        ("tp", {"damping"}),
        ("epc", {"T", "lr_x"}),
        ("hpc", {"T"}),
        ("pc", PC),
        ("pc+pn", PC | {"beta"}),
        ("pc+nn", PC | {"beta"}),
        ("pc+cn", PC | {"beta"}),
    ],
)
def test_the_dimensions_of_a_rival(algorithm, own):
    space = build(TrainConfig.of(model="vgg5", algorithm=algorithm))
    assert set(space.table()) == COMMON | own
