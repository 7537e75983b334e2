"""One training step of plain predictive coding: deeppc beside PCX (https://github.com/liukidar/pcx, in JAX).

    python3 -m venv pcxenv && pcxenv/bin/pip install pcx      # once; it brings the JAX that it wants, for CPUs
    python benchmarks/pcx_step.py --pcx-python pcxenv/bin/python --out pcx_step.json

VGG5 with T = 5 and VGG10 with T = 10, width 0.5, batches of 128 images of 3x32x32, 2 threads; fixed precision, squared
error, SGD without momentum on the activities, AdamW on the weights.

The nets are the same to the last weight. PCX's is made of its own layers and ``Vode`` objects after the layout of
deeppc's, and trained as its tutorials do: the whole step, with the T inference steps unrolled, is one ``pxf.jit``; the
batch is a ``pxf.vmap``; no argument is donated; the energy is the batch mean, so the rate for the activities is
multiplied by the batch size. Nothing is timed unless both give the same answers and the same energies.

Each library runs in a process of its own, pinned to the same cores, and steps when it is told to: steps take turns in
one run, and one process sleeps while the other computes. Both keep the memory that they free (``deeppc.core.memory``).
The first step, which compiles, is reported apart. XLA_FLAGS is passed on. For Linux, because of the pinning.
"""

# PCX and JAX live in the other environment, where no type checker sees them.
# mypy: disable-error-code="import-not-found,misc,untyped-decorator"

from __future__ import annotations

import argparse
import json
import os
import platform
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

NETS = {"vgg5": 5, "vgg10": 10}  # and their T
LR_X = 0.5
LR_W, DECAY = 1e-8, 1e-2  # so small that the weights stay nearly as they are, and rounds are alike
MEMORY = Path(__file__).resolve().parents[1] / "src" / "deeppc" / "core" / "memory.py"
TOLERANCE = 1e-3  # relative: float32, and convolutions that add in different orders

Arrays = dict[str, NDArray[Any]]


# ---- The two libraries, each in its own process. step() trains once; look() returns logits, energy by step, gradients.


class DeepPC:
    packages = ("deeppc", "torch")

    def __init__(self, task: dict[str, Any], data: Arrays) -> None:
        import torch

        from deeppc import Algorithm
        from deeppc.models import build

        torch.set_num_threads(task["threads"])
        self.net = build(task["model"], width=task["width"])
        self.net.load_state_dict({name: torch.from_numpy(data[name]) for name in self.net.state_dict()})
        self.net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.images = torch.from_numpy(data["images"]).to(memory_format=torch.channels_last)
        self.labels = torch.from_numpy(data["labels"])
        self.algorithm = Algorithm.parse("pc", T=task["T"], lr_x=LR_X)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=LR_W, weight_decay=DECAY)

    def step(self) -> None:
        self.algorithm.step(self.net, self.images, self.labels, self.optimizer)

    def look(self) -> Arrays:
        from deeppc.diagnostics import EnergyTrace

        trace = EnergyTrace()
        self.optimizer.zero_grad()
        result = self.algorithm.gradients(self.net, self.images, self.labels, observe=trace)
        gradients = {name: p.grad.numpy() for name, p in self.net.named_parameters() if p.grad is not None}
        return {"logits": result.logits.numpy(), "energy": trace.energy.sum(axis=0), **gradients}


class PCX:
    packages = ("pcx", "jax", "jaxlib", "equinox", "optax")

    def __init__(self, task: dict[str, Any], data: Arrays) -> None:
        import jax
        import optax
        import pcx.nn as pxnn
        import pcx.predictive_coding as pxc
        import pcx.utils as pxu

        self.images, self.targets = jax.numpy.asarray(data["images"]), jax.nn.one_hot(data["labels"], 10)
        self.net = pcx_net(task["layout"], data)
        self.net.train()  # here, because a change of mode in the first step would make the second compile again
        forward, self.train, self.watch = pcx_functions(task["T"])
        with pxu.step(self.net, pxc.STATUS.INIT, clear_params=pxc.VodeParam.Cache):
            forward(self.images, self.targets, net=self.net)  # gives the activities their shapes
        movable = pxu.M_hasnot(pxc.VodeParam, frozen=True)(self.net)
        self.on_x = pxu.Optim(lambda: optax.sgd(LR_X * len(self.images)), movable)
        self.on_w = pxu.Optim(lambda: optax.adamw(LR_W, weight_decay=DECAY), pxu.M(pxnn.LayerParam)(self.net))

    def step(self) -> None:
        import jax

        self.train(self.images, self.targets, net=self.net, on_x=self.on_x, on_w=self.on_w)
        jax.block_until_ready((self.net, self.on_w))

    def look(self) -> Arrays:
        logits, energy, slopes = self.watch(self.images, self.targets, net=self.net, on_x=self.on_x)
        gradients = {}
        for name, layer in slopes.named_layers():
            gradients[f"{name}.weight"] = np.asarray(layer.nn.weight.get())
            gradients[f"{name}.bias"] = np.asarray(layer.nn.bias.get()).reshape(-1)
        return {"logits": np.asarray(logits), "energy": np.asarray(energy), **gradients}


