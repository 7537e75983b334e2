"""No test here looks at a report, which takes seconds to draw."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_reports(reports: list[tuple[str, Path]]) -> None:
    pass
