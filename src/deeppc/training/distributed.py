"""Several workers, one training: processes that ``torchrun`` has started, each with its part of every batch.

    torchrun --nproc-per-node 4 -m deeppc train --dataset cifar10 --model resnet18

Activities are local to a sample, so all that crosses the network are weight gradients, one sum over the workers for
each update, and the statistics of BatchNorms. The engine fills ``.grad`` by itself, which the hooks of torch's own
DistributedDataParallel never see; so an :class:`Exchange` is told by the engine which gradients are final, and sums
them in buckets while inference goes on. Nothing in the core imports this file.

Every worker comes to each collective in the same order, because graph and schedule alone decide which gradients there
are. What depends on more, such as a signal or the clock, the workers agree on first.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from deeppc.core.graph import Graph
from deeppc.core.inputs import require
from deeppc.errors import ConfigError, RunError, UserError, is_memory_refused, set_by_torchrun

BUCKET = 4 << 20  # bytes of gradients that are summed at once: the sooner they are sent, the more the others hide it
SECONDS = 50  # without an answer, until a worker takes it that another one is dead
TIMEOUT = "DEEPPC_TIMEOUT"  # environment variable: so many seconds instead
LOST = (
    "Another worker has ended, or has not answered for {:g} seconds: its own error, or torchrun's summary, says why. "
    f"(Where workers wait for a slow disk, set {TIMEOUT} to more seconds.)"
)

PROCESS = secrets.token_hex(8)  # the name of this one
T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True)
class Workers:
    """The processes of one training, as one of them sees them: its number ``rank``, from 0, and their number ``size``.

    Worker 0 writes files and shows progress. A process that is alone is worker 0 of 1, and exchanges nothing.
    """

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    @property
    def alone(self) -> bool:
        return self.size == 1

    def total(self, values: Tensor) -> Tensor:
        """Return the sum over the workers; ``values`` is written over."""
        if not self.alone:
            with in_words():
                dist.all_reduce(values)
        return values

    def most(self, values: Sequence[float]) -> list[float]:
        """Return the largest of each of the values over the workers."""
        if self.alone:
            return list(values)
        largest = torch.tensor(values, dtype=torch.float64)
        with in_words():
            dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return [float(value) for value in largest]

    def require_same(self, given: Mapping[str, object]) -> None:
        """Raise ConfigError, in all of them, where one was given something else: they would wait for one another."""
        if self.alone:
            return
        every: list[Any] = [None] * self.size
        with in_words():
            dist.all_gather_object(every, dict(given))
        for rank, name in itertools.product(range(self.size), every[0]):
            first, other = every[0][name], every[rank].get(name)
            if first != other:
                raise ConfigError(
                    f"{name} is {first!r} in worker 0, but {other!r} in worker {rank}: give all the same."
                )

    def share(self, make: Callable[[], T]) -> T:
        """Let worker 0 make something, and return it in all of them. Its UserError is raised in all of them, too."""
        if self.alone:
            return make()
        made: list[Any] = [None]
        if self.first:
            try:
                made = [(make(), None)]
            except UserError as error:
                made = [(None, error)]
        with in_words():
            dist.broadcast_object_list(made, src=0)
        value, refusal = made[0]
        if refusal is not None:
            raise refusal
        return cast(T, value)


def current() -> Workers:
    """Return the workers of this process: those of torch's process group, if it is in one."""
    if dist.is_available() and dist.is_initialized():
        return Workers(dist.get_rank(), dist.get_world_size())
    return Workers()


def launched() -> int:
    """Return how many workers torchrun has started; 0 without it."""
    return set_by_torchrun("WORLD_SIZE", "1") if "TORCHELASTIC_RUN_ID" in os.environ else 0


def may_restart() -> bool:
    """Whether torchrun would start the workers again, after one of them failed (``--max-restarts``)."""
    return launched() > 0 and set_by_torchrun("TORCHELASTIC_MAX_RESTARTS", "0") > 0


def note_run(run_dir: Path) -> None:
    """Let torchrun's store know that its workers are at work on the run in ``run_dir``."""
    if launched():
        with suppress(Exception):
            _store().set(_key("run", run_dir.resolve()), PROCESS)


def noted_run(run_dir: Path) -> bool:
    """Whether a worker that torchrun had started before this one was at work on the run in ``run_dir``.

    Then torchrun has started the workers again, and they resume it. How often it did (TORCHELASTIC_RESTART_COUNT) is
    not the same on all hosts, and stays 0 where hosts come or go.
    """
    if launched():
        with suppress(Exception):
            store, key = _store(), _key("run", run_dir.resolve())
            return bool(store.check([key])) and store.get(key).decode() != PROCESS
    return False


