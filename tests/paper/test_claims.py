"""Claims against made-up results: each can hold, fail to hold, be too close, and lack its data."""

from __future__ import annotations

import pytest
from scipy import stats

from deeppc.errors import RunError
from deeppc.files import write_json
from deeppc.paper import published
from deeppc.paper.claims import CLAIMS, Number, Numbers, above, as_table, at_most, check, falls_far, gather
from deeppc.paper.matrix import Entry, Matrix
from deeppc.paper.results import Result

TOP1 = "cifar10.top1"


def results(*tables):
    """Results of (recipe, table, "row|column value value, row|column value, ...")."""
    found = {}
    for recipe, name, text in tables:
        entries = {}
        for part in text.split(", "):
            place, *values = part.rsplit(":", 1)
            row, column = place.split("|")
            entries[row, column] = Entry(tuple(float(value) for value in values[0].split()))
        made = found[recipe].tables if recipe in found else {}
        found[recipe] = Result(recipe, "laptop", 1, 1, {**made, name: Matrix(name, name, entries)})
    return found


LEVELS = ", ".join(
    f"{level}|VGG5 PC: 0.2, {level}|VGG10 BP: 0.3, {level}|VGG10 PC+S+F: 0.305, {level}|VGG5 PC+F: 0.15"
    for level in (0.1, 0.3, 0.5)
)
# For each claim, by its first words: recipe, table, numbers under which it holds, and one under which it does not.
CASES = {
    "Plain PC loses": ("depth", TOP1, "PC|VGG5: 60, PC|VGG10: 40", "PC|VGG10: 59.5"),
    "Plain iPC loses": ("depth", TOP1, "iPC|VGG5: 60, iPC|VGG10: 40", "iPC|VGG10: 61"),
    "PC+S+F and iPC+S lose no": (
        *("depth", TOP1, "PC+S+F|VGG5: 60, PC+S+F|VGG10: 62, iPC+S|VGG5: 60, iPC+S|VGG10: 60", "iPC+S|VGG10: 59"),
    ),
    "PC+S+F stays within": (
        *("accuracy", TOP1, "BP|VGG5: 60, PC+S+F|VGG5: 59.5, BP|VGG10: 60, PC+S+F|VGG10: 65", "PC+S+F|VGG5: 58.5"),
    ),
    "iPC+S stays within": ("accuracy", TOP1, "BP|ResNet10: 60, iPC+S|ResNet10: 59.2", "iPC+S|ResNet10: 50"),
    "Plain PC's first layer": ("energy", "cifar10.VGG10", "PC|first: -12", "PC|first: -4.5"),
    "Spiking precision lifts it with the same": (
        *("energy", "cifar10.VGG10"),
        "PC+S|first: -4, PC like PC+S|first: -6, iPC+S|first: -3, iPC like iPC+S|first: -6",
        "PC like PC+S|first: -3",
    ),
    "Spiking precision, with the settings": (
        *("energy", "cifar10.VGG10"),
        "PC+S|first: -4, PC|first: -9, PC+S+F|first: -4, PC+F|first: -9, iPC+S|first: -3, iPC|first: -6",
        "iPC+S|first: -5.5",
    ),
    "Spiking precision beats": (
        *("schedules", TOP1, "PC+S+F|VGG10: 60, PC+L+F|VGG10: 50, PC+D+F|VGG10: 55", "PC+D+F|VGG10: 61"),
    ),
    "Every schedule beats": (
        *("schedules", TOP1, "PC+F|VGG10: 40, PC+S+F|VGG10: 60, PC+L+F|VGG10: 50, PC+D+F|VGG10: 55"),
        "PC+L+F|VGG10: 39",
    ),
    "Without auxiliary": (
        *("auxiliary", TOP1),
        "iPC+S|ResNet18: 60, iPC+S|ResNet18 without: 30, PC+S+F|ResNet18: 60, PC+S+F|ResNet18 without: 40",
        "PC+S+F|ResNet18 without: 55",
    ),
    "BatchNorm freezing helps": ("batchnorm", "cifar10.strategies", "BF|PC+S+F: 62, none|PC+S+F: 60", "BF|PC+S+F: 59"),
    "Plain BatchNorm breaks": (
        *("batchnorm", "cifar10.strategies", "none|PC+S+F: 60, BN|PC+S+F: 20, BN without affine|PC+S+F: 20"),
        "BN without affine|PC+S+F: 55",
    ),
    "Centre nudging helps": (
        *("depth", TOP1),
        "PC|VGG10: 40, PC|VGG10 CN: 45, iPC|VGG10: 40, iPC|VGG10 CN: 45, PC+S|VGG10: 40, PC+S|VGG10 CN: 45",
        "iPC|VGG10 CN: 39",
    ),
    "Centre nudging does not help": (
        *("depth", TOP1, "PC+F|VGG10: 40, PC+F|VGG10 CN: 38, PC+S+F|VGG10: 40, PC+S+F|VGG10 CN: 40"),
        "PC+S+F|VGG10 CN: 41",
    ),
    "The forward update does not hurt": ("robustness", "cifar10.ada_ece", LEVELS, "0.5|VGG5 PC+F: 0.22"),
    "S alone and F alone": (*("ablation", TOP1, "PC+S+F|VGG10: 60, PC+S|VGG10: 50, PC+F|VGG10: 55", "PC+F|VGG10: 61"),),
    "S and F add nothing": (
        *("time", "time.ratio", "VGG5|pc: 2.0, VGG5|pc+s+f: 1.9, VGG10|pc: 3.0, VGG10|pc+s+f: 3.2"),
        "VGG10|pc+s+f: 3.4",
    ),
    "In a VGG15": (
        *("vgg15", "tiny-imagenet.top1"),
        "PC+S+F|VGG15: 40, PC+S+F|VGG15 BF: 45, iPC+S|VGG15: 50, iPC+S|VGG15 BF: 48",
        "iPC+S|VGG15 BF: 52",
    ),
}


