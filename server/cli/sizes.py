"""Sizes for people."""

from __future__ import annotations


def readable(num_bytes: int) -> str:
    """Bytes in the unit that leaves one to three digits before the point."""
    size, unit = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
