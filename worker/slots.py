"""Slots: a device that one run at a time may use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Slot:
    """One device of this host. ``device`` is ``cpu`` or ``cuda:N``; ``description`` is what the store shows of it."""

    number: int
    device: str
    description: dict[str, Any] = field(default_factory=dict, compare=False, hash=False)

    @property
    def kind(self) -> str:
        return self.device.partition(":")[0]


class SlotPool:
    """Which slots are free. The caller serialises its calls."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        if not slots:
            raise ValueError("a worker without a device cannot run anything: give at least one slot")
        self.slots = tuple(slots)
        self._free = list(slots)

    def free(self) -> list[Slot]:
        """The free slots, by number."""
        return list(self._free)

    def take(self, devices: Sequence[str]) -> tuple[Slot, ...]:
        """Take a free slot of each of these devices; `free` said that there is one."""
        taken = []
        for device in devices:
            slot = next(slot for slot in self._free if slot.device == device)
            self._free.remove(slot)
            taken.append(slot)
        return tuple(taken)

    def give_back(self, slots: Sequence[Slot]) -> None:
        """Make taken slots free again."""
        for slot in slots:
            assert slot not in self._free, "a slot is given back once"
            self._free.append(slot)
        self._free.sort(key=lambda free: free.number)
