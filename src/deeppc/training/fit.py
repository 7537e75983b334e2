"""``deeppc.fit``: train any graph, on any data, with any algorithm and any torch optimiser.

>>> net = deeppc.Chain(nn.Sequential(nn.Linear(784, 256), nn.GELU()), nn.Linear(256, 10))
>>> result = deeppc.fit(net, ((x, y), (x_test, y_test)), "pc+s+f", epochs=10, run_dir="runs/mine")
>>> result.test_accuracy
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from deeppc.core.algorithms import Algorithm
from deeppc.core.graph import Graph
from deeppc.core.inputs import check, target_for
from deeppc.diagnostics.contexts import evaluating, untouched
from deeppc.errors import ConfigError, DataError
from deeppc.runs.folder import RunFolder
from deeppc.training.config import fitted, require_resumable
from deeppc.training.display import display
from deeppc.training.events import Callback, Finished, Note, together
from deeppc.training.loop import Loop
from deeppc.training.result import RunResult, read_result
from deeppc.training.schedule import PaperSchedule, Schedule, TorchSchedule
from deeppc.training.scores import Metric, metric_for
from deeppc.training.sources import first_batch, sources_of

MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]
MakeScheduler = Callable[[Optimizer], LRScheduler]


def fit(
    net: Graph,
    data: Any,
    algorithm: str | Algorithm = "pc+s+f",
    *,
    epochs: int = 10,
    batch_size: int = 128,
    optimizer: Optimizer | MakeOptimizer | None = None,
    scheduler: LRScheduler | MakeScheduler | None = None,
    scheduler_every: Literal["epoch", "batch"] = "epoch",
    schedule_epochs: int = 25,
    seed: int = 0,
    select: Literal["validation", "test", "last"] = "validation",
    validation: float = 0.1,
    limit: int | None = None,
    patience: int | None = None,
    targets: Literal["auto", "classes", "soft labels", "values"] = "auto",
    run_dir: str | Path | None = None,
    resume: bool = False,
    diagnostics: bool = False,
    checkpoint_every: float | None = None,
    precision: Literal["fp32", "bf16"] = "fp32",
    device: str = "auto",
    callbacks: Sequence[Callback] = (),
    show: bool = True,
    report: bool = True,
    settings: Mapping[str, Any] | None = None,
) -> RunResult:
    """Train ``net`` and test it. Afterwards it has the weights of the selected epoch.

    ``data``       a :class:`deeppc.data.Dataset`; tensors ``(inputs, targets)``; or a ``DataLoader`` of such pairs.
                   Tensors and loaders also as ``(train, test)``, ``(train, validation, test)`` or a dict of such names.
                   Targets: class indices (N,), or floats of the output's shape: values, or soft labels.
    ``algorithm``  a name, or an :class:`deeppc.Algorithm`.
    ``optimizer``  any torch optimiser, or a function of the parameters that makes one. None: AdamW.
    ``scheduler``  any torch scheduler, or a function of the optimiser that makes one, stepped after each
                   ``scheduler_every``. None: the paper's schedule, which falls over ``schedule_epochs``.
    ``seed``       decides the order of the data and what is held out. Initial weights are yours: call
                   ``torch.manual_seed`` before you build the network.
    ``select``     the epoch to keep: the best on held-out samples (a fraction ``validation`` of those to train on, or
                   the validation part of ``data``), the best on the test set, or the last.
    ``limit``      train on so many samples only. ``patience``: stop after so many epochs without a better one.
    ``targets``    what they are, if their form does not tell. Classes and soft labels are scored by accuracy, values by
                   the mean squared error.
    ``run_dir``    folder for manifest, metrics, checkpoints and report. None: nothing is written.
    ``resume``     resume the run in ``run_dir`` from its last checkpoint, to the same bits; with a ``DataLoader``, from
                   the start of an epoch (to the same bits if it draws from torch's own generator). A finished run
                   returns its result at once.
    ``diagnostics``, ``checkpoint_every``, ``precision``, ``device``   as the flags of ``deeppc train``.
    ``callbacks``  are called with each event of :mod:`deeppc.training.events`; ``show`` adds the live view.
    ``settings``   a flat table for the manifest instead of the one made from these arguments.

    Raises :class:`ConfigError` and :class:`DataError` before anything is written, :class:`RunError` if the folder
    cannot be used, :class:`DivergedError`, and :class:`Interrupted` after Ctrl-C.
    """
    place = choose_device(device)
    with in_words():
        algorithm = Algorithm.parse(algorithm) if isinstance(algorithm, str) else algorithm
    if not isinstance(net, Graph) or not isinstance(algorithm, Algorithm):
        raise ConfigError(
            f"net is {_name(net)} and algorithm {_name(algorithm)}: expected a deeppc.Graph and an Algorithm."
        )
    epochs, batch_size, schedule_epochs = map(
        fitted, ("epochs", "batch_size", "schedule_epochs"), (epochs, batch_size, schedule_epochs)
    )
    seed, limit, patience = map(fitted, ("seed", "limit", "patience"), (seed, limit, patience))
    fitted("precision", precision)
    fitted("checkpoint_every", checkpoint_every)
    if select not in ("validation", "test", "last"):
        raise ConfigError(f"select is {select!r}: choose validation, test or last.")
    net = net.to(place)
    held_out = validation if select == "validation" else None
    sources = sources_of(data, batch_size=batch_size, seed=seed, validation=held_out, limit=limit, device=place)
    sample = first_batch(sources.train)
    _require_fitting(net, algorithm, *sample)
    moved = _optimizer(net, optimizer)
    metric = metric_for(sample[1], targets)
    horizon = min(epochs, schedule_epochs) * len(sources.train)
    notes = []
    if select == "test" and sources.test is None:
        raise ConfigError(
            "select is 'test', but the data has no test part: give one, or choose 'validation' or 'last'."
        )
    if select == "validation" and sources.validation is None:
        select = "last"
        notes = [Note("A DataLoader cannot be divided, and there is no validation part: the last epoch is kept.")]
    table = settings or {
        "dataset": sources.description,
        "model": type(net).__name__,
        "algorithm": algorithm.name,
        **algorithm.settings(),
        "epochs": epochs,
        "schedule_epochs": schedule_epochs,
        "patience": patience,
        "batch_size": batch_size if sources.exact else None,
        "seed": seed,
        "select": select,
        "validation": validation,
        "limit": limit,
        "precision": precision,
        "optimizer": _described(moved),
        **({} if scheduler is None else {"scheduler": f"{_name(scheduler)} after each {scheduler_every}"}),
        "parameters": sum(p.numel() for p in net.parameters()),
    }
    with ExitStack() as stack:
        tell = together([*([stack.enter_context(display(False))] if show else []), *callbacks])
        for note in notes:
            tell(note)
        folder = RunFolder(run_dir) if run_dir is not None else None
        if resume and (result := finished(folder, table, tell)) is not None:
            assert folder is not None
            net.load_state_dict(load_file(folder.best))
            return result
        loop = Loop(
            net=net,
            algorithm=algorithm,
            optimizer=moved,
            schedule=_schedule(moved, optimizer, scheduler, scheduler_every, horizon, metric),
            sources=sources,
            metric=metric,
            sample=sample,
            settings=table,
            named=settings is not None,
            epochs=epochs,
            select=select,
            patience=patience,
            diagnostics=diagnostics,
            checkpoint_every=checkpoint_every,
            precision=precision,
            report=report,
            folder=folder,
            tell=tell,
        )
        return loop.run(resume)


def finished(folder: RunFolder | None, table: Mapping[str, Any], tell: Callback) -> RunResult | None:
    """Check that the run in ``folder`` may be resumed by these settings; return its result if nothing is left to do."""
    if folder is None:
        raise ConfigError("--resume needs --run-dir: the folder of the run to resume.")
    folder.require_run()
    begun = folder.config()
    require_resumable(begun, table)
    if begun.get("epochs") != table["epochs"] or (result := read_result(folder)) is None:
        return None
    tell(Note(f"The run in {result.run_dir} is finished: there is nothing left to train."))
    tell(Finished(result))
    return result


def choose_device(name: str) -> torch.device:
    """Return the device called ``name``; ``auto`` takes cuda, then mps, then cpu."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, is_there in there.items() if is_there)
    if not there.get(name, False):
        raise ConfigError(f"This machine has no {name} device that torch can use: choose --device auto or cpu.")
    return torch.device(name)


@contextmanager
def in_words() -> Iterator[None]:
    """Models and algorithms refuse bad settings by ValueError: the user's to put right, not a bug."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _require_fitting(net: Graph, algorithm: Algorithm, inputs: Tensor, targets: Tensor) -> None:
    """Raise DataError, before anything is written, if the network cannot take the inputs or answer as the targets."""
    try:
        with untouched(net, inputs.device), evaluating(net):
            check(inputs, targets)
            target_for(targets, net(inputs), distribution=algorithm.loss == "cross_entropy")
    except (ValueError, RuntimeError) as error:
        raise DataError(f"The network does not fit the data: {error}.") from error


def _optimizer(net: Graph, given: Optimizer | MakeOptimizer | None) -> Optimizer:
    given = given or (lambda weights: torch.optim.AdamW(weights, lr=1e-3, weight_decay=1e-4))
    made = given if isinstance(given, Optimizer) else given(net.parameters())
    if not isinstance(made, Optimizer) or isinstance(made, LBFGS):
        raise ConfigError(
            f"optimizer is {_name(made)}: give a torch optimiser (not LBFGS), or a function that makes one."
        )
    own = {id(p) for p in net.parameters()}
    if any(id(p) not in own for group in made.param_groups for p in group["params"]):
        raise ConfigError(
            "The optimiser has parameters that the network does not have: build it from net.parameters()."
        )
    return made


def _schedule(
    optimizer: Optimizer,
    given: Optimizer | MakeOptimizer | None,
    scheduler: LRScheduler | MakeScheduler | None,
    every: Literal["epoch", "batch"],
    horizon: int,
    metric: Metric,
) -> Schedule:
    if every not in ("epoch", "batch"):
        raise ConfigError(f"scheduler_every is {every!r}: choose epoch or batch.")
    if scheduler is None:
        return PaperSchedule(optimizer, horizon)
    if not isinstance(scheduler, LRScheduler):
        scheduler = scheduler(optimizer)
    elif scheduler.optimizer is not given:
        raise ConfigError("The scheduler is of another optimiser: give that one, or functions that make both.")
    mode = "max" if metric.higher_is_better else "min"
    if isinstance(scheduler, ReduceLROnPlateau) and (every == "batch" or scheduler.mode != mode):
        raise ConfigError(f"ReduceLROnPlateau gets the {metric.name} of each epoch: give it mode={mode!r}.")
    return TorchSchedule(scheduler, every)


def _described(optimizer: Optimizer) -> str:
    defaults = ", ".join(f"{k}={v}" for k, v in optimizer.defaults.items() if v is not None and v is not False)
    return f"{type(optimizer).__name__}({defaults})"


def _name(thing: object) -> str:
    if inspect.isclass(thing) or inspect.isfunction(thing):
        return thing.__name__
    return type(thing).__name__
