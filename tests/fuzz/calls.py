"""Bad calls: the public functions with arguments of a wrong kind, shape, type or value."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np  # noqa: F401 - the names are used in the tables
import torch
from machine import Outcome, digits, kind, refused_untouched  # noqa: F401
from torch import nn

import deeppc
from deeppc import Algorithm, Chain, Graph, TrainConfig, diagnostics, models, presets  # noqa: F401
from deeppc.core.algorithms import options_for
from deeppc.data import Batches, from_tensors, holdout, load  # noqa: F401
from deeppc.diagnostics import calibration, corruption, updates, work  # noqa: F401
from deeppc.search import space  # noqa: F401
from deeppc.training.compare import compare  # noqa: F401

# Values of every kind, made anew for each case.
ODD = """
None; True; False; 0; 1; -1; 3; 2**70; 0.5; -0.5; float("nan"); float("inf"); 1e-320; 2j; b"x"; ...; object()
""; " "; "x"; "1"; "pc"; "bp+s"; "é" + chr(0); "a" * 3000; "file.txt"; "nowhere/x.npz"; Path("file.txt")
[]; {}; set(); (); [1, 2]; {"a": 1}; {1: 2}; range(3); iter([]); lambda *_: None; np.int64(3); np.float32("nan")
np.zeros(3); np.ones((6, 4)); np.array("x"); torch.tensor(3.0); torch.tensor(2); torch.empty(0); torch.empty(0, 4)
torch.ones(6, 4); torch.ones(6, 5); torch.ones(5, 4); torch.ones(4); torch.ones(6, 2); torch.full((6, 4), float("nan"))
torch.ones(6, 4, dtype=torch.int64); torch.ones(6, 4, dtype=torch.float64); torch.ones(6, 4, dtype=torch.complex64)
torch.ones(6, dtype=torch.bool); torch.full((6,), 9); torch.full((6,), -1); torch.ones(6, 4).to_sparse()
torch.ones(6, 4, device="meta"); nn.Parameter(images()); images(); labels(); (images(), labels()); [images(), labels()]
nn.Linear(4, 3); nn.Sequential(nn.Linear(4, 2)); nn.Sequential(); nn.ReLU(); nn.ReLU(inplace=True); net(); digits()
nn.DataParallel(nn.Linear(4, 2)); Half(None); Half(3); Half(RuntimeError("own")); Half(lambda x, *_: x.long())
Half(lambda *xs: xs); Half(lambda x, *_: x[0]); Half(lambda x, *_: x.detach()); Half(lambda x, *_: x.numpy())
Half(lambda x, *_: x * float("nan")); torch.optim.SGD(net().parameters(), lr=0.1); torch.optim.LBFGS(net().parameters())
Algorithm.parse("pc"); TrainConfig(); torch.utils.data.DataLoader([1]); {"train": (images(), labels())}
{"h": (nn.Linear(4, 2), "input")}; {"h": nn.Linear(4, 2)}; {3: (nn.Linear(4, 2), "input")}; {"h": (nn.Linear(4, 2), 3)}
{"h": (nn.Linear(4, 2), ["input", None])}; {"h": (nn.Linear(4, 2),)}; {"h": ("x", "input")}
"""
# Functions, and good arguments for each.
CALLS = """
Graph | {"nodes": {"h": (nn.Linear(4, 3), "input"), "y": (nn.Linear(3, 2), ["h"])}}
node | {"module": nn.Linear(3, 2), "parents": ["h"], "name": "y"}
chain | {"first": nn.Linear(4, 3), "last": nn.Linear(3, 2)}
Algorithm.parse | options(rng)
scheduled | {"schedule": None}
scheduled_by | {"value": rng.choice([None, -1.0, float("nan"), torch.ones(2), nn.Parameter(torch.ones(())), "x"])}
Algorithm.parse("pc+s+f").gradients | batch()
Algorithm.parse("bp").gradients | {**batch(), "sample_weights": torch.ones(6), "observe": None}
deeppc.infer | {"net": net(), "clamp": {"input": images()}, "free": None, "start": None, **INFER, "observe": None}
deeppc.infer | {"net": net(), "clamp": {"3": torch.ones(6, 2)}, "free": {"input": images()}, **INFER}
deeppc.from_torch | {"module": nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), "example_input": images(), **CUT}
step | {"algorithm": rng.choice(ALGORITHMS), **batch()}
step | {"algorithm": "pc", **batch(), "optimizer": None}
fit | dict(FIT)
fit | {**FIT, "run_dir": "run"}
deeppc.train | {"config": TrainConfig.of(**TINY, run_dir="run"), "callback": print}
compare | {"config": TrainConfig.of(**TINY, run_dir=Path("c")), "algorithms": ["bp"], "seeds": [0]}
TrainConfig.of | {**TINY, rng.choice(["lr_x", "seed", "norm", "data_dir", "weights"]): 0.1}
space.build | {"config": TrainConfig.of(**TINY), "texts": ["T=5..8"]}
load | {"name": "digits", "data_dir": "data", "labels": "fine"}
from_tensors | {"train": (images(), labels()), "test": (images(), labels()), "classes": None}
lambda x, y: from_tensors((x, y), (images(), labels())) | {"x": images(), "y": labels()}
holdout | {"split": digits().train, "fraction": 0.1, "seed": 0}
batches | {"split": digits().test, "dataset": digits(), "batch_size": 8, "seed": 0, "epoch": 0, "start": 0}
models.build | {"name": rng.choice([*models.names()]), **MODEL}
presets.load | {"name": presets.names()[0], "folder": None}
presets.names | {"folder": None}
updates.diagnose | {"algorithm": Algorithm.parse(rng.choice(ALGORITHMS)), **batch()}
updates.probe | {"algorithm": Algorithm.parse(rng.choice(ALGORITHMS)), **batch()}
updates.compare_with_backprop | {"algorithm": Algorithm.parse(rng.choice(ALGORITHMS)), **batch()}
diagnostics.EnergyTrace | {"every": 1}
diagnostics.shares | {"energy": {"a": 1.0}}
work.multiply_adds | {"net": net(), "sample": images()[:1]}
calibration.ada_ece | {**SCORES, "bins": 5}
calibration.reliability | {**SCORES, "bins": 5}
calibration.fit_temperature | dict(SCORES)
corruption.corrupt | {"images": torch.ones(2, 1, 8, 8), "kind": "gaussian_noise", "level": 0.3, "seed": 0}
corruption.corrupt_split | {"split": digits().test, "kind": "contrast", "level": 0.1, "seed": 0}
"""
ALGORITHMS = ["bp", "pc", "pc+s", "pc+d+f", "pc+l", "pc+s+f+cn", "ipc", "ipc+s"]
INFER = {"steps": 3, "lr_x": 0.1, "momentum_x": 0.0, "optimizer_x": "sgd", "noise": 0.0, "tolerance": None}
CUT = {"cut": None, "leaves": (), "balance": False}
MODEL = {"classes": 3, "in_shape": (1, 32, 32), "width": 0.05, "activation": "gelu", "norm": "bf", "aux": True}
TINY = {"model": "mlp", "width": 0.05, "limit": 60, "batch_size": 24, "epochs": 1, "device": "cpu"}
SCORES = {"logits": torch.linspace(-1, 1, 12).view(6, 2), "labels": torch.arange(6) % 2}
FIT: dict[str, Any] = {
    "net": None,
    "data": None,
    "algorithm": "pc+s+f",
    "epochs": 1,
    "batch_size": 3,
    "optimizer": None,
}
FIT |= {"scheduler": None, "scheduler_every": "epoch", "schedule_epochs": 2, "seed": 0, "select": "validation"}
FIT |= {"validation": 0.4, "limit": None, "patience": None, "targets": "auto", "run_dir": None, "resume": False}
FIT |= {"diagnostics": True, "checkpoint_every": 0.0, "precision": "fp32", "device": "cpu", "callbacks": []}
FIT |= {"report": False, "settings": None}


def net() -> Chain:
    torch.manual_seed(0)
    return Chain(nn.Sequential(nn.Linear(4, 3), nn.Tanh()), nn.Linear(3, 3), nn.Linear(3, 2))


def images() -> torch.Tensor:
    return torch.linspace(0, 1, 24).view(6, 4)


def labels() -> torch.Tensor:
    return torch.arange(6) % 2


def batch() -> dict[str, Any]:
    return {"net": net(), "inputs": images(), "targets": labels()}


class Half(nn.Module):
    """A module that raises, or returns what is no tensor."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result

    def forward(self, *xs: torch.Tensor) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result(*xs) if callable(self.result) else self.result


