"""Claims against made-up results: each can hold, fail to hold, be too close, and lack its data."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from deeppc.errors import RunError
from deeppc.paper import published
from deeppc.paper.claims import CLAIMS, Number, Numbers, above, as_table, at_most, check, falls_far, gather
from deeppc.paper.matrix import Entry, Matrix
from deeppc.paper.results import Result

DEPTH, ENERGY, STRATEGIES = ("depth", "cifar10.top1"), ("energy", "cifar10.VGG10"), ("batchnorm", "cifar10.strategies")
ACCURACY, SCHEDULES, AUXILIARY = (
    ("accuracy", "cifar10.top1"),
    ("schedules", "cifar10.top1"),
    ("auxiliary", "cifar10.top1"),
)
ROBUSTNESS, TIME, GAP = ("robustness", "cifar10.ada_ece"), ("time", "time.ratio"), "gap"


def results(*tables):
    """Results of ``((recipe, table), {"row column": value or values})``; a column is what follows the last ``|``."""
    found = {}
    for (recipe, name), values in tables:
        entries = {}
        for place, value in values.items():
            row, column = place.split("|")
            entries[row, column] = Entry(tuple(value) if isinstance(value, list) else (value,))
        rows, columns = (tuple(dict.fromkeys(place[i] for place in entries)) for i in (0, 1))
        made = dict(found[recipe].tables) if recipe in found else {}
        made[name] = Matrix(name, name, rows, columns, entries)
        found[recipe] = Result(recipe, "laptop", 1, 1, made)
    return found


# For each claim, by its first words: results under which it holds, and changes under which it does not.
CASES = {
    "Plain PC loses": ((DEPTH, {"PC|VGG5": 60, "PC|VGG10": 40}), {"PC|VGG10": 59.5}),
    "Plain iPC loses": ((DEPTH, {"iPC|VGG5": 60, "iPC|VGG10": 40}), {"iPC|VGG10": 61}),
    "PC+S+F and iPC+S lose no": (
        (DEPTH, {"PC+S+F|VGG5": 60, "PC+S+F|VGG10": 62, "iPC+S|VGG5": 60, "iPC+S|VGG10": 60}),
        {"iPC+S|VGG10": 59},
    ),
    "PC+S+F stays within": (
        (ACCURACY, {"BP|VGG5": 60, "PC+S+F|VGG5": 59.5, "BP|VGG10": 60, "PC+S+F|VGG10": 65}),
        {"PC+S+F|VGG5": 58.5},
    ),
    "iPC+S stays within": ((ACCURACY, {"BP|ResNet10": 60, "iPC+S|ResNet10": 59.2}), {"iPC+S|ResNet10": 50}),
    "Plain PC's first layer": ((ENERGY, {"PC|first": -12}), {"PC|first": -4.5}),
    "Spiking precision lifts it with the same": (
        (ENERGY, {"PC+S|first": -4, "PC like PC+S|first": -6, "iPC+S|first": -3, "iPC like iPC+S|first": -6}),
        {"PC like PC+S|first": -3},
    ),
    "Spiking precision, with the settings": (
        (
            ENERGY,
            {
                "PC+S|first": -4,
                "PC|first": -9,
                "PC+S+F|first": -4,
                "PC+F|first": -9,
                "iPC+S|first": -3,
                "iPC|first": -6,
            },
        ),
        {"iPC+S|first": -5.5},
    ),
    "Spiking precision beats": (
        (SCHEDULES, {"PC+S+F|VGG10": 60, "PC+L+F|VGG10": 50, "PC+D+F|VGG10": 55}),
        {"PC+D+F|VGG10": 61},
    ),
    "Every schedule beats": (
        (SCHEDULES, {"PC+F|VGG10": 40, "PC+S+F|VGG10": 60, "PC+L+F|VGG10": 50, "PC+D+F|VGG10": 55}),
        {"PC+L+F|VGG10": 39},
    ),
    "Without auxiliary": (
        (
            AUXILIARY,
            {"iPC+S|ResNet18": 60, "iPC+S|ResNet18 without": 30, "PC+S+F|ResNet18": 60, "PC+S+F|ResNet18 without": 40},
        ),
        {"PC+S+F|ResNet18 without": 55},
    ),
    "BatchNorm freezing helps": ((STRATEGIES, {"BF|PC+S+F": 62, "none|PC+S+F": 60}), {"BF|PC+S+F": 59}),
    "Plain BatchNorm breaks": (
        (STRATEGIES, {"none|PC+S+F": 60, "BN|PC+S+F": 20, "BN without affine|PC+S+F": 20}),
        {"BN without affine|PC+S+F": 55},
    ),
    "Centre nudging helps": (
        (
            DEPTH,
            {
                "PC|VGG10": 40,
                "PC|VGG10 CN": 45,
                "iPC|VGG10": 40,
                "iPC|VGG10 CN": 45,
                "PC+S|VGG10": 40,
                "PC+S|VGG10 CN": 45,
            },
        ),
        {"iPC|VGG10 CN": 39},
    ),
    "Centre nudging does not help": (
        (DEPTH, {"PC+F|VGG10": 40, "PC+F|VGG10 CN": 38, "PC+S+F|VGG10": 40, "PC+S+F|VGG10 CN": 40}),
        {"PC+S+F|VGG10 CN": 41},
    ),
    "The forward update does not hurt": (
        (
            ROBUSTNESS,
            {
                f"{level}|{name}": value
                for level in ("0.1", "0.3", "0.5")
                for name, value in {"VGG5 PC": 0.2, "VGG5 PC+F": 0.15, "VGG10 BP": 0.3, "VGG10 PC+S+F": 0.305}.items()
            },
        ),
        {"0.5|VGG5 PC+F": 0.22},
    ),
    "S alone and F alone": (
        (("ablation", "cifar10.top1"), {"PC+S+F|VGG10": 60, "PC+S|VGG10": 50, "PC+F|VGG10": 55}),
        {"PC+F|VGG10": 61},
    ),
    "S and F add nothing": (
        (TIME, {"VGG5|pc": 2.0, "VGG5|pc+s+f": 1.9, "VGG10|pc": 3.0, "VGG10|pc+s+f": 3.2}),
        {"VGG10|pc+s+f": 3.4},
    ),
    "In a VGG15": (
        (
            ("vgg15", "tiny-imagenet.top1"),
            {"PC+S+F|VGG15": 40, "PC+S+F|VGG15 BF": 45, "iPC+S|VGG15": 50, "iPC+S|VGG15 BF": 48},
        ),
        {"iPC+S|VGG15 BF": 52},
    ),
}


def verdict(words, found):
    (answer,) = [v for v in check(found) if v.claim.startswith(words)]
    return answer


@pytest.mark.parametrize(("words", "case"), CASES.items(), ids=CASES)
def test_a_claim_both_ways(words, case):
    (place, values), changes = case
    held = verdict(words, results((place, values)))
    assert (held.answer, held.numbers[:7]) == ("holds", "laptop:")
    assert verdict(words, results((place, values | changes))).answer == "does not hold"
    lacking = dict(list(values.items())[:-1])
    assert verdict(words, results((place, lacking) if lacking else (place, {"x|y": 1}))).answer == "not enough data"


def test_the_gap_claim_both_ways():
    def found(with_f):
        return results(
            ((GAP, "cifar10.without F"), {"epoch 45|L10": 5000.0}), ((GAP, "cifar10.with F"), {"epoch 45|L10": with_f})
        )

    words = "The forward update lowers"
    assert verdict(words, found(10.0)).answer == "holds"
    assert verdict(words, found(6000.0)).answer == "does not hold"
    assert verdict(words, {}).answer == "not enough data"


def test_every_claim_is_tested():
    tested = [*CASES, "The forward update lowers"]
    assert len(CLAIMS) == len(tested)
    assert all(sum(claim.startswith(words) for claim in CLAIMS) == 1 for words in tested)


def test_without_results_nothing_is_known():
    assert {v.answer for v in check({})} == {"not enough data"}


def test_a_difference_within_its_standard_error_is_no_answer():
    """60 and 61 with deviations of about 2.8 over two seeds: an error of 2 each, 2.8 of the difference."""
    found = results((STRATEGIES, {"BF|PC+S+F": [59.0, 63.0], "none|PC+S+F": [58.0, 62.0]}))
    close = verdict("BatchNorm freezing helps", found)
    assert close.answer == "not enough data"
    assert "too close" in close.numbers
    assert "+1" in close.numbers


def test_standard_errors_add_in_squares():
    difference = Number("a", 5.0, 3.0) - Number("b", 1.0, 4.0)
    assert (difference.mean, difference.error) == (4.0, 5.0)
    assert above(difference).so is None
    assert above(difference, -2.0).so is True
    assert above(difference, 10.0).so is False
    assert at_most(difference, 4.0).so is None  # as likely above as below
    assert at_most(difference, 0.0).so is None
    assert at_most(difference, -2.0).so is False
    assert at_most(difference, 10.0).so is True
    assert at_most(Number("a", 4.0, 0.0), 4.0).so is True  # equal is enough


def test_the_spread_over_seeds_is_pooled_over_the_rows_of_a_column():
    """Variances of 18 (2 seeds), 3 (3 seeds) and none (1 seed): (18 + 2 * 3) / 3 = 8, in this column alone."""
    values = {"PC|VGG10": [37.0, 43.0], "iPC|VGG10": [49.0, 49.0, 52.0], "BP|VGG10": 60, "PC|VGG5": [1.0, 99.0]}
    table = Numbers(results((DEPTH, values))["depth"], *DEPTH)
    assert table("PC", "VGG10").error == pytest.approx(2)
    assert table("iPC", "VGG10").error == pytest.approx((8 / 3) ** 0.5)
    assert table("BP", "VGG10").error == pytest.approx(8**0.5)


def test_who_is_near_chance_cannot_fall_far():
    base = Number("base", 50.0, 0.0)
    assert falls_far(base, Number("other", 39.0, 0.0)).so is True  # 11 of 40 points above chance
    assert falls_far(base, Number("other", 41.0, 0.0)).so is False
    assert falls_far(Number("base", 19.0, 0.0), Number("other", 10.0, 0.0)).so is None


def diverged(place, values, row, column):
    """Results in which one place has nothing but diverged runs."""
    found = results((place, values))
    table = found[place[0]].tables[place[1]]
    entries = {**table.entries, (row, column): Entry(diverged=2)}
    return {place[0]: Result(place[0], "laptop", 1, 1, {place[1]: replace(table, entries=entries)})}


def test_divergence_is_no_number_where_accuracy_is_not_measured():
    answer = verdict("Plain PC's first", diverged(ENERGY, {"PC|first": -12}, "PC", "first"))
    assert (answer.answer, "diverged" in answer.numbers) == ("not enough data", True)


def test_a_network_that_always_diverged_counts_as_zero():
    answer = verdict("Plain PC loses", diverged(DEPTH, {"PC|VGG5": 60, "PC|VGG10": 40}, "PC", "VGG10"))
    assert (answer.answer, "+60" in answer.numbers, "diverged" in answer.numbers) == ("holds", True, True)


def test_schedules_are_judged_with_bf_where_there_is_nothing_without():
    found = results((SCHEDULES, {"PC+S+F|VGG10 BF": 60, "PC+L+F|VGG10 BF": 50, "PC+D+F|VGG10 BF": 55}))
    assert verdict("Spiking precision beats", found).answer == "holds"


def test_the_papers_own_numbers_bear_out_its_claims():
    """The claims, put to the paper's tables as if they were ours."""

    def as_ours(name, dataset="cifar10", metric="top1"):
        return {f"{row}|{column}": mean for (row, column), (mean, _) in published.table(name, dataset, metric).items()}

    norms = {f"{row}|PC+S+F": mean for (row, _), (mean, _) in published.table("batchnorm", "cifar10", "top1").items()}
    found = results(
        (DEPTH, as_ours("ablation")),
        (SCHEDULES, as_ours("schedules")),
        (("ablation", "cifar10.top1"), as_ours("ablation")),
        (AUXILIARY, as_ours("auxiliary")),
        (STRATEGIES, norms),
        (("vgg15", "tiny-imagenet.top1"), as_ours("vgg15", "tiny-imagenet")),
    )
    answers = {v.claim: v.answer for v in check(found)}
    held = ("Plain PC loses", "Plain iPC", "PC+S+F and iPC+S", "Spiking precision beats", "Every schedule", "S alone")
    held += ("Without auxiliary", "BatchNorm freezing helps", "Plain BatchNorm", "In a VGG15")
    for words in held:
        assert {a for claim, a in answers.items() if claim.startswith(words)} == {"holds"}, words


