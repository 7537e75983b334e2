"""The one table type, written as Markdown, CSV, HTML or for a terminal, and the numbers in words that fill it.

Torch and matplotlib are not needed here, so that the command line can print a table at once.
"""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from rich.table import Table as RichTable

UNKNOWN = "–"
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Table:
    """Rows under named columns; a cell is anything that ``str`` can write, None an empty one.

    ``title`` stands above the table and ``note`` below it, except in CSV. ``chosen`` is the number of the row that
    HTML and the terminal show in bold. A cell that is ``markupsafe.Markup`` is HTML already, such as a link.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""
    note: str = ""
    chosen: int | None = None

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row has {len(row)} cells, but the table {len(self.columns)} columns: {row}")

    def markdown(self) -> str:
        """Return the table as Markdown, ending in a newline."""

        def line(cells: Sequence[object]) -> str:
            return "| " + " | ".join(text(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

        table = "\n".join([line(self.columns), "|" + " --- |" * len(self.columns), *map(line, self.rows)])
        return "\n\n".join(filter(None, [self.title and f"**{self.title}**", table, self.note])) + "\n"

    def csv(self) -> str:
        """Return columns and rows as CSV."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()

    def rich(self) -> RichTable:
        """Return the table for ``rich.print``: the first column to the left, numbers to the right.

        Where it is too wide cells go on in the next line, and nothing is cut.
        """
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(title=self.title or None, caption=self.note or None, caption_justify="left")
        table.box, table.pad_edge, table.header_style = None, False, "dim"
        for i, name in enumerate(self.columns):
            table.add_column(Text(name), justify="right" if i else "left", overflow="fold")
        for i, row in enumerate(self.rows):
            table.add_row(*(Text(text(cell)) for cell in row), style="bold" if i == self.chosen else "")
        return table

    def html(self) -> Markup:
        """Return the table as an HTML element that scrolls within its page; the title is left to the page."""
        head = Markup().join(Markup('<th scope="col">{}</th>').format(name) for name in self.columns)
        body = Markup()
        for i, row in enumerate(self.rows):
            cells = Markup().join(Markup("<td>{}</td>").format("" if cell is None else cell) for cell in row)
            body += Markup('<tr class="chosen">{}</tr>\n' if i == self.chosen else "<tr>{}</tr>\n").format(cells)
        table = Markup('<table class="numbers"><thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody></table>')
        note = Markup('<p class="small">{}</p>').format(self.note) if self.note else ""
        return Markup('<div class="scroll" tabindex="0">{}</div>{}').format(table.format(head, body), note)


def text(cell: object) -> str:
    """Return a cell as text: nothing for None, a link without its markup."""
    if cell is None:
        return ""
    return cell.striptags() if isinstance(cell, Markup) else str(cell)


def plain(words: object, length: int = 28) -> str:
    """Return a name that fits and can be drawn: at most ``length`` characters, all of them printable."""
    seen = "".join(c if c.isprintable() else "�" for c in str(words))
    return seen if len(seen) <= length else seen[: length - 1] + "…"


def number(value: object) -> float:
    """Return a JSON value as a float, nan where it is none. Numbers that are not finite may be written as strings."""
    if isinstance(value, int | float | str):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    return math.nan


def percent(fraction: object, digits: int = 2) -> str:
    """``54.32%`` of 0.5432; a dash for None, "not finite" for what is no finite number."""
    x = number(fraction)
    return f"{100 * x:.{digits}f}%" if math.isfinite(x) else UNKNOWN if fraction is None else "not finite"


def scientific(value: object) -> str:
    """``3.2 × 10⁻⁹``; numbers from 0.01 to 1000 as they are."""
    x = number(value)
    if not math.isfinite(x):
        return UNKNOWN if value is None else "not finite"
    if x == 0 or 0.01 <= abs(x) < 1000:
        return f"{x:.3g}"
    mantissa, exponent = f"{x:.1e}".split("e")
    return f"{mantissa} × 10{str(int(exponent)).translate(SUPERSCRIPTS)}"


def duration(seconds: object) -> str:
    """``8.3 s``, ``42 s``, ``13 min`` or ``2 h 05 min``; a dash for what is no finite number."""
    x = number(seconds)
    if not math.isfinite(x):
        return UNKNOWN
    if x < 60:
        return f"{x:.1f} s" if x < 10 else f"{x:.0f} s"
    minutes = round(x / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def mean_and_deviation(values: Iterable[float], digits: int = 2, scale: float = 1.0) -> str:
    """``45.91 ± 0.52``, with the sample deviation (of n - 1), of the values times ``scale``.

    One value has no deviation, and none at all is a dash.
    """
    found = [scale * value for value in values]
    deviation = f" ± {statistics.stdev(found):.{digits}f}" if len(found) > 1 else ""
    return f"{statistics.fmean(found):.{digits}f}{deviation}" if found else UNKNOWN
