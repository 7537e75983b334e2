"""The data sets by name, and `load`."""

import difflib
import os
from pathlib import Path

from deeppc.data.cache import cached, folders
from deeppc.data.cifar import CIFAR10, CIFAR100
from deeppc.data.dataset import Dataset, Split
from deeppc.data.digits import digits
from deeppc.data.recipe import Decoded, Recipe
from deeppc.data.source import fingerprint, read
from deeppc.data.tiny_imagenet import TINY_IMAGENET
from deeppc.errors import BadFileError, DataError

RECIPES = {recipe.name: recipe for recipe in (CIFAR10, CIFAR100, TINY_IMAGENET)}


def names() -> tuple[str, ...]:
    """The data sets that `load` knows; the first needs no download."""
    return ("digits", *RECIPES)


def load(name: str, data_dir: str | os.PathLike[str] = "data", labels: str = "fine") -> Dataset:
    """The data set `name`, read from its official archive or unpacked folder in `data_dir`.

    `labels`: "fine", or for cifar100 also "coarse" (its 20 superclasses). The first call decodes and caches,
    later ones map the cache. Raises `DataError` when the data are missing, damaged or contradict themselves.
    """
    if name == "digits":
        _require_labels(name, labels, ("fine",))
        return digits()
    recipe = recipe_of(name)
    path = _find(recipe, Path(data_dir))
    tensors = cached(name, fingerprint(path), folders(Path(data_dir)), lambda: _decode(recipe, path))
    _require_labels(name, labels, tuple(tensors.classes))
    train, test = (
        Split(tensors.arrays[f"{part}.images"], tensors.arrays[f"{part}.{labels}"]) for part in ("train", "test")
    )
    return Dataset(
        name=name,
        train=train,
        test=test,
        classes=tensors.classes[labels],
        mean=recipe.mean,
        std=recipe.std,
        padding=recipe.padding,
        flip=recipe.flip,
        official_sizes=recipe.sizes,
    )


def recipe_of(name: str) -> Recipe:
    """How to fetch and read the data set `name`; not for digits, which lie in no file of ours."""
    if name in RECIPES:
        return RECIPES[name]
    nearest = difflib.get_close_matches(name.lower(), names(), n=1, cutoff=0.4)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    raise DataError(f"There is no data set {name!r}.{hint} Choose one of {', '.join(names())}.")


def _find(recipe: Recipe, data_dir: Path) -> Path:
    # The archive first: it is whole or its checksums tell, while a folder may be half unpacked.
    archive, folder = data_dir / recipe.archive, data_dir / recipe.folder
    if archive.is_file():
        return archive
    if folder.is_dir():
        return folder
    raise DataError(
        f"{recipe.name} is not in {data_dir}: there is neither the file {archive} nor the folder {folder}. "
        f"Get it with `deeppc data fetch {recipe.name} --data-dir {data_dir}`, or put the official archive there."
    )


def _decode(recipe: Recipe, path: Path) -> Decoded:
    try:
        return recipe.decode(read(path, recipe.folder, recipe.wanted))
    except BadFileError as error:
        raise DataError(
            f"{path} cannot be used: {error}. Delete it, then get it anew with "
            f"`deeppc data fetch {recipe.name} --data-dir {path.parent}`."
        ) from error


def _require_labels(name: str, labels: str, known: tuple[str, ...]) -> None:
    if labels not in known:
        raise DataError(f"{name} has no labels {labels!r}: choose {' or '.join(known)}.")
