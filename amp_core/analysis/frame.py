"""What the analyses share: how one begins, is interrupted and ends."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator

from amp_core.analysis.start import trial_recipe
from amp_core.config import RunConfig
from amp_core.environment import environment
from amp_core.errors import Interrupted
from amp_core.events import Event, Finished, Report, Started
from amp_core.precision import precision_for
from amp_core.setup import build_step, device_named
from amp_core.workload import Workload


class Analysis(ABC):
    """The state of one analysis between its pieces of work."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.began = time.monotonic()

    @abstractmethod
    def events(self) -> Iterator[Event]:
        """Do the work: progress, findings, partial reports, and at last the final one."""

    @abstractmethod
    def report(self, final: bool) -> Report:
        """What is known so far."""

    def told(self) -> Iterator[Event]:
        """`events` and `Finished`; interrupted, one last partial report and no `Finished`."""
        try:
            yield from self.events()
        except Interrupted:
            yield self.report(final=False)
            return
        yield self._finished()

    def started(self, workload: Workload) -> Started:
        """The model under the recipe to be analysed, which is built for this and given up again."""
        recipe = trial_recipe(self.config.recipe)
        precision = precision_for(recipe, device_named(self.config.device))
        step = build_step(workload, recipe, precision, self.config.seed, self.config.steps)
        with precision.applied(step.model):
            return Started(
                numerics=precision.numerics,
                environment=environment(precision, self.config.workload.path),
                num_parameters=sum(p.numel() for p in step.model.parameters()),
                setup_s=time.monotonic() - self.began,
            )

    def _finished(self) -> Finished:
        """An analysis trains nothing that counts: no samples, no skipped steps, its whole time."""
        return Finished(
            metrics={},
            steps=self.config.steps,
            skipped_steps=0,
            samples=0,
            lost_samples=0,
            train_s=time.monotonic() - self.began,
            warmup_s=0.0,
        )
