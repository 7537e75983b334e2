"""Several workers equal one: to rounding in every algorithm, in curves and files; and whatever befalls one of them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nets
import pytest
import together
import torch
from safetensors.torch import load_file
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from deeppc import Algorithm, fit
from deeppc.cli.main import main
from deeppc.core.algorithms import families
from deeppc.core.graph import Graph
from deeppc.core.state import State
from deeppc.data import Batches, Dataset, Split
from deeppc.errors import ConfigError, DataError
from deeppc.runs.folder import RunFolder
from deeppc.training import TrainConfig, train
from deeppc.training.distributed import Exchange, Workers, synchronised
from deeppc.training.sources import Loader

Timeless = Callable[[Path], list[dict[str, Any]]]
SMALL = ["train", "--model", "mlp", "--width", "0.05", "--limit", "60", "--batch-size", "24", "--device", "cpu"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def by_two(folder: Path) -> list[Any]:
    """What each of two workers found: differences from one, the result of a run, and how another was stopped."""
    return together.launch(together.by_two, 2, folder)


def assert_near_one(differences: dict[tuple[str, str], float]) -> None:
    """Oracle: the same batches, whole, in one process. Weights, running statistics, and which have a gradient."""
    assert list(differences) == together.CASES
    # These take differences along short steps, with 1e-6 of rounding left: changes below the resolution, and slopes.
    near = {case: 1e-6 if case[1] in ("pc, below the resolution", "hpc") else 1e-10 for case in differences}
    assert not {case: worst for case, worst in differences.items() if not worst < near[case]}


def test_every_family_is_among_the_cases() -> None:
    ours = {name for name, family in families().items() if family.__module__.startswith("deeppc.")}
    for net in ("normed", "plain"):
        assert {Algorithm.parse(spec.split(",")[0]).family for name, spec in together.CASES if name == net} == ours


@pytest.mark.slow
def test_two_workers_learn_what_one_learns(by_two: list[Any]) -> None:
    for differences, *_ in by_two:
        assert_near_one(differences)


@pytest.mark.slow
def test_four_workers_learn_what_one_learns() -> None:
    """The batch of three leaves one of them without a sample."""
    for differences in together.launch(together.differences, 4):
        assert_near_one(differences)


def assert_same_run(one: Path, other: Path, timeless: Timeless) -> None:
    """The same files, curves and weights, to rounding."""
    assert {p.name for p in one.iterdir()} == {p.name for p in other.iterdir()}
    for a, b in zip(timeless(one), timeless(other), strict=True):
        energies = [torch.tensor(list(line.pop("energy").values())) for line in (a, b)]
        torch.testing.assert_close(*energies, rtol=1e-6, atol=1e-12)
        assert a == pytest.approx(b, abs=1e-9)
    for name in ("checkpoint.safetensors", "best.safetensors"):
        a, b = load_file(one / name), load_file(other / name)
        assert a.keys() == b.keys()
        for key in a.keys() - {"rng.cpu"}:
            torch.testing.assert_close(a[key], b[key], rtol=1e-8, atol=1e-10, msg=f"{name}: {key}")


@pytest.mark.slow
def test_a_run_of_two_is_that_of_one(by_two: list[Any], folder: Path, timeless: Timeless) -> None:
    """Batches and evaluations of which nothing divides; the sign of beta is drawn."""
    whole = together.trained(folder / "one", "ipc+s+cn")
    for _, result, *_ in by_two:
        assert result == pytest.approx(whole, abs=1e-9)
    assert_same_run(folder / "one", folder / "two", timeless)
    assert RunFolder(folder / "two").manifest()["workers"] == 2
    assert RunFolder(folder / "one").manifest()["workers"] == 1


@pytest.mark.slow
def test_statistics_of_their_own(by_two: list[Any], folder: Path) -> None:
    """Without sync_norm, each normalises its part; running statistics are averaged: both evaluate one network."""
    one, other = (local for *_, local, _ in by_two)
    assert one == pytest.approx(other, abs=1e-12)
    assert one != pytest.approx(together.trained(folder / "local-1", sync_norm=False), abs=1e-6)
    for *_, mean in by_two:
        assert torch.equal(mean, torch.full_like(mean, 0.5))


@pytest.mark.slow
def test_a_run_of_two_resumes_with_one_or_three(by_two: list[Any], folder: Path, timeless: Timeless) -> None:
    """Stopped by a signal to worker 0 in the second epoch."""
    for _, _, stopped, *_ in by_two:
        assert "Interrupted: Stopped in epoch 2, after 2 of 4 batches; everything is saved." in stopped
    assert RunFolder(folder / "with-1").status == "interrupted"
    shutil.copytree(folder / "with-1", folder / "with-3")

    whole = together.trained(folder / "whole")
    alone = together.trained(folder / "with-1", resume=True)
    for three, again in together.launch(together.by_three, 3, folder):
        assert three == pytest.approx(whole, abs=1e-9)
        assert again == three
    assert alone == pytest.approx(whole, abs=1e-9)
    for number in (1, 3):
        assert_same_run(folder / "whole", folder / f"with-{number}", timeless)
        manifest = RunFolder(folder / f"with-{number}").manifest()
        assert manifest["workers"] == 2
        assert [again["workers"] for again in manifest["resumed"]] == [number]


@pytest.mark.slow
def test_workers_that_are_not_told_the_same_say_so(by_two: list[Any], folder: Path) -> None:
    for _, _, _, unlike, *_ in by_two:
        assert unlike == "ConfigError: limit is 40 in worker 0, but 39 in worker 1: give all the same."
    assert not (folder / "unlike").exists()


def images(count: int) -> Dataset:
    torch.manual_seed(0)
    split = Split(torch.randint(256, (count, 3, 8, 8), dtype=torch.uint8), torch.arange(count) % 5)
    return Dataset("made up", split, split, tuple("abcde"), (0.5,) * 3, (0.25,) * 3, 2, True, (count, count))


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [37, 40, 33])  # the last batch: 5, 8, and 1 that joins the one before
def test_parts_of_a_batch_are_the_batch(workers: int, count: int) -> None:
    """Bit for bit, augmentation included: no sample twice, none lost, whatever divides."""
    whole = Batches(images(count).train, images(count), 8, seed=3)
    parts = [list(whole.shard(n, workers).epoch(2)) for n in range(workers)]
    for index, (inputs, labels) in enumerate(whole.epoch(2)):
        mine = [part[index] for part in parts]
        assert torch.equal(torch.cat([x for x, _ in mine]), inputs)
        assert torch.equal(torch.cat([y for _, y in mine]), labels)
        assert max(len(y) for _, y in mine) - min(len(y) for _, y in mine) <= 1


def torchrun(*words: str, options: tuple[str, ...] = (), cwd: Path, output: Any = -1) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "1000"}
    return subprocess.Popen(
        [*command, "-m", "deeppc", *words],
        *(-1, None, None, output, subprocess.STDOUT),
        cwd=cwd,
        env=environment,
        text=True,
    )


@contextmanager
def _ended(job: subprocess.Popen[str]) -> Iterator[None]:
    """Within, a job is at work; whatever happens, it ends."""
    try:
        yield
    finally:
        job.terminate()  # torchrun ends its workers
        job.wait()


def worker_pids(job: subprocess.Popen[str]) -> list[int]:
    """Those of torchrun's children that train, by rank."""
    children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    ranks = {}
    for pid in map(int, children):
        environment = ""
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # a child that has just ended
            environment = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        if found := re.search(r"\0RANK=(\d+)\0", f"\0{environment}"):
            ranks[int(found[1])] = pid
    return [ranks[rank] for rank in sorted(ranks)]


