"""An HTML page that stands on its own: no script, no font, no picture from elsewhere.

Pages are built by :func:`element`, which escapes whatever is not already HTML, so a name with a ``<`` in it cannot do
harm, and nobody has to remember to escape it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from deeppc.report.style import plain

VOID = frozenset({"br", "img", "meta", "source"})  # elements without content
DEEPEST = 4  # tables within tables that are still spelt out

CSS = """
:root { color-scheme: light dark; --paper: #fff; --card: #f8f9fa; --ink: #212529; --grey: #5c6670; --line: #dee2e6;
  --link: #0b5fa5; --warn-ink: #7a4100; --warn: #fff4e0; --good-ink: #0b5d3b; --good: #e3f6ec;
  --bad-ink: #9b1c1c; --bad: #fdeaea }
@media (prefers-color-scheme: dark) { :root { --paper: #16191d; --card: #1e2227; --ink: #e4e7ea; --grey: #9aa4ae;
  --line: #343a41; --link: #74b6f2; --warn-ink: #ffcf8a; --warn: #3a2b12; --good-ink: #8fe0b6; --good: #143526;
  --bad-ink: #ffaaa5; --bad: #411b1b } .figure img { filter: invert(0.92) hue-rotate(180deg) } }
* { box-sizing: border-box }
body { margin: 0; background: var(--paper); color: var(--ink); -webkit-text-size-adjust: 100%;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif }
main { max-width: 58rem; margin: 0 auto; padding: 2.5rem 1.5rem 4rem }
h1 { font-size: clamp(1.5rem, 4.5vw, 2.1rem); line-height: 1.2; margin: 0.2rem 0 0.8rem; overflow-wrap: anywhere }
h2 { font-size: 1.2rem; margin: 2.8rem 0 0.6rem }
p { margin: 0.5rem 0 } a { color: var(--link) }
.eyebrow, .small { color: var(--grey); font-size: 0.875rem; margin: 0 }
.notice { padding: 0.7rem 1rem; border-radius: 8px; margin: 1rem 0; background: var(--card) }
.good { background: var(--good); color: var(--good-ink) }
.warn { background: var(--warn); color: var(--warn-ink) }
.bad { background: var(--bad); color: var(--bad-ink) }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: 0.75rem; margin: 1.2rem 0 }
.card { background: var(--card); border-radius: 8px; padding: 0.8rem 1rem }
.card b { display: block; font-size: 1.6rem; line-height: 1.25; font-variant-numeric: tabular-nums }
.card span { color: var(--grey); font-size: 0.875rem }
.figure { margin: 1rem 0 0 } .figure img { display: block; width: 100%; height: auto }
figcaption { color: var(--grey); font-size: 0.875rem; margin-top: 0.3rem }
.scroll { overflow: auto; max-height: 30rem; border: 1px solid var(--line); border-radius: 8px }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; font-variant-numeric: tabular-nums }
th, td { padding: 0.4rem 0.8rem; text-align: left; vertical-align: top }
thead th { position: sticky; top: 0; background: var(--card); font-weight: 600; vertical-align: bottom }
tbody tr + tr > * { border-top: 1px solid var(--line) }
tr.chosen { background: var(--good); color: var(--good-ink); font-weight: 600 }
.numbers th, .numbers td { text-align: right; white-space: nowrap }
.numbers thead th { white-space: normal; min-width: 4.6rem }
.numbers th:first-child, .numbers td:first-child { text-align: left }
.facts th { font-weight: 400; color: var(--grey); width: 9.5rem } .facts td { overflow-wrap: anywhere }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 0 2.5rem; align-items: start }
@media (max-width: 600px) { main { padding: 1.5rem 1rem 3rem } th, td { padding: 0.35rem 0.55rem }
  .two { grid-template-columns: 1fr } .cards { grid-template-columns: 1fr 1fr } }
@media print { .scroll { max-height: none; overflow: visible } }
"""


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, *content: object, **attributes: object) -> Html:
    """``<tag attribute="...">content</tag>``, everything escaped that is not :class:`Html`. ``class_`` is class."""
    named = "".join(f' {name.rstrip("_")}="{escape(str(value))}"' for name, value in attributes.items())
    inner = join(*content)
    return Html(f"<{tag}{named}>" if tag in VOID else f"<{tag}{named}>{inner}</{tag}>")


def join(*content: object) -> Html:
    return Html("".join(part if isinstance(part, Html) else escape(str(part)) for part in content))


def document(title: str, *content: object) -> bytes:
    """The whole page, in UTF-8."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Html(CSS)),
    )
    page = element("html", head, element("body", element("main", *content)), lang="en")
    return f"<!doctype html>\n{page}\n".encode("utf-8", errors="replace")


def table(head: Sequence[object], rows: Iterable[Sequence[object]], chosen: int | None = None) -> Html:
    """Numbers in columns, under a head that stays in sight; row ``chosen`` stands out."""
    body = [
        element("tr", *(element("td", cell) for cell in row), **({"class_": "chosen"} if i == chosen else {}))
        for i, row in enumerate(rows)
    ]
    top = element("thead", element("tr", *(element("th", cell, scope="col") for cell in head)))
    return element("div", element("table", top, element("tbody", *body), class_="numbers"), class_="scroll", tabindex=0)


def facts(values: Iterable[tuple[str, object]]) -> Html:
    """Names and what they are, in two columns."""
    rows = [element("tr", element("th", name, scope="row"), element("td", value)) for name, value in values]
    return element("table", element("tbody", *rows), class_="facts")


def flat(values: Mapping[str, object], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Names and values of a JSON object; tables within it are spelt out with dots, what is null is left out."""
    for key, value in values.items():
        if isinstance(value, Mapping) and prefix.count(".") < DEEPEST:
            yield from flat(value, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}", plain(value, 400)


def cards(values: Mapping[str, str]) -> Html:
    """The few numbers that a reader came for."""
    boxes = (
        element("div", element("b", value), element("span", name), class_="card") for name, value in values.items()
    )
    return element("div", *boxes, class_="cards")


def side_by_side(*content: object) -> Html:
    """Next to each other where the screen is wide enough."""
    return element("div", *(element("section", part) for part in content), class_="two")


def notice(words: object, kind: str = "") -> Html:
    return element("p", words, class_=f"notice {kind}".strip())


def picture(wide: bytes, narrow: bytes, stem: str, alt: str, caption: str) -> Html:
    """An SVG within the page, with another for narrow screens, whose letters stay readable; its files are beside."""
    links = join(" ", element("a", "SVG", href=f"{stem}.svg"), " · ", element("a", "PNG", href=f"{stem}.png"))
    return element(
        "figure",
        element(
            "picture",
            element("source", media="(max-width: 600px)", srcset=_data(narrow)),
            element("img", src=_data(wide), alt=alt),
        ),
        element("figcaption", caption, links),
        class_="figure",
    )


def _data(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode("ascii")
