"""Data sets of one's own, from folders, .npz files and tensors: what fits comes back exactly, the rest says why not."""

import io
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from deeppc.data import Batches, DataError, dataset, from_tensors, load, names
from deeppc.data.registry import DATASETS


def picture(seed: int, shape=(6, 5, 3)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def write(path, content: np.ndarray | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else png(content))


@pytest.fixture
def flowers(tmp_path):
    """Two classes: 3 training images and 2 test images of each, of 6x5 pixels."""
    for label, name in enumerate(("daisy", "rose")):
        for i in range(5):
            write(tmp_path / "flowers" / ("train" if i < 3 else "test") / name / f"{i}.png", picture(10 * label + i))
    return tmp_path / "flowers"


@pytest.mark.parametrize("test", ["test", "val"])
def test_a_folder_of_class_folders(flowers, test):
    (flowers / "test").rename(flowers / test)
    got = load(str(flowers))
    assert (got.name, got.classes, got.in_shape, got.outputs) == ("flowers", ("daisy", "rose"), (3, 6, 5), 2)
    assert got.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert got.test.labels.tolist() == [0, 0, 1, 1]
    train = np.stack([picture(seed) for seed in (0, 1, 2, 10, 11, 12)]).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(got.train.images, train)
    np.testing.assert_array_equal(got.test.images[3], picture(14).transpose(2, 0, 1))
    np.testing.assert_allclose(got.mean, train.mean((0, 2, 3)) / 255, rtol=1e-12)
    np.testing.assert_allclose(got.std, train.std((0, 2, 3)) / 255, rtol=1e-12)
    assert (got.padding, got.flip, got.complete) == (0, False, True)
    assert str(got) == "flowers: 6 training and 4 test images of 3x6x5, 2 classes"


def test_the_folder_is_left_alone_and_read_anew_when_it_changes(flowers, own_cache):
    before = sorted(flowers.rglob("*"))
    load(flowers)
    assert sorted(flowers.rglob("*")) == before
    assert len(list(own_cache.rglob("*.safetensors"))) == 1
    write(flowers / "train" / "rose" / "9.png", picture(9))
    assert load(flowers).train.labels.tolist() == [0, 0, 0, 1, 1, 1, 1]


def test_without_a_test_folder_one_in_five_is_taken_and_said(tmp_path):
    for i in range(20):
        write(tmp_path / "b" / f"class{i % 2}" / f"{i:02}.png", picture(i, (4, 4)))
    first, again = load(tmp_path / "b"), load(tmp_path / "b")
    assert (len(first.train), first.test.labels.tolist()) == (16, [0, 0, 1, 1])
    assert torch.equal(first.test.images, again.test.images)
    both = {image.numpy().tobytes() for split in (first.train, first.test) for image in split.images}
    assert both == {picture(i, (4, 4)).tobytes() for i in range(20)}
    assert "16 training and 4 test images of 1x4x4" in str(first)
    assert "no test set: one sample in five was taken" in str(first)


def test_one_image_in_colour_makes_all_rgb(flowers):
    grey = picture(0, (6, 5))
    write(flowers / "train" / "daisy" / "0.png", grey)
    np.testing.assert_array_equal(load(flowers).train.images[0], np.stack([grey] * 3))


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("test/rose/4.png", picture(0, (6, 6, 3)), r"has another size than .*daisy/0\.png, 5x6: resize"),
        ("train/rose/0.png", np.zeros((6, 5), np.uint16), "is an image of mode I;16: convert it to 8 bits"),
        ("train/rose/0.png", b"GIF89a", "is not a readable image"),
        ("train/rose/0.png", png(picture(0))[:-40], "is not a readable image"),
        ("train/tulip/read.me", b"", r"train/tulip has no images: expected files such as \.png"),
        ("test/tulip/0.png", picture(0), "test/tulip is a class that .*train does not have"),
    ],
)
def test_a_folder_that_does_not_fit(flowers, file, content, expected):
    write(flowers / file, content)
    with pytest.raises(DataError, match=expected):
        load(flowers)


def test_folders_that_cannot_be_divided(tmp_path):
    with pytest.raises(DataError, match="has no folders with images: expected one for each class"):
        load(tmp_path)
    for i in range(5):
        write(tmp_path / ("few" if i == 0 else "many") / f"{i}.png", picture(i))
    with pytest.raises(DataError, match="no test set, and a class of one sample"):
        load(tmp_path)


@pytest.mark.parametrize("path", ["no/such/folder", "nothing.npz"])
def test_a_path_that_is_not_there(path):
    with pytest.raises(DataError, match=f"There is no folder or file {path}"):
        load(path)


