"""The loop: honest selection, exact evaluation, interruption and resumption, divergence, unusable folders."""

from __future__ import annotations

import dataclasses
import signal
import threading
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import deeppc
from deeppc import Algorithm, files
from deeppc.data import Batches, load
from deeppc.errors import ConfigError, DataError, DivergedError, Interrupted, OutOfMemory, RunError, UserError
from deeppc.models import build
from deeppc.runs.folder import RunFolder
from deeppc.training import TrainConfig, devices, train
from deeppc.training import checkpoint as checkpoints
from deeppc.training.builder import build as build_parts
from deeppc.training.builder import default_run_dir, saved_config
from deeppc.training.config import replace
from deeppc.training.devices import choose_device
from deeppc.training.events import BatchDone, Ended, EpochDone, Event, Finished, Note, Started
from deeppc.training.schedule import learning_rate
from deeppc.training.scores import evaluate, metric_for

MakeConfig = Callable[..., TrainConfig]
Same = Callable[[Path, Path], None]
StopAfter = Callable[..., Callable[[Event], None]]
Timeless = Callable[[Path], list[dict[str, Any]]]


# --- what a run is -------------------------------------------------------------------------------------------------


def test_a_run_writes_its_folder_and_tells_what_happens(tiny: MakeConfig) -> None:
    events: list[Event] = []
    result = train(tiny(), events.append)
    folder = RunFolder(result.run_dir)
    manifest, metrics = folder.manifest(), folder.metrics()
    kinds = [type(e) for e in events]
    assert kinds[0] is Started
    assert kinds[-2:] == [Finished, Ended]
    assert (kinds.count(BatchDone), kinds.count(EpochDone)) == (9, 3)
    assert events[0].settings == manifest["config"]

    assert [(line["epoch"], line["step"]) for line in metrics] == [(1, 3), (2, 6), (3, 9)]
    assert list(metrics[-1]["energy"]) == list(build_parts(tiny()).net.nodes)
    assert all(value > 0 for value in metrics[-1]["energy"].values())
    assert metrics[-1]["lr_w"] == learning_rate(1e-3, 8, 9)  # of the last step taken

    assert (manifest["status"], manifest["seed"]) == ("finished", 0)
    assert {"torch", "deeppc", "python"} <= manifest["versions"].keys()
    assert {"host", "threads", "device"} <= manifest["machine"].keys()
    assert folder.result() == result.table()
    best = max(metrics, key=lambda line: line["validation_accuracy"])  # the first of equals
    assert (result.selected_epoch, result.validation_accuracy) == (best["epoch"], best["validation_accuracy"])

    # The result is that of the best weights on the whole test set, image by image.
    dataset = load("digits")
    net = build("mlp", classes=10, in_shape=dataset.in_shape, width=0.05)
    net.load_state_dict(load_file(folder.best))
    batches = Batches(dataset.test, dataset, batch_size=len(dataset.test), augment=False, shuffle=False)
    ((images, labels),) = batches.epoch(0)
    correct = sum(int(net(image[None]).argmax()) == int(label) for image, label in zip(images, labels, strict=True))
    assert result.test_accuracy == correct / len(dataset.test)


def test_same_seed_same_run_other_seed_other_run(tiny: MakeConfig, assert_same_state: Same, timeless: Timeless) -> None:
    one, two, three = (train(tiny(name, seed=seed, epochs=2)).run_dir for name, seed in (("1", 0), ("2", 0), ("3", 1)))
    assert_same_state(one, two)
    assert timeless(one) == timeless(two) != timeless(three)


def test_selection_on_the_test_set_holds_nothing_out_and_says_so(tiny: MakeConfig) -> None:
    events: list[Event] = []
    result = train(tiny(select="test", limit=None, batch_size=500, epochs=2), events.append)
    assert isinstance(events[0], Started)
    assert events[0].samples == len(load("digits").train)
    metrics = RunFolder(result.run_dir).metrics()
    assert [line["validation_accuracy"] for line in metrics] == [None, None]
    assert result.test_accuracy == max(line["test_accuracy"] for line in metrics)
    assert result.validation_accuracy is None


