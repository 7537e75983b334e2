"""A page as a real browser lays it out. Tests that ask are marked ``outside``, and skipped without a Chromium."""

from __future__ import annotations

import json
import shutil
import subprocess
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

DESKTOP, PHONE = 1280, 390  # pixels
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")

# The page goes into a frame, because a window of Chromium cannot be as narrow as a phone. Only a picture that has been
# loaded has a natural width; one that is wider than a phone scrolls within its own frame.
FRAME = """<!doctype html>
<meta name="color-scheme" content="light dark">
<body style="margin: 0">
<iframe style="width: {width}px; height: 900px; border: 0; display: block" srcdoc="{page}"></iframe>
"""
MEASURE = """<script>
addEventListener("load", () => {
  const shown = document.querySelector("iframe").contentDocument;
  const measured = {
    window: shown.documentElement.clientWidth,
    page: shown.documentElement.scrollWidth,
    pictures: [...shown.images].map(image => ({
      loaded: image.complete && image.naturalWidth > 0, width: image.parentElement.clientWidth,
    })),
  };
  document.body.innerHTML = "<pre>" + JSON.stringify(measured) + "</pre>";
});
</script>
"""


def layout(page: Path, width: int, scratch: Path) -> dict[str, Any]:
    """Widths in pixels of the window, of the whole page, and of its pictures."""
    shown = browse(page, width, scratch, "--dump-dom", script=MEASURE)
    return dict(json.loads(shown.split("<pre>")[1].split("</pre>")[0]))


def photograph(page: Path, width: int, scratch: Path, *, dark: bool = False) -> np.ndarray:
    """The first 900 pixels of the page as colours from 0 to 1: (900, width, 3)."""
    picture = scratch / f"{page.stem}-{width}-{dark}.png"
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    browse(page, width, scratch, scheme, f"--screenshot={picture}")
    return imread(picture)[:900, :width, :3]


def browse(page: Path, width: int, scratch: Path, *how: str, script: str = "") -> str:
    """Open the page in a frame, and return what the browser prints."""
    framed = scratch / f"{width}.html"
    content = page.read_text(encoding="utf-8").replace("<html", "<html style='scrollbar-width: none'", 1)
    framed.write_text(FRAME.format(width=width, page=escape(content)) + script, encoding="utf-8")
    later = "--virtual-time-budget=5000"  # after all that the page does on loading
    return opened(framed.as_uri(), scratch / f"profile-{width}", later, *how)


def opened(address: str, profile: Path, *how: str) -> str:
    """Open an address, and return what the browser prints."""
    browser = next((found for name in NAMES if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip("no Chromium here")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
    flags += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    where = [f"--user-data-dir={profile}", "--window-size=1600,1000"]
    command = [browser, *flags, *where, *how, address]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def check_layout(page: Path, scratch: Path) -> None:
    """At both widths nothing sticks out of the window and every picture is there, its frame within the page."""
    for width in (DESKTOP, PHONE):
        found = layout(page, width, scratch)
        assert found["window"] == width
        assert found["page"] <= width
        assert found["pictures"]
        assert all(picture["loaded"] and 0 < picture["width"] <= width for picture in found["pictures"])
