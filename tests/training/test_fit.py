"""``fit`` on objects: any graph, data, targets, optimiser and scheduler; resumed to the same bits."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler as schedulers
from torch.utils.data import DataLoader, TensorDataset
from toy_family import Toy

import deeppc
from deeppc.data import load
from deeppc.diagnostics.contexts import evaluating
from deeppc.errors import ConfigError, DataError, Interrupted, RunError
from deeppc.models import build
from deeppc.runs.folder import RunFolder
from deeppc.training import checkpoint as checkpoints
from deeppc.training import train
from deeppc.training.compare import compare
from deeppc.training.events import EpochDone, Event, Note, Started
from deeppc.training.scores import METRICS, metric_for

torch.manual_seed(0)
X = torch.randn(120, 6)
Y = X @ torch.randn(6, 2)
CLASSES = (Y[:, 0] > 0).long()
SOFT = torch.softmax(2 * Y, dim=1)
Same = Callable[[Path, Path], None]
StopAfter = Callable[..., Callable[[Event], None]]


def chain(outputs: int = 2, seed: int = 1) -> deeppc.Graph:
    torch.manual_seed(seed)
    return deeppc.Chain(nn.Sequential(nn.Linear(6, 16), nn.Tanh()), nn.Linear(16, outputs))


def fit(data: Any, *args: Any, net: deeppc.Graph | None = None, **options: Any) -> Any:
    defaults = {"epochs": 2, "batch_size": 32, "device": "cpu", "show": False}
    return deeppc.fit(net or chain(), data, *args, **{**defaults, **options})


def stop_at_epoch(number: int) -> Callable[[Event], None]:
    """Ctrl-C when an epoch is done: what comes next is the first batch of another, or the test."""

    def listen(event: Event) -> None:
        if isinstance(event, EpochDone) and event.metrics["epoch"] == number:
            os.kill(os.getpid(), signal.SIGINT)

    return listen


def loader(*tensors: Tensor, **options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*tensors), batch_size=20, **options)


# --- data and targets ------------------------------------------------------------------------------------------------


def test_regression_learns_and_is_scored_by_its_error() -> None:
    net = chain()
    with torch.no_grad():
        before = float((net(X[100:]) - Y[100:]).square().mean())
    result = fit(((X[:100], Y[:100]), (X[100:], Y[100:])), "pc+s+f", net=net, epochs=20)
    assert result.metric == "mse"
    with torch.no_grad():  # the net has the weights of the selected epoch
        assert result.test_mse == pytest.approx(float((net(X[100:]) - Y[100:]).square().mean()), rel=1e-5)
    assert result.test_mse < 0.9 * before
    assert result.table()["validation_mse"] == result.validation_mse


def test_the_lowest_error_is_selected_and_patience_counts_from_it() -> None:
    errors: list[float] = []

    class Uphill(torch.optim.SGD):
        """Goes down for two epochs, then up."""

        def step(self, closure: Any = None) -> None:
            self.param_groups[0]["lr"] = 5e-4 if len(errors) < 2 else -0.05
            super().step()

    def watch(event: Event) -> None:
        if isinstance(event, EpochDone):
            errors.append(event.metrics["validation_mse"])

    constant = {"scheduler": lambda o: schedulers.ConstantLR(o, 1.0)}
    result = fit((X, Y), "bp", optimizer=Uphill, epochs=6, patience=2, callbacks=[watch], **constant)
    assert result.selected_epoch == errors.index(min(errors)) + 1 < len(errors)
    assert len(errors) == result.selected_epoch + 2


@pytest.mark.parametrize(("targets", "outputs"), [(X, 6), (Y[:, 0], 1)], ids=["autoencoding", "a vector"])
def test_values_of_any_shape(targets: Tensor, outputs: int) -> None:
    result = fit((X, targets), "ipc+s", net=chain(outputs))
    assert (result.metric, result.test) == ("mse", {})
    assert not hasattr(result, "test_mse")


def test_a_network_may_answer_one_number_for_each_sample() -> None:
    nets = [chain(1), chain(1)]
    flat = deeppc.Chain(nets[1].nodes["1"], nn.Sequential(nets[1].nodes["2"], nn.Flatten(0)))
    parts = ((X[:100], Y[:100, 0]), (X[100:], Y[100:, 0]))
    results = [fit(parts, "pc+s+f", net=net) for net in (nets[0], flat)]
    assert results[1].test_mse == pytest.approx(results[0].test_mse, rel=1e-5)
    with torch.no_grad():
        assert results[1].test_mse == pytest.approx(float((flat(X[100:]) - Y[100:, 0]).square().mean()), rel=1e-5)


def test_a_converted_network_keeps_its_mode_through_evaluations() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(6, 64), nn.Linear(64, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(nn.functional.dropout(torch.tanh(self.first(x)), 0.5, self.training))  # type: ignore[no-any-return]

    module = Noisy()
    net = deeppc.from_torch(module, X[:2])
    drawn: list[bool] = []
    listen = {"callbacks": [lambda event: drawn.append(not torch.equal(net(X), net(X)))]}
    fit((X, CLASSES), net=net, epochs=3, **listen)
    assert all(drawn)  # after each evaluation, too
    assert module.training
    with evaluating(net):
        assert torch.equal(net(X), net(X))
    module.eval()
    with evaluating(net):
        pass
    assert not module.training


def test_inputs_may_be_tokens() -> None:
    """Numbers that an embedding looks up: as tensors they train as in a DataLoader."""
    tokens = torch.randint(0, 9, (120, 4))
    labels = (tokens[:, 0] > 4).long()
    results = []
    for parts in (
        ((tokens, labels), (tokens[:60], labels[:60])),
        (loader(tokens, labels), loader(tokens[:60], labels[:60])),
    ):
        torch.manual_seed(0)
        net = deeppc.Chain(nn.Sequential(nn.Embedding(9, 8), nn.Flatten()), nn.Linear(32, 2))
        results.append(
            fit(parts, "pc+s+f", net=net, epochs=8, select="last", optimizer=lambda w: torch.optim.Adam(w, 0.02))
        )
    assert min(result.test_accuracy for result in results) > 0.9


def test_the_mode_of_each_layer_is_what_it_was() -> None:
    norm = nn.BatchNorm1d(16)
    net = deeppc.Chain(nn.Sequential(nn.Linear(6, 16), norm, nn.Tanh()), nn.Linear(16, 2))
    fit((X, CLASSES), net=net.eval())
    assert not any(module.training for module in net.modules())
    learnt = norm.running_mean.clone()  # type: ignore[union-attr]
    assert bool((learnt != 0).all())  # it was trained in training mode
    net.train()
    norm.eval()  # frozen, as for fine-tuning
    fit((X, CLASSES), net=net)
    assert net.training
    assert not norm.training
    assert torch.equal(norm.running_mean, learnt)  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
def test_soft_labels_are_scored_by_the_class_and_by_cross_entropy(loss: str) -> None:
    net = chain()
    result = fit(((X, SOFT), (X, SOFT)), deeppc.Algorithm.parse("bp", loss=loss), net=net, epochs=10)
    with torch.no_grad():
        out = net(X)
    entropy = torch.nn.functional.cross_entropy(out, SOFT)
    assert result.test_accuracy == int((out.argmax(1) == SOFT.argmax(1)).sum()) / len(X)
    assert result.test_cross_entropy == pytest.approx(entropy.item(), rel=1e-5)


def test_several_labels_are_scored_by_their_probabilities() -> None:
    """A logit that goes on growing is no worse for it."""
    net, labels = chain(3), (X[:, :3] > 0).float()
    net.energies[net.output] = deeppc.Bernoulli()
    result = fit(((X, labels), (X, labels)), "pc+s+f", net=net, epochs=3)
    with torch.no_grad():
        error = (torch.sigmoid(net(X)) - labels).square().mean()
    assert result.test["mse"] == pytest.approx(error.item(), rel=1e-5)


def test_targets_that_look_alike_may_be_named() -> None:
    assert fit((X, SOFT), "bp", targets="values", epochs=1).metric == "mse"
    assert metric_for(CLASSES) is METRICS["classes"]
    assert metric_for(SOFT) is METRICS["soft labels"]
    assert metric_for(SOFT - 1) is METRICS["values"]
    assert metric_for(SOFT[:, :1]) is METRICS["values"]


def test_a_dataset_is_what_a_config_trains_on(tiny: Callable[..., deeppc.TrainConfig], assert_same_state: Same) -> None:
    """``train`` is a thin builder on ``fit``: the same objects by hand give the same bits."""
    by_name = train(tiny("named", algorithm="pc+s+f+cn"))
    dataset = load("digits")
    torch.manual_seed(0)
    net = build("mlp", classes=10, in_shape=dataset.in_shape, width=0.05)
    mine = by_name.run_dir.parent / "mine"
    fit(dataset, "pc+s+f+cn", net=net, epochs=3, batch_size=24, limit=60, patience=10, run_dir=mine)
    assert_same_state(by_name.run_dir, mine)


def test_three_parts_by_name_in_order_and_as_loaders_score_alike() -> None:
    parts = {"train": (X[:60], CLASSES[:60]), "validation": (X[60:90], CLASSES[60:90]), "test": (X[90:], CLASSES[90:])}
    by_name, in_order = fit(parts, "bp"), fit(tuple(parts.values()), "bp")
    assert by_name.test == in_order.test
    net = chain()
    loaded = fit({name: loader(*pair) for name, pair in parts.items()}, "bp", net=net)
    assert loaded.validation.keys() == {"accuracy"}
    with torch.no_grad():
        correct = (net(X[90:]).argmax(1) == CLASSES[90:]).float().mean().item()
    assert loaded.test_accuracy == pytest.approx(correct)


def test_a_loader_alone_keeps_the_last_epoch_and_says_so() -> None:
    events: list[Event] = []
    result = fit(loader(X, CLASSES), "bp", callbacks=[events.append], epochs=3)
    assert (result.select, result.selected_epoch) == ("last", 3)
    assert any(isinstance(e, Note) and "the last epoch is kept" in e.text for e in events)


@pytest.mark.parametrize("patience", [None, 1])
def test_patience_without_a_best_epoch_is_idle_and_said_so(patience: int | None) -> None:
    events: list[Event] = []
    result = fit((X, CLASSES), "bp", callbacks=[events.append], epochs=3, select="last", patience=patience)
    said = [e.text for e in events if isinstance(e, Note) and "patience changes nothing" in e.text]
    assert (result.selected_epoch, len(said)) == (3, 0 if patience is None else 1)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (X, "The data is Tensor: expected"),
        ((X, Y[:50]), "120 train inputs, but 50 labels"),
        ({"training": (X, Y)}, "the parts training: expected train"),
        (((X, Y), (X[:, :3], Y)), "do not match"),
        (loader(X), "expected pairs of tensors"),
        (loader(X[:0], Y[:0]), "is empty"),
    ],
)
def test_data_that_does_not_fit(data: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        fit(data, "bp")


# --- optimisers and schedulers ---------------------------------------------------------------------------------------

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "momentum": lambda weights: torch.optim.SGD(weights, lr=0.05, momentum=0.9),
    "rmsprop": lambda weights: torch.optim.RMSprop(weights, lr=1e-3, centered=True),
    "rprop": torch.optim.Rprop,
    "nadam": torch.optim.NAdam,
}
SCHEDULERS: dict[str, dict[str, Any]] = {
    "paper": {},
    "steps": {"scheduler": lambda o: schedulers.MultiStepLR(o, [1, 2])},  # its milestones are a Counter
    "plateau": {"scheduler": lambda o: schedulers.ReduceLROnPlateau(o, patience=0)},
    "cycle": {"scheduler": lambda o: schedulers.OneCycleLR(o, 0.1, 12), "scheduler_every": "batch"},
    "several": {
        "scheduler": lambda o: schedulers.SequentialLR(
            o, [schedulers.ConstantLR(o, 0.5, 1), schedulers.ExponentialLR(o, 0.5)], [1]
        )
    },
}


@pytest.mark.parametrize(
    ("optimizer", "scheduler", "batches"),
    [
        *((name, "paper", 6) for name in OPTIMIZERS),
        *(("momentum", name, 6) for name in SCHEDULERS if name != "paper"),
        ("adamw", "steps", 4),  # at the end of an epoch, in the evaluation
    ],
)
def test_interrupted_and_resumed_is_never_interrupted(
    tmp_path: Path, assert_same_state: Same, optimizer: str, scheduler: str, batches: int, stop_after: StopAfter
) -> None:
    options = {"optimizer": OPTIMIZERS[optimizer], **SCHEDULERS[scheduler], "epochs": 3}
    data = ((X, Y), (X, Y))
    folders = [RunFolder(tmp_path / "straight"), RunFolder(tmp_path / "broken")]
    straight = fit(data, "pc+s+f+cn", run_dir=folders[0].path, **options)
    with pytest.raises(Interrupted, match=r"resume=True\)"):
        fit(data, "pc+s+f+cn", run_dir=folders[1].path, callbacks=[stop_after(batches)], **options)
    torch.manual_seed(99)
    other = chain(seed=5)  # its weights are replaced
    resumed = fit(data, "pc+s+f+cn", net=other, run_dir=folders[1].path, resume=True, **options)
    assert_same_state(folders[0].path, folders[1].path)
    assert (straight.test, straight.selected_epoch) == (resumed.test, resumed.selected_epoch)
    one, two = (checkpoints.load(folder.checkpoint) for folder in folders)
    assert (one.schedule, one.groups) == (two.schedule, two.groups)
    rates = [[line["lr_w"] for line in folder.metrics()] for folder in folders]
    assert rates[0] == rates[1]


def test_a_loader_resumes_at_an_epoch_and_says_so(
    tmp_path: Path, assert_same_state: Same, stop_after: StopAfter
) -> None:
    """Where the order comes from torch's random numbers alone, even to the same bits."""
    data = {"train": loader(X, Y, shuffle=True), "validation": loader(X, Y)}
    chain()
    fit(data, "pc+s+f", run_dir=tmp_path / "straight", epochs=3)
    with pytest.raises(Interrupted, match=r"after 2 of 6 batches .which are not kept: what is saved is epoch 1"):
        fit(data, "pc+s+f", run_dir=tmp_path / "broken", epochs=3, callbacks=[stop_after(8)])
    events: list[Event] = []
    fit(data, "pc+s+f", run_dir=tmp_path / "broken", epochs=3, resume=True, callbacks=[events.append])
    started = next(e for e in events if isinstance(e, Started))
    assert (started.epoch, started.batch) == (1, 0)
    assert any(isinstance(e, Note) and "resumes at the start of an epoch" in e.text for e in events)
    assert_same_state(tmp_path / "straight", tmp_path / "broken")


