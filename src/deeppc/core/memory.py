"""Keep the memory that a batch has freed for the next one.

By default glibc gives the memory of every large tensor back to the system at once, and asks for it anew a moment later,
page by page, each filled with zeros first. For tensors of a few megabytes, which training on a CPU makes and drops by
the hundred, that takes as long as computing their contents.
"""

import ctypes

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of glibc's malloc.h


def keep() -> bool:
    """Let this process keep what it frees, for itself. Return whether the system can do so (glibc can).

    The commands do this for themselves. A program that trains for long does well to call it once, at its beginning.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another libc, or Windows
        return False
    return bool(mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, -1))  # -1: never
