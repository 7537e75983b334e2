"""Which hyper-parameters a cell gets, and whether every cell of every recipe can be trained at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deeppc.models import build, names
from deeppc.paper.hyper import DEFAULTS, LEVELS, NUDGED, SCALED, Task, settings_for
from deeppc.paper.recipe import NAMES, find
from deeppc.paper.run import cost, jobs, plan
from deeppc.paper.scales import MAIN, SCALES, scale_for


@pytest.fixture
def presets(tmp_path):
    """As a search would leave them: VGG5 and VGG10 on CIFAR-10, one of them also with BF."""
    files = {
        "cifar10-vgg5-pc+s+f": 'model = "vgg5"\nlr_x = 0.7\nT = 8\nepochs = 3\nwidth = 0.5',
        "cifar10-vgg10-pc+s+f": 'model = "vgg10"\nlr_x = 0.4\nT = "none"',
        "cifar10-vgg5-bf-pc+s+f": 'model = "vgg5"\nnorm = "bf"\nlr_x = 0.6',
    }
    for name, text in files.items():
        (tmp_path / f"{name}.toml").write_text(
            f'# made for this test\ndataset = "cifar10"\nalgorithm = "pc+s+f"\n{text}\n'
        )
    return tmp_path


@pytest.mark.parametrize(
    ("task", "settings", "source"),
    [
        ("cifar10 vgg5 none pc+s+f", {"lr_x": 0.7, "T": 8}, "preset cifar10-vgg5-pc+s+f"),
        ("cifar10 vgg5 bf pc+s+f", {"lr_x": 0.6}, "preset cifar10-vgg5-bf-pc+s+f"),
        ("cifar10 vgg10 none pc+s+f", {"lr_x": 0.4, "T": None}, "preset cifar10-vgg10-pc+s+f"),
        ("cifar10 vgg10 bf pc+s+f", {"lr_x": 0.4, "T": None}, "preset cifar10-vgg10-pc+s+f (nearest)"),
        ("cifar10 vgg7 none pc+s+f", {"lr_x": 0.7, "T": 8}, "preset cifar10-vgg5-pc+s+f (nearest)"),
        ("cifar10 resnet10 none pc+s+f", {"lr_x": 0.4, "T": None}, "preset cifar10-vgg10-pc+s+f (nearest)"),
        ("cifar100 vgg5 none pc+s+f", {"lr_x": 0.7, "T": 8}, "preset cifar10-vgg5-pc+s+f (nearest)"),
        ("cifar10 vgg5 none pc+s+f+cn", {"lr_x": 0.7, "T": 8, **NUDGED}, "preset cifar10-vgg5-pc+s+f (nearest)"),
        ("cifar10 vgg5 none pc+d", {"lr_x": 0.7, "T": 8}, "preset cifar10-vgg5-pc+s+f (nearest)"),
        ("cifar10 vgg5 none pc+s+cn", {"lr_x": 0.7, "T": 8, **NUDGED}, "preset cifar10-vgg5-pc+s+f (nearest)"),
        ("cifar10 vgg5 none pc+f", DEFAULTS["pc+f"], "defaults"),
        ("cifar10 vgg5 none ipc", DEFAULTS["ipc"], "defaults"),
        ("cifar10 vgg5 none ipc+cn", DEFAULTS["ipc"] | NUDGED, "defaults"),
        ("cifar10 vgg5 none bp-last2", DEFAULTS["bp"], "defaults"),
    ],
)
def test_the_nearest_preset_is_taken(presets, task, settings, source):
    assert settings_for(Task(*task.split()), presets) == (settings, source)


@pytest.mark.parametrize(
    ("task", "lr_w", "source"),
    [
        ("vgg5 bp", 0.1, "preset plain"),
        ("vgg5 bp-last2", 0.2, "preset last"),
        ("vgg5 bp-last1", 0.1, "preset plain (nearest)"),
        ("vgg10 bp-repeats10", 0.1, "preset plain (nearest)"),
        ("vgg5 zil", 0.1, "preset plain (nearest)"),
        ("resnet10-mupc pc", 0.4, "preset scaled"),
        ("resnet10-mupc bp", SCALED["lr_w"], "preset plain (nearest)"),
        ("resnet10-mupc ipc", SCALED["lr_w"], "defaults"),
        ("resnet10 pc", 0.3, "preset other (nearest)"),  # though the other has its shape
        ("vgg10 pc", 0.3, "preset other (nearest)"),
    ],
)
def test_controls_and_scaled_weights_have_presets_of_their_own(tmp_path, task, lr_w, source):
    files = {
        "plain": 'model = "vgg5"\nalgorithm = "bp"\nlr_w = 0.1',
        "last": 'model = "vgg5"\nalgorithm = "bp"\nlast = 2\nlr_w = 0.2',
        "other": 'model = "vgg5"\nalgorithm = "pc"\nlr_w = 0.3',
        "scaled": 'model = "resnet10-mupc"\nalgorithm = "pc"\nlr_w = 0.4',
    }
    for name, text in files.items():
        (tmp_path / f"{name}.toml").write_text(f'dataset = "cifar10"\n{text}\n')
    model, method = task.split()
    found, where = settings_for(Task("cifar10", model, "none", method), tmp_path)
    assert (found["lr_w"], where) == (lr_w, source)


def test_rivals_share_all_but_what_they_are_tuned_by():
    own = {"algorithm", "options", "lr_w", "weight_decay"}
    for net in ("VGG5", "VGG10", "ResNet10"):
        cells = [c for c in find("rivals").grid(scale_for("workstation", "rivals")) if c.column == net]
        assert len({c.seeds for c in cells}) == 1
        kinds = {tuple((k, v) for k, v in vars(c.config).items() if k not in own) for c in cells if c.row != "PC muPC"}
        assert len(kinds) == 1


def test_cells_ask_for_presets_of_what_they_are():
    cells = {(c.row, c.column): c.config for c in find("rivals").grid(scale_for("workstation", "rivals"))}
    assert cells["BP repeated", "VGG5"].method == "bp-repeats5"
    assert cells["BP last half", "ResNet10"].method == "bp-last5"
    assert cells["BP last", "VGG10"].method == "bp-last1"
    assert {config.method for (row, _), config in cells.items() if row in ("BP", "PC+NN")} == {"bp", "pc+nn"}
    assert cells["PC muPC", "ResNet10"].model == "resnet10-mupc"


def test_one_cells_changes_are_not_the_next_ones(presets):
    task = Task("cifar10", "vgg5", "none", "pc+s+f")
    settings_for(task, presets)[0]["depth_gain"] = True
    assert settings_for(task, presets)[0] == {"lr_x": 0.7, "T": 8}
    before = find("ablation").grid(scale_for("laptop", "ablation"))
    find("readings").grid(scale_for("laptop", "readings"))
    assert find("ablation").grid(scale_for("laptop", "ablation")) == before


def test_a_deeper_network_gets_as_many_steps_as_it_has_levels(presets):
    (presets / "cifar10-vgg10-pc+s+f.toml").unlink()
    settings, _ = settings_for(Task("cifar10", "resnet18", "none", "pc+s+f"), presets)
    assert settings["T"] == 18  # max(8, 18): the energy would not arrive in 8


def test_levels_are_those_of_the_networks():
    assert {name: build(name, width=0.02).L for name in LEVELS} == LEVELS


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", NAMES)
def test_every_cell_can_be_trained(name, scale):
    recipe = find(name)
    assert (recipe.name, bool(recipe.shows), bool(recipe.expect)) == (name, True, True)
    cells = recipe.grid(scale_for(scale, name))  # raises, if an algorithm's options contradict themselves
    assert cells or recipe.work is not None
    for cell in cells:
        assert cell.config.model in names()
        assert cost(cell.config) > 0
        assert cell.seeds
        says = name in ("readings", "gain", "deep") or cell.row.endswith(", gain")
        assert says or not cell.config.setting("depth_gain")  # the paper has no such thing
    assert len({(cell.table, cell.row, cell.column) for cell in cells}) == len(cells)


def test_a_changed_scale_has_a_folder_of_its_own(tmp_path):
    def folder(**changes):
        return plan("depth", "laptop", tmp_path, **changes).folder.name

    assert folder() == folder(seeds=(0, 1, 2)) == "depth-laptop"  # more seeds are better evidence of the same
    assert folder(seeds=(5,)) == folder(models=("vgg5",)) == folder(epochs=1) == "depth-laptop-changed"


# Rows x columns as in the issue's table: algorithms x nets x data sets x variants.
SIZES = {
    "accuracy": 5 * 5 * 3 * 2,
    "vgg15": 7 * 2,
    "depth": 3 * (1 + 6 * 2),
    "energy": (8 + 2) * 3,
    "schedules": 8 * 3 * 2 * 2,
    "auxiliary": 2 * 2 * 2,
    "batchnorm": 2 * 5 + 6 * 4 * 2 - 2 * 2,
    "ablation": 7 * 5 * 2,
    "gap": 3,
    "robustness": 2 + 3,
    "time": 0,
    "readings": 2 * 2 * 2 * 2 * 2 * 2,
    "alpha": 2 * 2 * (1 + 4),
    "gain": 4 * (6 + 5) + 2 * 3 + 5,
    "deep": 3 * 4,
    "rivals": 17 * 3 + 1,
    "control": (4 + 2 * 3) + 5 + 9 + 3 + 2 + 5 + 3,
}


def test_a_control_has_all_settings_of_the_shallower_network():
    there = {(cell.row, cell.column): cell.config for cell in find("control").grid(scale_for("paper", "control"))}
    deeper, own = there["iPC+S, as in VGG5", "VGG10"], there["iPC+S", "VGG5"]
    assert (deeper.model, deeper.lr_w, deeper.activation) == ("vgg10", own.lr_w, own.activation)
    assert [deeper.setting(name) == own.setting(name) for name in ("lr_x", "alpha")] == [True, True]
    assert deeper.setting("T") is None


def test_a_control_of_nudging_has_its_settings_and_no_nudging():
    cells = {(cell.row, cell.column): cell.config for cell in find("control").grid(scale_for("paper", "control"))}
    nudged = {
        cell.column: cell.config for cell in find("rivals").grid(scale_for("paper", "rivals")) if cell.row == "PC+CN"
    }
    for net in ("VGG5", "VGG10"):
        own, other = cells["PC, as PC+CN", net], nudged[net]
        assert (own.algorithm, other.algorithm, own.lr_w) == ("pc", "pc+cn", other.lr_w)
        assert [own.setting(name) == other.setting(name) for name in ("lr_x", "momentum_x")] == [True, True]
        assert (own.setting("beta"), other.setting("beta")) == (1.0, 0.75)


def test_the_gain_is_one_training_for_those_who_measure_it():
    def config(recipe):
        cells = find(recipe).grid(scale_for("workstation", recipe))
        (found,) = [cell.config for cell in cells if (cell.row, cell.column) == ("PC+S+F, gain", "VGG10")]
        return found

    assert config("control") == config("robustness")
    assert config("control").setting("depth_gain") is True


def test_a_control_has_what_the_first_search_had_found():
    """Of the searches that are kept: their best trial's settings."""
    rows = {cell.row: cell.config for cell in find("control").grid(scale_for("workstation", "control"))}
    kept = Path(__file__).parents[2] / "records/searches"
    for row in ("PC", "iPC", "iPC+S", "PC+S+F"):
        trials = json.loads((kept / f"cifar10-vgg10-bf-{row.lower()}.json").read_text(encoding="utf-8"))["trials"]
        best = max(trials, key=lambda trial: trial["value"])["params"]
        assert {name: rows[f"{row}, first search"].setting(name) for name in best} == best