def test_a_loader_stopped_between_two_epochs_resumes_to_the_same_bits(tmp_path: Path, assert_same_state: Same) -> None:
    data = {"train": loader(X, Y, shuffle=True), "validation": loader(X, Y)}
    fit(data, "bp", run_dir=tmp_path / "straight", epochs=3, report=False)
    with pytest.raises(Interrupted):
        fit(data, "bp", run_dir=tmp_path / "broken", epochs=3, callbacks=[stop_at_epoch(2)], report=False)
    fit(data, "bp", run_dir=tmp_path / "broken", epochs=3, resume=True, report=False)
    assert_same_state(tmp_path / "straight", tmp_path / "broken")


def test_stopped_in_the_last_evaluation_the_current_weights_are_kept(tmp_path: Path, assert_same_state: Same) -> None:
    """Not the selected ones, which the network has by then: more epochs start from where the training was."""
    data, options = ((X, CLASSES), (X, CLASSES)), {"schedule_epochs": 2, "patience": None, "report": False}
    fast = lambda weights: torch.optim.AdamW(weights, lr=3e-2)  # noqa: E731
    fit(data, "bp", epochs=5, optimizer=fast, run_dir=tmp_path / "whole", **options)
    with pytest.raises(Interrupted):
        fit(data, "bp", epochs=3, optimizer=fast, run_dir=tmp_path / "a", callbacks=[stop_at_epoch(3)], **options)
    fit(data, "bp", epochs=5, optimizer=fast, run_dir=tmp_path / "a", resume=True, **options)
    assert_same_state(tmp_path / "whole", tmp_path / "a")


