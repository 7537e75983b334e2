"""Tables of results: rows x columns, one value for each seed, and the paper's value beside them.

Mean and *sample* standard deviation (of n - 1) over seeds; a single seed has no deviation.
"""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NOTHING = "–"
HOW_TO_READ = "Mean ± sample standard deviation over seeds, n seeds; in parentheses the paper's value."


@dataclass(frozen=True)
class Entry:
    """One place of a table: a value for each seed that finished, and how many diverged instead.

    ``paper`` is the published mean with its spread (or None); ``note`` a word on how it came about.
    """

    values: tuple[float, ...]
    paper: tuple[float, float | None] | None = None
    diverged: int = 0
    note: str = ""

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        return statistics.stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Table:
    """``entries`` may lack places. ``digits`` are those after the point; small numbers are written with a power."""

    name: str
    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    entries: Mapping[tuple[str, str], Entry]
    digits: int = 2

    def entry(self, row: str, column: str) -> Entry:
        """An empty one where there is none."""
        return self.entries.get((row, column), Entry(()))

    def text(self, row: str, column: str) -> str:
        """``61.20 ± 0.41 n=3 (89.45)``."""
        entry = self.entry(row, column)
        parts = [_ours(entry, self.digits)] if entry.values or entry.diverged else [NOTHING]
        if entry.note:
            parts.append(entry.note)
        if entry.paper is not None:
            parts.append(f"({number(entry.paper[0], self.digits)})")
        return " ".join(parts)


def number(value: float, digits: int) -> str:
    """With ``digits`` after the point; where these would hide it, as ``3.2e-09``."""
    if not math.isfinite(value):
        return str(value)
    hidden = value != 0 and abs(value) < 0.5 * 10.0**-digits
    return f"{value:.1e}" if hidden or abs(value) >= 1e6 else f"{value:.{digits}f}"


def _ours(entry: Entry, digits: int) -> str:
    lost = f"{entry.diverged} diverged" if entry.diverged else ""
    if entry.mean is None:
        return lost
    words = number(entry.mean, digits)
    if entry.deviation is not None:
        words += f" ± {entry.deviation:.{digits}f} n={len(entry.values)}"
    return f"{words}, {lost}" if lost else words


def markdown(table: Table) -> str:
    head = ["", *table.columns]
    rows = [[row, *(table.text(row, column) for column in table.columns)] for row in table.rows]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def as_csv(tables: Sequence[Table]) -> str:
    """One line for each value, for a spreadsheet to add up; a place without any has an empty one."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["table", "row", "column", "number", "value", "paper", "paper_spread", "diverged", "note"])
    for table in tables:
        for (row, column), entry in table.entries.items():
            paper = entry.paper or ("", "")
            rest = (*("" if x is None else x for x in paper), entry.diverged, entry.note)
            for i, value in enumerate(entry.values or ("",)):
                writer.writerow([table.name, row, column, i, value, *rest])
    return text.getvalue()


def to_json(table: Table) -> dict[str, Any]:
    return {
        "name": table.name,
        "title": table.title,
        "rows": list(table.rows),
        "columns": list(table.columns),
        "digits": table.digits,
        "entries": [
            {
                "row": row,
                "column": column,
                "values": [_plain(value) for value in entry.values],
                "mean": None if entry.mean is None else _plain(entry.mean),
                "deviation": None if entry.deviation is None else _plain(entry.deviation),
                "n": len(entry.values),
                "paper": None if entry.paper is None else list(entry.paper),
                "diverged": entry.diverged,
                "note": entry.note,
            }
            for (row, column), entry in table.entries.items()
        ],
    }


def from_json(content: Mapping[str, Any]) -> Table:
    """The inverse of :func:`to_json`. KeyError, TypeError or ValueError if it is no such thing."""
    entries = {
        (str(e["row"]), str(e["column"])): Entry(
            tuple(float(value) for value in e["values"]),
            None if e["paper"] is None else (e["paper"][0], e["paper"][1]),
            int(e["diverged"]),
            str(e["note"]),
        )
        for e in content["entries"]
    }
    rows, columns = tuple(content["rows"]), tuple(content["columns"])
    return Table(content["name"], content["title"], rows, columns, entries, int(content["digits"]))


def _plain(value: float) -> float | str:
    """JSON has no infinity: written as text, which ``float`` reads."""
    return value if math.isfinite(value) else str(value)
