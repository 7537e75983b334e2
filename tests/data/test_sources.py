"""The official layouts, from archive and folder: what is whole loads exactly, what is not says so."""

import pickle
import tarfile
import warnings

import numpy as np
import pytest
from official import in_archive, jpeg_of, write_folder, write_tar, write_zip

from deeppc.data import DataError, load

CIFAR10, CIFAR100, TINY = "cifar-10-batches-py", "cifar-100-python", "tiny-imagenet-200"


def unpickled(data: bytes) -> dict:
    """By Python's own unpickler: the files are ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy.core of old files
        return pickle.loads(data, encoding="bytes")


def naive_images(*batches: bytes) -> np.ndarray:
    """Channel by channel, image by image, as the data set's web page describes a row."""
    images = []
    for batch in batches:
        for row in unpickled(batch)[b"data"]:
            red, green, blue = row[:1024], row[1024:2048], row[2048:]
            images.append([channel.reshape(32, 32) for channel in (red, green, blue)])
    return np.array(images)


@pytest.fixture(params=["archive", "folder", "archive with ./"])
def install(request, tmp_path):
    """Puts files into a data folder in each of the forms that people have them in."""

    def put(root: str, archive: str, files: dict[str, bytes]):
        if request.param == "folder":
            write_folder(tmp_path / root, files)
        else:
            prefix = "./" if request.param.endswith("./") else ""
            write = write_zip if archive.endswith(".zip") else write_tar
            write(tmp_path / archive, in_archive(prefix + root, files))
        return tmp_path

    return put


def test_cifar10(install, cifar10_files):
    dataset = load("cifar10", install(CIFAR10, "cifar-10-python.tar.gz", cifar10_files))
    train = [cifar10_files[f"data_batch_{i}"] for i in range(1, 6)]
    np.testing.assert_array_equal(dataset.train.images.numpy(), naive_images(*train))
    np.testing.assert_array_equal(dataset.test.images.numpy(), naive_images(cifar10_files["test_batch"]))
    assert dataset.train.labels.tolist() == [i % 10 for i in range(20)] * 5
    assert dataset.test.labels.tolist() == [i % 10 for i in range(20)]
    assert dataset.classes == tuple(f"class {i}" for i in range(10))
    assert dataset.in_shape == (3, 32, 32)
    assert (dataset.mean, dataset.std) == ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
    assert (dataset.padding, dataset.flip) == (4, True)
    assert not dataset.complete
    assert "100 training and 20 test images" in str(dataset)
    assert "a sample: the official set has 50,000 and 10,000" in str(dataset)


