"""A preset from a search: its best settings, with where they come from in the comment on top."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import tomli_w

import deeppc
from deeppc.core.algorithms import options_for
from deeppc.errors import RunError
from deeppc.models import described
from deeppc.report.tables import mean_and_deviation
from deeppc.runs.folder import ComparisonFolder
from deeppc.search.plan import Plan
from deeppc.search.space import TRAINING, taken
from deeppc.search.trials import Progress, Trial, budget, judged_by, score
from deeppc.training.config import TrainConfig
from deeppc.training.config import settings as known_settings

TASK = ("dataset", "model", "algorithm", "width")


def preset_of(plan: Plan, trials: Sequence[Trial]) -> tuple[TrainConfig, str]:
    """The best settings, and the text of a preset with them.

    It has the task, what was drawn, and what else is not as by default; how long and on how much to train is left out.
    """
    progress = Progress(plan, trials)
    if (best := progress.best) is None:
        raise RunError(f"No trial of the search in {plan.folder} is complete: there is no best one to keep.")
    config = best.config(plan.config)
    kept = {name: config.setting(name) for name in TASK if name != "width" or name in taken(config)}
    for name in ("labels", *TRAINING, *options_for(config.algorithm)):
        value = config.setting(name)
        if name in best.params or (value != known_settings()[name].default and name != "schedule_epochs"):
            kept[name] = "none" if value is None else value
    comment = "".join(f"# {line}\n" for line in _describe(progress, best))
    return config, f"{comment}\n{tomli_w.dumps(kept)}"


def _describe(progress: Progress, best: Trial) -> list[str]:
    """Study, trials, scale and score, in a few lines."""
    plan, c = progress.plan, progress.plan.config
    return [
        f"{c.algorithm} on {c.dataset}, {described(c.model, c.width)}.",
        f"Search {plan.name!r}: {progress.ended} trials by TPE with seed {c.seed}, {progress.summary()}.",
        f"Each had {budget(c)}, batches of {c.batch_size}.",
        f"The best is trial {best.number}. Its best epoch on {judged_by(c)}: {score(best.value)}.{_tested(plan)}",
        f"deeppc {deeppc.__version__}, {datetime.now(UTC).date()}.",
    ]


def _tested(plan: Plan) -> str:
    """What the seeds gave that were trained afterwards, if any were."""
    folder = ComparisonFolder(plan.folder / "seeds")
    rows = folder.table()["rows"] if folder.holds_comparison else []
    found = [float(accuracy) for row in rows for accuracy in row.get("test_accuracy", ())]
    return f" Test accuracy over {len(found)} seeds: {mean_and_deviation(found, scale=100)} %." if found else ""