def test_an_optimiser_that_is_used_again_has_the_rates_of_the_run(tmp_path: Path) -> None:
    def rates(name: str, *stops: Callable[[Event], None]) -> list[float]:
        net = chain()
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        options = {"net": net, "optimizer": optimizer, "epochs": 4, "run_dir": tmp_path / name, "report": False}
        for stop in stops:
            with pytest.raises(Interrupted):
                fit((X, CLASSES), "bp", callbacks=[stop], **options)
        fit((X, CLASSES), "bp", resume=bool(stops), **options)
        return [line["lr_w"] for line in RunFolder(tmp_path / name).metrics()]

    assert rates("a", stop_at_epoch(2)) == rates("b")


def test_another_score_does_not_resume_a_run(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        fit((X, SOFT), "bp", run_dir=tmp_path / "a", callbacks=[stop_at_epoch(1)], report=False)
    with pytest.raises(ConfigError, match="scored by accuracy, not by mse"):
        fit((X, SOFT), "bp", run_dir=tmp_path / "a", resume=True, targets="values")
    assert RunFolder(tmp_path / "a").status == "interrupted"


def test_targets_of_a_loader_have_the_shape_that_tensors_would_have() -> None:
    values = Y[:, 0]
    scores = [
        fit((loader(X, values[:, None]), loader(X, test)), "bp", net=chain(1)).test_mse for test in (values, Y[:, :1])
    ]
    assert scores[0] == scores[1]
    with pytest.raises(DataError, match=r"of the shape \(20, 1\)"):
        fit((loader(X, CLASSES), loader(X, CLASSES[:, None])), "bp")


def test_a_score_that_is_no_number_is_beaten_by_any() -> None:
    assert METRICS["values"].better(0.1, float("nan"))
    assert not METRICS["values"].better(float("nan"), 0.1)


@pytest.mark.parametrize(("every", "exponents"), [("epoch", [0, 1, 2]), ("batch", [3, 7, 11])])
def test_schedulers_are_stepped_when_they_ask(every: Any, exponents: list[int], tmp_path: Path) -> None:
    """108 samples in batches of 32: 4 steps an epoch."""
    halving = {"scheduler": lambda o: schedulers.ExponentialLR(o, 0.5), "scheduler_every": every}
    small = (0.01 * X, 0.01 * Y)
    fit(small, "bp", optimizer=lambda w: torch.optim.SGD(w, lr=1.0), epochs=3, run_dir=tmp_path / "run", **halving)
    assert [line["lr_w"] for line in RunFolder(tmp_path / "run").metrics()] == [2.0**-n for n in exponents]


def test_an_optimiser_and_its_scheduler_as_objects() -> None:
    net = chain()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scheduler = schedulers.StepLR(optimizer, 1)
    fit((X, Y), "bp", net=net, optimizer=optimizer, scheduler=scheduler)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.001)
    with pytest.raises(ConfigError, match="of another optimiser"):
        fit((X, Y), "bp", scheduler=scheduler)
    with pytest.raises(ConfigError, match="that the network does not have"):
        fit((X, Y), "bp", optimizer=optimizer)


