"""The loop: honest selection, exact evaluation, interruption and resumption, divergence, unusable folders."""

from __future__ import annotations

import dataclasses
import json
import signal
import threading
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from deeppc.data import Batches, load
from deeppc.models import build
from deeppc.runs.folder import RunFolder
from deeppc.training import ConfigError, DivergedError, Interrupted, RunError, TrainConfig, train
from deeppc.training import checkpoint as checkpoints
from deeppc.training.builder import build as build_parts
from deeppc.training.builder import default_run_dir, saved_config
from deeppc.training.config import replace
from deeppc.training.events import BatchDone, Ended, EpochDone, Event, Finished, Note, Started
from deeppc.training.fit import choose_device
from deeppc.training.schedule import learning_rate
from deeppc.training.scores import evaluate

MakeConfig = Callable[..., TrainConfig]
Same = Callable[[Path, Path], None]
StopAfter = Callable[..., Callable[[Event], None]]


def lines(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (run_dir / "metrics.jsonl").read_text().splitlines()]


def timeless(run_dir: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines(run_dir)]


def status(run_dir: Path) -> str:
    return str(json.loads((run_dir / "manifest.json").read_text())["status"])


# --- what a run is -------------------------------------------------------------------------------------------------


def test_a_run_writes_its_folder_and_tells_what_happens(tiny: MakeConfig) -> None:
    events: list[Event] = []
    result = train(tiny(), events.append)
    kinds = [type(e) for e in events]
    assert kinds[0] is Started
    assert events[0].settings == json.loads((result.run_dir / "manifest.json").read_text())["config"]
    assert kinds[-2:] == [Finished, Ended]
    assert kinds.count(BatchDone) == 9
    assert kinds.count(EpochDone) == 3

    assert [line["epoch"] for line in lines(result.run_dir)] == [1, 2, 3]
    assert [line["step"] for line in lines(result.run_dir)] == [3, 6, 9]
    last = lines(result.run_dir)[-1]
    assert list(last["energy"]) == list(build_parts(tiny()).net.nodes)
    assert all(value > 0 for value in last["energy"].values())
    assert last["lr_w"] == learning_rate(1e-3, 8, 9)  # of the last step taken

    manifest = json.loads((result.run_dir / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    assert manifest["seed"] == 0
    assert {"torch", "deeppc", "python"} <= manifest["versions"].keys()
    assert {"host", "threads", "device"} <= manifest["machine"].keys()
    assert json.loads((result.run_dir / "result.json").read_text()) == result.table()
    best = max(lines(result.run_dir), key=lambda line: line["validation_accuracy"])  # the first of equals
    assert (result.selected_epoch, result.validation_accuracy) == (best["epoch"], best["validation_accuracy"])


def test_the_result_is_that_of_the_best_weights_on_the_whole_test_set(tiny: MakeConfig) -> None:
    config = tiny()
    result = train(config)
    dataset = load("digits")
    net = build("mlp", classes=10, in_shape=dataset.in_shape, width=0.05)
    net.load_state_dict(load_file(result.run_dir / "best.safetensors"))
    batches = Batches(dataset.test, dataset, batch_size=len(dataset.test), augment=False, shuffle=False)
    (images, labels), *rest = batches.epoch(0)
    assert not rest
    correct = sum(int(net(image[None]).argmax()) == int(label) for image, label in zip(images, labels, strict=True))
    assert result.test_accuracy == correct / len(dataset.test)


def test_same_seed_same_run_other_seed_other_run(tiny: MakeConfig, assert_same_state: Same) -> None:
    one, two, three = train(tiny("1")), train(tiny("2")), train(tiny("3", seed=1))
    assert_same_state(one.run_dir, two.run_dir)
    assert timeless(one.run_dir) == timeless(two.run_dir)
    assert timeless(one.run_dir) != timeless(three.run_dir)


def test_selection_on_the_test_set_holds_nothing_out_and_says_so(tiny: MakeConfig) -> None:
    started: list[Started] = []
    result = train(
        tiny(select="test", limit=None, epochs=2), lambda e: started.append(e) if isinstance(e, Started) else None
    )
    assert started[0].samples == len(load("digits").train)
    found = lines(result.run_dir)
    assert [line["validation_accuracy"] for line in found] == [None, None]
    assert result.test_accuracy == max(line["test_accuracy"] for line in found)
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


def test_bf16_trains(tiny: MakeConfig) -> None:
    result = train(tiny(precision="bf16", epochs=1))
    assert {t.dtype for t in load_file(result.run_dir / "best.safetensors").values()} == {torch.float32}


def test_compile_takes_every_node(tiny: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda f: compiled.append(f) or f)
    parts = build_parts(tiny(compile=True))
    assert len(compiled) == len(parts.net.nodes)


def test_device_that_is_not_there() -> None:
    assert choose_device("cpu").type == "cpu"
    assert choose_device("auto").type in ("cpu", "cuda", "mps")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="no cuda device"):
            choose_device("cuda")


# --- evaluation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [7, 100, 359])  # 359 test images: a last batch of 2, of 59, and none
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


def test_fewer_than_five_classes_have_a_top_five_too() -> None:
    dataset = load("digits")
    few = dataclasses.replace(dataset, classes=("0", "1", "2"))
    split = dataclasses.replace(dataset.test, labels=dataset.test.labels % 3)
    net = build("mlp", classes=3, in_shape=dataset.in_shape, width=0.1)
    assert evaluate(net, Batches(split, few, augment=False, shuffle=False))["top5"] == 1.0


# --- interruption and resumption -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "batches", "number"),  # nudging draws random numbers, ipc leaves nodes unreached
    [("pc+s+f+cn", 1, signal.SIGINT), ("ipc+s", 4, signal.SIGTERM), ("pc+s+f+cn", 5, signal.SIGINT)],
)
def test_interrupted_and_resumed_is_never_interrupted(
    tiny: MakeConfig, assert_same_state: Same, batches: int, number: int, algorithm: str, stop_after: StopAfter
) -> None:
    straight, broken = tiny("straight", algorithm=algorithm), tiny("broken", algorithm=algorithm)
    train(straight)
    with pytest.raises(Interrupted, match="deeppc train --resume --run-dir") as stopped:
        train(broken, stop_after(batches, number))
    assert stopped.value.exit_code == 128 + number
    assert broken.run_dir is not None
    assert status(broken.run_dir) == "interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    torch.manual_seed(99)  # what went on in between does not matter
    result = train(saved_config(broken.run_dir))
    assert straight.run_dir is not None
    assert_same_state(straight.run_dir, result.run_dir)
    assert timeless(straight.run_dir) == timeless(result.run_dir)
    assert status(result.run_dir) == "finished"


