"""The documentation is true: its Python runs, its links lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
names = [str(page.relative_to(ROOT)) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_python_in_the_page_runs(page):
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))
    exec(compile(code, str(page), "exec"), {})


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)|src=\"([^\"]+)\"", page.read_text()):
        target = link[0] or link[1]
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
