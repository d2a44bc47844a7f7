"""One launcher for each set of devices: what it starts sees those devices and no other."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from amp_core.launcher import Launcher, child_environment
from worker.slots import Slot


class Launchers:
    """Launchers by devices, made when first needed; those of single devices at once, so that they are warm by then.

    A run on several devices starts cold: a fork server per combination would fill the memory with copies of torch.
    """

    def __init__(self, slots: Sequence[Slot], *, warm: bool) -> None:
        self._warm = warm
        self._lock = threading.Lock()
        self._by_devices: dict[tuple[str, ...], Launcher] = {}
        try:
            for slot in slots:
                self.of([slot])
        except BaseException:
            self.close()
            raise

    def of(self, slots: Sequence[Slot]) -> Launcher:
        """The launcher for exactly these devices."""
        devices = tuple(slot.device for slot in slots)
        with self._lock:
            launcher = self._by_devices.get(devices)
            if launcher is None:
                environment = {**child_environment(), "CUDA_VISIBLE_DEVICES": visible_devices(slots)}
                launcher = Launcher(warm=self._warm and len(devices) == 1, env=environment)
                self._by_devices[devices] = launcher
            return launcher

    def close(self) -> None:
        """Kill what still runs, and end the fork servers."""
        for launcher in self._by_devices.values():
            launcher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def visible_devices(slots: Sequence[Slot]) -> str:
    """CUDA_VISIBLE_DEVICES of a run on these slots: their UUIDs; empty for a run on the CPU, which then sees no GPU."""
    return ",".join(str(slot.description["uuid"]) for slot in slots if slot.kind == "cuda")
