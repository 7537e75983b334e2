"""What has to be known about a published data set to fetch, read and present it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray


class Decoded(NamedTuple):
    """A data set as arrays: `train.images` and `test.images` uint8 (N, C, H, W), and for each kind of label
    `train.<kind>` and `test.<kind>` int64 (N,), whose class names are `classes[<kind>]`."""

    arrays: dict[str, NDArray[Any]]
    classes: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Recipe:
    """A data set in its official layout.

    `decode` turns the files that are `wanted` (name below the folder -> content) into arrays. It raises
    `BadFileError` rather than leave anything out.
    """

    name: str
    archive: str
    folder: str
    url: str
    md5: str  # of the archive, as published
    wanted: Callable[[str], bool]
    decode: Callable[[Mapping[str, bytes]], Decoded]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    padding: int
    flip: bool
    sizes: tuple[int, int]  # training and test images