def verdict(words, found):
    (answer,) = [v for v in check(found) if v.claim.startswith(words)]
    return answer


@pytest.mark.parametrize(("words", "case"), CASES.items(), ids=CASES)
def test_a_claim_both_ways(words, case):
    recipe, table, values, change = case
    held = verdict(words, results((recipe, table, values)))
    assert (held.answer, held.numbers[:7]) == ("holds", "laptop:")
    assert verdict(words, results((recipe, table, f"{values}, {change}"))).answer == "does not hold"
    lacking = values.rpartition(", ")[0] or "x|y: 1"
    assert verdict(words, results((recipe, table, lacking))).answer == "not enough data"


def test_the_gap_claim_both_ways():
    for with_f, answer in ((10, "holds"), (6000, "does not hold")):
        tables = {"cifar10.without F": 5000, "cifar10.with F": with_f}
        found = results(*(("gap", name, f"epoch 45|L10: {value}") for name, value in tables.items()))
        assert verdict("The forward update lowers", found).answer == answer


def test_times_are_of_no_seed():
    found = verdict("S and F add nothing", results(CASES["S and F add nothing"][:3]))
    assert (found.answer, found.alone) == ("holds", False)
    assert "one seed" not in found.numbers


def test_every_claim_is_tested():
    tested = [*CASES, "The forward update lowers"]
    assert len(CLAIMS) == len(tested)
    assert all(sum(claim.startswith(words) for claim in CLAIMS) == 1 for words in tested)


def test_without_results_nothing_is_known():
    verdicts = check({})
    assert {v.answer for v in verdicts} == {"not enough data"}
    assert [row[0] for row in as_table(verdicts).rows] == list(CLAIMS)


