"""Skipped steps that repeat: infinities that do not depend on the loss scale would drive it to zero for ever."""

from __future__ import annotations

from amp_core.config import Scaler
from amp_core.events import SkipsRepeat
from amp_core.telemetry.recorder import GatheredStep, GatheredSteps

HOPELESS_SCALE = 2.0**-24  # an overflow here is a gradient above 2**40; between overflows all gradients underflow


class SkipWatch:
    """Follows the gathered steps and says once when skipping cannot help any more.

    That is after ``stop_after_skips`` skips in a row, or when a dynamic scale has come down below `HOPELESS_SCALE`,
    which overflows that are not in a row reach as well (the ratchet).
    """

    def __init__(self, options: Scaler | None) -> None:
        self._options = options if options is not None and options.kind != "none" else None
        self._streak = 0
        self._scale_before = 0.0
        self._previous: SkipsRepeat | None = None

    @property
    def stopped(self) -> SkipsRepeat | None:
        """The finding, once there is one."""
        return self._previous

    def observe(self, steps: GatheredSteps) -> list[SkipsRepeat]:
        """The finding among newly gathered steps, if it is new."""
        if self._options is None or self._previous is not None or not self._options.stop_after_skips:
            return []
        if steps.are_ordinary:
            self._streak = 0
            return []
        for step in steps:
            if not step.skipped:
                self._streak = 0
                continue
            if self._streak == 0:
                self._scale_before = step.scale_before
            self._streak += 1
            if self._streak >= self._options.stop_after_skips or step.scale_after < HOPELESS_SCALE:
                self._previous = self._finding(self._options, step)
                return [self._previous]
        return []

    def state(self) -> dict[str, float]:
        """What a checkpoint keeps."""
        return {"streak": self._streak, "scale_before": self._scale_before}

    def load_state(self, state: dict[str, float]) -> None:
        self._streak, self._scale_before = int(state["streak"]), state["scale_before"]

    def _finding(self, options: Scaler, step: GatheredStep) -> SkipsRepeat:
        if step.scale_after < HOPELESS_SCALE:
            diagnosis = (
                f"The loss scale is down at {step.scale_after:.3g} and gradients still overflow at step {step.step}: "
                "these infinities do not depend on the scale. Look for a non-finite loss, batch or operation in fp16 "
                "(an exp, a sum of squares, a mask of -1e9), keep its module in FP32, or choose bf16-mixed."
            )
        elif options.kind == "static":
            diagnosis = (
                f"The last {self._streak} steps were skipped at the fixed loss scale {step.scale_after:g}: "
                "lower init_scale, or choose kind='dynamic', which comes down by itself."
            )
        else:
            diagnosis = (
                f"The last {self._streak} steps were skipped while the loss scale went from {self._scale_before:g} to "
                f"{step.scale_after:g}: an overflow that the scale causes ends on the way. Look for a non-finite loss, "
                "batch or operation in fp16, keep its module in FP32, or choose bf16-mixed."
            )
        return SkipsRepeat(
            step=step.step,
            streak=self._streak,
            scale_before=self._scale_before,
            scale_after=step.scale_after,
            diagnosis=diagnosis,
        )