def test_a_state_that_no_file_can_hold(tmp_path: Path) -> None:
    class Odd(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["odd"] = object()

    with pytest.raises(RunError, match="cannot hold the state of Odd or its scheduler: it has a object"):
        fit((X, Y), "bp", optimizer=Odd, run_dir=tmp_path / "run")
    assert fit((X, Y), "bp", optimizer=Odd).epochs == 2


# --- the run folder --------------------------------------------------------------------------------------------------


def test_without_a_folder_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: StopAfter
) -> None:
    monkeypatch.chdir(tmp_path)
    assert fit((X, CLASSES), "pc", diagnostics=True).run_dir is None
    with pytest.raises(Interrupted, match="nothing is saved"):
        fit((X, CLASSES), "pc", callbacks=[stop_after(2)])
    with pytest.raises(ConfigError, match="resume needs run_dir"):
        fit((X, CLASSES), "pc", resume=True)
    assert not list(tmp_path.iterdir())


def test_a_finished_run_gives_its_result_and_its_weights(tmp_path: Path) -> None:
    data, run_dir = ((X, CLASSES), (X, CLASSES)), tmp_path / "run"
    net = chain()
    result = fit(data, "bp", net=net, run_dir=run_dir)
    other = chain(seed=9)
    assert fit(data, "bp", net=other, run_dir=run_dir, resume=True) == result
    assert torch.equal(net(X), other(X))
    assert result.test_accuracy == int((other(X).argmax(1) == CLASSES).sum()) / len(X)
    for change in ({"batch_size": 8}, {"optimizer": torch.optim.SGD}, {"seed": 3}):
        with pytest.raises(ConfigError, match="but this run was begun with"):
            fit(data, "bp", run_dir=run_dir, resume=True, **change)
    with pytest.raises(ConfigError, match="algorithm is pc, but this run was begun with bp"):
        fit(data, "pc", run_dir=run_dir, resume=True)