@pytest.mark.parametrize(("name", "size"), SIZES.items())
def test_size_of_the_grid_at_paper_scale(name, size):
    assert len(find(name).grid(scale_for("paper", name))) == size


def protocol(scale):
    """The settings of a scale's first cell, and its cells as (data set, model, algorithm, seeds)."""
    cells = find("accuracy").grid(scale_for(scale, "accuracy"))
    names = ("width", "limit", "epochs", "schedule_epochs", "batch_size", "patience", "select", "norm")
    grid = [(c.table, c.config.model, c.config.algorithm, len(c.seeds)) for c in cells]
    return tuple(cells[0].config.setting(name) for name in names), grid


def test_the_paper_scale_is_the_papers_protocol():
    settings, grid = protocol("paper")
    assert settings == (1.0, None, 50, 25, 128, 10, "test", "none")
    assert {seeds for *_, seeds in grid} == {5}


def test_the_workstations_protocol():
    settings, grid = protocol("workstation")
    assert settings == (0.25, 20_000, 10, 10, 64, None, "validation", "bf")
    main = [("cifar10", m, a, 3) for a in MAIN for m in ("vgg5", "vgg7", "vgg10", "resnet10")]
    parts = [("cifar10", "resnet18", a, 1) for a in ("bp", "pc+s+f", "ipc+s")]
    parts += [("cifar100", m, a, 1) for m in ("vgg5", "vgg10") for a in ("bp", "pc", "pc+s+f", "ipc+s")]
    parts += [("tiny-imagenet", "vgg5", a, 1) for a in ("bp", "pc+s+f")]
    assert sorted(grid) == sorted(main + parts)


def test_recipes_of_the_workstation_share_most_cells(tmp_path):
    """Besides accuracy: PC+S, PC+F, PC+D, PC+D+F, PC+L+F in a VGG10, and two without S but with its settings; once,
    five with centre nudging."""
    plans = [plan(name, "workstation", tmp_path) for name in ("accuracy", "depth", "energy", "schedules", "ablation")]
    assert len(jobs(plans)) - len(jobs(plans[:1])) == 3 * (5 + 2) + 5


@pytest.mark.parametrize(("name", "norm"), [("laptop", "none"), ("laptop", "bf"), ("paper", "none")])
def test_presets_decide_the_activation_but_not_in_networks_that_they_do_not_come_from(name, norm):
    cells = [c for c in find("accuracy").grid(scale_for(name, "accuracy")) if c.config.norm == norm]
    assert cells
    for c in cells:
        if (name, norm) == ("laptop", "none"):  # the same network for every algorithm
            assert (c.config.activation, c.hyper.endswith(" with hard_tanh")) == ("hard_tanh", True)
        else:
            task = Task(c.config.dataset, c.config.model, c.config.norm, c.config.method)
            assert c.config.activation == settings_for(task)[0]["activation"]
