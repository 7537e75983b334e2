"""Use the wheel as somebody does who ran ``pip install deeppc``: python tests/installed.py dist

In an empty environment, with deeppc's files from the wheel and beside them nothing but what it says it depends on: no
extras, no source tree. These dependencies are links to those that this Python has, so that nothing is downloaded.
Run by ``make dist``; it ends with an error at the first thing that is missing.
"""

import os
import re
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("optuna", "tensorboard", "torchvision")


def dependencies(name: str) -> set[str]:
    """The names of all that a distribution needs without its extras, and of what that needs."""
    found: set[str] = set()
    rest = [Requirement(name)]
    while rest:
        wanted = rest.pop()
        key = f"{wanted.name}[{','.join(sorted(wanted.extras))}]"
        if key in found:
            continue
        found.add(key)
        for line in distribution(wanted.name).requires or ():
            need = Requirement(line)
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras)):
                rest.append(need)
    return {key.partition("[")[0] for key in found} - {name}


def link(name: str, site: Path) -> None:
    """Link the packages of an installed distribution into a folder of packages."""
    installed = distribution(name)
    for top in {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}:
        target = site / top
        if not target.exists():
            target.symlink_to(Path(str(installed.locate_file(top))))


def check_wheel(wheel: Path) -> None:
    """Every file of the package is in the wheel, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = (path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    source = {path.relative_to(ROOT / "src").as_posix() for path in package}
    assert packed == source, f"in one only: {sorted(packed ^ source)}"


def main(folder: Path) -> None:
    (wheel,) = folder.glob("*.whl")
    (archive,) = folder.glob("*.tar.gz")
    (version,) = re.findall(r'^__version__ = "(.+)"$', (ROOT / "src/deeppc/__init__.py").read_text(), re.MULTILINE)
    assert wheel.name.startswith(f"deeppc-{version}-")
    assert archive.name == f"deeppc-{version}.tar.gz"
    check_wheel(wheel)
    with TemporaryDirectory() as scratch:
        use(wheel.resolve(), version, Path(scratch))
    print(f"deeppc {version} works from its wheel")


def use(wheel: Path, version: str, scratch: Path) -> None:
    home = scratch / "environment"
    venv.create(home, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    for name in dependencies("deeppc"):
        link(name, site)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def run(*command: str, code: int = 0) -> str:
        done = subprocess.run(
            command, cwd=scratch, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert done.returncode == code, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    python, deeppc = str(home / "bin" / "python"), str(home / "bin" / "deeppc")
    quiet = ["--quiet", "--disable-pip-version-check"]
    run(sys.executable, "-m", "pip", "--python", python, *quiet, "install", "--no-index", str(wheel))

    where = run(python, "-c", "import deeppc, deeppc.core.graph as core; print(deeppc.__file__); print(core.__file__)")
    assert all(Path(line).is_relative_to(site) for line in where.split()), where
    assert run(deeppc, "--version").split()[-1] == version
    for name in EXTRAS:
        run(python, "-c", f"import {name}", code=1)

    tiny = ["--model", "mlp", "--width", "0.05", "--limit", "60", "--batch-size", "24", "--epochs", "1"]
    run(deeppc, "train", *tiny, "--run-dir", "run")
    assert "</html>" in (scratch / "run" / "report.html").read_text(encoding="utf-8")
    assert "vgg5" in run(deeppc, "show", "vgg5").lower()
    assert "cifar10-vgg5-bf-pc+s+f" in run(deeppc, "presets")
    assert "accuracy" in run(deeppc, "paper", "list")
    said = run(deeppc, "search", *tiny, "--trials", "1", code=2)
    assert "pip install 'deeppc[search]'" in said
    assert "Traceback" not in said
    said = run(deeppc, "train", *tiny, "--run-dir", "second", "--tensorboard", code=2)
    assert "pip install 'deeppc[tensorboard]'" in said


if __name__ == "__main__":
    main(Path(sys.argv[1]))