def test_a_difference_that_its_interval_leaves_open_is_no_answer():
    """60 and 61 with deviations of about 2.8 over two seeds: an error of 2 each, 2.8 of the difference."""
    found = results(("batchnorm", "cifar10.strategies", "BF|PC+S+F: 59 63, none|PC+S+F: 58 62"))
    close = verdict("BatchNorm freezing helps", found)
    assert close.answer == "not enough data"
    assert "too close" in close.numbers
    assert "+1" in close.numbers


def test_standard_errors_add_in_squares():
    difference = Number("a", 5.0, 3.0, 9) - Number("b", 1.0, 4.0, 7)
    assert (difference.mean, difference.error) == (4.0, 5.0)
    assert (difference - Number("c", 1.0)).freedom == pytest.approx(difference.freedom)  # what is known has none


def test_intervals_are_those_of_students_table():
    """The two-sided 95 % point of t is 2.776 for 4 degrees of freedom, and 12.706 for 1."""
    difference = Number("a", 4.0, 5.0, 4)
    assert difference.margin == pytest.approx(5 * 2.776, rel=1e-3)
    assert Number("a", 4.0, 5.0, 1).margin == pytest.approx(5 * 12.706, rel=1e-3)
    assert str(difference) == "a = +4 (-9.88 to +17.9)"
    assert above(difference).so is None
    assert above(difference, -9.0).so is None
    assert above(difference, -10.0).so is True
    assert above(difference, 18.0).so is False
    assert at_most(difference, 4.0).so is None  # as likely above as below
    assert at_most(difference, -10.0).so is False
    assert at_most(difference, 18.0).so is True


def test_one_seed_has_no_interval_and_says_so():
    alone = Number("a", 4.0, alone=True) - Number("b", 1.0)
    assert str(alone) == "a - b = +3 (one seed)"
    assert (above(alone).so, at_most(alone).so) == (True, False)
    assert at_most(alone, 3.0).so is True  # equal is enough
    seeds = results(("depth", TOP1, "PC|VGG5: 60 61 62, PC|VGG10: 40"))  # those of the one are not those of the other
    assert "PC VGG5 - PC VGG10 = +21 (one seed)" in verdict("Plain PC loses", seeds).numbers


@pytest.mark.parametrize(
    ("a", "b"), [((54.2, 59.6), (77.6, 77.5)), ((37, 43, 41), (60, 60.5)), ((1, 2, 4), (3, 3.1, 3))]
)
def test_an_interval_is_that_of_welchs_test(a, b):
    """By scipy. Where one side breaks down and spreads, the other is not made uncertain beyond it."""
    values = ", ".join(f"{row}|VGG10: {' '.join(map(str, v))}" for row, v in (("PC", a), ("BP", b), ("iPC", (1, 99))))
    table = Numbers("depth", results(("depth", TOP1, values))["depth"].tables[TOP1])
    difference = table("PC", "VGG10") - table("BP", "VGG10")
    low, high = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert (difference.mean - difference.margin, difference.mean + difference.margin) == pytest.approx((low, high))


def test_a_verdict_says_whether_it_rests_on_one_seed():
    """A claim of several parts holds by the weakest of them, and fails by the strongest of those that fail."""
    words = "PC+S+F and iPC+S lose no"
    shallow = "PC+S+F|VGG5: 60 60.1 60.2, iPC+S|VGG5: 60 60.1 60.2"

    def judged(deep):
        found = verdict(words, results(("depth", TOP1, f"{shallow}, {deep}")))
        return as_table([found]).rows[0][1]

    assert judged("PC+S+F|VGG10: 61 61.1 61.2, iPC+S|VGG10: 61 61.1 61.2") == "holds"
    assert judged("PC+S+F|VGG10: 61 61.1 61.2, iPC+S|VGG10: 61") == "holds, by one seed"
    assert judged("PC+S+F|VGG10: 50 50.1 50.2, iPC+S|VGG10: 61") == "does not hold"
    assert judged("PC+S+F|VGG10: 61 61.1 61.2, iPC+S|VGG10: 50") == "does not hold, by one seed"
    assert judged("PC+S+F|VGG10: 50 50.1 50.2, iPC+S|VGG10: 50") == "does not hold"


