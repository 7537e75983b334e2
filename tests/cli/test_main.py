"""Around every command: words for whatever it raises, arguments that nothing can mean, and output that fails."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from deeppc.cli import tools
from deeppc.cli.main import main
from deeppc.errors import DataError
from deeppc.runs.folder import RunFolder

TINY = ["--model", "mlp", "--width", "0.05", "--limit", "60", "--batch-size", "24", "--epochs", "2", "--device", "cpu"]
NETWORK = ["show", "resnet10", "--width", "0.1"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# --- exceptions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (DataError("No such data."), 2, "error: No such data.\n"),
        (OSError(errno.EACCES, "Permission denied", "there"), 2, "error: there: Permission denied.\n"),
        (OSError("no device"), 2, "error: no device.\n"),
        (KeyboardInterrupt(), 130, "Interrupted.\n"),
        (
            ValueError("a bug."),
            70,
            "error: deeppc failed where it should not have: ValueError: a bug. Please report it; DEEPPC_TRACEBACK=1 "
            "shows where.\n",
        ),
    ],
)
def test_whatever_a_command_raises_is_said_in_a_line(
    error: BaseException, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(self: tools.Show, given: Any) -> None:
        raise error

    monkeypatch.setattr(tools.Show, "run", failing)
    assert main(["show", "vgg5"]) == code
    assert capsys.readouterr().err == words
    monkeypatch.setenv("DEEPPC_TRACEBACK", "1")
    assert main(["show", "vgg5"]) == code
    assert ("Traceback" in capsys.readouterr().err) == isinstance(error, Exception)


# --- arguments that nothing can mean -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["train", "--run-dir", ""], "--run-dir is empty: give it a value, or leave it out."),
        (["train", "--run-dir= "], "--run-dir is empty: give it a value, or leave it out."),
        (["bench", "--models", ""], "--models is empty"),
        (["bench", "--models", ","], "--models is empty"),
        (["paper", "run", "", "--seeds="], "An argument is empty"),
        (["paper", "run", "gap", "--seeds", ", ,"], "--seeds is empty"),
        (["compare", "--algorithms", ","], "--algorithms is empty"),
        (["search", "--space", ""], "--space is empty"),
        (["train", "--run-dir", "a\0b"], "--run-dir is 'a\\x00b': write it without NUL, and in UTF-8."),
        (["train", "--run-dir=\udcff"], "--run-dir is '\\udcff': write it without NUL, and in UTF-8."),
    ],
)
def test_empty_or_impossible_arguments_are_refused(
    args: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(args) == 2
    assert f"error: {words}" in capsys.readouterr().err
    assert not list(Path().iterdir())


# --- output that fails ---------------------------------------------------------------------------------------------


def closed_pipe() -> io.TextIOWrapper:
    reader, writer = os.pipe()
    os.close(reader)
    return open(writer, "w", encoding="utf-8")


def full_device() -> io.TextIOWrapper:
    return open("/dev/full", "w", encoding="utf-8")


@pytest.mark.parametrize("flags", [[], ["--json"]])
@pytest.mark.parametrize(
    ("stream", "code", "words"),
    [
        (closed_pipe, 141, ""),
        (full_device, 2, "error: the output could not be written: No space left on device.\n"),
        (lambda: None, 0, ""),  # a process that was begun without an output
    ],
)
def test_training_goes_on_without_its_output(
    stream: Any,
    code: int,
    words: str,
    flags: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    reports: Any,
) -> None:
    output = stream()
    monkeypatch.setattr(sys, "stdout", output)
    assert main(["train", *TINY, *flags, "--run-dir", "r"]) == code
    assert capsys.readouterr().err == words
    assert RunFolder("r").status == "finished"
    assert len(RunFolder("r").metrics()) == 2
    if output is not None:
        output.close()  # complains no more


@pytest.mark.parametrize("args", [["--help"], NETWORK, ["presets"], ["completion", "bash"]])
def test_every_command_bears_output_that_fails(args: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with full_device() as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert main(args) == 2
    with closed_pipe() as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert main(args) == 141


def test_an_error_keeps_its_code_where_stderr_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with full_device() as output:
        monkeypatch.setattr(sys, "stderr", output)
        assert main(["show", "vgg6"]) == 2


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("args", [NETWORK, ["compare", *TINY, "--epochs", "1", "--seeds", "0,1"], ["train", "--help"]])
def test_characters_that_the_output_does_not_have_are_replaced(
    args: list[str], encoding: str, monkeypatch: pytest.MonkeyPatch, reports: Any
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    assert main(args) == 0
    assert len(written.getvalue().decode(encoding)) > 100


# --- Ctrl-C at any moment ------------------------------------------------------------------------------------------


INTERRUPT = """
import os, runpy, signal, sys

class AtImport:
    def find_spec(self, name, *rest):
        if name == sys.argv[-1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, AtImport())
runpy.run_module("deeppc", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["deeppc.cli.main", "tyro", "torch"])
def test_ctrl_c_at_the_import_of_a_module(module: str) -> None:
    command = [sys.executable, "-c", INTERRUPT, "train", "--model", module]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.02, 0.15, 0.5, 1.0, 1.5, 2.0, 3.0])
def test_ctrl_c_while_modules_are_imported(delay: float) -> None:
    code = "import sys; from deeppc.__main__ import main; print('up', flush=True); sys.exit(main())"
    process = subprocess.Popen([sys.executable, "-c", code, "train", "--epochs", "1000"], stdout=-1, stderr=-1)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert b"Traceback" not in err
    assert b"Interrupted." in err or b"Resume with" in err
