"""`Engine`: a recipe, its telemetry and its checkpoints for a training loop that you own. docs/scripts.md."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

from amp_core.environment import environment
from amp_core.errors import ContractError, Interrupted, TrainingStopped
from amp_core.evaluation import evaluation_mode
from amp_core.events import Started
from amp_core.script.ending import Ending
from amp_core.script.loop import Loop
from amp_core.script.own_scalers import refused_scalers
from amp_core.script.passes import DataPasses
from amp_core.script.prepared import Prepared, autocast_outside, gate_schedule, hooks, route_step
from amp_core.script.record import ScriptRecord
from amp_core.script.start import Start, begin
from amp_core.script.step import Step
from amp_core.seeding import preserved_rng
from amp_core.setup import device_named
from amp_core.tracking.run import TrackedRun
from amp_core.workload import num_samples_of, tensors_of

Batch = TypeVar("Batch")


class Engine:
    """One training run of a script. Make it with `from_env`; then `prepare`, `step`, and `evaluated` at the end."""

    def __init__(self, start: Start) -> None:
        self.config = start.config
        self._start = start
        self._began = time.perf_counter()
        self._lasting = ExitStack()
        self._loop: Loop | None = None
        self._passes: DataPasses | None = None
        self._ending = Ending(start.sink.send, self._finish, self._rest, is_process_wide=start.is_process_wide)

    @classmethod
    def from_env(
        cls,
        recipe: str | Mapping[str, Any] | None = None,
        *,
        seed: int | None = None,
        device: str | None = None,
        track: TrackedRun | None = None,
        checkpoint_dir: str | None = None,
    ) -> Engine:
        """The engine of the run this process was started for.

        Inside the worker, recipe, seed and device are the run's, whatever the arguments say, and the global random
        generators are seeded. Outside, ``recipe`` or AMPBOARD_RECIPE decides (else 32-true), generators are seeded only
        if a seed is given, checkpoints are written only into a ``checkpoint_dir`` (a run goes on from the newest one
        there), the model stays on its device unless one is named, and telemetry goes to ``track``, a run of
        `amp_core.tracking`, or nowhere.

        Raises:
            RecipeError: for a recipe that cannot work.
            ContractError: for an environment that does not lead to a run.
        """
        given = dict(recipe) if isinstance(recipe, Mapping) else recipe
        return cls(begin(given, seed, device, track, checkpoint_dir))

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.config.seed

    @property
    def steps(self) -> int:
        """How many steps the run was asked for; 0 outside the worker, where the loop decides."""
        return self.config.steps

    @property
    def params(self) -> dict[str, Any]:
        """The values of the workload's parameters."""
        return dict(self.config.workload.params)

    @property
    def device(self) -> torch.device:
        """The device of the run."""
        if self._loop is not None:
            return self._loop.prepared.precision.device
        return device_named("cpu" if self.config.device == "auto" else self.config.device)

    @property
    def resumed_step(self) -> int:
        """Steps that earlier attempts have made; `batches` passes over what they took."""
        return self._passes.resumed_step if self._passes is not None else 0

    @property
    def loop(self) -> Loop:
        """The mechanics behind `step`. Raises `ContractError` before `prepare`."""
        if self._loop is None:
            raise ContractError("amp.prepare(model, optimizer) comes first: the recipe is not applied yet")
        return self._loop

    @property
    def should_stop(self) -> str:
        """Why the loop should end now (all steps done, the run cancelled, nothing helps), or nothing."""
        record, line = self.loop.record, self._start.line
        if line is not None and line.is_asked_to_stop:
            return "The run was asked to stop."
        if self.steps and record.number >= self.steps:
            return f"All {self.steps} steps are done."
        return record.stopped

    def prepare(self, *things: Any) -> Any:
        """The same models, optimizers and schedulers, in place under the recipe; once, before the first step.

        From then on ``optimizer.step()`` goes through the loss scaler, schedulers stand still for skipped steps, and a
        model that is called outside of a step computes as in one and returns FP32. Raises `ContractError` for
        something else, and `RecipeError` for what the device cannot run.
        """
        if self._loop is not None:
            raise ContractError("amp.prepare() came twice: name all models and optimizers in one call")
        device = device_named(self.config.device) if self.config.device != "auto" else _device_of(things)
        prepared = Prepared(things, self.config, device, self._lasting)
        record = ScriptRecord(self.config, self._start.sink.send, prepared)
        self._lasting.callback(record.close_up.release)
        self._loop = Loop(prepared, record)
        self._lasting.enter_context(refused_scalers(self._loop))
        for model in prepared.models:
            self._lasting.enter_context(hooks(list(autocast_outside(model, prepared.precision, self._note_call))))
        for ledger in prepared.ledgers:
            route_step(ledger.optimizer, partial(self._loop.step, ledger))
        for schedule in prepared.schedules:
            gate_schedule(schedule, prepared.ledger(schedule.optimizer).count_real_steps)
        line = self._start.line
        self._passes = DataPasses(self.config, self._loop, self._start.sink.send, line)
        refused = self._passes.resume()
        self._start.sink.send(self._started(prepared, refused))
        return things[0] if len(things) == 1 else things

    def step(self, samples: int | None = None) -> Step:
        """The context of one step, or of one of the batches a step accumulates; ``samples`` is its batch size.

        Without it the first dimension of the model's first input counts. Raises `Interrupted` when the run was
        cancelled, and `TrainingStopped` when it cannot get better (`SkipsRepeat`, dead weights).
        """
        loop = self.loop
        loop.check_begin()
        loop.close()
        line = self._start.line
        if line is not None and line.is_asked_to_stop:
            raise Interrupted("the run was asked to stop")
        if loop.record.stopped:
            raise TrainingStopped(loop.record.stopped)
        return Step(loop, samples)

    def batches(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """One pass over the data, which ends with the run's last step and which a resumed run takes up where it was.

        Only a script whose data come through here gets checkpoints: elsewhere the place in them is not known. Raises
        `NotResumable` when the data are not those of the checkpoint.
        """
        _ = self.loop
        assert self._passes is not None
        return self._passes.over(loader, lambda: self.should_stop)

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Points of series of your own at the step at hand. Values are taken by `float`, which may wait."""
        loop = self.loop
        number = loop.record.number + (loop.block is not None or loop.is_pending)
        for name, value in metrics.items():
            loop.record.recorder.add(name, number, float(value))

    def evaluated(self, metrics: Mapping[str, Any], samples: int = 0) -> None:
        """Metrics of an evaluation, by name; the last ones are the run's result."""
        loop = self.loop
        loop.close()
        if self._passes is None or not self._passes.is_passing_over:
            loop.record.evaluated({str(n): float(v) for n, v in metrics.items()}, samples)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluation mode, no gradients, the recipe's autocast, the averaged weights; no trace in the generators."""
        loop = self.loop
        loop.close()
        prepared = loop.prepared
        prepared.real_steps.settle()
        with ExitStack() as stack:
            stack.enter_context(preserved_rng(self.device))
            stack.enter_context(evaluation_mode(prepared.model))
            if prepared.ema is not None:
                stack.enter_context(prepared.ema.in_place())
            stack.enter_context(torch.no_grad())
            stack.enter_context(prepared.precision.forward())
            yield

    def finish(self) -> None:
        """End the run: the last points and the result. It happens by itself when the script ends."""
        self._ending.finish()

    def _finish(self, stopped: str) -> None:
        """Say everything that is left; called once."""
        if self._loop is None:
            return
        loop = self._loop
        loop.close()
        line = self._start.line
        if line is not None and line.is_asked_to_stop and loop.record.number < self.steps:
            raise Interrupted("the run was asked to stop")
        if loop.num_backwards and not loop.record.number:
            raise ContractError(
                f"s.backward() came {loop.num_backwards} times and no optimizer stepped: call optimizer.step() of an "
                "optimizer named in amp.prepare()"
            )
        loop.record.end(stopped or self._stopped_early())
        self._lasting.close()

    def _rest(self) -> None:
        if self._loop is not None:
            self._loop.record.rest()

    def _stopped_early(self) -> str:
        record = self.loop.record
        return record.stopped if record.number < self.steps else ""

    def _note_call(self, inputs: Any) -> bool:
        """A prepared model is called: whether that is inside a step, whose number of samples it tells."""
        block = self._loop.block if self._loop is not None else None
        if block is None:
            return torch.is_autocast_enabled(self.device.type)
        if block.samples is None and next(tensors_of(inputs), None) is not None:
            block.samples = num_samples_of(inputs)
        return True

    def _started(self, prepared: Prepared, refused: list[str]) -> Started:
        path = self.config.workload.path
        script = {"path": sys.argv[0], "python": sys.executable, "cwd": os.getcwd()}  # noqa: PTH109
        return Started(
            numerics=prepared.precision.numerics,
            environment={**environment(prepared.precision, path), "script": script},
            num_parameters=sum(p.numel() for p in prepared.model.parameters()),
            setup_s=time.perf_counter() - self._began,
            resumed_step=self.loop.record.number,
            not_resumed=" ".join(f"{reason}." for reason in refused),
        )


def _device_of(things: tuple[Any, ...]) -> torch.device:
    """Where the first model is."""
    for thing in things:
        if isinstance(thing, nn.Module):
            parameter = next(thing.parameters(), None)
            if parameter is not None:
                return parameter.device
    return torch.device("cpu")
