"""The same search on a real PostgreSQL server, where one is installed: a private one, in a temporary folder."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deeppc.errors import RunError
from deeppc.search import plan as plans
from deeppc.search import storage
from deeppc.search.plan import Plan
from deeppc.search.study import search

MakePlan = Callable[..., Plan]
pytestmark = pytest.mark.outside


def _program(name: str) -> str | None:
    """In the PATH, or where Debian puts it."""
    places = [os.environ.get("PATH", ""), *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))]
    return shutil.which(name, path=os.pathsep.join(places))


def _unprivileged() -> list[str]:
    """PostgreSQL refuses to run as root: what to put before a command to be someone else."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("PostgreSQL does not run as root, and setpriv is not there to run it as another user")
    nobody = pwd.getpwnam("nobody")
    return [setpriv, f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of a database on a server of our own, which listens on a socket in its folder only."""
    pytest.importorskip("psycopg", reason="the driver psycopg is not installed")
    initdb, pg_ctl = _program("initdb"), _program("pg_ctl")
    if initdb is None or pg_ctl is None:
        pytest.skip("PostgreSQL (initdb, pg_ctl) is not installed")
    as_someone = _unprivileged()
    with tempfile.TemporaryDirectory(prefix="pg") as name:  # a socket's path must be short
        folder = Path(name)
        folder.chmod(0o777)
        data = folder / "data"

        def run(*words: str) -> None:
            done = subprocess.run([*as_someone, *words], capture_output=True, text=True, cwd=name, check=False)
            assert done.returncode == 0, done.stdout + done.stderr

        run(initdb, "-D", str(data), "-U", "searcher", "--auth=trust", "--no-sync", "-E", "UTF8")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        run(pg_ctl, "-D", str(data), "-l", str(folder / "log"), "-o", options, "-w", "start")
        try:
            yield f"postgresql+psycopg://searcher@/postgres?host={folder}"
        finally:
            run(pg_ctl, "-D", str(data), "-m", "immediate", "stop")


def test_search_kill_and_resume(server: str, tiny: MakePlan) -> None:
    plan = tiny("on-postgres", trials=3, jobs=2, storage=server)
    with storage.create(plan) as session:  # of a worker that dies in its first trial
        trial_id = session.storage.create_new_trial(session.study._study_id)
        session.storage.set_trial_user_attr(trial_id, storage.OWNER, f"{storage.place(plan)}0#")
    result = search(plan)
    assert [t.state for t in result.trials] == ["lost", "complete", "complete", "complete"]
    assert not (plan.folder / "study.db").exists()
    with storage.open_study(plans.read(plan.folder)) as session:  # the URL was kept
        assert session.trials() == result.trials


def test_a_server_that_is_away(tiny: MakePlan, tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="the driver psycopg is not installed")
    with pytest.raises(RunError, match=r"The storage postgresql\+psycopg://.* cannot be used"):
        storage.create(tiny(storage=f"postgresql+psycopg://me:secret@/name?host={tmp_path}"))


HOST = "import platform, sys; platform.node = lambda: {!r}; from deeppc.cli.main import main; sys.exit(main())"


@pytest.mark.slow
def test_two_hosts_share_a_search(server: str, tmp_path: Path) -> None:
    """The same command on two machines, each with a folder of its own: together they end six trials, and agree."""
    words = ["search", "--model", "mlp", "--width", "0.05", "--limit", "60", "--batch-size", "24", "--epochs", "2"]
    words += ["--device", "cpu", "--trials", "6", "--pruner", "none", "--storage", server, "--run-dir", "shared"]
    hosts = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        command = [sys.executable, "-c", HOST.format(name), *words]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        hosts.append(subprocess.Popen(command, cwd=tmp_path / name, env=environment, stdout=subprocess.DEVNULL))
    assert [host.wait(timeout=300) for host in hosts] == [0, 0]
    folders = [tmp_path / name / "shared" for name in ("one", "two")]
    with storage.open_study(plans.read(folders[0], server)) as session:
        trials = session.trials()
    assert sum(trial.state == "complete" for trial in trials) == 6
    assert {trial.state for trial in trials} <= {"complete", "lost"}
    kept = [sorted(path.name for path in (folder / "trials").iterdir()) for folder in folders]
    complete = sorted(f"{trial.number:04}" for trial in trials if trial.state == "complete")
    assert sorted(kept[0] + kept[1]) == complete, "each was trained on one of them"
    assert (folders[0] / "best.toml").read_text() == (folders[1] / "best.toml").read_text()