def test_held_out_images_are_not_trained_on(tiny: MakeConfig) -> None:
    sources = build_parts(tiny(limit=None)).sources()
    whole = len(load("digits").train)
    assert sources.validation is not None
    held = sum(len(labels) for _, labels in sources.validation.epoch(0))
    assert held == round(0.1 * whole)
    assert sources.train.size == whole - held
    assert build_parts(tiny(limit=60)).sources().train.size == 60


def test_patience_stops_a_run_that_no_longer_improves(tiny: MakeConfig) -> None:
    result = train(tiny(lr_w=1e-12, epochs=9, patience=2))  # nothing is learnt: the first epoch stays the best
    assert (result.selected_epoch, result.epochs) == (1, 3)


def test_bf16_keeps_weights_in_fp32(tiny: MakeConfig) -> None:
    result = train(tiny(precision="bf16", epochs=1))
    assert {t.dtype for t in load_file(result.run_dir / "best.safetensors").values()} == {torch.float32}


def test_compile_takes_every_node(tiny: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda f: compiled.append(f) or f)
    assert len(build_parts(tiny(compile=True)).net.nodes) == len(compiled)


def test_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto").type in ("cpu", "mps")
    with pytest.raises(ConfigError, match="no cuda device"):
        choose_device("cuda")


