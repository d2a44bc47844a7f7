"""The child process of one run: configuration on stdin, frames on a pipe, stdout and stderr as the log.

stdin stays open as the line to the parent: ``cancel`` ends the run softly, ``pause`` does so after a checkpoint, and
its end means that the parent is dead, so the whole process group dies too. torch is imported only after the
configuration and the line are in place.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import NoReturn, TextIO, cast

import msgspec

from amp_core.config import RunConfig
from amp_core.errors import Interrupted, ProtocolError, RecipeError
from amp_core.events import Event, Failed, Finished, Frame, Paused, encode_frame
from amp_core.failure import failure_of

OOM_SCORE = "500"  # of -1000 to 1000, on top of the share of memory in use


def run_and_exit(events_fd: int) -> NoReturn:
    """Run what stdin says and leave the process: 0 after `Finished`, 1 after `Failed`."""
    os.set_inheritable(events_fd, False)
    if os.getpgrp() != os.getpid():  # started by hand: what kills this run's group must not reach the shell's
        os.setpgid(0, 0)
    _prepare_log()
    _volunteer_for_the_kernel()
    writer = _Writer(events_fd)
    line = _ParentLine()
    code = 1
    try:
        config = line.config()
        threading.Thread(target=line.watch, name="parent line", daemon=True).start()
        code = _run(config, writer, line)
    except ProtocolError as error:
        writer.send(Failed(kind="exception", message=str(error)))
    except Exception:  # noqa: BLE001 - a fault of this module, or a broken event pipe: the log is all that is left
        traceback.print_exc()
    finally:
        _leave(code)  # no atexit, no waiting for a workload's threads: the run is over when its events are out


class _Writer:
    """Numbers events and writes their frames."""

    def __init__(self, events_fd: int) -> None:
        self._fd = events_fd
        self._sequence = 0

    def send(self, event: Event) -> None:
        frame = Frame(sequence=self._sequence + 1, at=time.time(), event=event)  # type: ignore[arg-type]  # one of AnyEvent
        view = memoryview(encode_frame(frame))
        self._sequence += 1
        while view:
            view = view[os.write(self._fd, view) :]


class _ParentLine:
    """stdin, moved to a private descriptor so that a workload that reads stdin finds nothing there."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.paused = threading.Event()
        self._fd = os.dup(0)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        self._rest = b""

    def config(self) -> RunConfig:
        """The configuration on the first line. Raises `ProtocolError`."""
        given = bytearray()
        while b"\n" not in given:
            part = os.read(self._fd, 65536)
            if not part:
                raise ProtocolError(f"stdin ended after {len(given)} bytes, before the line with the configuration")
            given += part
        line, _, self._rest = bytes(given).partition(b"\n")
        try:
            return msgspec.json.decode(line, type=RunConfig)
        except (msgspec.MsgspecError, RecipeError) as error:
            raise ProtocolError(f"the first line of stdin is no run configuration: {error}") from error

    def watch(self) -> None:
        """Wait for ``cancel``, ``pause`` or the parent's death."""
        given = self._rest
        while True:
            if b"cancel" in given:
                self.cancelled.set()
            if b"pause" in given:
                self.paused.set()
            given = os.read(self._fd, 4096)
            if not given:
                os.killpg(0, signal.SIGKILL)


def _run(config: RunConfig, writer: _Writer, line: _ParentLine) -> int:
    """Send every event of the run, and `Failed` if it does not come to its end."""
    code = 1
    try:
        _enter(Path(config.scratch_dir))
        is_training = config.kind == "train"  # which stops by itself to pause, between two steps
        stops = (line.cancelled,) if is_training else (line.cancelled, line.paused)
        for event in _interruptible(_events(config, line), stops):
            writer.send(event)
            if isinstance(event, Finished):
                code = 0
        if code and line.cancelled.is_set():
            writer.send(Failed(kind="interrupted", message="The run was asked to stop and stopped."))
        elif code and line.paused.is_set():
            writer.send(Paused())
        elif code:
            writer.send(Failed(kind="exception", message="The run ended without its last event."))
    except BrokenPipeError:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever ends the run is what its record must say
        writer.send(failure_of(error))
    return code


def _events(config: RunConfig, line: _ParentLine) -> Iterator[Event]:
    """The events of a configuration; torch is imported here. A training ends after a checkpoint once paused."""
    if config.kind == "benchmark":
        from amp_core.benchmark import benchmark

        return benchmark(config)
    from amp_core import loader, training
    from amp_core.script.workload import ScriptWorkload

    workload = loader.load(config.workload)
    stops = {b"cancel\n": line.cancelled, b"pause\n": line.paused}
    if isinstance(workload, ScriptWorkload):
        from amp_core.script.process import run_script

        return run_script(config, workload, stops)
    if config.ranks > 1 or config.distribution.nnodes > 1:
        from amp_core.distributed.launch import run_ranks

        return run_ranks(config, stops)
    if config.kind != "train":
        from amp_core.analysis import analysis_of

        return analysis_of(config.kind)(config, workload)
    from amp_core.checkpoints import Checkpoints

    folder = config.checkpoint_dir
    keep, kept = config.checkpoint_keep, config.keep_steps
    checkpoints = Checkpoints(Path(folder), keep, kept) if folder is not None else None
    return training.train(config, workload, checkpoints, line.paused.is_set)


def _interruptible(events: Iterator[Event], stops: Sequence[threading.Event]) -> Iterator[Event]:
    """The events, with `Interrupted` thrown in once when one of ``stops`` has come."""
    generator = cast("Generator[Event, None, None]", events)
    thrown = False
    try:
        while True:
            if not thrown and any(stop.is_set() for stop in stops):
                thrown = True
                event = generator.throw(Interrupted())
            else:
                event = next(generator)
            yield event
    except (StopIteration, Interrupted):
        return


def _enter(scratch: Path) -> None:
    """Work in the run's scratch folder, so that files a workload drops do not land elsewhere."""
    scratch.mkdir(parents=True, exist_ok=True)
    os.chdir(scratch)


def _prepare_log() -> None:
    """Lines reach the log as they are written, whatever they hold; a crash in native code leaves its stack there."""
    sys.stdout, sys.stderr = _log_stream(1), _log_stream(2)
    faulthandler.enable()


def _log_stream(descriptor: int) -> TextIO:
    """A new stream, because those of a fork were made for other files than the log."""
    return open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _volunteer_for_the_kernel() -> None:
    """When memory runs out, the kernel is to kill the run and neither the worker nor the server."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE, encoding="ascii")


def _leave(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(code)