@pytest.mark.parametrize(
    ("algorithm", "options", "words"),
    [
        ("qc", {}, "unknown algorithm 'qc'"),
        ("bp", {"select": "test"}, "select is 'test', but the data has no test part"),
        ("bp", {"epochs": 0}, "must be a whole number at least 1"),
        ("bp", {"patience": 0}, "patience is 0"),
        ("bp", {"select": "val"}, "choose validation, test or last"),
        ("bp", {"precision": "fp16"}, "choose fp32 or bf16"),
        ("bp", {"scheduler": lambda o: schedulers.ConstantLR(o), "scheduler_every": "step"}, "choose epoch or batch"),
        ("bp", {"optimizer": torch.optim.LBFGS}, "not LBFGS"),
        ("bp", {"targets": "value"}, "unknown kind of targets 'value': did you mean 'values'"),
    ],
)
def test_bad_arguments(algorithm: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        fit((X, Y), algorithm, **options)


def test_large_values_are_no_divergence() -> None:
    assert fit((X, 1e5 * Y), "bp", epochs=1).test == {}


# --- a family of one's own -------------------------------------------------------------------------------------------


def test_a_family_from_another_file_trains_and_is_compared(tiny: Callable[..., deeppc.TrainConfig]) -> None:
    """tests/toy_family.py: with ``+whole`` and strength 1 it is backprop, to the bit."""
    assert fit((X, CLASSES), "toy").steps == 8
    assert fit((X, CLASSES), Toy(strength=2.0)).steps == 8
    found = compare(tiny("many", epochs=2), ["bp", "toy+whole", "toy"], [0], options={"strength": 1.0})
    bp, whole, _ = found.rows
    assert whole.scores == bp.scores
    assert [row.runs for row in found.rows] == [["bp-0"], ["toy+whole-0"], ["toy-0"]]
    config = RunFolder(found.folder / "toy-0").config()
    assert (config["algorithm"], config["reach"]) == ("toy", 1)
    with pytest.raises(ConfigError, match=r"--reach means nothing to toy[+]whole"):
        tiny(algorithm="toy+whole", reach=2)


@pytest.mark.parametrize(
    ("net", "data", "algorithm"),
    [
        (chain(1), (X, CLASSES), "bp"),
        (chain(), (X[:, :3], CLASSES), "bp"),
        (chain(), (X.double(), CLASSES), "bp"),
        (chain(), (X, Y), deeppc.Algorithm.parse("bp", loss="cross_entropy")),
    ],
    ids=["outputs", "inputs", "dtype", "no distribution"],
)
def test_a_network_that_does_not_fit_is_refused_before_anything_is_written(
    net: deeppc.Graph, data: Any, algorithm: Any, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="does not fit the data"):
        fit(data, algorithm, net=net, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"net": nn.Linear(6, 2)}, "net is a torch Linear"),
        ({"targets": "values"}, "targets are called 'values'"),
        ({"scheduler": schedulers.ReduceLROnPlateau}, "give it mode='max'"),
        ({"net": chain().requires_grad_(False)}, "nothing to train"),
    ],
)
def test_what_would_go_wrong_silently_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        fit((X, CLASSES), "bp", **options)


