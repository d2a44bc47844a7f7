"""How busy, full, warm and slowed the devices are: read now and then, kept for an hour."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import psutil
from sqlalchemy import delete
from sqlalchemy.orm import Session

from server.db.tables import DeviceReading
from worker.nvml import Nvml
from worker.slots import Slot

READ_EVERY_S = 10.0
KEPT = timedelta(hours=1)


class Devices:
    """The devices behind the slots as they are at the moment. ``nvml`` is None where there is none."""

    def __init__(self, slots: Sequence[Slot], nvml: Nvml | None = None) -> None:
        self._by_device = {slot.device: slot for slot in slots}
        self._nvml = nvml
        self._next_s = 0.0

    def free_bytes(self, slots: Sequence[Slot]) -> dict[str, int]:
        """Memory that is free now on the devices of these slots; those that do not tell are left out."""
        read = {slot.device: self._reading(slot).get("memory_free_bytes") for slot in slots}
        return {device: free for device, free in read.items() if free is not None}

    def due(self) -> bool:
        """Whether it is time for another reading."""
        if time.monotonic() < self._next_s:
            return False
        self._next_s = time.monotonic() + READ_EVERY_S
        return True

    def readings(self) -> dict[str, dict[str, Any]]:
        """Each device's reading."""
        return {device: self._reading(slot) for device, slot in self._by_device.items()}

    def _reading(self, slot: Slot) -> dict[str, Any]:
        if slot.kind == "cpu":
            return cpu_reading()
        return self._nvml.reading(str(slot.description.get("uuid"))) if self._nvml is not None else {}


def cpu_reading() -> dict[str, Any]:
    """The CPU's use since the last reading, the host's memory, and the warmest sensor where there is one."""
    memory = psutil.virtual_memory()
    reading: dict[str, Any] = {
        "utilisation": psutil.cpu_percent(interval=None) / 100,
        "memory_used_bytes": memory.total - memory.available,
        "memory_free_bytes": memory.available,
    }
    sensors: dict[str, Any] = getattr(psutil, "sensors_temperatures", dict)()
    warmest = max((entry.current for entries in sensors.values() for entry in entries), default=None)
    return reading if warmest is None else {**reading, "temperature_c": warmest}


def store_readings(session: Session, worker_id: int, readings: dict[str, dict[str, Any]], now: datetime) -> None:
    """Add readings and drop those of this worker that are older than an hour."""
    session.add_all(
        DeviceReading(worker_id=worker_id, device=device, at=now, values=values)
        for device, values in readings.items()
        if values
    )
    session.execute(delete(DeviceReading).where(DeviceReading.worker_id == worker_id, DeviceReading.at < now - KEPT))
    session.flush()