@pytest.mark.parametrize(("flags", "code"), [("avx512f amx_tile", -4), ("avx512f amx_tile", 0), ("avx2", -4)])
def test_bfloat16_that_would_kill_the_process_is_refused(
    flags: str, code: int, tiny: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused where the machine announces AMX and a product on another process dies of it; nothing is left behind."""
    (tmp_path / "cpuinfo").write_text(flags)
    monkeypatch.setattr(devices, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(devices, "PRODUCT", f"import os; {code} and os.kill(os.getpid(), {-code})")
    devices._kills.cache_clear()
    if dies := "amx_tile" in flags and code < 0:
        with pytest.raises(ConfigError, match="ONEDNN_MAX_CPU_ISA"):
            train(tiny(precision="bf16"))
    else:
        train(tiny(precision="bf16"))
    devices._kills.cache_clear()
    assert (tmp_path / "run").exists() != dies


@pytest.mark.parametrize("size", [7, 359])  # 359 test images: a last batch of 2, and none
def test_evaluation_counts_every_image_and_agrees_with_a_naive_one(size: int) -> None:
    dataset = load("digits")
    torch.manual_seed(1)
    net = build("mlp", classes=10, in_shape=dataset.in_shape, width=0.1, norm="bf")
    score = evaluate(net, Batches(dataset.test, dataset, batch_size=size, augment=False, shuffle=False))
    assert net.training

    net.eval()
    first = fifth = 0
    for images, labels in Batches(dataset.test, dataset, batch_size=1, augment=False, shuffle=False).epoch(0):
        answers = net(images)[0].tolist()
        ranked = sorted(range(10), key=lambda c: -answers[c])
        first += ranked[0] == int(labels)
        fifth += int(labels) in ranked[:5]
    assert score == {"accuracy": first / 359, "top5": fifth / 359}


def test_fewer_than_six_classes_have_no_top_five() -> None:
    dataset = load("digits")
    few = dataclasses.replace(dataset, classes=("0", "1", "2"))
    split = dataclasses.replace(dataset.test, labels=dataset.test.labels % 3)
    net = build("mlp", classes=3, in_shape=dataset.in_shape, width=0.1)
    metric = metric_for(split.labels, outputs=3)
    assert list(evaluate(net, Batches(split, few, augment=False, shuffle=False), metric)) == ["accuracy"]
    assert metric_for(split.labels, outputs=6).names == ("accuracy", "top5")


# --- interruption and resumption (test_fit.py: optimisers, schedulers; test_kill.py: kills) ---------------------------


@pytest.mark.parametrize(
    ("options", "batches", "number", "where"),
    [
        ({"algorithm": "pc+s+f+cn"}, 1, signal.SIGINT, "in epoch 1, after 1 of 3"),  # nudging draws random numbers
        ({"algorithm": "ipc+s"}, 4, signal.SIGTERM, "in epoch 2, after 1 of 3"),  # ipc leaves nodes unreached
        # The signal is seen when the validation images are.
        ({"algorithm": "pc+s+cn", "diagnostics": True}, 3, signal.SIGINT, "in epoch 1, after 3 of 3"),
        ({"model": "vgg5", "width": 0.02, "norm": "bf"}, 2, signal.SIGINT, "in epoch 1, after 2 of 3"),  # statistics
    ],
)
def test_interrupted_and_resumed_is_never_interrupted(
    tiny: MakeConfig,
    assert_same_state: Same,
    timeless: Timeless,
    stop_after: StopAfter,
    options: dict[str, Any],
    batches: int,
    number: int,
    where: str,
) -> None:
    straight = train(tiny("straight", epochs=2, **options)).run_dir
    folder = RunFolder(straight.parent / "broken")
    with pytest.raises(Interrupted, match=f"{where} batches; .* deeppc train --resume --run-dir") as stopped:
        train(tiny("broken", epochs=2, **options), stop_after(batches, number))
    assert stopped.value.exit_code == 128 + number
    assert folder.status == "interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    with folder.metrics_path.open("a") as file:
        file.write('{"epoch": 2, "energy": {"hid')  # a line that a kill tore, and that no checkpoint counts
    torch.manual_seed(99)  # what went on in between does not matter
    events: list[Event] = []
    train(saved_config(folder.path), events.append)
    assert isinstance(events[0], Started)
    assert 3 * events[0].epoch + events[0].batch == batches
    assert_same_state(straight, folder.path)
    assert timeless(straight) == timeless(folder.path)
    assert folder.status == "finished"


def test_training_works_in_a_thread_where_no_signal_arrives(tiny: MakeConfig) -> None:
    results = []
    thread = threading.Thread(target=lambda: results.append(train(tiny(epochs=1))))
    thread.start()
    thread.join()
    assert results[0].epochs == 1


def test_a_finished_run_is_left_alone_and_may_get_more_epochs(tiny: MakeConfig, assert_same_state: Same) -> None:
    result = train(tiny(epochs=2, schedule_epochs=1))
    before = {p.name: p.read_bytes() for p in result.run_dir.iterdir()}
    notes: list[Event] = []
    config = saved_config(result.run_dir)
    assert train(config, notes.append) == result
    assert isinstance(notes[0], Note)
    assert "is finished" in notes[0].text
    with pytest.raises(RunError, match="already holds a run: resume it with --resume"):
        train(tiny())
    with pytest.raises(ConfigError, match=r"--lr-w is 0\.5"):
        train(replace(config, lr_w=0.5))
    assert {p.name: p.read_bytes() for p in result.run_dir.iterdir()} == before

    longer = train(replace(config, epochs=3))
    assert longer.epochs == saved_config(result.run_dir).epochs == 3
    assert_same_state(train(tiny("straight", epochs=3, schedule_epochs=1)).run_dir, longer.run_dir)


def test_a_run_of_python_is_resumed_in_python(tmp_path: Path) -> None:
    net = deeppc.Chain(torch.nn.Linear(3, 2))
    data = (torch.randn(9, 3), torch.tensor(3 * [0, 1, 0]))
    deeppc.fit(net, data, "bp", epochs=1, run_dir=tmp_path / "run", device="cpu", show=False)
    with pytest.raises(ConfigError, match=r"begun in Python: resume it with deeppc.fit"):
        saved_config(tmp_path / "run")


def test_resuming_what_is_not_there(tiny: MakeConfig) -> None:
    with pytest.raises(ConfigError, match="--resume needs --run-dir"):
        train(TrainConfig(resume=True))
    with pytest.raises(RunError, match="no run to resume"):
        train(tiny(resume=True))
    ran = train(tiny("other", epochs=1))
    with pytest.raises(RunError, match=rf"The newest run in .* is {ran.run_dir}"):
        train(tiny(resume=True))


def test_resumed_with_the_threads_it_was_begun_with(tiny: MakeConfig, stop_after: StopAfter) -> None:
    with pytest.raises(Interrupted):
        train(tiny(epochs=1), stop_after(2))
    folder = RunFolder(tiny().run_dir)
    manifest, before = folder.manifest(), torch.get_num_threads()
    manifest["machine"]["threads"] = before + 1
    folder.write_manifest(manifest)
    notes: list[Event] = []
    try:
        train(saved_config(folder.path), notes.append)
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)
    assert isinstance(notes[0], Note)


def test_checkpoints_within_an_epoch(tiny: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = []
    real = checkpoints.save
    monkeypatch.setattr(checkpoints, "save", lambda *a, **k: (saved.append(a[3].step), real(*a, **k)))
    train(tiny(checkpoint_every=0, epochs=2))
    assert saved == [0, 1, 2, 3, 3, 4, 5, 6, 6]  # one at the start, after each batch, after each epoch


# --- what goes wrong -----------------------------------------------------------------------------------------------


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes the first weights of the network that is being trained NaN."""
    nets = []

    def spying(config: TrainConfig) -> Any:
        parts = build_parts(config)
        nets.append(parts.net)
        return parts

    monkeypatch.setattr("deeppc.training.builder.build", spying)
    return lambda: next(nets[-1].parameters()).data.fill_(float("nan"))


@pytest.mark.parametrize(("when", "step"), [(1, 5), (3, 6)])
def test_divergence_keeps_the_last_good_checkpoint(
    tiny: MakeConfig, poison: Callable[[], None], when: int, step: int
) -> None:
    """After the last batch of an epoch no energy tells: weights are looked at before they are saved."""

    def spoil(event: Event) -> None:
        if isinstance(event, BatchDone) and (event.epoch, event.batch) == (2, when):
            poison()

    config = tiny(algorithm="pc", T=8, lr_x=0.1)
    with pytest.raises(DivergedError, match=rf"diverged at step {step}: .* Lower --lr-x") as error:
        train(config, spoil)
    assert error.value.exit_code == 3
    folder = RunFolder(config.run_dir)
    assert folder.status == "diverged"
    assert all(t.isfinite().all() for t in checkpoints.load(folder.checkpoint).part("weights.").values())
    assert train(saved_config(folder.path)).epochs == 3  # and it can go on from there


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"lr_x": 100.0}, r"Lower --lr-x \(now 100"),
        ({"algorithm": "bp", "lr_w": 1e6}, r"Lower --lr-w \(now 1e\+06\)\. The last"),
        ({"precision_on": "node", "lr_x": 100.0}, "or choose --precision-on energy"),
        ({"depth_gain": True, "lr_w": 1e6}, "or leave out --depth-gain"),
    ],
)
def test_advice_fits_the_settings(tiny: MakeConfig, options: dict[str, Any], advice: str) -> None:
    with pytest.raises(DivergedError, match=advice):
        train(tiny(**options))


