"""What MkDocs does besides (a hook): source files and notebooks that a page links to become pages of the site.

On a page, ``[complete.py](../examples/complete.py)`` leads out of this folder, to the file as the repository shows it.
In the site it leads to a page with the file's text. A notebook becomes a page of its cells and their outputs.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\(([^)#:\s]+)\)")
HEAD = "---\nsearch:\n  exclude: true\n---\n\n"
LANGUAGES = {".py": "python", ".sh": "bash", ".toml": "toml", ".yml": "yaml"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every notebook, and for every file of the repository that a page links to and the site lacks."""
    pages = list(files.documentation_pages())
    for source in sorted({source for page in pages for source in _links(page).values()}):
        if source.suffix == ".ipynb":
            text, level = _notebook(source), InclusionLevel.INCLUDED
        else:
            language = LANGUAGES.get(source.suffix, "text")
            text = f"{HEAD}# {source}\n\n````{language}\n{(ROOT / source).read_text()}\n````\n"
            level = InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, _uri(source), content=text, inclusion=level))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to such files lead to their pages, and keep a number and its deviation on one line."""
    found = _links(page.file)
    folder = Path(page.file.src_uri).parent

    def redirect(match: re.Match[str]) -> str:
        source = found.get(match[1])
        return f"]({os.path.relpath(_uri(source), folder)})" if source else match[0]

    return LINK.sub(redirect, markdown).replace(" ± ", "\u00a0±\u00a0")


def _links(page: File) -> dict[str, Path]:
    """The links of a page that lead to text files outside the site, by what is written: paths from the root."""
    if page.abs_src_path is None:
        return {}
    found = {}
    for link in LINK.findall(page.content_string):
        target = (Path(page.abs_src_path).parent / link).resolve()
        outside = target.suffix in (".py", ".ipynb") or not target.is_relative_to(ROOT / "docs")
        if target.is_file() and outside and target.is_relative_to(ROOT):
            found[link] = target.relative_to(ROOT)
    return found


def _uri(source: Path) -> str:
    if source.suffix == ".ipynb":
        return source.with_suffix(".md").relative_to("docs").as_posix()
    return f"source/{source.as_posix()}.md"


def _notebook(source: Path) -> str:
    """A notebook as Markdown. Its first line is its title; other notebooks that it links to are pages, too."""
    parts = []
    for cell in json.loads((ROOT / source).read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", text))
        else:
            parts += [f"```python\n{text}\n```", *(shown for output in cell["outputs"] for shown in _shown(output))]
    title, _, rest = "\n\n".join(parts).partition("\n")
    return f"{title}\n\n*A notebook: [{source.name}]({source.name}), to run it yourself.*\n{rest}\n"


def _shown(output: dict[str, Any]) -> Iterator[str]:
    """An output of a cell, in the richest form that it has."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "text/html" in data:
        yield "".join(data["text/html"])
    elif "image/png" in data:
        yield f'<img alt="what the cell draws" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
    else:
        yield f"```{{.text .output}}\n{''.join(data['text/plain'])}\n```"
