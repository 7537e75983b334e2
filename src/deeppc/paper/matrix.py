"""Results as rows x columns: one value for each seed, and the paper's value beside them.

Mean and *sample* standard deviation (of n - 1) over seeds; a single seed has no deviation.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deeppc.report.tables import UNKNOWN, Table

HOW_TO_READ = "Mean ± sample standard deviation over seeds, n seeds; in parentheses the paper's value."


@dataclass(frozen=True)
class Entry:
    """One place of a matrix: a value for each seed that finished, and how many diverged instead.

    ``paper`` is the published mean with its spread (or None); ``note`` a word on how the values came about.
    """

    values: tuple[float, ...] = ()
    paper: tuple[float, float | None] | None = None
    diverged: int = 0
    note: str = ""

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def text(self, digits: int) -> str:
        """``61.20 ± 0.41 n=3 (89.45)``."""
        ours = []
        if self.mean is not None:
            spread = "" if self.deviation is None else f" ± {self.deviation:.{digits}f} n={len(self.values)}"
            ours.append(number(self.mean, digits) + spread)
        if self.diverged:
            ours.append(f"{self.diverged} diverged")
        paper = "" if self.paper is None else f"({number(self.paper[0], digits)})"
        return " ".join(word for word in (", ".join(ours) or UNKNOWN, self.note, paper) if word)


@dataclass(frozen=True)
class Matrix:
    """Entries by (row, column), in the order in which both are shown; places may be missing.

    ``digits`` are those after the point; numbers that these would hide are written with a power.
    """

    name: str
    title: str
    entries: Mapping[tuple[str, str], Entry]
    digits: int = 2

    @property
    def rows(self) -> list[str]:
        return list(dict.fromkeys(row for row, _ in self.entries))

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(column for _, column in self.entries))

    def entry(self, row: str, column: str) -> Entry:
        """Return an empty one where there is none."""
        return self.entries.get((row, column), Entry())

    def text(self, row: str, column: str) -> str:
        return self.entry(row, column).text(self.digits)

    def table(self) -> Table:
        rows = [[row, *(self.text(row, column) for column in self.columns)] for row in self.rows]
        return Table(["", *self.columns], rows)

    def to_json(self) -> dict[str, Any]:
        entries = [{"row": row, "column": column, **asdict(entry)} for (row, column), entry in self.entries.items()]
        return {"name": self.name, "title": self.title, "digits": self.digits, "entries": entries}


def from_json(content: Mapping[str, Any]) -> Matrix:
    """Invert ``to_json``. Raises KeyError, TypeError or ValueError if ``content`` is no such thing."""
    entries = {}
    for e in content["entries"]:
        paper = None if e["paper"] is None else (e["paper"][0], e["paper"][1])
        entries[e["row"], e["column"]] = Entry(tuple(map(float, e["values"])), paper, int(e["diverged"]), e["note"])
    return Matrix(content["name"], content["title"], entries, int(content["digits"]))


def number(value: float, digits: int) -> str:
    """With ``digits`` after the point; where these would hide it, as ``3.2e-09``."""
    hidden = value != 0 and abs(value) < 0.5 * 10.0**-digits
    return f"{value:.1e}" if hidden or abs(value) >= 1e6 else f"{value:.{digits}f}"


def by_value(made: Sequence[Matrix]) -> Table:
    """One line for each value, for a spreadsheet to add up; a place without any has an empty one."""
    lines = [
        [matrix.name, row, column, i, value, *(entry.paper or (None, None)), entry.diverged, entry.note]
        for matrix in made
        for (row, column), entry in matrix.entries.items()
        for i, value in enumerate(entry.values or (None,))
    ]
    return Table(["table", "row", "column", "number", "value", "paper", "paper_spread", "diverged", "note"], lines)
