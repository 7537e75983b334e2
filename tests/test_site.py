"""The site, built as ``make docs`` builds it, in a real browser: it fits a phone, and asks nobody else for anything."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from browser import PHONE, opened

ROOT = Path(__file__).resolve().parents[1]

# Some pages at once, each in a frame as wide as a phone; what is measured takes the place of the frames.
FRAMES = """<!doctype html>
<style>iframe {{ width: {width}px; height: 844px; border: 0 }}</style>
<body>{frames}
<script>
addEventListener("load", () => {{
  const measured = [...document.querySelectorAll("iframe")].map(frame => {{
    const shown = frame.contentDocument.documentElement;
    return {{
      name: frame.name, window: shown.clientWidth, page: shown.scrollWidth,
      pictures: [...frame.contentDocument.images].map(image => image.complete && image.naturalWidth > 0),
      loaded: frame.contentWindow.performance.getEntriesByType("resource").map(entry => entry.name),
    }};
  }});
  document.body.innerHTML = "<pre>" + JSON.stringify(measured) + "</pre>";
}});
</script>
"""


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # all frames ask at once

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing when the browser hangs up: it has seen enough."""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of each request."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of the folder, on this machine alone."""
    with Server(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def build(folder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a folder by the command of ``make docs``."""
    (flags,) = re.findall(r"-m mkdocs build(.*)", (ROOT / "Makefile").read_text())
    command = [sys.executable, "-m", "mkdocs", "build", *flags.split(), "--site-dir", str(site)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize(("link", "code"), [("other.md", 0), ("missing.md", 1), ("other.md#missing", 1)])
def test_a_link_that_leads_nowhere_fails(link, code, tmp_path):
    settings = (ROOT / "mkdocs.yml").read_text()
    (tmp_path / "mkdocs.yml").write_text("site_name: two pages\n" + settings[settings.index("validation:") :])
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"[A link]({link})")
    (tmp_path / "docs" / "other.md").write_text("# Other")
    assert build(tmp_path, tmp_path / "site").returncode == code


@pytest.mark.outside
def test_pages_fit_a_phone_and_come_from_one_server(tmp_path):
    site = tmp_path / "site"
    done = build(ROOT, site)
    assert done.returncode == 0, done.stderr
    html = (path.relative_to(site) for path in site.rglob("*.html"))
    pages = sorted(str(path) for path in html if path.parts[0] not in ("source", "404.html", "wave.html"))
    assert {"index.html", "api.html", "notebooks/wave.html", "results/index.html"} <= set(pages)
    found = []
    with served(site) as address:
        for i in range(0, len(pages), 12):
            frames = "\n".join(f'<iframe name="{page}" src="{page}"></iframe>' for page in pages[i : i + 12])
            (site / f"frames{i}.html").write_text(FRAMES.format(width=PHONE, frames=frames))
            shown = opened(f"{address}/frames{i}.html", tmp_path / "profile", "--dump-dom")
            found += json.loads(shown.split("<pre>")[1].split("</pre>")[0])
    assert [page["name"] for page in found] == pages
    for page in found:
        assert page["window"] == PHONE, page["name"]
        assert page["page"] <= PHONE, f"{page['name']} is {page['page']} pixels wide"
        assert all(page["pictures"]), page["name"]
        assert page["loaded"], page["name"]
        assert all(entry.startswith((address, "data:", "blob:")) for entry in page["loaded"]), page["loaded"]
