"""``deeppc.fit``: train any graph, on any data, with any algorithm and any torch optimiser.

>>> net = deeppc.Chain(nn.Sequential(nn.Linear(784, 256), nn.GELU()), nn.Linear(256, 10))
>>> result = deeppc.fit(net, ((x, y), (x_test, y_test)), "pc+s+f", epochs=10, run_dir="runs/mine")
>>> result.test_accuracy
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import LBFGS, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from deeppc.core.algorithms import Algorithm, options_for
from deeppc.core.energies import energies_of
from deeppc.core.graph import Graph
from deeppc.core.inputs import check, check_parts
from deeppc.diagnostics.contexts import evaluating, mode_kept, untouched
from deeppc.errors import ConfigError, DataError
from deeppc.files import digest
from deeppc.runs.folder import RunFolder
from deeppc.training import distributed
from deeppc.training.config import FIELDS, RAISED, fitted, flag, require_resumable
from deeppc.training.devices import choose_device
from deeppc.training.display import display
from deeppc.training.events import Callback, Finished, Note, ignore, together
from deeppc.training.loop import Loop
from deeppc.training.result import RunResult, read_result
from deeppc.training.schedule import PaperSchedule, Schedule, TorchSchedule
from deeppc.training.scores import Metric, metric_for, responding
from deeppc.training.sources import Sources, first_batch, sources_of

MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]
MakeScheduler = Callable[[Optimizer], LRScheduler]


@distributed.joining
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
    sync_norm: bool = True,
    device: str = "auto",
    callbacks: Sequence[Callback] = (),
    show: bool = True,
    report: bool = True,
    settings: Mapping[str, Any] | None = None,
) -> RunResult:
    """Train ``net`` and test it. Afterwards it has the weights of the selected epoch, and the mode that it had before.

    A network in evaluation mode is put in training mode. In one that is in training mode, layers that are not (a frozen
    BatchNorm) stay as they are.

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
                   the mean squared error (of probabilities, where the output's energy makes such of it).
    ``run_dir``    folder for manifest, metrics, checkpoints and report. None: nothing is written.
    ``resume``     resume the run in ``run_dir`` from its last checkpoint, to the same bits; with a ``DataLoader``, from
                   the start of an epoch (to the same bits if it draws from torch's own generator). A finished run
                   returns its result at once.
    ``diagnostics``, ``checkpoint_every``, ``precision``, ``sync_norm``, ``device``   as the flags of ``deeppc train``.
    ``callbacks``  are called with each event of :mod:`deeppc.training.events`; ``show`` adds the live view.
    ``settings``   a flat table for the manifest instead of the one made from these arguments.

    Under ``torchrun`` the workers train one network together, each with its part of every batch (docs/scaling.md):
    call it with the same arguments in all of them. Worker 0 writes the folder and calls the callbacks.

    Raises :class:`ConfigError` and :class:`DataError` before anything is written, :class:`RunError` if the folder
    cannot be used, :class:`DivergedError`, and :class:`Interrupted` after Ctrl-C.
    """
    with in_words():
        check_parts(net, None, None)
        algorithm = Algorithm.parse(algorithm) if isinstance(algorithm, str) else algorithm
    if not any(net.trainable().values()):
        raise ConfigError("The network has no parameters that want a gradient: there is nothing to train.")
    if not isinstance(algorithm, Algorithm):
        raise ConfigError(f"algorithm is {_name(algorithm)}: give a name such as 'pc+s+f', or a deeppc.Algorithm.")
    epochs, batch_size, schedule_epochs = map(
        fitted, ("epochs", "batch_size", "schedule_epochs"), (epochs, batch_size, schedule_epochs)
    )
    seed, limit, patience = map(fitted, ("seed", "limit", "patience"), (seed, limit, patience))
    run_dir, resume, diagnostics = map(fitted, ("run_dir", "resume", "diagnostics"), (run_dir, resume, diagnostics))
    fitted("precision", precision)
    fitted("sync_norm", sync_norm)
    fitted("checkpoint_every", checkpoint_every)
    place = choose_device(fitted("device", device), precision)
    if select not in ("validation", "test", "last"):
        raise ConfigError(f"select is {select!r}: choose validation, test or last.")
    if select == "validation":
        fitted("validation", validation)
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise ConfigError(f"callbacks is {_name(callbacks)}: give a list of functions of an event, such as [print].")
    if not isinstance(targets, str):
        raise ConfigError(f"unknown kind of targets {targets!r}: choose auto, classes, soft labels or values.")
    if not isinstance(settings, Mapping | None):
        raise ConfigError(f"settings is {_name(settings)}: expected a table of names and values.")
    for name, value in (("show", show), ("report", report)):
        if not isinstance(value, bool):
            raise ConfigError(f"{name} is {_name(value)}: expected True or False.")
    spoken = flag if settings is not None else str
    if resume and run_dir is None:
        raise ConfigError(f"{spoken('resume')} needs {spoken('run_dir')}: the folder of the run to resume.")
    net = net.to(place)
    held_out = validation if select == "validation" else None
    sources = sources_of(data, batch_size=batch_size, seed=seed, validation=held_out, limit=limit, device=place)
    sample = first_batch(sources.train)
    outputs = _require_fitting(net, algorithm, *sample)
    workers = distributed.current()
    _require_divisible(net, algorithm, sources, batch_size, sync_norm, workers, spoken)
    sources = sources if workers.alone else sources.shard(workers.rank, workers.size)
    moved = _optimizer(net, optimizer)
    metric = metric_for(sample[1], targets, outputs)
    if metric.name == "mse":  # under Bernoulli and cross-entropy that of probabilities
        metric = responding(metric, energies_of(net, algorithm.loss)[net.output].respond)
    notes = [Note(f"{spoken(name)} changes nothing here, since {why}.") for name, why in _idle(algorithm).items()]
    if select == "test" and sources.test is None:
        raise ConfigError(
            "select is 'test', but the data has no test part: give one, or choose 'validation' or 'last'."
        )
    if select == "validation" and sources.validation is None:
        select = "last"
        notes += [Note("A DataLoader cannot be divided, and there is no validation part: the last epoch is kept.")]
    if select == "last" and patience is not None:
        notes += [Note(f"{spoken('patience')} changes nothing here, since the last epoch is kept, not the best.")]
    table = (
        {"epochs": epochs, "schedule_epochs": schedule_epochs, "patience": patience, **settings}
        if settings is not None
        else {
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
            "sync_norm": sync_norm,
            "optimizer": _described(moved),
            **({} if scheduler is None else {"scheduler": f"{_name(scheduler)} after each {scheduler_every}"}),
            "network": _identity(net),
            "data": sources.identity,
            "parameters": sum(p.numel() for p in net.parameters()),
        }
    )
    other = ("dataset", "weights", "network", "data")  # paths, which may be others, and digests
    alike = {spoken(name): value for name, value in table.items() if name not in other}
    alike |= {"the digest of the network": _identity(net), "the digest of the data": sources.identity}
    alike["the number of batches"] = len(sources.train)
    workers.require_same({**alike, spoken("resume"): resume, f"a {spoken('run_dir')}": run_dir is not None})
    folder = RunFolder(run_dir) if run_dir is not None else None
    if folder is not None:
        resume = resume or workers.share(lambda: folder.holds_run and distributed.noted_run(folder.path))
    if resume and folder is not None:
        begun = workers.share(lambda: folder.begun())
        if settings is None and schedule_epochs == FIELDS["schedule_epochs"].default:  # left out: as it was begun with
            table["schedule_epochs"] = begun.get("schedule_epochs", schedule_epochs)
        table = require_resumable(begun, table, spoken)
    horizon = min(epochs, table["schedule_epochs"]) * len(sources.train)
    with ExitStack() as stack:
        stack.enter_context(mode_kept(net))
        if not net.training:  # else a frozen BatchNorm stays frozen
            net.train()
        tell = together([*([stack.enter_context(display(False))] if show else []), *callbacks])
        if not workers.first:
            tell = ignore
        for note in notes:
            tell(note)
        if resume and folder is not None:
            result = workers.share(lambda: finished(folder, table, tell))
            if result is not None:
                net.load_state_dict(workers.share(folder.best_weights))
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
            workers=workers,
            sync_norm=sync_norm,
        )
        return loop.run(resume)


def finished(folder: RunFolder, table: Mapping[str, Any], tell: Callback) -> RunResult | None:
    """Return the result of the run in ``folder`` if these settings, which may resume it, leave nothing to do."""
    begun = folder.config()
    if any(begun[name] != table[name] for name in RAISED) or (result := read_result(folder)) is None:
        return None
    tell(Note(f"The run in {result.run_dir} is finished: there is nothing left to train."))
    tell(Finished(result))
    return result


def _require_divisible(
    net: Graph,
    algorithm: Algorithm,
    sources: Sources,
    batch_size: int,
    sync_norm: bool,
    workers: distributed.Workers,
    spoken: Callable[[str], str],
) -> None:
    """Refuse more workers than a batch has samples, and parts of it that are too small for statistics of their own."""
    if workers.alone or not sources.exact:
        return
    if batch_size < workers.size:
        raise ConfigError(f"{workers.size} workers cannot share {spoken('batch_size')} {batch_size}: start fewer.")
    least = min(batch_size, sources.train.size - (len(sources.train) - 1) * batch_size)
    if algorithm.second_order and least < workers.size:  # no second derivatives of nothing
        raise ConfigError(
            f"The smallest batch of an epoch has {least} samples, but {algorithm} needs one in each of {workers.size} "
            f"workers: choose another {spoken('batch_size')}, or fewer workers."
        )
    if not sync_norm and least < 2 * workers.size and any(isinstance(m, _BatchNorm) for m in net.modules()):
        raise ConfigError(
            f"The smallest batch of an epoch has {least} samples, too few for a BatchNorm in each of {workers.size} "
            f"workers: choose another {spoken('batch_size')}, fewer workers, or {spoken('sync_norm')}."
        )


@contextmanager
def in_words() -> Iterator[None]:
    """Models and algorithms refuse bad settings by ValueError or TypeError: the user's to put right, not a bug."""
    try:
        yield
    except (ValueError, TypeError) as error:
        words = str(error)
        raise ConfigError(words if words.endswith((".", "?")) else f"{words}.") from error


def _require_fitting(net: Graph, algorithm: Algorithm, inputs: Tensor, targets: Tensor) -> int:
    """Raise DataError, before anything is written, if the network cannot take the inputs or answer as the targets.

    Returns how many numbers it answers with.
    """
    try:
        with untouched(net, inputs.device), evaluating(net):
            if len(net.inputs) + len(net.outputs) > 2:
                raise ValueError("it has several inputs or outputs: call Algorithm.step(...) in a loop of your own")
            check({net.inputs[0]: inputs}, {net.output: targets})
            wanted = energies_of(net, algorithm.loss)[net.output].target(targets, net(inputs))
            if len(inputs) == 1:  # which is too few for a BatchNorm
                net.train()
                net(inputs)
            return int(wanted.numel() // len(wanted))
    except (ValueError, RuntimeError, TypeError) as error:
        advice = ""
        if len(inputs) == 1 and "more than 1 value" in str(error):
            advice = " Choose a larger batch size."
        weight = next(net.parameters(), None)
        if weight is not None and inputs.is_floating_point() and weight.dtype != inputs.dtype:
            advice = (
                f" Inputs are {inputs.dtype}, weights {weight.dtype}: convert one, as by inputs.to({weight.dtype})."
            )
        raise DataError(f"The network does not fit the data: {error}.{advice}") from error


def _optimizer(net: Graph, given: Optimizer | MakeOptimizer | None) -> Optimizer:
    if given is None:
        given = partial(torch.optim.AdamW, lr=1e-3, weight_decay=1e-4)
    made: object = given
    if callable(given) and not isinstance(given, Optimizer | nn.Module):
        try:
            made = given(net.parameters())
        except (TypeError, ValueError) as error:
            raise ConfigError(f"optimizer could not be made of net.parameters(): {error}.") from error
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
        try:
            made = scheduler(optimizer) if callable(scheduler) else scheduler
        except (TypeError, ValueError) as error:
            raise ConfigError(f"scheduler could not be made of the optimiser: {error}.") from error
        if not isinstance(made, LRScheduler):
            raise ConfigError(f"scheduler is {_name(made)}: give a torch scheduler, or a function that makes one.")
        scheduler = made
    elif scheduler.optimizer is not given:
        raise ConfigError("The scheduler is of another optimiser: give that one, or functions that make both.")
    mode = "max" if metric.higher_is_better else "min"
    if isinstance(scheduler, ReduceLROnPlateau) and (every == "batch" or scheduler.mode != mode):
        raise ConfigError(f"ReduceLROnPlateau gets the {metric.name} of each epoch: give it mode={mode!r}.")
    return TorchSchedule(scheduler, every)


def _described(optimizer: Optimizer) -> str:
    """The optimiser with what each group of parameters was given; a scheduler may have changed the rate meanwhile."""

    def text(group: Mapping[str, Any]) -> str:
        values = {k: v for k, v in group.items() if k not in ("params", "param_names", "initial_lr")}
        values["lr"] = float(group.get("initial_lr", group["lr"]))
        return ", ".join(f"{k}={v}" for k, v in values.items() if v is not None and v is not False)

    return f"{type(optimizer).__name__}({'; '.join(map(text, optimizer.param_groups))})"


def _identity(net: Graph) -> str:
    """A digest of the graph and of the names, shapes and types of its weights, not of their values."""
    weights = {name: [list(value.shape), str(value.dtype)] for name, value in net.state_dict().items()}
    return digest({"parents": net.parents, "weights": weights})[:16]


def _idle(algorithm: Algorithm) -> dict[str, str]:
    """Options that were changed, but change nothing beside others, and why."""
    known, values = options_for(algorithm.name), algorithm.settings()
    return {
        name: f"{other} is {value}"
        for name, option in known.items()
        for other, value in option.unless.items()
        if name in values and values[name] != option.default and getattr(algorithm, other, None) == value
    }


def _name(thing: object) -> str:
    if inspect.isclass(thing) or inspect.isfunction(thing):
        return thing.__name__
    return type(thing).__name__
