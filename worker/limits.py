"""Limits of a run: its time, and the resident memory of its whole process group."""

from __future__ import annotations

import os
from pathlib import Path

import psutil


def group_rss_bytes(group: int) -> int:
    """Resident memory of every process in the group, and of what its leader started in groups of their own (ranks).

    Pages that several processes share are counted for each.
    """
    total = 0
    started = _descendants(group)
    for pid in psutil.pids():
        try:
            if pid in started or os.getpgid(pid) == group:
                total += psutil.Process(pid).memory_info().rss
        except (ProcessLookupError, PermissionError, psutil.Error):
            continue
    return total


def _descendants(leader: int) -> set[int]:
    try:
        return {process.pid for process in psutil.Process(leader).children(recursive=True)}
    except psutil.Error:
        return set()


def num_oom_kills(cgroup: Path = Path("/sys/fs/cgroup/memory.events"), host: Path = Path("/proc/vmstat")) -> int:
    """How many processes the kernel has killed for memory, in this cgroup and on this host; 0 where it does not say."""
    total = 0
    for path in (cgroup, host):
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        total += sum(int(value) for name, _, value in (line.partition(" ") for line in lines) if name == "oom_kill")
    return total


def readable_bytes(num_bytes: float) -> str:
    """``1.5 GiB`` and the like, for messages."""
    for unit in ("bytes", "KiB", "MiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.0f} bytes" if unit == "bytes" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.1f} GiB"
