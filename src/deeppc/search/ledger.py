"""Who works on which trial, so that every trial is accounted for, whoever is killed and whenever.

A search of N trials has N *slots*. A trial takes a free slot in the transaction that creates it, together with the name
of its worker. A slot is settled by a trial that is complete, pruned or diverged. If a worker dies, its trial is marked
as lost and the slot is free again: with the same seed, so that a search by one worker draws the same trials whether it
was killed or not.

A worker on this machine is alive while it holds the lock of its file, which the system takes back from the dead. One
elsewhere says so every half minute, and is given up after ten minutes of silence.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from deeppc.search import storage as storages
from deeppc.search.storage import Session

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

SLOT, OWNER, SEEN, REASON, LOST = "slot", "owner", "seen", "reason", "lost"  # attributes of a trial
BEAT, GRACE = 30.0, 600.0  # seconds between two signs of life, and without any


@dataclass(frozen=True)
class Claim:
    trial_id: int
    number: int
    slot: int


def _locks(folder: Path) -> Path:
    return folder.resolve() / "workers"


def forget_dead(folder: Path) -> None:
    """Remove the locks that nobody holds any more."""
    for lock in _locks(folder).glob("*.lock"):
        if _is_held(lock) is False:
            lock.unlink(missing_ok=True)


class Worker:
    """This process, while it works. Use it as a context: it holds a lock that tells others that it is alive."""

    def __init__(self, folder: Path) -> None:
        self.lock = _locks(folder) / f"{os.getpid()}-{uuid.uuid4().hex[:8]}.lock"
        self._held: IO[str] | None = None

    def __enter__(self) -> Worker:
        self.lock.parent.mkdir(exist_ok=True)
        self._held = self.lock.open("w")
        if sys.platform != "win32":
            fcntl.flock(self._held, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._held is not None
        self._held.close()
        self.lock.unlink(missing_ok=True)

    def attributes(self, slot: int) -> dict[str, Any]:
        owner = {"host": platform.node(), "pid": os.getpid(), "lock": str(self.lock)}
        return {SLOT: slot, OWNER: owner, SEEN: time.time()}

    @contextmanager
    def signs_of_life(self, session: Session, claim: Claim) -> Iterator[None]:
        """Within: those who cannot see our lock hear from us."""
        over = threading.Event()

        def tell() -> None:
            while not over.wait(BEAT):
                try:
                    session.storage.set_trial_user_attr(claim.trial_id, SEEN, time.time())
                except Exception:  # the storage is away: whoever reports the trial will find out, and say so
                    continue

        thread = threading.Thread(target=tell, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def claim(session: Session, worker: Worker) -> Claim | None:
    """A new trial for a free slot; None if all are settled or worked on. Marks the trials of the dead as lost."""
    plan, storage = session.plan, session.storage
    with storages.exclusively(plan.folder), storages.in_words(plan):
        bury(session)
        taken = {t.user_attrs.get(SLOT) for t in session.trials() if is_settled(t) or is_running(t)}
        slot = next((s for s in range(plan.trials) if s not in taken), None)
        if slot is None:
            return None
        trial_id = storage.create_new_trial(session.study_id, _running(worker.attributes(slot)))
        return Claim(trial_id, storage.get_trial_number_from_id(trial_id), slot)


def all_settled(session: Session) -> bool:
    settled = {t.user_attrs.get(SLOT) for t in session.trials() if is_settled(t)}
    return settled >= set(range(session.plan.trials))


def bury(session: Session) -> list[int]:
    """Mark the running trials of dead workers as lost. Returns their numbers."""
    dead = [t.number for t in session.trials() if is_running(t) and not _is_alive(t)]
    return [number for number in dead if lose(session, number, "its worker died")]


def lose(session: Session, number: int, why: str) -> bool:
    """Give a running trial up; its slot is free again. False if it had ended meanwhile."""
    from optuna.exceptions import UpdateFinishedTrialError
    from optuna.trial import TrialState

    trial_id = session.storage.get_trial_id_from_study_id_trial_number(session.study_id, number)
    try:
        session.storage.set_trial_user_attr(trial_id, LOST, why)
        return session.storage.set_trial_state_values(trial_id, TrialState.FAIL)
    except UpdateFinishedTrialError:
        return False


def is_running(trial: FrozenTrial) -> bool:
    return bool(trial.state.name == "RUNNING")


def is_settled(trial: FrozenTrial) -> bool:
    """Does it fill its slot? A failure does if it tells something about its settings."""
    if trial.state.name == "FAIL":
        return REASON in trial.user_attrs and LOST not in trial.user_attrs
    return trial.state.name in ("COMPLETE", "PRUNED")


def _is_alive(trial: FrozenTrial) -> bool:
    owner = trial.user_attrs.get(OWNER, {})
    held = _is_held(Path(owner["lock"])) if owner.get("host") == platform.node() else None
    if held is not None:
        return held
    return time.time() - float(trial.user_attrs.get(SEEN, 0.0)) < GRACE


def _is_held(lock: Path) -> bool | None:
    """Does a process hold this lock? None where that cannot be seen."""
    if sys.platform == "win32":
        return None
    try:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def _running(attributes: dict[str, Any]) -> FrozenTrial:
    """What a trial is born as: owned."""
    from datetime import datetime

    from optuna.trial import FrozenTrial, TrialState

    return FrozenTrial(
        number=-1,
        trial_id=-1,
        state=TrialState.RUNNING,
        value=None,
        datetime_start=datetime.now(),
        datetime_complete=None,
        params={},
        distributions={},
        user_attrs=attributes,
        system_attrs={},
        intermediate_values={},
    )