def pcx_net(layout: list[list[dict[str, Any]]], data: Arrays) -> Any:
    """Build the network of PCX's layers, with the weights in ``data``: after each node's operations a ``Vode``."""
    import jax
    import pcx as px
    import pcx.nn as pxnn
    import pcx.predictive_coding as pxc

    make = {
        "conv": pxnn.Conv2d,
        "linear": pxnn.Linear,
        "pool": pxnn.MaxPool2d,
        "gelu": lambda: px.static(jax.nn.gelu),  # the tanh form
        "flatten": lambda: px.static(jax.numpy.ravel),
    }

    class Net(pxc.EnergyModule):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = [[make[part["kind"]](*part["args"]) for part in node] for node in layout]
            self.vodes = [pxc.Vode() for _ in layout]
            self.vodes[-1].h.frozen = True  # read by the mask below: the clamped output does not move

        def __call__(self, x: Any, y: Any = None) -> Any:
            for block, vode in zip(self.blocks, self.vodes, strict=True):
                for part in block:
                    x = part(x)
                x = vode(x)
            if y is not None:
                self.vodes[-1].set("h", y)
            return self.vodes[-1].get("u")

        def named_layers(self) -> Iterator[tuple[str, Any]]:
            for node, block in zip(layout, self.blocks, strict=True):
                yield from ((spec["name"], part) for spec, part in zip(node, block, strict=True) if "name" in spec)

    net = Net()
    for name, layer in net.named_layers():
        layer.nn.weight.set(jax.numpy.asarray(data[f"{name}.weight"]))
        layer.nn.bias.set(jax.numpy.asarray(data[f"{name}.bias"]).reshape(layer.nn.bias.shape))
    return net


def pcx_functions(T: int) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """Return ``forward``, ``train``, and ``watch``, which does as ``train``, but learns nothing and returns all."""
    import jax
    import pcx.functional as pxf
    import pcx.nn as pxnn
    import pcx.predictive_coding as pxc
    import pcx.utils as pxu

    by_sample = pxu.M(pxc.VodeParam | pxc.VodeParam.Cache).to((None, 0))
    by_activities = pxu.M_hasnot(pxc.VodeParam, frozen=True).to([False, True])
    by_weights = pxu.M(pxnn.LayerParam).to([False, True])

    @pxf.vmap(by_sample, in_axes=(0, 0), out_axes=0)
    def forward(x: Any, y: Any, *, net: Any) -> Any:
        return net(x, y)

    @pxf.vmap(by_sample, in_axes=(0,), out_axes=None, axis_name="batch")
    def energy(x: Any, *, net: Any) -> Any:
        net(x)
        return jax.lax.pmean(net.energy(), "batch")

    def slope(mask: Any, x: Any, net: Any) -> tuple[Any, Any]:
        with pxu.step(net, clear_params=pxc.VodeParam.Cache):
            value, gradient = pxf.value_and_grad(mask)(energy)(x, net=net)
        return value, gradient["net"]

    def infer(x: Any, y: Any, net: Any, on_x: Any) -> tuple[Any, list[Any], Any]:
        with pxu.step(net, pxc.STATUS.INIT, clear_params=pxc.VodeParam.Cache):
            logits = forward(x, y, net=net)
        energies = []
        for _ in range(T):
            value, gradient = slope(by_activities, x, net)
            on_x.step(net, gradient)
            energies.append(value)
        value, gradient = slope(by_weights, x, net)
        return logits, [*energies, value], gradient

    @pxf.jit()
    def train(x: Any, y: Any, *, net: Any, on_x: Any, on_w: Any) -> None:
        on_w.step(net, infer(x, y, net, on_x)[-1])

    @pxf.jit()
    def watch(x: Any, y: Any, *, net: Any, on_x: Any) -> Any:
        return infer(x, y, net, on_x)

    return forward, train, watch


