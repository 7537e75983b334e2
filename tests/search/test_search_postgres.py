"""The same search on a real PostgreSQL server, where one is installed: a private one, in a temporary folder."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deeppc.search import ledger, storage, workers
from deeppc.search import plan as plans
from deeppc.search.plan import Plan
from deeppc.search.records import trials_of
from deeppc.search.study import search
from deeppc.training import RunError

MakePlan = Callable[..., Plan]


def _program(name: str) -> str | None:
    """In the PATH, or where Debian puts it."""
    places = [os.environ.get("PATH", ""), *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))]
    return shutil.which(name, path=os.pathsep.join(places))


def _unprivileged() -> list[str]:
    """PostgreSQL refuses to run as root: what to put before a command to be someone else."""
    if os.geteuid() != 0:
        return []
    for user in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(user)
        except KeyError:
            continue
        if setpriv := shutil.which("setpriv"):
            return [setpriv, f"--reuid={found.pw_uid}", f"--regid={found.pw_gid}", "--clear-groups"]
    pytest.skip("PostgreSQL does not run as root, and there is no other user to run it as")


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
    plan = tiny("on-postgres", trials=3, storage=server)
    session = storage.create(plan)
    with ledger.Worker(plan.folder) as worker:  # one that dies in its first trial
        ledger.claim(session, worker)
        lock = worker.lock.with_name("dead.lock")
        lock.touch()
        number = session.trials()[0].number
        trial_id = session.storage.get_trial_id_from_study_id_trial_number(session.study_id, number)
        owner = session.trials()[0].user_attrs[ledger.OWNER]
        session.storage.set_trial_user_attr(trial_id, ledger.OWNER, {**owner, "lock": str(lock)})
    result = search(plan)
    assert [t.state for t in result.trials] == ["lost", "complete", "complete", "complete"]
    assert not (plan.folder / "study.db").exists()
    again = trials_of(storage.open_study(plans.read(plan.folder)))  # the URL was kept
    assert again == result.trials


def test_same_trials_as_on_sqlite(server: str, tiny: MakePlan) -> None:
    there = search(tiny("there", trials=2, storage=server)).trials
    here = search(tiny("here", trials=2)).trials
    assert [(t.params, t.value) for t in there] == [(t.params, t.value) for t in here]


def test_two_machines_share_a_study(server: str, tiny: MakePlan, tmp_path: Path) -> None:
    """Two folders of the same name, as on two machines: one study, whose slots are taken once."""
    one = storage.create(tiny("one/shared", trials=4, storage=server))
    other = storage.create(tiny("other/shared", trials=4, storage=server))
    with ledger.Worker(one.plan.folder) as here, ledger.Worker(other.plan.folder) as there:
        claims = [ledger.claim(*who) for who in ((one, here), (other, there), (one, here), (other, there), (one, here))]
    assert [c.slot for c in claims if c is not None] == [0, 1, 2, 3]


def test_a_worker_on_a_server(server: str, tiny: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told the URL on its standard input, which stays open."""
    plan = tiny("worker", trials=2, storage=server)
    storage.create(plan)
    read, write = os.pipe()
    with os.fdopen(read) as stdin, os.fdopen(write, "w") as told:
        told.write(f"{server}\n")
        told.flush()
        monkeypatch.setattr("sys.stdin", stdin)
        assert workers.main(plan.folder) == 0
        told.close()
    assert [t.state for t in trials_of(storage.open_study(plan))] == ["complete"] * 2


def test_a_server_that_is_away(tiny: MakePlan, tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="the driver psycopg is not installed")
    with pytest.raises(RunError, match=r"The storage postgresql\+psycopg://.* cannot be used"):
        storage.create(tiny(storage=f"postgresql+psycopg://me:secret@/name?host={tmp_path}"))
