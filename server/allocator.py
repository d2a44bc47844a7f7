"""The C allocator of a process with many threads."""

from __future__ import annotations

import ctypes

M_ARENA_MAX = -8  # of glibc's mallopt(3)


def share_one_arena() -> bool:
    """Let all threads allocate from one arena; say whether this C library was told to.

    glibc gives threads arenas of their own, in each of which freed memory stays. A server whose requests run on dozens
    of threads then grows for minutes without holding more (docs/benchmarks.md). Threads that take turns at the
    interpreter lose nothing by sharing. To be called before the first thread starts; where the C library is not glibc,
    nothing is done.
    """
    try:
        return bool(ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1))
    except (AttributeError, OSError, TypeError):
        return False