def test_who_is_near_chance_cannot_fall_far():
    base = Number("base", 50.0, 0.0)
    assert falls_far(base, Number("other", 39.0, 0.0)).so is True  # 11 of 40 points above chance
    assert falls_far(base, Number("other", 41.0, 0.0)).so is False
    assert falls_far(Number("base", 19.0, 0.0), Number("other", 10.0, 0.0)).so is None


@pytest.mark.parametrize(
    ("words", "recipe", "table", "column", "answer"),
    [
        ("Plain PC loses", "depth", TOP1, "VGG10", "holds"),  # a network that always diverged counts as 0 % accurate
        ("Plain PC's first", "energy", "cifar10.VGG10", "first", "not enough data"),  # but has no such energy
    ],
)
def test_divergence_is_a_number_only_where_accuracy_is_measured(words, recipe, table, column, answer):
    entries = {("PC", "VGG5"): Entry((60.0,)), ("PC", column): Entry(diverged=2)}
    found = verdict(words, {recipe: Result(recipe, "laptop", 1, 1, {table: Matrix(table, table, entries)})})
    assert (found.answer, "diverged" in found.numbers) == (answer, True)


def test_schedules_are_judged_with_bf_where_there_is_nothing_without():
    found = results(("schedules", TOP1, "PC+S+F|VGG10 BF: 60, PC+L+F|VGG10 BF: 50, PC+D+F|VGG10 BF: 55"))
    assert verdict("Spiking precision beats", found).answer == "holds"


def test_the_papers_own_numbers_bear_out_its_claims():
    """The claims, put to the paper's tables as if they were ours."""

    def as_ours(recipe, source, dataset="cifar10", table="top1"):
        values = published.table(source, dataset, "top1").items()
        return recipe, f"{dataset}.{table}", ", ".join(f"{row}|{column}: {mean}" for (row, column), (mean, _) in values)

    found = results(
        *(as_ours(name, name) for name in ("accuracy", "ablation", "schedules", "auxiliary")),
        as_ours("depth", "ablation"),
        as_ours("batchnorm", "batchnorm", table="strategies"),
        as_ours("vgg15", "vgg15", "tiny-imagenet"),
    )
    held = ("Plain PC loses", "Plain iPC", "PC+S+F and iPC+S", "Spiking precision beats", "Every schedule", "S alone")
    held += ("Without auxiliary", "BatchNorm freezing helps", "Plain BatchNorm", "In a VGG15")
    assert {words: verdict(words, found).answer for words in held} == dict.fromkeys(held, "holds")
    # Its Table 1 has 93.13 for BP and 91.93 for PC+S+F in a ResNet18: its own numbers are 1.2 apart.
    assert verdict("PC+S+F stays within", found).answer == "does not hold"


def test_the_largest_scale_is_taken_and_smoke_only_on_request(tmp_path):
    def leave(recipe, scale, over=1):
        content = {"recipe": recipe, "scale": {"name": scale}, "runs": {"planned": 1, "over": over}, "tables": []}
        write_json(tmp_path / f"{recipe}-{scale}" / "result.json", content)

    leave("gap", "smoke")
    with pytest.raises(RunError, match="There are no results of a scale above smoke"):
        gather(tmp_path)
    assert set(gather(tmp_path, "smoke")) == {"gap"}
    leave("gap", "laptop")
    leave("depth", "laptop")
    leave("depth", "workstation")
    leave("gap", "paper")
    leave("depth", "paper", over=0)  # only begun
    assert {name: found.scale for name, found in gather(tmp_path).items()} == {"depth": "workstation", "gap": "paper"}
