"""The examples, trained for a moment only: what they show is there already, if less clearly."""

import importlib
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def example(monkeypatch, request):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module(request.param)


@pytest.mark.parametrize(
    ("example", "epochs", "shows"),
    [
        ("complete", 12, lambda errors: errors[0] < 0.9 * errors[1]),  # better than the mean image
        ("generate", 12, lambda right: right > 0.5),  # chance is 0.1
        ("memory", 200, lambda shares: min(shares) > 0.5),  # chance is 1 / 40
        ("probe", 8, lambda scores: scores["latents"][-1] > max(0.88, scores["latents, untrained"][-1] - 0.03)),
    ],
    indirect=["example"],
)
def test_an_example_shows_what_it_says(example, epochs, shows, tmp_path, capsys):
    assert shows(example.main(tmp_path, epochs)), capsys.readouterr().out
    assert (tmp_path / f"{example.__name__}.png").read_bytes().startswith(b"\x89PNG")
