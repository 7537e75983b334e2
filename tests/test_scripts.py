"""Shell scripts and the container file, by their linters; and the commands in them are ones that deeppc has."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deeppc.cli.main import COMMANDS
from deeppc.training.config import FIELDS

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = [ROOT / ".ci" / "run", *sorted((ROOT / "examples" / "slurm").glob("*.sh"))]
CONTAINER = ROOT / "examples" / "container" / "Dockerfile"


def program(name: str) -> str:
    """Where pip puts it, beside this Python."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    assert found, f"{name} is not installed: make install"
    return found


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script: Path) -> None:
    done = subprocess.run([program("shellcheck"), str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_hadolint_finds_nothing() -> None:
    done = subprocess.run([program("hadolint"), str(CONTAINER)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("script", SCRIPTS[1:], ids=lambda path: path.name)
def test_commands_and_flags_are_deeppc_s(script: Path) -> None:
    text = script.read_text()
    (command,) = re.findall(r"deeppc (train|paper run) ", text.replace("deeppc train.", "").partition("exec ")[2])
    flags = re.findall(r"--([a-z-]+)", text.partition("exec ")[2].partition(f"deeppc {command}")[2])
    known = FIELDS if command == "train" else COMMANDS[command].__dataclass_fields__
    assert flags
    assert {flag.replace("-", "_") for flag in flags} <= set(known)


def test_what_the_container_file_copies_is_there() -> None:
    text = CONTAINER.read_text()
    for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists()
    (pinned,) = re.findall(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert f"TORCH_VERSION={pinned}\n" in text