def options(rng: random.Random) -> dict[str, Any]:
    spec = rng.choice(ALGORITHMS)
    return {"spec": spec, **{name: o.default for name, o in options_for(spec).items()}}


def node(module: Any, parents: Any, name: Any) -> Any:
    return Graph({"h": (nn.Linear(4, 3), "input"), name: (module, parents)})(images())


def chain(first: Any, last: Any) -> Any:
    return Algorithm.parse("pc+s").gradients(Chain(first, last), images(), labels())


def scheduled(schedule: Any) -> Any:
    algorithm = deeppc.core.algorithms.families()["pc"](schedule=schedule)
    return str(algorithm), algorithm.gradients(net(), images(), labels())


def scheduled_by(value: Any) -> Any:
    return scheduled(lambda *_: value)


def step(algorithm: Any, optimizer: Any = ..., **batch: Any) -> Any:
    if optimizer is ...:
        optimizer = torch.optim.SGD((batch["net"] if isinstance(batch["net"], Graph) else net()).parameters(), lr=0.1)
    return Algorithm.parse(algorithm).step(**batch, optimizer=optimizer)


def fit(**given: Any) -> Any:
    made = {"net": given["net"] if given["net"] is not None else net()}
    made["data"] = given["data"] if given["data"] is not None else (images(), labels())
    return deeppc.fit(**{**given, **made}, show=False)


def batches(epoch: Any, start: Any, **given: Any) -> Any:
    return next(iter(Batches(**given).epoch(epoch, start)), None)


@kind("calls of the API")
def calls(rng: random.Random, place: Path) -> Outcome:
    name, _, good = rng.choice(CALLS.strip().splitlines()).partition(" | ")
    function, arguments = eval(name), eval(good, {**globals(), "rng": rng})
    chosen = rng.sample([*arguments], min(len(arguments), rng.choice([1, 1, 2])))
    odd = [value for line in ODD.strip().splitlines() for value in line.split("; ")]
    bad = {argument: rng.choice(odd) for argument in chosen} | ({"nonsense": "1"} if rng.random() < 0.03 else {})
    arguments |= {argument: eval(value) for argument, value in bad.items()}
    case = f"{name}({', '.join(f'{argument}={value[:100]}' for argument, value in bad.items())})"
    return refused_untouched(case, lambda: function(**arguments), place, command=False)