@contextmanager
def joined() -> Iterator[Workers]:
    """Within, this process is one of those that torchrun has started; alone without it, or in a group of the user's."""
    if launched() < 2 or dist.is_initialized():
        yield current()
        return
    from torch.distributed.rendezvous import rendezvous

    if missing := [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]:
        raise ConfigError(
            f"There are to be {launched()} workers, but {', '.join(missing)} is not in the environment: start them by "
            "torchrun, or unset TORCHELASTIC_RUN_ID to train alone."
        )
    rank, size, wait = set_by_torchrun("RANK"), launched(), timedelta(seconds=seconds())
    if rank >= size:
        raise ConfigError(f"RANK is {rank}, but WORLD_SIZE {size}: torchrun sets both, unless others have set them.")
    set_by_torchrun("MASTER_PORT")
    with in_words():
        store, _, _ = next(rendezvous("env://", timeout=wait))
        store.set_timeout(wait)
        own = dist.PrefixStore(_attempt(store, rank, size), store)  # type: ignore[attr-defined]
        dist.init_process_group(store=own, rank=rank, world_size=size, timeout=wait)  # gloo on CPUs, nccl on GPUs
    try:
        yield current()
    finally:
        dist.destroy_process_group()


def _attempt(store: Any, rank: int, size: int) -> str:
    """Return a name that the workers who are there now have in common, and none who were there before.

    torchrun keeps one store for as long as it runs. Workers that it has started again would find in there, and try in
    vain, the addresses of those that have ended. So worker 0 gives its name to whoever says hello, until all have it.
    """
    if rank:
        store.set(f"deeppc/hello/{rank}", PROCESS)
        name = str(store.get(f"deeppc/name/{PROCESS}").decode())  # waits for it
        store.set(f"deeppc/has/{name}/{rank}", "")
        return name
    until = time.monotonic() + seconds()
    for other in range(1, size):
        known = ""
        while not store.check([f"deeppc/has/{PROCESS}/{other}"]):
            if (hello := store.get(f"deeppc/hello/{other}").decode()) != known:
                store.set(f"deeppc/name/{hello}", PROCESS)
                known = hello
            if time.monotonic() > until:
                raise TimeoutError(f"worker {other} has not come")
            time.sleep(0.02)
    return PROCESS