def test_what_cannot_work_is_found_before_training(
    tiny: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="unknown model"):
        train(tiny(model="vgg6"))
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"cannot be written: .* Choose another\."):
        train(tiny("file/run"))
    with RunFolder(tmp_path / "run").held(), pytest.raises(RunError, match="Another process is training"):
        train(tiny())
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(10, 9, 1))
    with pytest.raises(RunError, match=r"has 0.0 MB free, but checkpoints of this network want .* MB"):
        train(tiny(), lambda event: pytest.fail(f"told {event}"))


def test_a_disk_that_fills_up_later_keeps_the_last_checkpoint(
    tiny: MakeConfig, monkeypatch: pytest.MonkeyPatch, assert_same_state: Same
) -> None:
    straight = train(tiny("straight")).run_dir
    real, writes = files._put, []

    def full(path: Path, mode: str, parts: Any) -> None:
        writes.append(path)
        if len(writes) == 8:
            real(path, mode, [bytes(part[:9]) for part in parts])
            raise OSError(28, "No space left on device")
        real(path, mode, parts)

    monkeypatch.setattr(files, "_put", full)
    with pytest.raises(RunError, match="could not be written: No space left on device"):
        train(tiny("broken"))
    monkeypatch.undo()
    broken = straight.parent / "broken"
    assert RunFolder(broken).status == "failed"
    train(saved_config(broken), report=False)
    assert_same_state(straight, broken)


