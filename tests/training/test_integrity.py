"""Files that are damaged, missing, mixed up or of another version: refused in words, and nothing is changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from deeppc import files
from deeppc.errors import ConfigError, Interrupted, RunError
from deeppc.runs.folder import RunFolder
from deeppc.training import TrainConfig, train
from deeppc.training.builder import build, saved_config
from deeppc.training.compare import compare
from deeppc.training.config import replace
from deeppc.training.events import Event, Note

MakeConfig = Callable[..., TrainConfig]
StopAfter = Callable[..., Callable[[Event], None]]
Same = Callable[[Path, Path], None]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def stopped(tiny: MakeConfig, stop_after: StopAfter) -> RunFolder:
    """A run that was interrupted in its second epoch."""
    with pytest.raises(Interrupted):
        train(tiny(), stop_after(4))
    return RunFolder(tiny().run_dir)


def flip(path: Path, where: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(where * len(data))] ^= 1
    path.write_bytes(data)


def future(path: Path) -> None:
    path.write_text(path.read_text().replace('"format": 2', '"format": 3'))


DAMAGES: dict[str, tuple[Callable[[RunFolder], Any], str]] = {
    "a flipped bit of a weight": (
        lambda f: flip(f.checkpoint, 0.99),
        "checkpoint.safetensors is damaged: its checksum",
    ),
    "a checkpoint cut short": (
        lambda f: f.checkpoint.write_bytes(f.checkpoint.read_bytes()[:999]),
        "is damaged: .* copy",
    ),
    "no checkpoint": (lambda f: f.checkpoint.unlink(), r"is missing: .*best.safetensors with --weights"),
    "an empty checkpoint": (lambda f: f.checkpoint.write_bytes(b""), "it is cut short"),
    "weights for a checkpoint": (lambda f: shutil.copy(f.best, f.checkpoint), r"is no checkpoint .*with --weights"),
    "another setting": (lambda f: flip(f.manifest_path), "is damaged"),
    "a manifest of the future": (lambda f: future(f.manifest_path), "was written by a newer deeppc .* update deeppc"),
    "no manifest": (lambda f: f.manifest_path.unlink(), "but no manifest.json: put it back from a copy"),
    "a manifest without a seal": (lambda f: f.manifest_path.write_text("{}"), "has no checksum"),
    "no JSON": (lambda f: f.manifest_path.write_text("{"), "it is no JSON"),
    "deep JSON": (lambda f: f.manifest_path.write_text("[" * 99999), "it is no JSON"),
    "no table": (lambda f: f.manifest_path.write_text("[]"), "it holds no table"),
    "no metrics": (lambda f: f.metrics_path.unlink(), "metrics.jsonl is missing: put it back"),
    "empty metrics": (lambda f: f.metrics_path.write_text(""), "has 0 epochs instead of 1"),
    "garbled metrics": (lambda f: f.metrics_path.write_text("rubbish\n"), "line 1: it is no JSON"),
    "metrics that are not UTF-8": (lambda f: f.metrics_path.write_bytes(b"\xff\xfe\n"), "it is not UTF-8"),
    "another number in the metrics": (lambda f: flip(f.metrics_path, 0.3), "metrics.jsonl is damaged"),
    "metrics of another run": (
        lambda f: files.write_lines(f.metrics_path, [{**f.metrics()[0], "seconds": 9.0}]),
        "are not all of one run",
    ),
    "epochs out of order": (lambda f: files.write_lines(f.metrics_path, 2 * f.metrics()), "line 2 is of epoch 1"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_not_resumed_and_not_touched(stopped: RunFolder, damage: str) -> None:
    spoil, words = DAMAGES[damage]
    spoil(stopped)
    before = contents(stopped.path)
    with pytest.raises(RunError, match=words):
        train(saved_config(stopped.path))
    assert contents(stopped.path) == before


def test_what_is_left_of_a_run_is_no_place_for_another(stopped: RunFolder, tiny: MakeConfig) -> None:
    stopped.manifest_path.unlink()
    with pytest.raises(RunError, match=r"holds checkpoint.safetensors, .* or choose another folder"):
        train(tiny())


def test_a_run_that_ended_before_its_first_checkpoint_begins_anew(
    tiny: MakeConfig, monkeypatch: pytest.MonkeyPatch, assert_same_state: Same
) -> None:
    def full(*args: Any, **options: Any) -> None:
        raise RunError("the disk is full")

    monkeypatch.setattr("deeppc.training.checkpoint.save", full)
    with pytest.raises(RunError, match="the disk is full"):
        train(tiny(epochs=1))
    monkeypatch.undo()
    folder = RunFolder(tiny().run_dir)
    assert (folder.status, folder.checkpoint.exists()) == ("starting", False)
    train(saved_config(folder.path), report=False)
    assert_same_state(train(tiny("straight", epochs=1)).run_dir, folder.path)


def test_damaged_best_weights_are_written_again_from_the_checkpoint(stopped: RunFolder) -> None:
    whole = files.read_tensors(stopped.best)[0]
    flip(stopped.best, 0.99)
    with pytest.raises(RunError, match="is damaged"):
        stopped.best_weights()
    train(saved_config(stopped.path))
    assert stopped.best_weights().keys() == whole.keys()


def test_the_result_of_another_run_is_noticed(tiny: MakeConfig) -> None:
    one, two = (RunFolder(train(tiny(str(seed), seed=seed, epochs=1)).run_dir) for seed in (0, 1))
    shutil.copy(two.result_path, one.result_path)
    with pytest.raises(RunError, match="not all of one run"):
        train(saved_config(one.path))
    shutil.copy(two.best, one.best)
    with pytest.raises(RunError, match="is of another run"):
        one.best_weights()


@pytest.mark.parametrize("name", ["result.json", "metrics.jsonl"])
def test_a_comparison_with_a_damaged_run_stays_as_it_is(tiny: MakeConfig, name: str) -> None:
    config = tiny("many", epochs=1)
    compare(config, ["bp"], [0, 1])
    flip(config.run_dir / "bp-1" / name, 0.3)
    before = contents(config.run_dir)
    with pytest.raises(RunError, match="is damaged"):
        compare(replace(config, resume=True), ["bp"], [0, 1])
    assert contents(config.run_dir) == before


def test_a_comparison_that_cannot_begin_leaves_nothing(tiny: MakeConfig) -> None:
    config = tiny("many", dataset="nowhere")
    with pytest.raises(Exception, match="nowhere"):
        compare(config, ["bp"], [0])
    assert not config.run_dir.exists()


# --- the files themselves --------------------------------------------------------------------------------------------


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    table = {"ü": [1, 2.5, None], "1": {"x": float("inf")}, "odd": "\udcff"}
    files.write_json(tmp_path / "a.json", {**table, 7: (1, 2)})  # type: ignore[dict-item]
    assert files.read_json(tmp_path / "a.json") == {**table, "7": [1, 2]}
    keys = list(json.loads((tmp_path / "a.json").read_text()))
    assert (keys[0], keys[-1]) == ("format", "sha256")
    files.append_line(tmp_path / "b.jsonl", {"epoch": 1})
    files.append_line(tmp_path / "b.jsonl", {"epoch": 2})
    with (tmp_path / "b.jsonl").open("a") as file:
        file.write('{"epoch": 3')  # what a kill leaves
    assert files.read_lines(tmp_path / "b.jsonl") == [{"epoch": 1}, {"epoch": 2}]
    files.write_tensors(tmp_path / "c.safetensors", {"x": torch.ones(2, 3).bfloat16()}, {"epoch": "1"})
    tensors, header = files.read_tensors(tmp_path / "c.safetensors")
    assert torch.equal(tensors["x"], torch.ones(2, 3).bfloat16())
    assert header == {"epoch": "1"}


def test_tied_weights_are_kept_under_both_names(tmp_path: Path) -> None:
    both = torch.arange(4.0)
    files.write_tensors(tmp_path / "t.safetensors", {"a": both, "b": both, "c": both[2:]}, {})
    found, _ = files.read_tensors(tmp_path / "t.safetensors")
    assert {name: value.tolist() for name, value in found.items()} == {
        "a": [0, 1, 2, 3],
        "b": [0, 1, 2, 3],
        "c": [2, 3],
    }


def test_a_panic_of_safetensors_is_memory_that_was_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panic(*_: object, **__: object) -> None:
        raise PanicException("PyObject pointer is null")

    path = tmp_path / "t.safetensors"
    files.write_tensors(path, {"x": torch.arange(3.0)}, {})
    before = contents(tmp_path)
    monkeypatch.setattr("safetensors.torch.load", panic)
    with pytest.raises(MemoryError):
        files.read_tensors(path)
    assert contents(tmp_path) == before


def test_numbers_that_no_file_can_hold_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot hold odd \(torch.complex128\): .* another type"):
        files.write_tensors(tmp_path / "t.safetensors", {"odd": torch.ones(2, dtype=torch.complex128)}, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", sorted(files.DTYPES.values()))
def test_safetensors_itself_reads_tensors_of_every_type(tmp_path: Path, dtype: str) -> None:
    from safetensors.torch import load_file

    ints = torch.arange(12) if dtype.startswith(("uint", "bool")) else torch.arange(-3, 9)
    grid = ints.to(getattr(torch, dtype)).view(3, 4)
    kept = {"z": grid, "a": grid.T, "one": grid[0, 1], "none": grid[:0], "wide": torch.ones(3, dtype=torch.float64)}
    files.write_tensors(tmp_path / "t.safetensors", kept, {"epoch": "1"})
    for found in (load_file(tmp_path / "t.safetensors"), files.read_tensors(tmp_path / "t.safetensors")[0]):
        assert {name: (x.dtype, x.shape) for name, x in found.items()} == {
            name: (x.dtype, x.shape) for name, x in kept.items()
        }
        assert all(torch.equal(x.to(torch.complex128), kept[name].to(torch.complex128)) for name, x in found.items())


def test_every_flipped_byte_of_tensors_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    files.write_tensors(path, {"x": torch.arange(3.0)}, {"epoch": "1"})
    whole, (before, _) = path.read_bytes(), files.read_tensors(path)
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            after, header = files.read_tensors(path)
        except RunError:
            continue
        assert (before.keys(), header) == (after.keys(), {"epoch": "1"})  # a space of the header that became another
        assert torch.equal(before["x"], after["x"])


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), MemoryError()])
def test_a_write_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    path, lines = tmp_path / "a.json", tmp_path / "b.jsonl"
    files.write_json(path, {"x": 1})
    files.append_line(lines, {"epoch": 1})
    real, before = files._put, contents(tmp_path)

    def fail(path: Path, mode: str, parts: Any) -> None:
        real(path, mode, [bytes(part)[:5] for part in parts])
        raise error

    monkeypatch.setattr(files, "_put", fail)
    for write in (lambda: files.write_json(path, {"x": 2}), lambda: files.append_line(lines, {"epoch": 2})):
        with pytest.raises(RunError if isinstance(error, OSError) else type(error)):
            write()
        assert contents(tmp_path) == before


# --- starting from weights -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["best", "checkpoint", "torch", "foreign"])
def test_a_run_starts_from_given_weights(tiny: MakeConfig, tmp_path: Path, kind: str) -> None:
    from safetensors.torch import save_file

    folder = RunFolder(train(tiny("first", epochs=1)).run_dir)
    weights = folder.best_weights()
    path = {"best": folder.best, "checkpoint": folder.checkpoint}.get(kind, tmp_path / f"w.{kind}")
    if kind == "torch":
        torch.save(weights, path)
    elif kind == "foreign":
        path = tmp_path / "w.safetensors"
        save_file(weights, path)
    net = build(tiny(weights=path)).net
    assert all(torch.equal(value, weights[name]) for name, value in net.state_dict().items())


def test_weights_are_known_by_what_they_are(tiny: MakeConfig, tmp_path: Path, stop_after: StopAfter) -> None:
    first = RunFolder(train(tiny("first", epochs=1)).run_dir)
    moved = tmp_path / "moved.safetensors"
    shutil.copy(first.best, moved)
    with pytest.raises(Interrupted):
        train(tiny("second", weights=first.best), stop_after(2))
    config = saved_config(tmp_path / "second")
    with pytest.raises(ConfigError, match=r"--weights is .*, but this run was begun with"):
        train(replace(config, weights=first.checkpoint))
    first.best.unlink()
    train(replace(config, weights=moved))  # the same, elsewhere
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        train(replace(config, run_dir=tmp_path / "third", resume=False))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            {"nodes.hidden1.linear.weight": torch.ones(2)},
            r"does not fit the network: 'nodes.hidden1.* is \(2,\), .*network's",
        ),
        ([1, 2], "holds list: save the weights by torch.save"),
        (b"rubbish", "holds no weights that are safe to load"),
        (None, "cannot be read: No such file"),
    ],
)
def test_weights_that_are_none_are_refused(tiny: MakeConfig, tmp_path: Path, content: Any, words: str) -> None:
    path = tmp_path / "w.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(ConfigError, match=words):
        train(tiny(weights=path))
    assert not tiny().run_dir.exists()


# --- more epochs -----------------------------------------------------------------------------------------------------


def test_a_finished_run_gets_more_epochs_under_the_schedule_it_was_begun_with(
    tiny: MakeConfig, assert_same_state: Same
) -> None:
    short = train(tiny("short", epochs=2)).run_dir
    notes: list[Event] = []
    longer = train(replace(saved_config(short), epochs=4), notes.append)
    assert longer.epochs == 4
    assert any(isinstance(n, Note) and "falls over 2 epochs, and then stays at its tenth" in n.text for n in notes)
    assert_same_state(train(tiny("straight", epochs=4, schedule_epochs=2)).run_dir, short)
    with pytest.raises(ConfigError, match="fall over another number of epochs"):
        train(replace(saved_config(short), epochs=5, schedule_epochs=4))


def test_an_earlier_checkpoint_of_a_finished_run_comes_to_the_same_bits(
    tiny: MakeConfig, assert_same_state: Same
) -> None:
    one, two = (RunFolder(train(tiny(name, epochs=1, schedule_epochs=1)).run_dir) for name in ("one", "two"))
    earlier = one.checkpoint.read_bytes()
    for folder in (one, two):
        train(replace(saved_config(folder.path), epochs=2))
    one.checkpoint.write_bytes(earlier)
    for folder in (one, two):
        train(replace(saved_config(folder.path), epochs=3))
    assert_same_state(one.path, two.path)


def test_patience_can_be_raised(tiny: MakeConfig, assert_same_state: Same) -> None:
    options = {"lr_w": 1e-12, "epochs": 6}  # nothing is learnt: the first epoch stays the best
    run_dir = train(tiny(patience=2, **options)).run_dir
    assert train(replace(saved_config(run_dir), patience=4)).epochs == 5
    assert_same_state(train(tiny("straight", patience=4, **options)).run_dir, run_dir)