def joining(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator: call ``function`` :func:`joined`, once its arguments are known to fit."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:  # missing, unknown, or one too many
            raise TypeError(f"{function.__name__}: {error}") from None
        with joined():
            return function(*args, **kwargs)

    return call


def own_gpu() -> torch.device:
    """Return this worker's GPU, the one of its number on this host, and make it torch's current one."""
    number, there = set_by_torchrun("LOCAL_RANK"), torch.cuda.device_count()
    if number >= there:
        raise ConfigError(
            f"There are {there} GPUs on a host, but more workers: give torchrun --nproc-per-node {there}."
        )
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def seconds() -> float:
    """Return how long a worker waits for another."""
    text = os.environ.get(TIMEOUT, str(SECONDS))
    try:
        if float(text) > 0:
            return float(text)
    except ValueError:
        pass
    raise ConfigError(f"{TIMEOUT} is {text!r}, but must be a number of seconds above 0.")


@contextmanager
def in_words() -> Iterator[None]:
    """Raise RunError where a collective fails: whatever torch says of it, another worker is gone."""
    try:
        yield
    except (RuntimeError, TimeoutError) as error:
        if is_memory_refused(error):
            raise
        raise RunError(LOST.format(seconds())) from error


def first_to_say(words: str) -> bool:
    """Whether no other worker has said these words yet: what all of them find out is printed once.

    They ask torchrun's own store. Where it cannot be asked, everybody speaks.
    """
    with suppress(Exception):
        return launched() < 2 or bool(
            _store().add(_key("said", words, os.environ.get("TORCHELASTIC_RESTART_COUNT")), 1) == 1
        )
    return True


def _store() -> Any:
    """Connect to torchrun's own store, which outlives its workers."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    wait = timedelta(seconds=5)
    return dist.TCPStore(address, port, is_master=False, timeout=wait)  # type: ignore[attr-defined]


def _key(kind: str, *words: object) -> str:
    return f"deeppc/{kind}/{hashlib.sha256(repr(words).encode()).hexdigest()}"


class Exchange:
    """Sums the weight gradients of one network over the workers: what :meth:`Algorithm.step` takes as ``workers``.

    >>> exchange = Exchange(net, current())
    >>> exchange.begin(len(images))            # the samples that this worker has of the batch; there may be none
    >>> algorithm.step(net, images, labels, optimizer, workers=exchange)
    """

    def __init__(self, net: Graph, workers: Workers) -> None:
        own = {v: [p for p in net.energies[v].parameters() if p.requires_grad] for v in net.energies}
        self.workers = workers
        self._weights = {
            v: list({id(p): p for p in [*ps, *own.get(v, ())]}.values()) for v, ps in net.trainable().items()
        }
        self._nodes = Counter(id(p) for ps in self._weights.values() for p in ps)  # of each weight; some are shared
        self._left = self._nodes.copy()  # those that have not learnt yet
        self._bucket: list[Tensor] = []
        self._taken: dict[int, Tensor] = {}  # by weight, the gradient that is in a bucket
        self._sent: list[tuple[dist.Work, Tensor, list[Tensor]]] = []
        self._count: Tensor | None = None
        self._counting: dist.Work | None = None

    def begin(self, samples: int) -> None:
        """Say how many samples of the next batch this worker has. Their sum is under way during the forward pass."""
        device = next((p.device for ps in self._weights.values() for p in ps), torch.device("cpu"))
        self._count = torch.full((), samples, dtype=torch.float64, device=device)
        self._counting = self._reduce(self._count)

    @property
    def samples(self) -> Tensor:
        """The number of samples that all workers have, as a tensor: nothing waits for the device."""
        if self._count is None:
            raise RuntimeError("call begin(samples) before each step")
        if self._counting is not None:
            self._wait(self._counting)
            self._counting = None
        return self._count

    def learnt(self, v: str) -> None:
        """Take the gradients of ``v`` whose last node it is, and send a bucket when it is full."""
        for p in self._weights[v]:
            self._left[id(p)] -= 1
            if not self._left[id(p)]:
                self._take(p)

    def wait(self) -> None:
        """Send what is left, and return when every gradient is the sum over the workers.

        What has learnt again since it was sent is sent again: its first sum is not used.
        """
        for ps in self._weights.values():
            for p in ps:
                self._take(p)
        self._send()
        for work, flat, gradients in self._sent:
            self._wait(work)
            for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
                gradient.copy_(part.view(gradient.shape))
        self._sent.clear()
        self._taken.clear()
        self._left = self._nodes.copy()

    def agree(self, drawn: Tensor) -> Tensor:
        """Return what worker 0 has drawn."""
        with in_words():
            dist.broadcast(drawn, src=0)
        return drawn

    def total(self, part: Tensor) -> Tensor:
        """Return the sum of all workers' parts."""
        return self.workers.total(part)

    def _take(self, p: nn.Parameter) -> None:
        if p.grad is None or self._taken.get(id(p)) is p.grad:
            return
        if self._bucket and self._bucket[0].dtype != p.grad.dtype:
            self._send()
        self._taken[id(p)] = p.grad
        self._bucket.append(p.grad)
        if sum(gradient.nbytes for gradient in self._bucket) >= BUCKET:
            self._send()

    def _send(self) -> None:
        if self._bucket:
            flat = torch.cat([gradient.reshape(-1) for gradient in self._bucket])
            self._sent.append((self._reduce(flat), flat, self._bucket))
            self._bucket = []

    def _reduce(self, values: Tensor) -> dist.Work:
        with in_words():
            work = dist.all_reduce(values, async_op=True)
        return cast(dist.Work, work)  # this process is in the group

    def _wait(self, work: dist.Work) -> None:
        with in_words():
            work.wait()


@contextmanager
def synchronised(net: nn.Module) -> Iterator[None]:
    """Within, every BatchNorm in training normalises by the statistics of the whole batch, not of a worker's part.

    As torch's SyncBatchNorm, which needs a GPU. The layers stay what they are, so that freezing works as ever. An
    InstanceNorm normalises each sample by itself, but its running statistics, if it has any, are of the whole batch.
    """
    layers = [layer for layer in net.modules() if isinstance(layer, _NormBase)]
    before = [layer.__dict__.get("forward") for layer in layers]
    for layer in layers:
        shared: Any = _normalise if isinstance(layer, _BatchNorm) else _normalise_each
        layer.__dict__["forward"] = partial(shared, layer, layer.forward)
    try:
        yield
    finally:
        for layer, forward in zip(layers, before, strict=True):
            del layer.__dict__["forward"]
            if forward is not None:
                layer.__dict__["forward"] = forward


def _normalise(layer: _BatchNorm, alone: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """``(x - mean) / sqrt(var + eps) * weight + bias``, mean and var over the samples and positions of all workers."""
    if not layer.training:
        return alone(x)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    n, mean, var = _statistics(wide.detach())
    require(n > 1, "Expected more than 1 value per channel when training")
    if layer.track_running_stats and layer.running_mean is not None and layer.running_var is not None:
        assert layer.num_batches_tracked is not None
        layer.num_batches_tracked.add_(1)
        rate = 1 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
        layer.running_mean.lerp_(mean.to(layer.running_mean), rate)
        layer.running_var.lerp_((var * (n / (n - 1))).to(layer.running_var), rate)
    weight, bias = (layer.weight, layer.bias) if layer.affine else (torch.ones_like(mean), torch.zeros_like(mean))
    y = _Normalised.apply(wide, weight, bias, mean, var, n, layer.eps)  # type: ignore[no-untyped-call]
    return cast(Tensor, y.to(x.dtype))


def _normalise_each(layer: _NormBase, alone: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Normalise each sample. Running statistics move by a mean over samples: that of all workers."""
    if len(x):
        y = alone(x)
    else:  # which torch cannot normalise; the gradients of weight and bias are 0
        shape = [-1 if dim == 1 else 1 for dim in range(x.dim())]
        y = x * layer.weight.view(shape) + layer.bias.view(shape) if layer.affine else x.clone()
    mean, var = layer.running_mean, layer.running_var
    if layer.training and layer.track_running_stats and mean is not None and var is not None:
        every = current().total(torch.cat([mean, var, mean.new_ones(1)]) * len(x))
        mean.copy_(every[: len(mean)] / every[-1])
        var.copy_(every[len(mean) : -1] / every[-1])
    return y


def _statistics(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The number of values of each channel in all workers, their mean, and their mean squared distance from it.

    From the number, mean and variance of each worker, by one exchange (Chan et al. 1979): sums of squares would cancel.
    """
    workers, others = current(), [dim for dim in range(x.dim()) if dim != 1]
    number = x.numel() // x.shape[1]
    var, mean = torch.var_mean(x, others, correction=0) if number else (x.new_zeros(x.shape[1]),) * 2
    ours = torch.cat([mean, var, x.new_full((1,), number)])
    every = ours.new_zeros(workers.size, len(ours))
    every[workers.rank] = ours
    means, variances, numbers = torch.split(workers.total(every), [len(mean), len(var), 1], dim=1)
    n = numbers.sum()
    mean = (numbers * means).sum(0) / n
    return n, mean, (numbers * (variances + (means - mean).square())).sum(0) / n


class _Normalised(torch.autograd.Function):
    """BatchNorm by the statistics of all workers, whose gradient goes through those, too."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, n: Tensor, eps: float
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, (var + eps).rsqrt(), n)
        return torch.nn.functional.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """``dx = weight / std (dy - mean(dy) - z mean(dy z))`` with ``z = (x - mean) / std``; means over all."""
        x, weight, mean, scale, n = ctx.saved_tensors
        others = [dim for dim in range(x.dim()) if dim != 1]
        shape = [-1 if dim == 1 else 1 for dim in range(x.dim())]
        z = (x - mean.view(shape)) * scale.view(shape)
        bias, slope = gradient.sum(others), (gradient * z).sum(others)
        total: Tensor = _Total.apply(torch.cat([bias, slope]))  # type: ignore[no-untyped-call]
        shift, turn = (total / n).chunk(2)
        dx = (gradient - z * turn.view(shape) - shift.view(shape)) * (weight * scale).view(shape)
        return dx, slope, bias, None, None, None, None


class _Total(torch.autograd.Function):
    """The sum over all workers. A worker's part counts in the sums of all, so its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        return current().total(part.clone())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Total.apply(gradient)  # type: ignore[no-untyped-call]


def average_statistics(net: nn.Module, workers: Workers) -> None:
    """Let the running statistics of every norm be the mean of the workers', each of which saw its own samples."""
    for layer in net.modules() if not workers.alone else ():
        if isinstance(layer, _NormBase) and layer.running_mean is not None and layer.running_var is not None:
            for buffer in (layer.running_mean, layer.running_var):
                buffer.copy_(workers.total(buffer.clone()) / workers.size)