LIBRARIES: dict[str, Any] = {"deeppc": DeepPC, "pcx": PCX}


def work(name: str, folder: Path) -> None:
    """Build the library's network from what is in ``folder``, then do what the lines on stdin say."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints goes to stderr, not among the answers
    task = json.loads((folder / "task.json").read_text())
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: task["threads"]])
    runpy.run_path(str(MEMORY))["keep"]()
    with np.load(folder / "data.npz") as data:
        library = LIBRARIES[name](task, dict(data))
    versions = {package: version(package) for package in library.packages}
    print(json.dumps({"python": platform.python_version(), **versions}), file=answers, flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        if line.strip() == "step":
            library.step()
        else:
            np.savez(folder / name, **library.look())
        print(json.dumps(time.perf_counter() - start), file=answers, flush=True)


# ---- The run.


def prepare(folder: Path, model: str, setting: argparse.Namespace) -> None:
    """Write the task, and the weights, images and labels that both libraries get."""
    import torch

    from deeppc.models import build

    torch.manual_seed(0)
    net = build(model, width=setting.width)
    layout = [[part(f"nodes.{v}.{name}", m) for name, m in f.named_children()] for v, f in net.nodes.items()]
    task = {"model": model, "T": NETS[model], "width": setting.width, "threads": setting.threads, "layout": layout}
    data = {name: tensor.numpy() for name, tensor in net.state_dict().items()}
    data["images"] = torch.randn(setting.batch_size, 3, 32, 32).numpy()
    data["labels"] = torch.randint(0, 10, (setting.batch_size,)).numpy()
    np.savez(folder / "data", **data)
    (folder / "task.json").write_text(json.dumps(task))


def part(name: str, module: Any) -> dict[str, Any]:
    """Return a torch module as data: its kind, the arguments of PCX's counterpart, and the name of its weights."""
    from torch import nn

    match module:
        case nn.Conv2d(in_channels=i, out_channels=o, kernel_size=k, stride=s, padding=p):
            return {"kind": "conv", "args": [i, o, k, s, p], "name": name}
        case nn.Linear(in_features=i, out_features=o):
            return {"kind": "linear", "args": [i, o], "name": name}
        case nn.MaxPool2d(kernel_size=k, stride=s):
            return {"kind": "pool", "args": [k, s]}
        case nn.GELU(approximate="tanh"):
            return {"kind": "gelu", "args": []}
        case nn.Flatten():
            return {"kind": "flatten", "args": []}
    raise TypeError(f"{name} is a {type(module).__name__}, which this benchmark cannot build in PCX")


