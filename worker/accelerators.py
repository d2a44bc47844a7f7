"""Accelerators that this host has but that runs here cannot use: they are shown, and offered to nobody."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

_AMD, _INTEL = "0x1002", "0x8086"
_DISPLAY_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")  # of PCI: VGA, 3D, other display, accelerator


def unused_accelerators(pci: Path = Path("/sys/bus/pci/devices"), kfd: Path = Path("/dev/kfd")) -> list[dict[str, Any]]:
    """One entry per accelerator with ``slots`` 0 and the reason in ``unused``; empty where none is found."""
    found: list[dict[str, Any]] = []
    if sys.platform == "darwin" and platform.machine() == "arm64":
        found.append(_entry("mps", "Apple GPU", "runs use the CPU: mixed precision on MPS is not measured here"))
    for device in sorted(pci.glob("*")) if pci.is_dir() else []:
        vendor, device_class = _read(device / "vendor"), _read(device / "class")[:6]
        if device_class not in _DISPLAY_CLASSES:
            continue
        name = f"PCI {device.name}, {_read(device / 'device')}"
        if vendor == _AMD:
            driver = "" if kfd.exists() else "; its compute driver (/dev/kfd) is not loaded either"
            found.append(_entry("rocm", f"AMD GPU ({name})", f"runs are not started on ROCm{driver}"))
        elif vendor == _INTEL and device_class != "0x0300":  # 0x0300 is the graphics inside a processor
            found.append(_entry("xpu", f"Intel GPU ({name})", "runs are not started on Intel GPUs"))
    return found


def _entry(kind: str, name: str, reason: str) -> dict[str, Any]:
    return {"kind": kind, "device": kind, "name": name, "slots": 0, "abilities": [], "unused": reason}


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
