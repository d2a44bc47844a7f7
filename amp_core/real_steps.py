"""What happens after a step only if it was not skipped: the learning rate schedule and the average of the weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler

from amp_core.ema import Ema


class RealSteps:
    """Moves the schedules and the average on for every step that changed the weights.

    On a CPU at once. On CUDA whether a step was skipped is copied to the host beside the work and looked at just
    before the next update, when the device has long known it: the host is never more than one step ahead, and the
    device never idle for it.
    """

    def __init__(self, schedules: Sequence[LRScheduler], ema: Ema | None) -> None:
        self.schedules = tuple(schedules)
        self.ema = ema
        self._flag: Tensor | None = None  # pinned; above 0 for a skipped step
        self._copied: torch.cuda.Event | None = None
        self._is_waiting = False

    @property
    def matters(self) -> bool:
        """Whether there is anything to move on."""
        return bool(self.schedules) or self.ema is not None

    def note(self, found_inf: Tensor | None) -> None:
        """A step has been made; ``found_inf`` above 0 says that it changed nothing."""
        if not self.matters:
            return
        if found_inf is None:
            self._advance()
        elif found_inf.device.type == "cpu":
            if float(found_inf) == 0.0:
                self._advance()
        else:
            self._copy(found_inf)

    def settle(self) -> None:
        """Catch up: call before weights, learning rates or the average are used."""
        if self._is_waiting:
            assert self._flag is not None
            assert self._copied is not None
            self._copied.synchronize()
            self._is_waiting = False
            if float(self._flag) == 0.0:
                self._advance()

    def _advance(self) -> None:
        for schedule in self.schedules:
            schedule.step()
        if self.ema is not None:
            self.ema.update()

    def _copy(self, found_inf: Tensor) -> None:
        if self._flag is None:
            self._flag = torch.zeros((), pin_memory=True)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        assert self._copied is not None
        self._flag.copy_(found_inf, non_blocking=True)
        self._copied.record()
        self._is_waiting = True