class Worker:
    """A process that steps when asked; ``with`` ends it."""

    def __init__(self, name: str, python: str, folder: Path, threads: int) -> None:
        self.process = subprocess.Popen(
            [python, str(Path(__file__).resolve()), "--worker", name, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": str(threads), "JAX_PLATFORMS": "cpu"},
        )

    def __enter__(self) -> Worker:
        self.versions: dict[str, str] = self._answer()
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()

    def ask(self, command: str) -> float:
        """Return the seconds that the command took."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        if not (line := self.process.stdout.readline()):
            raise SystemExit("A worker ended early; its error stands above.")
        return json.loads(line)


def measure(model: str, setting: argparse.Namespace) -> dict[str, Any]:
    """Compare and time one network."""
    pythons = {"deeppc": sys.executable, "pcx": setting.pcx_python}
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        prepare(folder, model, setting)
        workers = {
            name: stack.enter_context(Worker(name, python, folder, setting.threads)) for name, python in pythons.items()
        }
        for worker in workers.values():
            worker.ask("look")
        check = compare(*(dict(np.load(folder / f"{name}.npz")) for name in workers))
        first = {name: worker.ask("step") for name, worker in workers.items()}
        seconds: dict[str, list[float]] = {name: [] for name in workers}
        for i in range(setting.rounds):
            print(f"{model}: round {i + 1} of {setting.rounds}", file=sys.stderr)
            for name in sorted(workers, reverse=i % 2 == 1):
                seconds[name].append(workers[name].ask("step"))
    versions = {name: worker.versions for name, worker in workers.items()}
    return {"model": model, "seconds": seconds, "first": first, "check": check, "versions": versions}


def compare(ours: Arrays, theirs: Arrays) -> dict[str, Any]:
    """Return how far apart the two are; stop if they did not compute the same thing."""
    logits = float(np.abs(ours["logits"] - theirs["logits"]).max() / np.abs(ours["logits"]).max())
    energy = {"deeppc": ours["energy"].tolist(), "pcx": theirs["energy"].tolist()}
    if logits > TOLERANCE or not np.allclose(ours["energy"], theirs["energy"], rtol=TOLERANCE):
        raise SystemExit(f"The two differ: answers by {logits:.1e} of the largest; energies by step: {energy}")
    if energy["pcx"][-1] >= energy["pcx"][0]:
        raise SystemExit(f"Inference does not lower the energy: {energy}")
    parameters = [name for name in ours if name not in ("logits", "energy")]
    return {
        "logits": logits,
        "energy": energy,
        "cosine": {name: cosine(ours[name], theirs[name]) for name in parameters},
    }


def cosine(a: NDArray[Any], b: NDArray[Any]) -> float:
    a, b = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    scale = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / scale if scale else 0.0


def row(measured: dict[str, Any]) -> str:
    ours, theirs = (statistics.median(measured["seconds"][name]) for name in LIBRARIES)
    ratios = [b / a for a, b in zip(*(measured["seconds"][name] for name in LIBRARIES), strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    times = f"{1e3 * ours:.0f} | {1e3 * theirs:.0f} | {theirs / ours:.2f} | {low:.2f}-{high:.2f}"
    return f"| {measured['model']} | {NETS[measured['model']]} | {times} | {measured['first']['pcx']:.1f} |"


def stated(results: Sequence[dict[str, Any]]) -> str:
    """By what this was measured, and how far the two agree."""
    from deeppc.bench.timing import in_words, origin

    versions = ", ".join(f"{name} {version}" for name, version in results[-1]["versions"]["pcx"].items())
    lines = [in_words(origin()), f"PCX: {versions}."]
    for found in results:
        check, cosines = found["check"], found["check"]["cosine"]
        ours, theirs = (np.array(check["energy"][name]) for name in LIBRARIES)
        far = float(np.abs(ours / theirs - 1).max())
        least = ", ".join(f"{name} {cosine:.5f}" for name, cosine in sorted(cosines.items(), key=lambda x: x[1])[:4])
        lines.append(
            f"{found['model']}: answers differ by {check['logits']:.0e} of the largest, energies by {far:.0e}; "
            f"the lowest cosines of weight gradients are {least}."
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pcx-python", metavar="PATH", help="the interpreter of an environment with PCX")
    parser.add_argument("--models", nargs="+", choices=NETS, default=list(NETS), help="default: both")
    parser.add_argument("--rounds", type=int, default=9, help="steps of each library that are timed; default: 9")
    parser.add_argument("--width", type=float, default=0.5, help="multiplies channel counts; default: 0.5")
    parser.add_argument("--batch-size", type=int, default=128, help="default: 128")
    parser.add_argument("--threads", type=int, default=2, help="and cores; default: 2")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write everything that was measured, as JSON")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    setting = parser.parse_args()
    if setting.worker:
        work(setting.worker[0], Path(setting.worker[1]))
        return
    if not setting.pcx_python:
        parser.error("--pcx-python is missing: pip install pcx into an environment, and give the path of its python")
    results = []
    for model in setting.models:
        results.append(measure(model, setting))
        if setting.out:  # after each network, so that a failure in the next one loses nothing
            setting.out.write_text(json.dumps(results, indent=1))
    print(
        "| network | T | deeppc, ms | PCX, ms | PCX / deeppc | quartiles | PCX's first step, s |\n" + "|---" * 7 + "|"
    )
    print("\n".join(map(row, results)))
    print(f"\n{stated(results)}")


if __name__ == "__main__":
    main()
