"""What MkDocs does besides (a hook): source files that a page links to become pages, so that the site is whole.

On a page, ``[complete.py](../examples/complete.py)`` leads out of this folder, to the file as the repository shows it.
In the site it leads to a page with the file's text.
"""

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\(([^)#:\s]+)\)")
HEAD = "---\nsearch:\n  exclude: true\n---\n\n"
LANGUAGES = {".py": "python", ".sh": "bash", ".toml": "toml", ".yml": "yaml"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every file of the repository that some page links to and the site does not have."""
    pages = list(files.documentation_pages())
    for source in sorted({source for page in pages for source in _links(page).values()}):
        language = LANGUAGES.get(source.suffix, "text")
        text = f"{HEAD}# {source}\n\n````{language}\n{(ROOT / source).read_text()}\n````\n"
        made = File.generated(config, _uri(source), content=text, inclusion=InclusionLevel.NOT_IN_NAV)
        files.append(made)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to such files lead to their pages."""
    found = _links(page.file)
    folder = Path(page.file.src_uri).parent

    def redirect(match: re.Match[str]) -> str:
        source = found.get(match[1])
        return f"]({os.path.relpath(_uri(source), folder)})" if source else match[0]

    return LINK.sub(redirect, markdown)


def _links(page: File) -> dict[str, Path]:
    """The links of a page that lead to text files outside the site, by what is written: paths from the root."""
    if page.abs_src_path is None:
        return {}
    found = {}
    for link in LINK.findall(page.content_string):
        target = (Path(page.abs_src_path).parent / link).resolve()
        outside = target.suffix == ".py" or not target.is_relative_to(ROOT / "docs")
        if target.is_file() and outside and target.is_relative_to(ROOT):
            found[link] = target.relative_to(ROOT)
    return found


def _uri(source: Path) -> str:
    return f"source/{source.as_posix()}.md"
