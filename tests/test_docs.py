"""The documentation is true: its Python runs, its commands are commands, its links lead somewhere."""

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

import deeppc
from deeppc.cli.main import COMMANDS, main

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
REGISTRIES = (
    "deeppc.core.algorithms.base.FAMILIES",
    "deeppc.models.registry._BUILDERS",
    "deeppc.data.registry.DATASETS",
)
names = [str(page.relative_to(ROOT)) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_python_in_the_page_runs(page, monkeypatch):
    for registry in REGISTRIES:  # other tests need not know what a page adds
        module, name = registry.rsplit(".", 1)
        monkeypatch.setattr(registry, dict(getattr(import_module(module), name)))
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))
    exec(compile(code, str(page), "exec"), {})


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_commands_in_the_page_are_understood(page, monkeypatch):
    """Each is parsed, with all its flags and their values; what it would do is not done."""
    for command in set(COMMANDS.values()):
        monkeypatch.setattr(command, "run", lambda self, given: None)
    for args in commands(page.read_text()):
        assert main(args) == 0, f"{page.name}: deeppc {' '.join(args)}"


def commands(text: str) -> list[list[str]]:
    """The arguments of deeppc in each block of commands."""
    blocks = re.findall(r"^```sh\n(.*?)^```|((?:^    .*\n)+)", text, re.DOTALL | re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", "".join(map("".join, blocks))).splitlines()
    started = [line for line in lines if re.match(r"\s*(torchrun .* -m )?deeppc ", line)]
    words = [shlex.split(line.removesuffix(" ..."), comments=True) for line in started]
    return [line[line.index("deeppc") + 1 :] for line in words]


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_links_lead_somewhere(page):
    for link, anchor in re.findall(r"\]\(([^)#\s]+)#?([^)]*)\)", page.read_text()):
        if not link.startswith(("http://", "https://")):
            target = page.parent / link
            assert target.exists(), f"{page.name} links to {link}"
            assert not anchor or anchor in anchors(target), f"{page.name} links to {link}#{anchor}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\]\(.*?\)", "", title).lower()).replace(" ", "-") for title in titles}


def test_every_public_name_is_in_the_api():
    described = re.findall(r"^::: deeppc\.(\w+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    assert sorted([*described, "__version__"]) == sorted(deeppc.__all__)


def test_tables_of_trainings_are_those_of_the_records(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    tables = import_module("tables")
    for name in tables.PAGES:
        page = (ROOT / name).read_text()
        assert "<!-- records: " in page
        assert tables.filled(page) == page, f"{name} is not what `python docs/tables.py` writes"


def test_docstrings_become_markdown(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    written = "See :class:`deeppc.Graph`.\n\n``a``  first\n       more\n``b``, ``c``  both\n\n>>> x = [\n... ]"
    shown = "See ``deeppc.Graph``.\n\n- ``a``: first\n    more\n- ``b``, ``c``: both\n\n    >>> x = [\n    ... ]"
    assert import_module("docstrings").as_markdown(written) == shown