def kill_after_an_epoch(job: subprocess.Popen[str], run_dir: Path, rank: int) -> None:
    until = time.monotonic() + 60
    while not (run_dir / "metrics.jsonl").exists() or not RunFolder(run_dir).metrics():
        assert job.poll() is None
        assert time.monotonic() < until
        time.sleep(0.1)
    os.kill(worker_pids(job)[rank], signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the workers in /proc")
def test_a_worker_that_is_killed_ends_the_job_and_a_restart_resumes_it(tmp_path: Path) -> None:
    """First worker 1, after which torchrun starts both again, which resume; then worker 0, which is one too many."""
    run_dir, said = tmp_path / "run", tmp_path / "said"
    log = said.open("w")  # a pipe would be full before it is read, and everybody wait for room in it
    job = torchrun(
        *SMALL,
        *("--epochs", "5000", "--patience", "None", "--run-dir", "run"),
        options=("--max-restarts", "1"),
        cwd=tmp_path,
        output=log,
    )
    with log, _ended(job):
        kill_after_an_epoch(job, run_dir, 1)
        first = worker_pids(job)
        until = time.monotonic() + 60
        while not RunFolder(run_dir).manifest()["resumed"]:
            assert job.poll() is None
            assert time.monotonic() < until
            time.sleep(0.2)
        assert set(worker_pids(job)).isdisjoint(first)
        assert RunFolder(run_dir).manifest()["resumed"][0]["epoch"] >= 1
        start = time.monotonic()
        kill_after_an_epoch(job, run_dir, 0)
        job.wait(timeout=60)
    output = said.read_text()
    assert time.monotonic() - start < 60
    assert job.returncode != 0
    assert "Another worker has ended" in output
    assert "Signal 9 (SIGKILL)" in output


@pytest.mark.slow
def test_errors_are_said_once(tmp_path: Path) -> None:
    with torchrun(*SMALL, "--dataset", "nowhere", cwd=tmp_path) as job:
        output, _ = job.communicate(timeout=100)
    assert len(re.findall(r"^error: .*nowhere", output, re.MULTILINE)) == 1, output
    assert "exitcode  : 2" in output
    assert "Traceback" not in output.partition("torch/distributed/elastic")[0]
    assert not list(tmp_path.iterdir())


@pytest.fixture
def one_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a worker, without a store: whatever it says, it takes itself for the first to say it."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.delenv("MASTER_ADDR", raising=False)


@pytest.mark.usefixtures("one_of_two")
@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("WORLD_SIZE", "two", "WORLD_SIZE is 'two', but torchrun sets it to a whole number"),
        ("RANK", "", "RANK is '', but torchrun sets it"),
        ("RANK", "2", "RANK is 2, but WORLD_SIZE 2"),
        ("MASTER_PORT", "-1", "MASTER_PORT is '-1', but torchrun sets it"),
    ],
)
def test_an_environment_that_torchrun_did_not_make_is_refused(
    name: str, text: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for known, value in {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500", name: text}.items():
        monkeypatch.setenv(known, value)
    assert main(["train", "--model", "mlp", "--epochs", "1"]) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.usefixtures("one_of_two")
@pytest.mark.parametrize("words", [["compare"], ["search", "--trials", "1"], ["paper", "run", "gap"], ["bench"]])
def test_commands_that_are_no_training_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert f"torchrun starts 2 copies of deeppc {words[0]}" in capsys.readouterr().err


@pytest.mark.usefixtures("one_of_two")
def test_what_the_parser_says_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--epochs", "few"]) == 2
    assert "--epochs" in capsys.readouterr().err


@pytest.mark.usefixtures("one_of_two")
def test_half_of_an_environment_is_said_in_words() -> None:
    with pytest.raises(ConfigError, match=r"2 workers, but MASTER_ADDR.* is not in the environment"):
        fit(together.normed(), together.made_up(40))


def test_a_restart_needs_a_folder(monkeypatch: pytest.MonkeyPatch, tiny: Callable[..., TrainConfig]) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    with pytest.raises(ConfigError, match="say in which folder, by --run-dir"):
        train(tiny(run_dir=None))


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (together.made_up(40), {"batch_size": 3}, "4 workers cannot share batch_size 3"),
        (together.made_up(57), {"sync_norm": False, "batch_size": 10}, "The smallest batch of an epoch has 7 samples"),
        (together.made_up(23), {"algorithm": "tp", "batch_size": 10}, "has 3 samples, but tp needs one in each of 4"),
        (DataLoader(TensorDataset(*together.made_up(40)), 8, shuffle=True), {}, "DistributedSampler"),
    ],
)
def test_what_cannot_be_divided_is_refused(
    data: Any, options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deeppc.training.distributed.current", lambda: Workers(1, 4))
    with pytest.raises((ConfigError, DataError), match=message):
        fit(together.normed().double(), data, select="last", show=False, device="cpu", **options)


def test_loaders_are_divided_by_their_sampler_or_in_order() -> None:
    x, y = together.made_up(19)
    pairs = TensorDataset(x, y)
    in_order = Loader(DataLoader(pairs, 8), torch.device("cpu"))
    parts = [list(in_order.shard(n, 3).epoch(0)) for n in range(3)]
    assert torch.equal(torch.cat([part[i][0] for i in range(3) for part in parts]), x)
    sampler = DistributedSampler(pairs, 3, 1, shuffle=False)
    sampled = Loader(DataLoader(pairs, 4, sampler=sampler), torch.device("cpu")).shard(1, 3)
    assert torch.equal(torch.cat([inputs for inputs, _ in sampled.epoch(0)]), x[list(sampler)])


class Done:
    """A sum that has been waited for."""

    def wait(self) -> None:
        pass


def history(spec: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Graph, list[list[tuple[str, Any]]]]:
    """By update of the weights, in order: the nodes that were pulled back through, and the bytes that were sent."""
    updates: list[list[tuple[str, Any]]] = [[]]
    pull_back = State.pull_back

    def pull(state: State, v: str, *args: Any, **more: Any) -> Any:
        updates[-1].append(("pulled", v))
        return pull_back(state, v, *args, **more)

    def send(values: torch.Tensor, async_op: bool = False) -> Done:
        if async_op:  # else what all agree on: how far a difference may be stretched
            updates[-1].append(("sent", values.nbytes))
        return Done()

    monkeypatch.setattr(State, "pull_back", pull)
    monkeypatch.setattr("torch.distributed.all_reduce", send)
    net = nets.mlp(4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    optimizer.register_step_post_hook(lambda *_: updates.append([]))
    exchange = Exchange(net, Workers(0, 2))
    exchange.begin(5)
    assert updates == [[("sent", 8)]], "how many samples the batch has"
    updates[0].clear()
    Algorithm.parse(spec).step(net, *nets.batch(net, dtype=torch.float32), optimizer, workers=exchange)
    assert updates.pop() == [], "nothing is sent, or pulled back, after the last update"
    return net, updates


@pytest.mark.parametrize("spec", ["bp", "pc", "pc+s+f", "ipc", "ipc+s", "epc", "zil", "fa", "dfa"])
def test_gradients_are_sent_while_others_are_still_being_made(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In buckets of one gradient, only those of the last node are sent after the last pull-back, in every update."""
    monkeypatch.setattr("deeppc.training.distributed.BUCKET", 1)
    net, updates = history(spec, monkeypatch)
    assert len(updates) == (net.L if spec.startswith("ipc") else 1)
    for t, events in enumerate(updates):
        kinds = [what for what, _ in events]
        last = len(kinds) - 1 - kinds[::-1].index("pulled")
        learnt = sum(net.arrival[v] <= t for v in net.nodes) if spec.startswith("ipc") else net.L
        assert kinds[:last].count("sent") == 2 * (learnt - 1), "a weight and a bias of each"
        assert kinds[last + 1 :] == ["sent"] * 2


@pytest.mark.parametrize("spec", ["bp", "pc", "pc+s+f", "ipc", "epc", "dfa"])
def test_what_fits_in_a_bucket_is_one_sum_for_each_update(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four bytes for each weight that has learnt, and of no other."""
    net, updates = history(spec, monkeypatch)
    sizes = {v: 4 * sum(p.numel() for p in module.parameters()) for v, module in net.nodes.items()}
    for t, events in enumerate(updates):
        reached = [v for v in net.nodes if not spec.startswith("ipc") or net.arrival[v] <= t]
        assert [size for what, size in events if what == "sent"] == [sum(sizes[v] for v in reached)]


def test_what_has_learnt_again_since_it_was_sent_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An algorithm may teach a node twice. Two workers with the same gradients: each sum is twice as large."""

    def twice(values: torch.Tensor, async_op: bool = False) -> Done:
        values *= 2
        return Done()

    monkeypatch.setattr("torch.distributed.all_reduce", twice)
    net = together.tied().double()
    weight = net.nodes["y"].maps[0].weight
    exchange = Exchange(net, Workers(0, 2))
    weight.grad = torch.ones_like(weight)
    exchange.learnt("y")
    weight.grad = weight.grad + 3
    exchange.learnt("y")
    exchange.wait()
    assert torch.equal(weight.grad, torch.full_like(weight, 8))
    exchange.wait()  # and what nobody has learnt is left alone
    assert next(net.nodes["a"].parameters()).grad is None


def test_one_sample_in_all_workers_together_cannot_be_normalised() -> None:
    """As torch has it: its running variance would be 0 / 0."""
    norm = torch.nn.BatchNorm1d(3)
    with synchronised(norm), pytest.raises(ValueError, match="more than 1 value per channel"):
        norm(torch.randn(1, 3))
    assert norm.running_var is not None
    assert torch.equal(norm.running_var, torch.ones(3))