def test_the_paper_is_not_within_a_point_of_backprop_everywhere():
    """Its Table 1 has 93.13 for BP and 91.93 for PC+S+F in a ResNet18: its own numbers are 1.2 apart."""
    values = {f"{r}|{c}": mean for (r, c), (mean, _) in published.table("accuracy", "cifar10", "top1").items()}
    assert verdict("PC+S+F stays within", results((ACCURACY, values))).answer == "does not hold"


def test_the_table_has_a_line_for_each_claim():
    verdicts = check({})
    assert [row[0] for row in as_table(verdicts).rows] == list(CLAIMS)


def test_a_folder_that_is_not_there_is_an_error_in_words(tmp_path):
    with pytest.raises(RunError, match=r"There is no folder .* with results: make some by deeppc paper run"):
        gather(tmp_path / "nothing")


def test_the_largest_scale_is_taken_and_smoke_only_on_request(tmp_path):
    def leave(recipe, scale, over=1):
        content = {"recipe": recipe, "scale": {"name": scale}, "runs": {"planned": 1, "over": over}, "tables": []}
        (tmp_path / f"{recipe}-{scale}").mkdir()
        (tmp_path / f"{recipe}-{scale}" / "result.json").write_text(json.dumps(content))

    leave("gap", "smoke")
    assert gather(tmp_path) == {}
    assert set(gather(tmp_path, "smoke")) == {"gap"}
    leave("gap", "laptop")
    leave("depth", "laptop")
    leave("depth", "workstation")
    leave("gap", "paper")
    leave("depth", "paper", over=0)  # only begun
    assert {name: found.scale for name, found in gather(tmp_path).items()} == {"depth": "workstation", "gap": "paper"}