# ---- .npz ----

X, Y = picture(0, (6, 5, 4, 3)), np.array([0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (X, X.transpose(0, 3, 1, 2)),
        (X.transpose(0, 3, 1, 2), X.transpose(0, 3, 1, 2)),
        (X[..., 0], X[:, None, :, :, 0]),
        (X[..., :1], X[:, None, :, :, 0]),
        (X / 7, np.float32(X / 7)),
    ],
    ids=["NHWC", "NCHW", "NHW", "NHW1", "floats"],
)
def test_an_npz_with_train_and_test(tmp_path, x, expected):
    values = (x, Y[:, None], x[:3], Y[:3].astype(np.uint8))
    for named in ("x_train y_train x_test y_test", "train_images train_labels test_images test_labels"):
        np.savez(tmp_path / "mine.npz", classes=["a", "b", "c"], **dict(zip(named.split(), values, strict=True)))
        got = load(tmp_path / "mine.npz")
        np.testing.assert_array_equal(got.train.images, expected)
        np.testing.assert_array_equal(got.test.images, expected[:3])
        assert (got.train.labels.tolist(), got.test.labels.tolist()) == (Y.tolist(), Y[:3].tolist())
        assert got.train.labels.dtype == torch.int64
        assert got.classes == ("a", "b", "c")


@pytest.mark.parametrize("named", ["x y", "images labels", "x_train y_train"])
def test_an_npz_without_a_test_set_is_divided(tmp_path, named):
    np.savez(tmp_path / "mine.npz", **dict(zip(named.split(), (np.concatenate([X] * 5), np.tile(Y, 5)), strict=True)))
    got = load(tmp_path / "mine.npz")
    assert got.test.labels.bincount().tolist() == [2, 2, 2]
    assert got.train.labels.bincount().tolist() == [8, 8, 8]
    assert got.classes == ("0", "1", "2")
    assert "no test set" in str(got)


@pytest.mark.parametrize(("targets", "outputs"), [((), 1), ((2,), 2), ((2, 3), 6)])
def test_float_targets(tmp_path, targets, outputs):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "regression.npz", x=rng.normal(size=(20, 7)), y=rng.normal(size=(20, *targets)))
    got = load(tmp_path / "regression.npz")
    assert (got.in_shape, got.outputs, got.classes) == ((7,), outputs, ())
    assert got.train.labels.shape == (16, *(targets or (1,)))
    assert got.train.labels.dtype == got.train.images.dtype == torch.float32
    assert "16 training and 4 test samples of 7, targets of" in str(got)


WHOLE = {"x_train": X, "y_train": Y, "x_test": X, "y_test": Y}


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({}, "holds nothing: expected x_train"),
        ({"x_train": X, "labels": Y}, "holds x_train, labels: expected x_train, y_train, x_test, y_test"),
        ({"x": X.astype(int), "y": Y}, r"x is int64 of .* but must be floats, or uint8 images"),
        ({"x": X[:, 0, 0], "y": Y}, r"x is uint8 of \(6, 3\), but must be"),
        ({"x": picture(0, (6, 5, 4, 2)), "y": Y}, r"x is uint8 of \(6, 5, 4, 2\), but .* 1 or 3"),
        ({"x": X, "y": np.array(list("abcabc"))}, "y is <U1, but must be integer labels"),
        ({"x": X[:3], "y": Y[:3]}, "a class of one sample"),
        ({"x": np.array([{}, []], dtype=object), "y": Y[:2]}, "npz file of plain arrays"),  # never unpickled
        (WHOLE | {"x_train": np.full((6, 3), np.nan)}, "train inputs or labels have values that are not finite"),
        (WHOLE | {"y_train": Y[:5]}, "6 train inputs, but 5 labels"),
        (WHOLE | {"x_test": X[:, :4]}, "Training and test samples of bad do not match"),
        (WHOLE | {"y_test": Y + 1}, "a test label 3 where only 0 to 2 exist"),
        (WHOLE | {"y_train": Y - 1}, "a train label -1 where only 0 to 1"),
        (WHOLE | {"classes": ["a"]}, "a train label 1 where only 0 to 0"),
        (WHOLE | {"classes": "ab"}, "classes has 0 dimensions, but must be a list of names"),
        (WHOLE | {"x_train": np.full((6, 3), 1e300)}, "train inputs or labels have values that are not finite"),
        (WHOLE | {"y_train": Y * 10**9}, "a train label 2000000000: expected classes numbered from 0"),
        ({"x": X, "y": Y[:5]}, "6 train inputs, but 5 labels"),
        ({"x": np.float32(3), "y": Y[0]}, r"inputs have the shape \(\), their labels \(\): expected samples"),
        ({"x": np.zeros((6, 0)), "y": Y}, r"inputs have the shape \(6, 0\)"),
        (WHOLE | {"y_train": np.eye(6, dtype=int)}, "integers of .* expected one for each"),
    ],
)
def test_an_npz_that_does_not_fit(tmp_path, arrays, expected):
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(DataError, match=expected):
        load(tmp_path / "bad.npz")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"nonsense"])
