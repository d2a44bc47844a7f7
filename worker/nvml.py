"""NVIDIA devices by NVML: what there is, MIG instances included, and how each is at the moment.

The library is an optional package (`nvidia-ml-py`, module `pynvml`); without it, or without a driver, `open_nvml` gives
None and `worker.devices` asks ``nvidia-smi`` once instead. Everything a device does not tell is left out.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

from worker.abilities import gpu_abilities

Reading = dict[str, Any]
THROTTLING = {  # bits of nvmlDeviceGetCurrentClocksEventReasons that slow a device against its will
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "hot (software)",
    0x40: "hot (hardware)",
    0x80: "power brake",
}

_log = logging.getLogger(__name__)


def open_nvml() -> Nvml | None:
    """NVML, if its package and a driver are here."""
    try:
        library = importlib.import_module("pynvml")
        library.nvmlInit()
    except ImportError:
        return None
    except Exception as error:  # noqa: BLE001 - the library's own error class is known only where it is installed
        _log.info("NVML does not answer (%s)", error)
        return None
    return Nvml(library)


class Nvml:
    """One opened NVML library. The devices keep their handles, so that reading them is cheap."""

    def __init__(self, library: Any) -> None:
        self._nvml = library
        self._handles: dict[str, Any] = {}

    def devices(self) -> list[dict[str, Any]]:
        """Every device, in NVML's order (that of the PCI bus, as ``nvidia-smi`` lists them); a GPU that is cut into
        MIG instances is given as these.
        """
        found: list[dict[str, Any]] = []
        for index in range(self._nvml.nvmlDeviceGetCount()):
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            whole = self._description(handle, f"cuda:{index}", index)
            parts = list(self._instances(handle, index, whole))
            found += parts or [self._kept(whole, handle)]
        return found

    def reading(self, uuid: str) -> Reading:
        """How the device is now: fractions, bytes, watts, degrees Celsius, megahertz, and why it is slowed."""
        handle, nvml = self._handles.get(uuid), self._nvml
        if handle is None:
            return {}
        asked: dict[str, Callable[[], Any]] = {
            "utilisation": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
            "memory_used_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).used),
            "memory_free_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).free),
            "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "throttled": lambda: throttling(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
        }
        told = {name: self._told(ask) for name, ask in asked.items()}
        return {name: value for name, value in told.items() if value is not None}

    def close(self) -> None:
        """Give the library back."""
        with contextlib.suppress(Exception):
            self._nvml.nvmlShutdown()

    def _instances(self, handle: Any, index: int, whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
        mode = self._told(lambda: self._nvml.nvmlDeviceGetMigMode(handle)[0])
        if not mode:
            return
        for number in range(self._told(lambda: self._nvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0):
            part = self._told(lambda n=number: self._nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, n))  # type: ignore[misc]  # a default binds the loop's value
            if part is not None:
                description = self._description(part, f"cuda:{index}.{number}", index)
                own = {"compute_capability": whole["compute_capability"], "abilities": whole["abilities"], "mig": True}
                yield self._kept({**description, **own}, part)

    def _description(self, handle: Any, device: str, index: int) -> dict[str, Any]:
        nvml = self._nvml
        capability = self._told(lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle)) or (0, 0)
        return {
            "kind": "cuda",
            "device": device,
            "index": index,
            "uuid": text(nvml.nvmlDeviceGetUUID(handle)),
            "name": text(self._told(lambda: nvml.nvmlDeviceGetName(handle)) or "NVIDIA device"),
            "memory_bytes": self._told(lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total)),
            "compute_capability": f"{capability[0]}.{capability[1]}",
            "driver": text(self._told(nvml.nvmlSystemGetDriverVersion) or ""),
            "abilities": gpu_abilities(*capability),
        }

    def _kept(self, description: dict[str, Any], handle: Any) -> dict[str, Any]:
        self._handles[description["uuid"]] = handle
        return description

    def _told(self, ask: Callable[[], Any]) -> Any:
        """The answer, or None where this device, driver or version of the library has none."""
        try:
            return ask()
        except (self._nvml.NVMLError, AttributeError):
            return None


def throttling(reasons: int) -> list[str]:
    """The reasons of the bit field that slow a device against its will, in words."""
    return [words for bit, words in THROTTLING.items() if reasons & bit]


def text(value: str | bytes) -> str:
    """What NVML says, which was bytes in its earlier versions."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