def test_cifar100_has_two_kinds_of_labels(install, cifar100_files):
    data_dir = install(CIFAR100, "cifar-100-python.tar.gz", cifar100_files)
    fine, coarse = load("cifar100", data_dir), load("cifar100", data_dir, labels="coarse")
    np.testing.assert_array_equal(fine.train.images.numpy(), naive_images(cifar100_files["train"]))
    np.testing.assert_array_equal(fine.test.images.numpy(), naive_images(cifar100_files["test"]))
    assert fine.train.labels.tolist() == [i % 100 for i in range(200)]
    assert coarse.test.labels.tolist() == [i % 100 // 5 for i in range(200)]
    assert fine.classes[7] == "fine 7"
    assert coarse.classes[7] == "coarse 7"
    assert (len(fine.classes), len(coarse.classes)) == (100, 20)


def test_tiny_imagenet(install, tiny_files):
    dataset = load("tiny-imagenet", install(TINY, "tiny-imagenet-200.zip", tiny_files))
    assert dataset.in_shape == (3, 64, 64)
    assert dataset.classes == ("Egyptian cat", "reel", "volleyball")
    assert dataset.train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert dataset.test.labels.tolist() == [0, 0, 1, 1, 2, 2]
    for split, tones in ((dataset.train, (0, 10, 20)), (dataset.test, (30, 40))):
        expected = np.array([40 * label + tone for label in range(3) for tone in tones])
        worst = np.abs(split.images.numpy().astype(int) - expected[:, None, None, None]).max()
        assert worst <= 2, "JPEG keeps a single tone to within a step or two, greyscale or not"


# What is damaged, what the error must name. Each edit is made to a good set's files.


def edited(**changes):
    """A pickle with some of its keys changed; None removes one."""

    def edit(pickled: bytes) -> bytes:
        content = {key.decode(): value for key, value in unpickled(pickled).items()} | changes
        return pickle.dumps({key.encode(): value for key, value in content.items() if value is not None}, protocol=2)

    return edit


@pytest.mark.parametrize(
    ("name", "edit", "expected"),
    [
        ("data_batch_3", edited(labels=[1] * 19), "data_batch_3 holds 20 images but 19 labels"),
        ("data_batch_2", edited(labels=[0] * 19 + [10]), "data_batch_2 has a label 10 where only 0 to 9 exist"),
        ("data_batch_2", edited(labels=[-1] + [0] * 19), "data_batch_2 has a label -1"),
        ("data_batch_2", edited(labels=["3"] * 20), "data_batch_2 has no list of integer labels"),
        ("test_batch", edited(labels=None), "test_batch has no list of integer labels 'labels'"),
        ("test_batch", edited(data=None), "test_batch has no images"),
        ("data_batch_5", edited(data=np.zeros((20, 3071), np.uint8)), "data_batch_5 has no images"),
        ("data_batch_5", edited(data=np.zeros((20, 3072), np.float32)), "an array of type 'f4', not of bytes"),
        ("data_batch_5", edited(data=np.zeros((19, 3072), np.uint8)), "data_batch_5 holds 19 images where 20"),
        ("batches.meta", edited(label_names=None), "batches.meta has no list of class names"),
        ("batches.meta", edited(label_names=[b"only", b"two"]), "data_batch_1 has a label 2"),
        ("batches.meta", lambda content: None, "batches.meta is missing"),
        ("data_batch_2", lambda content: content[:-1000], "data_batch_2 is damaged"),
        ("data_batch_1", lambda content: b"cos\nsystem\n(S'touch /'\ntR.", "is damaged or not a CIFAR file"),
    ],
)
def test_damage_in_cifar(cifar10_files, tmp_path, name, edit, expected):
    files = cifar10_files | {name: edit(cifar10_files[name])}
    write_folder(tmp_path / CIFAR10, {key: content for key, content in files.items() if content is not None})
    with pytest.raises(DataError) as caught:
        load("cifar10", tmp_path)
    for part in (expected, str(tmp_path / CIFAR10), "deeppc data fetch cifar10"):
        assert part in str(caught.value)


@pytest.fixture(params=["cifar10", "tiny-imagenet"])
def packed(request, cifar10_files, tiny_files, tmp_path):
    """A data set's name, and its archive."""
    if request.param == "cifar10":
        return "cifar10", write_tar(tmp_path / "cifar-10-python.tar.gz", in_archive(CIFAR10, cifar10_files))
    return "tiny-imagenet", write_zip(tmp_path / "tiny-imagenet-200.zip", in_archive(TINY, tiny_files))


@pytest.mark.parametrize("place", [0.0, 0.1, 0.6, 0.9999])
def test_an_archive_that_is_cut_short_or_altered(packed, place):
    name, path = packed
    whole = path.read_bytes()
    cut = int(len(whole) * place)
    # Random pixels are stored uncompressed, so that only a checksum can tell a flipped bit in them.
    flipped = whole[:cut] + bytes([whole[cut] ^ 1]) + whole[cut + 1 :]
    for damaged in (whole[:cut], *([flipped] if place == 0.6 else [])):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=f"{path.name} cannot be used"):
            load(name, path.parent)


def test_members_outside_the_folder_are_neither_read_nor_written(cifar10_files, tmp_path):
    """The good files come under names that lead out of the folder, or elsewhere: nothing of them counts."""
    hidden = cifar10_files.pop("data_batch_1")
    prefixes = (f"../{CIFAR10}", f"{CIFAR10}/..", f"/{CIFAR10}", f"elsewhere/{CIFAR10}")
    escaping = in_archive(CIFAR10, cifar10_files) | {f"{prefix}/data_batch_1": hidden for prefix in prefixes}
    data_dir = tmp_path / "inner" / "data"
    data_dir.mkdir(parents=True)
    write_tar(data_dir / "cifar-10-python.tar.gz", escaping)
    with pytest.raises(DataError, match="data_batch_1 is missing"):
        load("cifar10", data_dir)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["cifar-10-python.tar.gz"]


