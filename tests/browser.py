"""A page as a real browser lays it out. Tests that ask are marked ``outside``, and skipped without a Chromium."""

from __future__ import annotations

import json
import shutil
import subprocess
from html import escape
from pathlib import Path
from typing import Any

import pytest

DESKTOP, PHONE = 1280, 390  # pixels
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")

# The page goes into a frame, because a window of Chromium cannot be as narrow as a phone. Only a picture that has been
# loaded has a natural width; one that is wider than a phone scrolls within its own frame.
FRAME = """<!doctype html>
<iframe style="width: {width}px; height: 900px; border: 0" srcdoc="{page}"></iframe>
<script>
addEventListener("load", () => {{
  const shown = document.querySelector("iframe").contentDocument;
  const measured = {{
    window: shown.documentElement.clientWidth,
    page: shown.documentElement.scrollWidth,
    pictures: [...shown.images].map(image => ({{
      loaded: image.complete && image.naturalWidth > 0, width: image.parentElement.clientWidth,
    }})),
  }};
  document.body.innerHTML = "<pre>" + JSON.stringify(measured) + "</pre>";
}});
</script>
"""


def layout(page: Path, width: int, scratch: Path) -> dict[str, Any]:
    """Widths in pixels of the window, of the whole page, and of its pictures."""
    browser = next((found for name in NAMES if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip("no Chromium here")
    frame = scratch / f"{width}.html"
    content = escape(page.read_text(encoding="utf-8").replace("<html", "<html style='scrollbar-width: none'", 1))
    frame.write_text(FRAME.format(width=width, page=content), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    where = [f"--user-data-dir={scratch / f'profile-{width}'}", "--window-size=1600,1000"]
    answer = ["--virtual-time-budget=5000", "--dump-dom", frame.as_uri()]  # after all that the page does on loading
    done = subprocess.run([browser, *flags, *where, *answer], capture_output=True, text=True, timeout=120, check=True)
    return dict(json.loads(done.stdout.split("<pre>")[1].split("</pre>")[0]))


def check_layout(page: Path, scratch: Path) -> None:
    """At both widths nothing sticks out of the window and every picture is there, its frame within the page."""
    for width in (DESKTOP, PHONE):
        found = layout(page, width, scratch)
        assert found["window"] == width
        assert found["page"] <= width
        assert found["pictures"]
        assert all(picture["loaded"] and 0 < picture["width"] <= width for picture in found["pictures"])
