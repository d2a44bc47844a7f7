"""Threads of the server share what they free."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, threading
from server.allocator import share_one_arena
assert {share}
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
met = threading.Barrier(8)
def allocate():
    libc.malloc(100_000)
    met.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="arenas are glibc's")
@pytest.mark.parametrize(("share", "num_arenas"), [("share_one_arena()", 1), ("True", 8)])
def test_threads_allocate_from_one_arena(share: str, num_arenas: int) -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(share=share)], capture_output=True, text=True, check=True
    )
    arenas = found.stdout.count("<heap nr=")
    assert arenas == 1 if num_arenas == 1 else arenas > 2, "without it, threads have arenas of their own"
