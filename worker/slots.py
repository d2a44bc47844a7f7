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

    @property
    def preferred_kind(self) -> str:
        """The kind that a run on device ``auto`` gets here: a GPU where there is one."""
        return "cuda" if any(slot.kind == "cuda" for slot in self.slots) else "cpu"

    def wanted(self) -> set[str]:
        """Every value of a run's ``device`` that a free slot satisfies now."""
        free = {slot.device for slot in self._free} | {slot.kind for slot in self._free}
        return free | ({"auto"} if self.preferred_kind in free else set())

    def is_idle(self) -> bool:
        """Whether no run computes here."""
        return len(self._free) == len(self.slots)

    def take(self, device: str) -> Slot:
        """Take the first free slot that satisfies a run's ``device``; `wanted` said that there is one."""
        wanted = self.preferred_kind if device == "auto" else device
        slot = next(slot for slot in self._free if wanted in (slot.device, slot.kind))
        self._free.remove(slot)
        return slot

    def give_back(self, slot: Slot) -> None:
        """Make a taken slot free again."""
        assert slot not in self._free, "a slot is given back once"
        self._free.append(slot)
        self._free.sort(key=lambda free: free.number)
