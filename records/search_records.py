"""Keep what a search found, or go on with what was kept: the trials of a search as one small file.

    python records/search_records.py keep FOLDER ... [to WHERE]    # writes WHERE/NAME.json; WHERE: records/searches
    python records/search_records.py restore NAME.json FOLDER      # then: deeppc search --resume --run-dir FOLDER

A kept search has its study (settings and space) and every trial that ended. A restored one has the same trials under
the same numbers, so that ``deeppc search`` runs only those that are missing and ``deeppc search preset`` finds
the best.
"""

import dataclasses
import json
import sys
from datetime import timedelta
from pathlib import Path

from deeppc.files import write_text
from deeppc.search import space as spaces
from deeppc.search.plan import STUDY, Plan, task_name
from deeppc.search.storage import create, read_study
from deeppc.search.trials import ENDED, LOST, REASON
from deeppc.training.config import from_table, meaningful

HERE = Path(__file__).parent / "searches"


def keep(folder: Path, to: Path = HERE) -> Path:
    study = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    plan, trials = read_study(folder)
    known = {key: study[key] for key in ("format", "trials", "config", "space", "pruner")}
    known["config"].pop("data_dir", None)  # a place on one machine
    ended = [dataclasses.asdict(trial) for trial in trials if trial.state in ENDED]
    path = to / f"{task_name(plan.config)}.json"
    write_text(path, json.dumps({"study": known, "trials": ended}, indent=1) + "\n")
    return path


def restore(path: Path, folder: Path) -> Plan:
    from optuna.trial import TrialState, create_trial

    content = json.loads(path.read_text(encoding="utf-8"))
    study = content["study"]
    config = from_table({**meaningful(study["config"]), "run_dir": folder}, str(path))
    space = spaces.rebuild(config, study["space"], str(path))
    plan = Plan(folder, space, study["trials"], study["pruner"])
    known = {dimension.name: dimension.distribution() for dimension in space.dimensions}
    states = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
    if (folder / STUDY).exists():
        sys.exit(f"{folder} holds a search already: choose another folder.")
    with create(plan) as session:
        for trial in content["trials"]:
            for _ in range(len(session.trials()), trial["number"]):  # lost ones, whose numbers stay taken
                session.study.add_trial(create_trial(state=TrialState.FAIL, user_attrs={LOST: "not kept"}))
            frozen = create_trial(
                state=states[trial["state"]],
                value=trial["value"] if trial["state"] == "complete" else None,
                params=trial["params"],
                distributions={name: known[name] for name in trial["params"]},
                user_attrs={REASON: trial["reason"]} if trial["reason"] else {},
                intermediate_values={int(epoch): value for epoch, value in trial["epochs"].items()},
            )
            if trial["seconds"] is not None and frozen.datetime_complete is not None:
                frozen.datetime_start = frozen.datetime_complete - timedelta(seconds=trial["seconds"])
            session.study.add_trial(frozen)
    return plan


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["keep", *folders, "to", where] if folders:
            for name in folders:
                print(keep(Path(name), Path(where)))
        case ["keep", *folders] if folders:
            for name in folders:
                print(keep(Path(name)))
        case ["restore", name, folder]:
            print(restore(Path(name), Path(folder)).resume_command)
        case _:
            sys.exit(__doc__)