def test_links_in_an_archive_are_not_followed(cifar10_files, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(cifar10_files.pop("data_batch_1"))
    links = []
    for kind, target in ((tarfile.SYMTYPE, str(secret)), (tarfile.LNKTYPE, f"{CIFAR10}/data_batch_2")):
        link = tarfile.TarInfo(f"{CIFAR10}/data_batch_1")
        link.type, link.linkname = kind, target
        links.append(link)
    write_tar(tmp_path / "cifar-10-python.tar.gz", in_archive(CIFAR10, cifar10_files), links)
    with pytest.raises(DataError, match="data_batch_1 is missing"):
        load("cifar10", tmp_path)


def test_a_giant_member_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("deeppc.data.archives.LARGEST", 100)
    write_tar(tmp_path / "cifar-10-python.tar.gz", {f"{CIFAR10}/data_batch_1": bytes(101)})
    with pytest.raises(DataError, match="data_batch_1 claims 101 bytes"):
        load("cifar10", tmp_path)


FIRST, TABLE = "train/n02124075/images/n02124075_0.JPEG", "val/val_annotations.txt"
NOISE = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


@pytest.mark.parametrize(
    ("name", "edit", "expected"),
    [
        ("wnids.txt", lambda content: None, "wnids.txt is missing"),
        ("wnids.txt", lambda content: content + b"\nn00000000\n", "train/n00000000/images holds no images"),
        ("words.txt", lambda content: b"n02124075\tcat\n", "words.txt has no line for the class n04067472"),
        (TABLE, lambda content: None, f"{TABLE} is missing"),
        (TABLE, lambda content: b"\n", f"{TABLE} lists 0 images, but val/images holds 6"),
        (TABLE, lambda content: content + b"val_13.JPEG\tn02124075\n", "lists val/images/val_13.JPEG, which is"),
        (TABLE, lambda content: content + b"../../wnids.txt\tn02124075\n", "../../wnids.txt, which is missing"),
        (TABLE, lambda content: content + b"val_13.JPEG\tn99\n", "the class 'n99', which wnids.txt does not"),
        (TABLE, lambda content: content + b"nonsense\n", "gives nonsense the class ''"),
        ("val/images/val_13.JPEG", lambda content: None, "val/images/val_13.JPEG, which is missing"),
        ("val/images/val_77.JPEG", lambda content: b"", "lists 6 images, but val/images holds 7"),
        ("train/n99/images/n99_0.JPEG", lambda content: b"", "train/n99/images/n99_0.JPEG belongs to a class"),
        (FIRST, lambda content: None, f"{FIRST} is missing, though train/n02124075/n02124075_boxes.txt lists it"),
        (FIRST, lambda content: b"", f"{FIRST} is not a readable JPEG"),
        (FIRST, lambda content: PNG, f"{FIRST} is not a readable JPEG"),
        (FIRST, lambda content: jpeg_of(NOISE)[:-2000], f"{FIRST} is not a readable JPEG"),
        (FIRST, lambda content: jpeg_of(NOISE[:, :32]), f"{FIRST} is 32x64 where 64x64 is expected"),
    ],
)
def test_damage_in_tiny_imagenet(tiny_files, tmp_path, name, edit, expected):
    files = tiny_files | {name: edit(tiny_files.get(name))}
    write_folder(tmp_path / TINY, {key: content for key, content in files.items() if content is not None})
    with pytest.raises(DataError) as caught:
        load("tiny-imagenet", tmp_path)
    assert expected in str(caught.value)
    assert "deeppc data fetch tiny-imagenet" in str(caught.value)


def test_the_archive_is_preferred_to_a_folder_that_may_be_half_unpacked(cifar10_files, tmp_path):
    write_tar(tmp_path / "cifar-10-python.tar.gz", in_archive(CIFAR10, cifar10_files))
    write_folder(tmp_path / CIFAR10, {"batches.meta": b"half"})
    assert len(load("cifar10", tmp_path).train) == 100


def test_missing_data_say_where_and_how(tmp_path):
    with pytest.raises(DataError) as caught:
        load("cifar100", tmp_path)
    for part in ("cifar-100-python.tar.gz", "cifar-100-python.", str(tmp_path), "deeppc data fetch cifar100"):
        assert part in str(caught.value)


def test_names_and_labels_that_do_not_exist(cifar10_files, tmp_path):
    with pytest.raises(DataError, match=r"no data set, folder or file 'CIFAR-10': did you mean 'cifar10'\?"):
        load("CIFAR-10")
    with pytest.raises(DataError, match="'zzz': choose digits, mnist, fashion-mnist, cifar10, cifar100"):
        load("zzz")
    write_folder(tmp_path / CIFAR10, cifar10_files)
    for name in ("digits", "cifar10"):
        with pytest.raises(DataError, match=f"{name} has no labels 'coarse': choose fine"):
            load(name, tmp_path, labels="coarse")


# The real samples.


@pytest.mark.parametrize(
    ("name", "labels", "train", "test", "classes"),
    [
        ("cifar10", "fine", 5000, 1000, 10),
        ("cifar100", "coarse", 6000, 1500, 20),
        ("tiny-imagenet", "fine", 5000, 1000, 200),
    ],
)
def test_the_samples_are_balanced_and_whole(samples, name, labels, train, test, classes):
    dataset = load(name, samples, labels)
    assert (len(dataset.train), len(dataset.test), len(dataset.classes)) == (train, test, classes)
    for split in (dataset.train, dataset.test):
        counts = split.labels.bincount(minlength=classes)
        assert counts.unique().tolist() == [len(split) // classes]
        mean = split.images.float().mean((0, 2, 3)) / 255
        # The paper's means are those of the full sets; a balanced sample of natural images is near them.
        np.testing.assert_allclose(mean, dataset.mean, atol=0.02)
