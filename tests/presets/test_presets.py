"""The shipped presets: each is a config, is called after its task, and says where it comes from."""

from pathlib import Path

import pytest

from deeppc import presets
from deeppc.errors import ConfigError
from deeppc.training.config import TrainConfig


@pytest.mark.parametrize("name", presets.names())
def test_a_shipped_preset(name: str) -> None:
    preset = presets.load(name)
    config = preset.config(TrainConfig(epochs=77))
    assert config.epochs == 77  # how long to train is not the preset's to say
    assert name == f"{config.dataset}-{config.model}-{config.norm}-{config.method}"
    assert "trials" in preset.provenance


def test_a_name_that_is_not_there_and_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no preset 'x': there are none"):
        presets.load("x", tmp_path)
    (tmp_path / "x.toml").write_text('# made by hand\n#\nalgorithm = "bp"\nlr_x = 0.5\n')
    with pytest.raises(ConfigError, match=r"x\.toml: --lr-x means nothing to bp"):
        presets.load("x", tmp_path)
    (tmp_path / "x.toml").write_text("# made by hand\n# twice\nlr_x = 0.25\n")
    assert presets.load("x", tmp_path).provenance == "made by hand\ntwice"
    assert presets.load("x", tmp_path).config().options == {"lr_x": 0.25}


def test_a_preset_of_ones_own_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text("# mine\nlr_x = 0.25\n")
    for name in ("mine.toml", str(tmp_path / "mine.toml")):
        assert presets.load(name).config().options == {"lr_x": 0.25}
    with pytest.raises(ConfigError, match=r"no preset 'mine': .* named by its path, as in mine\.toml"):
        presets.load("mine")
    with pytest.raises(ConfigError, match="folder/yours cannot be read"):
        presets.load("folder/yours")
    with pytest.raises(TypeError, match="name is 3"):
        presets.load(3)