def test_batch_norm_and_its_running_statistics_resume_too(
    tiny: MakeConfig, assert_same_state: Same, stop_after: StopAfter
) -> None:
    options = {"model": "vgg5", "width": 0.02, "norm": "bf", "epochs": 2}
    straight = train(tiny("straight", **options))
    with pytest.raises(Interrupted):
        train(tiny("broken", **options), stop_after(2))
    assert_same_state(straight.run_dir, train(saved_config(straight.run_dir.parent / "broken")).run_dir)


def test_interrupted_during_evaluation_loses_no_batch(
    tiny: MakeConfig, assert_same_state: Same, monkeypatch: pytest.MonkeyPatch, stop_after: StopAfter
) -> None:
    straight = train(tiny("straight"))
    with pytest.raises(Interrupted, match="in epoch 1, after 3 of 3 batches"):
        train(tiny("broken"), stop_after(3))  # the signal is seen only when the validation images are
    resumed: list[Started] = []
    config = saved_config(straight.run_dir.parent / "broken")
    result = train(config, lambda e: resumed.append(e) if isinstance(e, Started) else None)
    assert (resumed[0].epoch, resumed[0].batch) == (0, 3)
    assert_same_state(straight.run_dir, result.run_dir)


def test_training_works_in_a_thread_where_no_signal_arrives(tiny: MakeConfig) -> None:
    results = []
    thread = threading.Thread(target=lambda: results.append(train(tiny(epochs=1))))
    thread.start()
    thread.join()
    assert results[0].epochs == 1