def test_a_file_that_is_no_npz(tmp_path, content):
    (tmp_path / "bad.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"bad\.npz is not an \.npz file, or it is damaged"):
        load(tmp_path / "bad.npz")


def test_an_array_that_claims_more_than_there_is_memory(tmp_path):
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (100000000000, 1000), }".ljust(117) + "\n"
    with zipfile.ZipFile(tmp_path / "bad.npz", "w") as file:
        file.writestr("x.npy", b"\x93NUMPY\x01\x00v\x00" + header.encode())
    with pytest.raises(DataError, match=r"bad\.npz does not fit into memory, or it is damaged"):
        load(tmp_path / "bad.npz")


def test_a_link_to_nowhere_is_an_image_that_cannot_be_read(flowers):
    (flowers / "train/rose/9.png").symlink_to("nowhere")
    with pytest.raises(DataError, match=r"rose/9\.png is not a readable image"):
        load(flowers)


def test_an_image_that_is_too_large(flowers, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 29)  # of 30; Pillow itself only warns up to twice as many
    with pytest.raises(DataError, match=r"daisy/0\.png is too large an image: resize it"):
        load(flowers)


# ---- tensors, and names of one's own ----


def test_batches_of_plain_tensors_are_addressed_like_all_others():
    x, y = torch.randn(20, 7), torch.randn(20, 3)
    made = from_tensors((x, y), (x[:5], y[:5]), name="noise")
    batches = Batches(made.train, made, batch_size=8, seed=3)
    whole = list(batches.epoch(2))
    got, targets = torch.cat([a for a, _ in whole]), torch.cat([b for _, b in whole])
    assert not torch.equal(got, x), "shuffled"
    for row, target in zip(got, targets, strict=True):  # as they were, each with its own target
        (i,) = (x == row).all(1).nonzero()[0].tolist()
        assert torch.equal(target, y[i])
    for again, first in zip(Batches(made.train, made, batch_size=8, seed=3).epoch(2, start=1), whole[1:], strict=True):
        assert torch.equal(again[0], first[0])


def test_a_constant_channel_stays_finite():
    x, y = torch.full((4, 1, 2, 2), 7, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])
    made = from_tensors((x, y), (x, y))
    ((images, _),) = Batches(made.train, made).epoch(0)
    assert images.abs().max() < 1e-6


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (torch.zeros(4, 3, dtype=torch.uint8), torch.zeros(4), r"expected uint8 images \(N, C, H, W\)"),
        (torch.zeros(4, 3, dtype=torch.int16), torch.zeros(4), r"torch.int16 of .* floats, or token numbers \(int64\)"),
        (torch.zeros(0, 3), torch.zeros(0), r"train inputs have the shape \(0, 3\)"),
    ],
)
def test_tensors_that_do_not_fit(x, y, expected):
    with pytest.raises(DataError, match=expected):
        from_tensors((x, y), (x, y))


def test_a_name_of_ones_own(monkeypatch):
    monkeypatch.setattr("deeppc.data.registry.DATASETS", table := dict(DATASETS))
    x, y = torch.zeros(2, 3), torch.zeros(2, 1)
    dataset("mine")(lambda data_dir, labels: from_tensors((x, y), (x, y), name=f"{data_dir} {labels}"))
    assert load("mine", "here").name == "here fine"
    assert names()[-1] == "mine" == list(table)[-1]


def test_an_npz_whose_compression_is_unknown(tmp_path):
    """Bytes 8 and 9 of a member's head, and 10 and 11 of its entry in the zip's directory, name the method."""
    path = tmp_path / "mine.npz"
    np.savez(path, x=np.zeros((2, 4)), y=np.zeros(2, int))
    data = bytearray(path.read_bytes())
    for mark, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        data[data.index(mark) + place] = 16
    path.write_bytes(data)
    with pytest.raises(DataError, match="file of plain arrays"):
        load(str(path))
