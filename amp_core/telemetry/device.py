"""Power, clocks, temperature, energy and utilisation of an NVIDIA device, by NVML where it is installed.

The package is nvidia-ml-py, an optional import: without it, without a driver or on a device that does not tell, the
series are absent, and nothing fails.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import torch

from amp_core.telemetry.recorder import Recorder

MIN_INTERVAL_S = 1.0  # a look takes about a millisecond, and the driver itself averages power over longer


class DeviceGauge:
    """Adds the device's figures to a recorder, at most once a second. ``nvml`` is the module pynvml, or None."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._looked_at = float("-inf")
        self._readings: dict[str, Callable[[], float]] = {}
        if nvml is not None and handle is not None:
            self._readings = self._those_it_tells()

    @classmethod
    def of(cls, device: torch.device) -> DeviceGauge:
        """The gauge of a torch device; one without readings where there is nothing to read."""
        if device.type != "cuda":
            return cls(None, None)
        try:
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
            return cls(nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}"))
        except Exception:  # noqa: BLE001 - not installed, no driver, a container without it: there is no gauge
            return cls(None, None)

    def _those_it_tells(self) -> dict[str, Callable[[], float]]:
        nvml, handle = self._nvml, self._handle
        candidates: dict[str, Callable[[], float]] = {
            "device/power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,  # milliwatts
            "device/energy_j": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3,  # millijoules
            "device/temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "device/clock_sm_hz": lambda: 1e6 * nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "device/clock_memory_hz": lambda: 1e6 * nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "device/utilisation": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
            "device/memory_used_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
        }
        told = {name: value for name, read in candidates.items() if (value := _value(read)) is not None}
        energy = told.get("device/energy_j")
        if energy is not None:
            since_driver = candidates["device/energy_j"]
            candidates["device/energy_j"] = lambda: since_driver() - energy
        return {name: read for name, read in candidates.items() if name in told}

    def add_to(self, recorder: Recorder, step: int) -> None:
        """One point of each series that the device tells, unless the last ones are younger than a second."""
        now = time.monotonic()
        if not self._readings or now - self._looked_at < MIN_INTERVAL_S:
            return
        self._looked_at = now
        for name, read in self._readings.items():
            value = _value(read)
            if value is not None:
                recorder.add(name, step, value)


def _value(read: Callable[[], float]) -> float | None:
    try:
        return float(read())
    except Exception:  # noqa: BLE001 - NVML's own error classes, which exist only where it is installed
        return None