def test_a_finished_run_says_so_and_is_left_alone(tiny: MakeConfig) -> None:
    result = train(tiny())
    before = {p.name: p.read_bytes() for p in result.run_dir.iterdir()}
    notes: list[Event] = []
    assert train(saved_config(result.run_dir), notes.append) == result
    assert isinstance(notes[0], Note)
    assert "is finished" in notes[0].text
    assert {p.name: p.read_bytes() for p in result.run_dir.iterdir()} == before


def test_more_epochs_after_the_end_of_the_schedule(tiny: MakeConfig, assert_same_state: Same) -> None:
    straight = train(tiny("straight", epochs=4, schedule_epochs=2))
    short = train(tiny("short", epochs=3, schedule_epochs=2))
    longer = train(replace(saved_config(short.run_dir), epochs=4))
    assert longer.epochs == 4
    assert_same_state(straight.run_dir, longer.run_dir)
    assert saved_config(longer.run_dir).epochs == 4


def test_resuming_with_other_settings_is_refused(tiny: MakeConfig) -> None:
    result = train(tiny(epochs=1))
    with pytest.raises(ConfigError, match=r"--lr-w is 0\.5"):
        train(replace(saved_config(result.run_dir), lr_w=0.5))


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
        train(tiny(), stop_after(2))
    run_dir = tiny().run_dir
    assert run_dir is not None
    manifest = json.loads((run_dir / "manifest.json").read_text())
    before = torch.get_num_threads()
    manifest["machine"]["threads"] = before + 1
    (run_dir / "manifest.json").write_text(json.dumps(manifest))
    notes: list[Event] = []
    try:
        train(saved_config(run_dir), notes.append)
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)
    assert isinstance(notes[0], Note)


def test_metrics_that_the_checkpoint_does_not_know_are_cut(
    tiny: MakeConfig, assert_same_state: Same, stop_after: StopAfter
) -> None:
    straight = train(tiny("straight"))
    with pytest.raises(Interrupted):
        train(tiny("broken"), stop_after(4))
    broken = straight.run_dir.parent / "broken"
    with (broken / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 2, "energy": {"hid')  # torn by a kill
    train(saved_config(broken))
    assert timeless(straight.run_dir) == timeless(broken)


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


def test_divergence_names_step_node_and_advice_and_keeps_the_last_good_checkpoint(
    tiny: MakeConfig, poison: Callable[[], None], stop_after: StopAfter
) -> None:
    config = tiny(algorithm="pc", T=8, lr_x=0.1)
    with pytest.raises(Interrupted):
        train(config, stop_after(4))
    assert config.run_dir is not None
    good = (config.run_dir / "checkpoint.safetensors").read_bytes()
    with pytest.raises(DivergedError, match=r"diverged at step 5: .* Lower --lr-x") as error:
        train(saved_config(config.run_dir), lambda e: poison() if isinstance(e, Started) else None)
    assert error.value.exit_code == 3
    assert status(config.run_dir) == "diverged"
    assert (config.run_dir / "checkpoint.safetensors").read_bytes() == good
    assert train(saved_config(config.run_dir)).epochs == 3  # and it can go on from there


def test_a_hot_learning_rate_explodes(tiny: MakeConfig) -> None:
    with pytest.raises(DivergedError, match=r"Lower --lr-x \(now 100"):
        train(tiny(lr_x=100.0))


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"algorithm": "bp", "lr_w": 1e30}, r"Lower --lr-w \(now 1e\+30\)\. The last"),
        ({"precision_on": "node", "lr_x": 100.0}, "or choose --precision-on energy"),
        ({"depth_gain": True, "lr_w": 1e30}, "or leave out --depth-gain"),
    ],
)
def test_advice_fits_the_settings(tiny: MakeConfig, options: dict[str, Any], advice: str) -> None:
    with pytest.raises(DivergedError, match=advice):
        train(tiny(**options))


