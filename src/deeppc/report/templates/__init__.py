"""The templates of pages and drawings, filled by :func:`render`; everything in them is escaped unless it is Markup."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from deeppc.report.tables import plain

INVALID = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
DEEPEST = 4  # mappings within mappings that are still spelt out


def render(template: str, **content: Any) -> str:
    """Fill a template of this folder.

    ``sections.html`` is the generic page: ``title``, ``eyebrow`` (above the title), ``lead`` (paragraphs), ``notes``
    (pairs of words and good, warn, bad or ""), ``numbers`` (a mapping, shown as cards) and ``sections``, pairs of a
    heading and its blocks: a string is a paragraph, a mapping a list of facts, and there are
    :class:`~deeppc.report.pages.Picture`, :class:`~deeppc.report.tables.Table` and ``Markup``. Only ``title`` and
    ``sections`` are required. Characters that neither HTML nor XML may hold become a question mark in a diamond.
    """
    return INVALID.sub("�", _ENVIRONMENT.get_template(template).render(content))


def flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield names and values; mappings within are spelt out with dots, and what is None is left out."""
    for key, value in values.items():
        if isinstance(value, Mapping) and prefix.count(".") < DEEPEST:
            yield from flat(value, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}", value if isinstance(value, Markup) else plain(value, 400)


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters["flat"] = flat
