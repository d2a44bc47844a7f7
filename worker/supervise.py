"""One attempt of one run: its child process, watched from start to end."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from amp_core.config import RunConfig
from amp_core.errors import ProtocolError
from amp_core.events import Checkpointed, Evaluated, Failed, Finished, Frame, Paused, Segment, read_frames
from amp_core.launcher import Child, Launcher
from worker.active import Requests
from worker.ending import REMEDIES, Ending, Evidence, Reason, ending_of
from worker.limits import group_rss_bytes, num_oom_kills, readable_bytes
from worker.log_capture import LogCapture
from worker.partners import Partners
from worker.record import Recorder
from worker.seat_record import SeatRecorder
from worker.shared_checkpoints import WAIT_S, CheckpointUploads

TICK_S = 0.1
MEMORY_CHECK_S = 0.25
CANCEL_GRACE_S = 10.0
PAUSE_GRACE_S = 60.0  # a checkpoint may be large
DRAIN_S = 5.0
LOG_CHUNK_BYTES = 64 * 1024

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """After how long, and above how much resident memory of its process group, a run is killed."""

    max_time_s: float
    max_memory_bytes: int | None = None
    cancel_grace_s: float = CANCEL_GRACE_S
    pause_grace_s: float = PAUSE_GRACE_S


class Supervision:
    """Runs one child. `run` blocks in the slot's thread; other threads ask it to stop through ``requests``.

    A cancel asks the child to stop, and kills it after a grace; so does a pause, with time for a checkpoint. A lost or
    abandoned attempt's child is killed at once, and the attempt stays open. ``partners`` are the other hosts of a run
    that begins on this one: when one of them breaks, the child is killed, and they say how the attempt ended.
    """

    def __init__(
        self,
        recorder: Recorder | SeatRecorder,
        launcher: Launcher,
        config: RunConfig,
        limits: Limits,
        requests: Requests,
        uploads: CheckpointUploads | None = None,
        partners: Partners | None = None,
    ) -> None:
        self._requests, self._uploads, self._partners = requests, uploads, partners
        self._recorder, self._launcher = recorder, launcher
        self._config, self._limits = config, limits
        self._step = 0
        self._finished: Finished | None = None
        self._failed: Failed | None = None
        self._stopped_for: Reason | None = None
        self._pipe_fault: Reason | None = None
        self._cancelled_at: float | None = None
        self._was_killed = False
        self._paused_at: float | None = None
        self._has_paused = False

    def run(self) -> bool:
        """Run the child to its end and store it; return whether the attempt has ended in the store."""
        self._recorder.start()
        try:
            ending = self._execute()
        except Exception as error:  # noqa: BLE001 - a fault of this worker must not leave the run without an end
            _log.error("supervising run %d failed", self._config.run_id, exc_info=error)
            ending = Ending(outcome="failed", reason=_worker_fault(error))
        if self._partners is not None and ending is not None:
            ending = self._partners.judged(ending)
        if self._requests.lost.is_set():
            ending = None
        elif self._recorder.failure is not None and ending is not None:
            ending = replace(ending, outcome="failed", reason=self._recorder.failure)
        if self._uploads is not None:  # before anybody else can go on with the run
            self._uploads.finish(
                WAIT_S if ending is not None and ending.outcome in ("paused", "failed", "lost") else 0.0
            )
        stored = self._recorder.finish(ending, give_up=self._requests.abandon)
        return stored and ending is not None

    def _execute(self) -> Ending | None:
        """Launch, watch, collect; None when the attempt stays open because this worker stops."""
        oom_kills = num_oom_kills()
        try:
            child = self._launcher.launch(self._config)
        except Exception as error:  # noqa: BLE001 - whatever stops a launch is the run's reason
            _log.warning("run %d could not be launched", self._config.run_id, exc_info=error)
            return Ending(outcome="failed", reason=_launch_failure(error))
        readers = [
            threading.Thread(target=self._read_events, args=(child.events,), name="events", daemon=True),
            threading.Thread(target=self._read_log, args=(child.log,), name="log", daemon=True),
        ]
        for reader in readers:
            reader.start()
        try:
            exit_code = self._watch(child)
        finally:
            child.kill()  # also after its end: a grandchild may live on and hold the pipes open
            for reader in readers:
                reader.join(DRAIN_S)
        if self._requests.abandon.is_set() and self._finished is None and self._stopped_for is None:
            return None
        return ending_of(
            Evidence(
                exit_code=exit_code, step=self._step, has_finished=self._finished is not None, failed=self._failed,
                stopped_for=self._stopped_for or self._pipe_fault, was_cancelled=self._cancelled_at is not None,
                was_killed=self._was_killed, has_paused=self._has_paused, was_oom_killed=num_oom_kills() > oom_kills,
            )
        )  # fmt: skip

    def _watch(self, child: Child) -> int:
        """Wait for the child's end, enforcing limits and requests; return its exit code."""
        started = time.monotonic()
        memory_checked = started
        while (exit_code := child.wait(TICK_S)) is None:
            now = time.monotonic()
            if self._requests.lost.is_set() or self._requests.abandon.is_set():
                self._kill(child, None)
            elif (fault := self._pipe_fault or self._recorder.failure) is not None:
                self._kill(child, fault)
            elif now - started > self._limits.max_time_s:
                self._kill(child, self._time_limit())
            elif self._requests.broken.is_set():
                self._kill(child, None)
            elif self._requests.cancel.is_set():
                self._cancel(child, now)
            elif self._requests.pause.is_set():
                self._pause(child, now)
            elif self._limits.max_memory_bytes is not None and now - memory_checked >= MEMORY_CHECK_S:
                memory_checked = now
                self._check_memory(child, self._limits.max_memory_bytes)
        return exit_code

    def _cancel(self, child: Child, now: float) -> None:
        if self._cancelled_at is None:
            self._cancelled_at = now
            child.cancel()
        elif now - self._cancelled_at > self._limits.cancel_grace_s and not self._was_killed:
            self._kill(child, None)

    def _pause(self, child: Child, now: float) -> None:
        if self._paused_at is None:
            self._paused_at = now
            child.pause()
        elif now - self._paused_at > self._limits.pause_grace_s and not self._was_killed:
            self._has_paused = True  # it goes on from an earlier checkpoint, or from step 1
            self._kill(child, None)

    def _check_memory(self, child: Child, limit: int) -> None:
        used = group_rss_bytes(child.pid)
        if used > limit:
            message = (
                f"The run used {readable_bytes(used)} of memory at step {self._step}, above its limit of "
                f"{readable_bytes(limit)}, and was killed."
            )
            reason = {"kind": "out_of_memory", "message": message, "remedy": REMEDIES["out_of_memory"]}
            self._kill(child, reason)

    def _time_limit(self) -> Reason:
        message = (
            f"The run took longer than its limit of {self._limits.max_time_s:g} s and was killed at step {self._step} "
            f"of {self._config.steps}."
        )
        return {"kind": "time_limit", "message": message, "remedy": "Raise max_time_s, or give the run fewer steps."}

    def _kill(self, child: Child, reason: Reason | None) -> None:
        if not self._was_killed:
            self._was_killed = True
            self._stopped_for = reason
            child.kill()

    def _read_events(self, pipe: BinaryIO) -> None:
        try:
            with pipe:
                for frame in read_frames(pipe):
                    self._note(frame)
                    self._recorder.put_frame(frame)
        except ProtocolError as error:
            message = f"The event pipe broke after step {self._step}: {error}."
            self._pipe_fault = {"kind": "protocol", "message": message, "remedy": REMEDIES["protocol"]}
        except (OSError, ValueError) as error:  # closed under us after the child's end
            _log.debug("event pipe of run %d: %s", self._config.run_id, error)

    def _read_log(self, pipe: BinaryIO) -> None:
        capture = LogCapture()
        try:
            with pipe:
                while data := _read_some(pipe):
                    self._recorder.put_log(capture.feed(data))
        except (OSError, ValueError) as error:
            _log.debug("log pipe of run %d: %s", self._config.run_id, error)
        self._recorder.put_log(capture.end())

    def _note(self, frame: Frame) -> None:
        event = frame.event
        if isinstance(event, Segment):
            last = [int.from_bytes(column.steps[-8:], "little", signed=True) for column in event.columns]
            self._step = max([self._step, *last])
        elif isinstance(event, Evaluated):
            self._step = max(self._step, event.step)
        elif isinstance(event, Finished):
            self._finished = event
        elif isinstance(event, Failed):
            self._failed = event
        elif isinstance(event, Paused):
            self._has_paused = True
        elif isinstance(event, Checkpointed) and self._uploads is not None:
            self._uploads.offer(Path(event.path))


def _read_some(pipe: BinaryIO) -> bytes:
    """What the pipe has now, at least one byte; empty at its end."""
    read1 = getattr(pipe, "read1", None)
    data: bytes = read1(LOG_CHUNK_BYTES) if read1 is not None else pipe.read(LOG_CHUNK_BYTES)
    return data


def _launch_failure(error: Exception) -> Reason:
    return {
        "kind": "launch",
        "message": f"The run's process could not be started: {type(error).__name__}: {error}",
        "remedy": "See the worker's log and its host: memory, process limits, file descriptors.",
    }


def _worker_fault(error: Exception) -> Reason:
    return {
        "kind": "worker",
        "message": f"The worker failed while it watched the run: {type(error).__name__}: {error}",
        "remedy": "Report this with the worker's log, then retry the run.",
    }
