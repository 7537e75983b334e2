"""Memory within a batch: which tensors may be written over, and which graphs are worth keeping.

Inference makes and drops tensors of the size of every layer at every step; on a CPU their allocation takes as long as
their arithmetic. So a gradient is not added up in a new tensor, but kept as *terms* ``(weight, tensor)`` and added to
the deviation in place, and the first term of a node that has not moved yet *becomes* its deviation. That is safe only
where nothing else reads the same memory: autograd hands out views (a sum pulls all its parents by one tensor, an
identity returns the very error that it was given, ``expand`` repeats one number), and these are told apart here.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import prod

import torch
from torch import Tensor

ENOUGH = 2**9  # numbers of an image, to estimate a sum by
Term = tuple[float | Tensor, Tensor]  # a weight (a number, or a tensor of one) and what it weighs


def add(to: Tensor | None, terms: Sequence[Term], scale: float, read: Iterable[Tensor] | None = None) -> Tensor:
    """``to + scale * sum of terms``, in place where there is a place.

    That is ``to``; or, if ``to`` is None, the first term, provided that ``read`` (what else will be read) is given
    and shares no memory with it.
    """
    rest = iter(terms)
    if to is None:
        weight, first = next(rest)
        to = widened(first)
        spent = read is not None and _is_whole(to) and not any(share_memory(to, x) for x in read)
        to = to.mul_(scale * weight) if spent else to * (scale * weight)
    for weight, term in rest:
        if isinstance(weight, Tensor):
            to.addcmul_(term, scale * weight)
        else:
            to.add_(term, alpha=scale * weight)
    return to


def apart(x: Tensor, other: Tensor | None) -> Tensor:
    """``x``, or a copy if it lies in the memory of ``other``, which is about to change."""
    return x.clone() if other is not None and share_memory(x, other) else x


def products(x: Tensor, others: Sequence[Tensor]) -> list[Tensor]:
    """The sums of ``x y`` for each of ``others``, which have the same shape, estimated from :func:`some` of all.

    In float64, as :func:`widest` has it: squares of small errors leave the range of float32.
    """
    part, share = some(x).to(widest(x)), x.numel() / max(1, some(x).numel())
    return [(part * (part if y is x else some(y).to(part.dtype))).sum() * share for y in others]


def some(x: Tensor) -> Tensor:
    """Of images (batch, channels, height, width) some rows and channels of each, enough to know their size by; of all
    else all, which may be nothing but zeros in most places.

    Even and odd rows: of every other row a strided convolution may make nothing.
    """
    if x.dim() != 4:
        return x
    x = x[:, :, :: x.shape[2] // 4 | 1] if x.shape[2] >= 8 else x
    return x[:, :: max(1, prod(x.shape[1:]) // ENOUGH)]


def widened(x: Tensor) -> Tensor:
    """Half precision as float32: deviations and errors add up small differences."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def widest(x: Tensor) -> torch.dtype:
    """float64, where the device of ``x`` has it."""
    return torch.float32 if x.device.type == "mps" else torch.float64


def share_memory(a: Tensor, b: Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def largest(sizes: Mapping[str, int]) -> set[str]:
    """The nodes of more than half the largest size: few, with most of the memory. Their graphs are not kept."""
    most = max(sizes.values())
    return {v for v, size in sizes.items() if 2 * size > most}


def _is_whole(x: Tensor) -> bool:
    """Not a view of something larger, nor of something smaller that it repeats."""
    return x.untyped_storage().nbytes() == x.nbytes and 0 not in x.stride()
