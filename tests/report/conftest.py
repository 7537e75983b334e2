"""What the tests of pages share."""

import pytest

from deeppc.report import pages


@pytest.fixture
def no_pictures(monkeypatch):
    """Only words, which take a hundredth of the time."""
    monkeypatch.setattr(pages, "picture", lambda *_: pages.Picture("<svg/>", "a picture"))
    monkeypatch.setattr(pages.plots, "label_ends", lambda *_: None)