def test_the_optimiser_has_its_rate_back_afterwards() -> None:
    net = chain()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    fit((X, CLASSES), "bp", net=net, optimizer=optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_a_loaders_lone_last_sample_is_told() -> None:
    net = deeppc.Chain(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)), nn.Linear(4, 2))
    data = DataLoader(TensorDataset(X[:41], CLASSES[:41]), batch_size=20)
    with pytest.raises(DataError, match=r"Batch 3 of epoch 1 is a single sample.*drop_last=True"):
        fit(data, "bp", net=net)


class Moody(nn.Linear):
    """Fails in its third training batch."""

    def forward(self, x: Tensor) -> Tensor:
        self.calls = getattr(self, "calls", 0) + self.training
        if self.calls >= 3:
            raise KeyError("mood")
        return super().forward(x)


def test_what_a_module_raises_is_said_with_its_node_and_the_batch(tmp_path: Path) -> None:
    net = deeppc.Chain(nn.Linear(6, 4), Moody(4, 2))
    with pytest.raises(RunError, match=r"batch 3 of epoch 1: KeyError: 'mood' .while predicting the node '2'"):
        fit((X, CLASSES), "bp", net=net, run_dir=tmp_path / "run", report=False)
    folder = RunFolder(tmp_path / "run")
    assert folder.status == "failed"
    assert checkpoints.load(folder.checkpoint).progress.step == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"net": deeppc.Chain(nn.Sequential(nn.Linear(6, 17), nn.Tanh()), nn.Linear(17, 2))}, "The network has other"),
        ({"data": (X + 1, CLASSES)}, "The data are others than this run was begun with"),
        ({"optimizer": lambda p: torch.optim.SGD([{"params": p, "lr": 0.2}], lr=0.1)}, "optimizer is SGD"),
        ({"epochs": 1}, "epochs is 1, but this run was begun with 2: it can only be raised"),
        ({"lr": 3}, "optimizer is SGD"),
    ],
)
def test_another_network_or_other_data_do_not_resume_a_run(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    lr = change.pop("lr", 0.1)
    options = {"data": (X, CLASSES), "optimizer": lambda p: torch.optim.SGD([{"params": p, "lr": lr}], lr=0.1)}
    begun = {"data": (X, CLASSES), "optimizer": lambda p: torch.optim.SGD([{"params": p, "lr": 0.1}], lr=0.1)}
    fit(**begun, run_dir=tmp_path / "run", report=False)
    with pytest.raises(ConfigError, match=words):
        fit(**{**options, **change}, run_dir=tmp_path / "run", resume=True)


def test_more_epochs_in_python(tmp_path: Path, assert_same_state: Same) -> None:
    for name, epochs in (("a", (2, 4, 4)), ("b", (4,))):
        for n in epochs:
            horizon = {"schedule_epochs": 2} if name == "b" else {}
            done = fit((X, CLASSES), run_dir=tmp_path / name, resume=n > epochs[0], epochs=n, report=False, **horizon)
            assert done.epochs == n
    assert_same_state(tmp_path / "a", tmp_path / "b")


def test_numpy_arrays_are_data_and_few_classes_have_no_top_five() -> None:
    result = fit(((X.numpy(), CLASSES.numpy()), (X.numpy(), CLASSES.numpy())), "bp")
    assert set(result.test) == {"accuracy"}
    with pytest.raises(DataError, match=r"Inputs are torch.float64, weights torch.float32: convert one"):
        fit((X.double().numpy(), CLASSES.numpy()), "bp")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"net": nn.Sequential(nn.Linear(6, 2))}, r"deeppc\.Chain"),
        ({"net": nn.DataParallel(chain())}, r"net\.module"),
        ({"algorithm": 3}, "algorithm is int: give a name"),
        ({"callbacks": print}, r"give a list of functions of an event, such as \[print\]"),
        ({"callbacks": 3}, "give a list of functions"),
        ({"callbacks": [3]}, "give a list of functions"),
        ({"targets": 3}, "unknown kind of targets 3"),
        ({"validation": 1.5}, "validation is 1.5"),
        ({"validation": X}, "validation is"),
        ({"run_dir": {}}, "run_dir is"),
        ({"run_dir": ""}, "run_dir is"),
        ({"resume": True}, "resume needs run_dir"),
        ({"resume": "yes"}, "resume is 'yes', but must be True or False"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"optimizer": nn.Linear(1, 1)}, "optimizer is Linear: give a torch optimiser"),
        ({"optimizer": "adam"}, "optimizer is str: give a torch optimiser"),
        ({"optimizer": lambda p: torch.optim.SGD(p, rate=3)}, "optimizer could not be made"),
        ({"scheduler": 3}, "scheduler is int: give a torch scheduler"),
        ({"scheduler": schedulers.StepLR}, "scheduler could not be made of the optimiser: .*step_size"),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused_in_words(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        deeppc.fit(**{"net": chain(), "data": (X, CLASSES), "show": False, **options})
