"""Processes that work together, for tests: started once, with many checks inside, since each takes seconds to begin."""

import os
import pickle
import signal
import tempfile
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from nets import Mix, batch, mlp, parse, residual, vgg
from torch import nn

from deeppc import Chain, Gaussian, Graph, fit
from deeppc.core.energies import Bernoulli, CrossEntropy
from deeppc.training.distributed import Exchange, average_statistics, current, synchronised
from deeppc.training.events import BatchDone


def launch(function: Callable[..., Any], number: int, *args: Any) -> list[Any]:
    """Call ``function(*args)`` in so many processes of one gloo group; return what each returned."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_enter, (number, Path(folder), function, args), number)
        return [pickle.loads((Path(folder) / str(rank)).read_bytes()) for rank in range(number)]


def _enter(rank: int, number: int, folder: Path, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of nodes that learn nothing
    wait = timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=number, timeout=wait)
    try:
        made = function(*args)
    finally:
        dist.destroy_process_group()
    (folder / str(rank)).write_bytes(pickle.dumps(made))


def normed() -> Chain:
    """BatchNorm with and without affine parameters, one that is averaged over all batches, and none at the end."""

    def layer(i: int, o: int, **options: Any) -> nn.Module:
        return nn.Sequential(nn.Linear(i, o), nn.BatchNorm1d(o, **options), nn.Tanh())

    return Chain(layer(6, 6), layer(6, 5, affine=False), layer(5, 5, momentum=None), nn.Linear(5, 3))


def tied() -> Graph:
    """One layer in three nodes, of which the first is reached last; and a learnt energy."""
    same = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
    nodes = {"a": (same, "input"), "b": (same, "a"), "c": (nn.Sequential(same, nn.Tanh()), "b")}
    energies = {"b": Gaussian(torch.full((6,), 1.5), learnt=True)}
    return Graph({**nodes, "y": (Mix([6, 6], 3, nn.Identity()), ["c", "a"])}, energies=energies)


def several() -> Graph:
    """Two inputs, and two outputs with energies of their own: weights of classes, labels to be ignored."""
    norm = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh())
    nodes = {"a": (norm, "one"), "b": (Mix([5, 4], 5, nn.Tanh()), ["a", "two"])}
    outputs = {"y": (nn.Linear(5, 3), "b"), "z": (nn.Linear(5, 2), "b")}
    classes = CrossEntropy(torch.tensor([1.0, 2.0, 0.5]), label_smoothing=0.1, ignore_index=-1)
    return Graph({**nodes, **outputs}, inputs=("one", "two"), energies={"y": classes, "z": Bernoulli()})


def instances() -> Chain:
    """Norms of each sample, of which one has running statistics, and one of groups."""

    def layer(i: int, norm: nn.Module) -> nn.Module:
        return nn.Sequential(nn.Conv2d(i, 4, 3, padding=1), norm, nn.GELU())

    tracked = layer(3, nn.InstanceNorm2d(4, affine=True, track_running_stats=True))
    grouped = layer(4, nn.Sequential(nn.InstanceNorm2d(4), nn.GroupNorm(2, 4)))
    return Chain(tracked, grouped, nn.Sequential(nn.Flatten(), nn.Linear(256, 3)))


NETS: dict[str, Callable[[], Graph]] = {
    "normed": normed,
    "plain": lambda: mlp(4),
    "tied": tied,
    "images": lambda: vgg(norm=True),
    "residual": lambda: residual(1, True, channels=4, classes=3),
    "instances": instances,
    "several": several,
}
SPECS: dict[str, dict[str, Any]] = {
    "bp": {},
    "bp, cross-entropy": {"loss": "cross_entropy"},
    "pc": {"momentum_x": 0.5},
    "pc+s": {"alpha": 0.1},
    "pc+d": {},
    "pc+l": {},
    "pc+cn": {"beta": 0.5},
    "pc+s+f": {"alpha": 0.0},
    "pc+s+f, relaxed": {"presynaptic": "relaxed", "free_steps": 2},
    "pc+s+f+cn": {"beta": 0.3},
    "pc+s+f, strides": {"strides": 2, "alpha": 0.1},
    "pc, below the resolution": {"beta": 2.0**-40},
    "ipc": {},
    "ipc+s": {"alpha": 0.0},
    "ipc+d": {},
    "ipc+l": {"T": 3},
    "ipc+s+cn": {"beta": 0.5, "T": 3},
    "epc": {"T": 3},
    "hpc": {"T": 3, "probes": 4},
    "zil": {},
    "fa": {},
    "dfa": {},
    "tp": {"damping": 0.5, "iterations": 3},
    "bp, repeated": {"repeats": 3},
    "pc+nn": {"beta": 0.5},
}
SIZES = (7, 3)  # samples in each batch: fewer than there are workers, and never a multiple


def weights_after(name: str, spec: str, learner: Callable[..., Any]) -> tuple[dict[str, torch.Tensor], list[set[str]]]:
    """Weights and buffers after all batches, and after each the names of what has a gradient."""
    torch.manual_seed(0)
    net = NETS[name]().double()
    algorithm = parse(spec.split(",")[0], lr_x=0.3, **SPECS[spec])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    optimizer.zero_grad()
    torch.manual_seed(1)
    with_gradient = []
    for seed, size in enumerate(SIZES):
        inputs, targets = several_batch(size, seed) if name == "several" else batch(net, size, seed)
        weights = torch.linspace(0.5, 2, size, dtype=torch.float64) if name in ("several", "tied") else None
        learner(algorithm, net, inputs, targets, optimizer, weights)
        with_gradient.append({n for n, p in net.named_parameters() if p.grad is not None})
    return dict(net.state_dict()), with_gradient


def several_batch(size: int, seed: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    g = torch.Generator().manual_seed(seed)
    one, two, z = (torch.rand(size, n, generator=g, dtype=torch.float64) for n in (6, 4, 2))
    return {"one": one, "two": two}, {"y": torch.randint(-1, 3, (size,), generator=g), "z": z}


def alone(algorithm, net, inputs, targets, optimizer, weights):
    algorithm.step(net, inputs, targets, optimizer, sample_weights=weights)


def divided(algorithm, net, inputs, targets, optimizer, weights):
    """This worker's rows, cut in an uneven way; and random numbers of its own."""
    workers = current()
    if workers.rank:
        torch.manual_seed(100 + workers.rank)
    samples = len(next(iter(inputs.values())) if isinstance(inputs, dict) else inputs)
    bounds = [0, *(samples * n // workers.size for n in range(1, workers.size)), samples]
    bounds[1] = min(1, bounds[1])
    mine = slice(*bounds[workers.rank : workers.rank + 2])

    def ours(given):
        return {name: x[mine] for name, x in given.items()} if isinstance(given, dict) else given[mine]

    exchange = Exchange(net, workers)
    exchange.begin(mine.stop - mine.start)
    with synchronised(net):
        algorithm.step(
            net,
            ours(inputs),
            ours(targets),
            optimizer,
            sample_weights=None if weights is None else weights[mine],
            workers=exchange,
        )


SOME = ("bp", "pc+cn", "pc+s+f", "ipc+s", "ipc+l", "epc", "hpc", "fa", "dfa", "tp")
CASES = [(name, spec) for name in ("normed", "plain") for spec in SPECS]
CASES += [(name, spec) for name in ("tied", "images", "residual") for spec in SOME]
CASES += [("instances", spec) for spec in ("bp", "pc", "ipc+s")]
CASES += [("several", spec) for spec in SOME if spec not in ("pc+cn", "hpc")]  # which need a target to nudge to


def differences() -> dict[tuple[str, str], float]:
    """By network and algorithm: how far the workers are from one with whole batches. Infinite: other gradients."""
    found = {}
    for name, spec in CASES:
        if spec == "tp" and current().size > min(SIZES):  # a worker would have no sample, which is refused
            with pytest.raises(ValueError, match="tp needs a sample in every worker"):
                weights_after(name, spec, divided)
            found[name, spec] = 0.0
            continue
        ours, mine = weights_after(name, spec, divided)
        theirs, others = weights_after(name, spec, alone)
        worst = max(float((ours[n].double() - theirs[n].double()).abs().max()) for n in theirs)
        found[name, spec] = worst if mine == others else float("inf")
    return found


def by_two(folder: Path) -> tuple[Any, ...]:
    """Everything that two workers are asked for: see the tests."""
    net = normed()
    net.nodes["1"][1].running_mean.fill_(current().rank)
    average_statistics(net, current())
    local = trained(folder / "local", sync_norm=False)
    runs = trained(folder / "two", "ipc+s+cn"), trained(folder / "with-1", stop_after=6)
    unlike = trained(folder / "unlike", limit=40 - current().rank)
    return differences(), *runs, unlike, local, net.nodes["1"][1].running_mean


def by_three(folder: Path) -> tuple[Any, Any]:
    """Resume a run, and resume it again, where there is nothing left to do."""
    return trained(folder / "with-3", resume=True), trained(folder / "with-3", resume=True)


def made_up(samples: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 6, generator=g, dtype=torch.float64)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()


def trained(
    run_dir: Path, algorithm: str = "pc+s+f", *, stop_after: int = 0, resume: bool = False, **options: Any
) -> dict[str, float] | str:
    """``deeppc.fit`` on data of which nothing divides; worker 0 may send itself Ctrl-C after so many batches."""
    torch.manual_seed(current().rank)  # weights must be those of worker 0
    net = normed().double()
    done = 0

    def listen(event: object) -> None:
        nonlocal done
        done += isinstance(event, BatchDone)
        if stop_after and done == stop_after and isinstance(event, BatchDone):
            os.kill(os.getpid(), signal.SIGTERM)

    data = {"train": made_up(58), "validation": made_up(13, 1), "test": made_up(21, 2)}  # 16, 16, 16, 10
    settings: dict[str, Any] = {"epochs": 3, "batch_size": 16, "show": False, "report": False, "device": "cpu"}
    settings |= {"optimizer": lambda ps: torch.optim.SGD(ps, lr=0.02, momentum=0.9), "callbacks": [listen]}
    try:
        result = fit(net, data, algorithm, run_dir=run_dir, resume=resume, **settings, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return {**result.test, "seconds": 0.0, "first": float(next(net.parameters()).detach().sum())}