def test_weights_that_are_not_finite_are_never_saved(tiny: MakeConfig, poison: Callable[[], None]) -> None:
    def after_the_last_batch(event: Event) -> None:
        if isinstance(event, BatchDone) and event.batch == 3:
            poison()  # the energy of that batch was fine

    with pytest.raises(DivergedError):
        train(tiny(), after_the_last_batch)
    run_dir = tiny().run_dir
    assert run_dir is not None
    for tensor in checkpoints.load(run_dir / "checkpoint.safetensors").part("weights.").values():
        assert tensor.isfinite().all()


def test_bad_settings_are_refused_before_anything_is_written(tiny: MakeConfig) -> None:
    with pytest.raises(ConfigError, match="unknown model"):
        train(tiny(model="vgg6"))
    run_dir = tiny().run_dir
    assert run_dir is not None
    assert not run_dir.exists()


def test_a_folder_that_cannot_be_made(tiny: MakeConfig, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"cannot be written: .* Choose another with --run-dir"):
        train(tiny("file/run"))


def test_a_full_disk_is_found_before_training(tiny: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(10, 9, 1))
    with pytest.raises(RunError, match=r"has 0.0 MB free, but checkpoints of this network want .* MB"):
        train(tiny(), lambda event: pytest.fail(f"told {event}"))


def test_a_disk_that_fills_up_later_keeps_the_last_checkpoint(
    tiny: MakeConfig, monkeypatch: pytest.MonkeyPatch, assert_same_state: Same
) -> None:
    straight = train(tiny("straight"))
    real, writes = Path.write_bytes, []

    def full(path: Path, data: bytes) -> int:
        writes.append(path)
        if len(writes) >= 4:
            real(path, data[:100])
            raise OSError(28, "No space left on device")
        return real(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(RunError, match="could not be written: No space left on device"):
        train(tiny("broken"))
    monkeypatch.undo()
    broken = straight.run_dir.parent / "broken"
    assert status(broken) == "failed"
    train(saved_config(broken))
    assert_same_state(straight.run_dir, broken)


def test_a_folder_with_a_run_is_not_used_again(tiny: MakeConfig) -> None:
    train(tiny(epochs=1))
    with pytest.raises(RunError, match="already holds a run: resume it with --resume"):
        train(tiny(epochs=1))


def test_a_folder_in_use_is_not_shared(tiny: MakeConfig) -> None:
    run_dir = tiny().run_dir
    assert run_dir is not None
    with RunFolder(run_dir).held(), pytest.raises(RunError, match="Another process is training"):
        train(tiny())


def test_damaged_files_are_named(tiny: MakeConfig, stop_after: StopAfter) -> None:
    with pytest.raises(Interrupted):
        train(tiny(), stop_after(2))
    run_dir = tiny().run_dir
    assert run_dir is not None
    whole = (run_dir / "checkpoint.safetensors").read_bytes()
    (run_dir / "checkpoint.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RunError, match=r"The checkpoint .* cannot be read"):
        train(saved_config(run_dir))
    other = checkpoints.load(train(tiny("other", seed=1, epochs=1)).run_dir / "checkpoint.safetensors")
    assert other.progress.epoch == 1
    (run_dir / "checkpoint.safetensors").write_bytes((run_dir.parent / "other" / "checkpoint.safetensors").read_bytes())
    with pytest.raises(RunError, match="of another run"):
        train(saved_config(run_dir))
    for text in ("{", "[]", "{}"):
        (run_dir / "manifest.json").write_text(text)
        with pytest.raises(RunError, match="is damaged"):
            saved_config(run_dir)


def test_default_folders_do_not_collide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = []
    for _ in range(3):
        path = default_run_dir(TrainConfig(seed=7))
        path.mkdir(parents=True)
        names.append(str(path))
    assert names == [f"runs/digits-vgg5-pc+s+f-7{suffix}" for suffix in ("", "-2", "-3")]
