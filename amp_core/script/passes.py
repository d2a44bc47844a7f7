"""Passes over a script's data: their end, the checkpoints between batches, and the way back to where one was made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from amp_core.checkpoints import Checkpoints, load_first
from amp_core.config import RunConfig
from amp_core.errors import Interrupted, NotResumable
from amp_core.events import Checkpointed, Event, NoCheckpoint
from amp_core.resume import capture, restore, rng_states, set_rng_states
from amp_core.script.loop import Loop
from amp_core.script.surroundings import ParentLine
from amp_core.training_data import batch_hash

Batch = TypeVar("Batch")


class DataPasses:
    """Counts the passes and batches that `over` gave out. A checkpoint is made between two batches.

    A resumed run yields nothing for the passes that are over and, in the one that is not, takes its batches again from
    the random state that pass began with, until the hash of the last one proves that they are the same.
    """

    def __init__(self, config: RunConfig, loop: Loop, send: Callable[[Event], None], line: ParentLine | None) -> None:
        self._config, self._loop, self._send, self._line = config, loop, send, line
        folder = config.checkpoint_dir
        self._checkpoints = Checkpoints(Path(folder), config.checkpoint_keep) if folder is not None else None
        self._checkpointed_at = time.perf_counter()
        self._checkpointed_number = 0
        self._target: dict[str, Any] | None = None
        self._pass = -1
        self._index = 0
        self._last: Any = None
        self._rng_at_start: dict[str, Any] = {}
        self.is_passing_over = False
        self.resumed_step = 0

    def resume(self) -> list[str]:
        """Put the newest usable checkpoint into model, optimizers and the rest; return why others were not used."""
        state, refused = load_first(self._config.resume_from)
        if state is None:
            return refused
        prepared, record = self._loop.prepared, self._loop.record
        try:
            restore(self._config, prepared, state)
            for schedule, saved in zip(prepared.schedules, state["script_schedules"], strict=True):
                schedule.load_state_dict(saved)
            record.load_state(state["progress"])
        except (KeyError, ValueError) as error:
            raise NotResumable(f"the checkpoint was made by another script: {error}") from error
        self._target = {**state["data"], "rng": state["rng"]}
        self.is_passing_over = True
        self.resumed_step = self._checkpointed_number = record.number
        return refused

    def over(self, loader: Iterable[Batch], should_stop: Callable[[], str]) -> Iterator[Batch]:
        """One pass. See `amp_core.script.engine.Engine.batches`."""
        self._pass += 1
        if self._target is not None and self._pass < self._target["pass"]:
            return
        batches = self._begin(loader)
        while True:
            self._loop.close()
            if self._is_due():
                self._checkpoint()
            if self._line is not None and self._line.is_asked_to_stop:
                raise Interrupted("the run was asked to stop")
            if should_stop():
                return
            try:
                batch = next(batches)
            except StopIteration:
                return
            self._index += 1
            self._last = batch
            yield batch

    def _begin(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """The batches that are left of this pass."""
        target, self._target = self._target, None
        self.is_passing_over = False
        device = self._loop.prepared.precision.device
        if target is not None:
            set_rng_states(target["rng_at_start"], device)
        self._index, self._last, self._rng_at_start = 0, None, rng_states(device)
        batches = iter(loader)
        if target is None:
            return batches
        for _ in range(target["index"]):
            self._last = next(batches, None)
            self._index += 1
        if (found := batch_hash(self._last)) != target["hash"]:
            raise NotResumable(
                f"the data cannot be taken up in pass {self._pass}: batch {self._index} has the hash {found[:12]}, not "
                f"{target['hash'][:12]}; what amp.batches() gets must depend on the global generators alone, which the "
                "engine puts back, or on the pass"
            )
        set_rng_states(target["rng"], device)
        return batches

    def _is_due(self) -> bool:
        number = self._loop.record.number
        if self._checkpoints is None or number == self._checkpointed_number or self._loop.is_accumulating:
            return False
        if self._config.steps and number >= self._config.steps:
            return False
        every = self._config.checkpoint_every_steps
        if self._line is not None and self._line.paused.is_set():
            return True
        if every and number % every == 0:
            return True
        return time.perf_counter() - self._checkpointed_at >= self._config.checkpoint_every_s

    def _checkpoint(self) -> None:
        """Say everything up to this step, then write the checkpoint."""
        assert self._checkpoints is not None
        record, prepared = self._loop.record, self._loop.prepared
        record.gather()
        record.flush()
        began = time.perf_counter()
        self._checkpointed_number = record.number
        try:
            state = {
                **capture(self._config, prepared),
                "script_schedules": [schedule.state_dict() for schedule in prepared.schedules],
                "data": self._position(),
                "progress": record.state(),
            }
            written = self._checkpoints.save(record.number, state)
        except (NotResumable, OSError) as error:
            final = isinstance(error, NotResumable)
            self._checkpoints = None if final else self._checkpoints
            self._send(NoCheckpoint(step=record.number, message=str(error), final=final))
        else:
            seconds = time.perf_counter() - began
            self._send(
                Checkpointed(step=record.number, path=str(written.path), num_bytes=written.num_bytes, seconds=seconds)
            )
        self._checkpointed_at = time.perf_counter()

    def _position(self) -> dict[str, Any]:
        return {
            "pass": self._pass,
            "index": self._index,
            "hash": batch_hash(self._last),
            "rng_at_start": self._rng_at_start,
        }
