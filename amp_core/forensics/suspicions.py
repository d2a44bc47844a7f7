"""What in a run's events calls for a diagnosis. Reads events that are there anyway; nothing is measured for it."""

from __future__ import annotations

from dataclasses import dataclass

from amp_core.events import Event, NonFinite, SkipsRepeat, StepSkipped, ZeroGradients

STREAK = 8  # skipped steps in a row that are no search for a scale any more
COLLAPSED_SCALE = 1.0


@dataclass(frozen=True, kw_only=True)
class Suspicion:
    """What was seen, and at which step: ``error``, ``non_finite``, ``evaluation``, ``skips`` (they do not end),
    ``skip`` (a single one), ``zero_gradients``; and what only a closer look at a quiet run shows: ``loss`` (another one
    than FP32's from the same weights) and ``updates`` (weights stored low may stand still).
    """

    cause: str
    step: int


class Suspicions:
    """The first of each kind among the events of a run; of skips without end the last, when the scale was lowest."""

    def __init__(self) -> None:
        self._first: dict[str, Suspicion] = {}
        self._streak = self._last_skip = 0

    def __bool__(self) -> bool:
        return bool(self._first)

    def add(self, cause: str, step: int) -> None:
        self._first.setdefault(cause, Suspicion(cause=cause, step=step))

    def note(self, event: Event) -> None:
        if isinstance(event, StepSkipped):
            self._note_skip(event)
        elif isinstance(event, SkipsRepeat):
            self._first["skips"] = Suspicion(cause="skips", step=event.step)
        elif isinstance(event, NonFinite):
            self.add("evaluation" if event.where == "evaluation" else "non_finite", event.step)
        elif isinstance(event, ZeroGradients):
            self.add("zero_gradients", event.step)

    def _note_skip(self, event: StepSkipped) -> None:
        self._streak = self._streak + 1 if event.step == self._last_skip + 1 else 1
        self._last_skip = event.step
        self.add("skip", event.step)
        if self._streak >= STREAK or event.scale_after < COLLAPSED_SCALE:
            self._first["skips"] = Suspicion(cause="skips", step=event.step)

    def ordered(self) -> list[Suspicion]:
        """The gravest first: what ended the run, then the earliest; a single skip is told only by itself."""
        if "error" in self._first:
            return [self._first["error"]]
        grave = [s for s in self._first.values() if s.cause not in ("skip", "evaluation")]
        evaluation = [s for s in self._first.values() if s.cause == "evaluation" and not grave]
        skip = [s for s in self._first.values() if s.cause == "skip" and "skips" not in self._first]
        return [*sorted(grave, key=lambda s: s.step), *evaluation, *skip]