def test_a_last_image_that_is_alone_does_not_end_a_run(tiny: MakeConfig) -> None:
    assert train(tiny(limit=65, batch_size=32, norm="bf", epochs=1)).steps == 2
    config = tiny("alone", batch_size=1, norm="bf")
    with pytest.raises(DataError, match=r"does not fit the data: .* Choose a larger batch size"):
        train(config)
    assert not config.run_dir.exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"aux": False}, "--no-aux means nothing to mlp: leave it out"),
        ({"aux": False, "model": "vgg5"}, "--no-aux means nothing to vgg5"),
        ({"affine": False}, "--no-affine means nothing to a network without a norm"),
        ({"validation": 0.2, "select": "test"}, "--validation means nothing to a run that selects by test images"),
        ({"width": 0.3, "model": "own.py:net"}, "--width means nothing to own.py:net"),
        ({"activation": "relu", "model": "own.py:net"}, "--activation means nothing to own.py:net"),
        ({"weights": "none.safetensors"}, "cannot be read: No such file"),
    ],
)
def test_settings_that_mean_nothing_are_refused(
    tiny: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text("def net(classes): ...")
    config = tiny(**{"width": 0.25, **changes})
    with pytest.raises(ConfigError, match=words):
        train(config)
    assert not config.run_dir.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"algorithm": "pc", "nesterov": False}, ["--nesterov changes nothing here, since momentum_x is 0.0."]),
        (
            {"algorithm": "pc", "precision_on": "node"},
            ["--precision-on changes nothing here, since schedule is fixed."],
        ),
        ({"algorithm": "pc", "T": 1, "lr_x": 0.1}, ["learnt nothing"]),
        ({"algorithm": "pc", "momentum_x": 0.5, "nesterov": False}, []),
    ],
)
@pytest.mark.filterwarnings("error:Nodes .* learnt nothing")
def test_what_changes_or_learns_nothing_is_told_once(
    tiny: MakeConfig, options: dict[str, Any], words: list[str]
) -> None:
    events: list[Event] = []
    train(tiny(epochs=1, **options), events.append)
    notes = [event.text for event in events if isinstance(event, Note)]
    assert len(notes) == len(words)
    assert all(word in note for word, note in zip(words, notes, strict=True))


def test_memory_that_is_refused_is_said_in_words(tiny: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny(epochs=2)
    real, steps = Algorithm.step, []

    def refused(*args: Any, **options: Any) -> Any:
        steps.append(1)
        if len(steps) == 4:
            torch.empty(1 << 60)
        return real(*args, **options)

    monkeypatch.setattr(Algorithm, "step", refused)
    with pytest.raises(OutOfMemory, match="not enough memory for the training: lower the width or the batch size"):
        train(config)
    folder = RunFolder(config.run_dir)
    assert folder.status == "failed"
    assert checkpoints.load(folder.checkpoint).progress.epoch == 1
    assert train(saved_config(folder.path)).epochs == 2
    with pytest.raises(UserError, match="width"):
        train(tiny("wide", width=1e6))
    assert not (folder.path.parent / "wide").exists()


def test_default_folders_do_not_collide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for suffix in ("", "-2", "-3"):
        path = default_run_dir(TrainConfig(seed=7))
        assert str(path) == f"runs/digits-vgg5-pc+s+f-7{suffix}"
        path.mkdir(parents=True)


def test_what_is_differentiated_twice_is_not_compiled(tiny: MakeConfig) -> None:
    with pytest.raises(ConfigError, match=r"--compile does not go with tp, .*: leave it out"):
        build_parts(tiny(compile=True, algorithm="tp"))
