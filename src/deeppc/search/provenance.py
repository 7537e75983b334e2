"""Where tuned settings come from: the comment on top of a preset."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import deeppc
from deeppc import presets
from deeppc.errors import RunError
from deeppc.files import read_json
from deeppc.search.plan import Plan
from deeppc.search.records import Trial, best_of, progress_of
from deeppc.training.compare import COMPARISON, spread
from deeppc.training.config import TrainConfig


def preset_of(plan: Plan, trials: Sequence[Trial]) -> tuple[TrainConfig, str]:
    """The best settings, and the text of a preset with them."""
    best = best_of(trials)
    if best is None:
        raise RunError(f"No trial of the search in {plan.folder} is complete: there is no best one to keep.")
    config = best.config(plan.config)
    return config, presets.as_toml(config, set(best.params), describe(plan, trials, best))


def describe(plan: Plan, trials: Sequence[Trial], best: Trial) -> str:
    """Study, trials, scale and score, in a few lines."""
    c, progress = plan.config, progress_of(plan, trials)
    counts = progress.counts
    states = [f"{counts['complete']} complete", f"{counts['pruned']} pruned", f"{counts['failed']} diverged"]
    settled = progress.settled
    images = "all training images" if c.limit is None else f"{c.limit:,} images"
    by = "the test set (the paper's protocol)" if c.select == "test" else "held-out images"
    lines = [
        f"{c.algorithm} on {c.dataset}, {c.model} at width {c.width:g}.",
        f"Search {plan.name!r}: {settled} trials by TPE with seed {c.seed}, {', '.join(states)}.",
        f"Each had {c.epochs} epochs on {images}, batches of {c.batch_size}.",
        f"The best is trial {best.number}. Its best epoch on {by}: {100 * (best.value or 0.0):.2f} %.{_tested(plan)}",
        f"deeppc {deeppc.__version__}, {datetime.now(UTC).date()}.",
    ]
    return "\n".join(lines)


def _tested(plan: Plan) -> str:
    """What the seeds gave that were trained afterwards, if any were."""
    path = plan.folder / "seeds" / COMPARISON
    if not path.exists():
        return ""
    accuracies = [100 * float(a) for row in read_json(path)["rows"] for a in row["test_accuracy"]]
    if not accuracies:
        return ""
    mean, deviation = spread(accuracies)
    spreads = "" if deviation is None else f" ± {deviation:.2f}"
    return f" Test accuracy over {len(accuracies)} seeds: {mean:.2f}{spreads} %."
