"""SIGKILL at every write and at random moments: the resumed run ends in the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")
def test_killed_at_any_moment_and_resumed_is_never_killed(
    tmp_path: Path, assert_same_state: Callable[[Path, Path], None]
) -> None:
    script = Path(__file__).with_name("killed_runs.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    writes, kills = map(int, done.stdout.split())
    assert writes > 30  # a run touches the disk at least so often
    assert kills > 0

    straight = tmp_path / "straight"
    for run_dir in tmp_path.glob("*-*"):
        assert_same_state(straight, run_dir)
        assert _known(run_dir) == _known(straight), run_dir.name
        assert not list(run_dir.glob(".*.tmp")), run_dir.name


def _known(run_dir: Path) -> list[dict[str, object]]:
    """Metrics and result, without the time they took."""
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    records.append(json.loads((run_dir / "result.json").read_text()))
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]
