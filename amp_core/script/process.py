"""Runs a script, or the ranks of a run, as processes of this child's, and passes their events on. No torch.

Named pipes in the run's scratch folder: events come up; the line down says ``cancel`` or ``pause`` and, by its end,
that this process is dead. Named ones, because torchrun hands no descriptors on.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

import amp_core
from amp_core.config import RunConfig
from amp_core.errors import Interrupted, ProcessFailed, ProtocolError, WorkloadError
from amp_core.events import Event, Failed, Finished, read_frames
from amp_core.script.surroundings import EVENTS, LINE, RUN
from amp_core.script.workload import ScriptWorkload

Stops = Mapping[bytes, threading.Event]  # what is written to the line once the event is set

POLL_S = 0.05
DRAIN_S = 2.0
DIE_WITH = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)


def run_script(config: RunConfig, workload: ScriptWorkload, stops: Stops) -> Iterator[Event]:
    """The events of a run of a script, which is started now. Raises `WorkloadError` and `ProcessFailed`."""
    if config.ranks > 1:
        raise WorkloadError(
            f"ranks={config.ranks} with workload {workload.name!r}: a script starts its own ranks; leave it out"
        )
    if config.kind != "train":
        raise WorkloadError(
            f"kind={config.kind!r} with workload {workload.name!r}: a script owns its loop, so that only "
            "training runs can be made of it; leave it out"
        )
    command = workload.command(config.steps, config.seed)
    scratch = Path.cwd()
    paths = [str(_amp_core_alone(scratch)), os.environ.get("PYTHONPATH", ""), command.env.get("PYTHONPATH", "")]
    env = {
        **os.environ, "PYTHONUNBUFFERED": "1", **command.env, "AMPBOARD_RECIPE": config.recipe.precision,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }  # fmt: skip
    yield from relayed(config, command.argv, command.cwd, env, stops, "The script", num_lines=1)


def relayed(
    config: RunConfig,
    argv: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    stops: Stops,
    what: str,
    num_lines: int,
    noted: Callable[[Event], object] = bool,
) -> Iterator[Event]:
    """Start ``argv`` with the run in its surroundings and yield what it says, until it ends.

    ``noted`` is called with each event, also with those that say how it ended. `Finished` comes last and only with
    exit code 0, or when the run stopped early on purpose. A signal that killed the process kills this one in the same
    way, so that the record says what happened.

    Raises:
        ProcessFailed: with the process's own failure, or its exit code.
    """
    pipes = _Pipes(config, Path.cwd(), num_lines)
    try:
        process = subprocess.Popen(argv, cwd=cwd, env={**env, **pipes.env}, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise WorkloadError(f"{argv[0]} cannot be started: {error.strerror or error}") from error
    last: Finished | Failed | None = None
    events = pipes.events(process, stops)
    while True:
        try:
            for event in events:
                noted(event)
                if isinstance(event, Finished | Failed):
                    if last is None or _is_consequence(last):  # of several ranks, the first to fail has the reason
                        last = event
                else:
                    yield event
        except Interrupted:  # thrown in at the yield: the line has told the process, which hands over the rest
            events = pipes.events(process, stops)
            continue
        break
    yield from _ended(process.wait(), last, what)


def _is_consequence(event: Finished | Failed) -> bool:
    """Whether a rank says only that another one is gone."""
    return isinstance(event, Failed) and event.kind == "peer"


def _ended(code: int, last: Finished | Failed | None, what: str) -> Iterator[Event]:
    """What follows from how the process ended."""
    if isinstance(last, Finished) and (code == 0 or last.stopped):
        yield last
        return
    if isinstance(last, Failed):
        if last.kind != "interrupted":
            raise ProcessFailed(last.message, last.kind, last.traceback)
        return
    if code < 0 and -code in DIE_WITH:
        _die_of(-code)
    if code == 0:
        raise ProcessFailed(
            f"{what} ended without training: it must call amp_core.Engine.from_env() and amp.prepare()", "workload"
        )
    raise ProcessFailed(f"{what} ended with exit code {code}; its log says why.", "exit")


def _die_of(number: int) -> NoReturn:
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise AssertionError(f"signal {number} did not end the process")


class _Pipes:
    """The files through which this process talks with those it starts."""

    def __init__(self, config: RunConfig, folder: Path, num_lines: int) -> None:
        run, events, line = folder / "run.json", folder / "events", folder / "line"
        run.write_bytes(msgspec.json.encode(config))
        for path in (events, *(self._line(line, i) for i in range(num_lines))):
            path.unlink(missing_ok=True)
            os.mkfifo(path, 0o600)
        self.env = {RUN: str(run), EVENTS: str(events), LINE: str(line)}
        reading = os.open(events, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._keep = os.open(events, os.O_WRONLY | os.O_CLOEXEC)  # until the process has ended, no reader sees an end
        os.set_blocking(reading, True)
        self._lines = [os.open(self._line(line, i), os.O_RDWR | os.O_CLOEXEC) for i in range(num_lines)]
        self._queue: queue.SimpleQueue[Event | ProtocolError | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(reading,), name="relay", daemon=True).start()
        self._told: set[bytes] = set()
        self._is_closed = False

    def events(self, process: subprocess.Popen[bytes], stops: Stops) -> Iterator[Event]:
        """What comes up until the process has ended and everything it said is here."""
        while True:
            for word in [word for word, stop in stops.items() if stop.is_set() and word not in self._told]:
                self._told.add(word)
                for line in self._lines:
                    os.write(line, word)
            has_ended = process.poll() is not None
            if has_ended and not self._is_closed:
                self._is_closed = True
                os.close(self._keep)
            try:
                event = self._queue.get(timeout=DRAIN_S if has_ended else POLL_S)
            except queue.Empty:
                if has_ended:  # a process of the script's lives on and holds the pipe open
                    return
                continue
            if event is None:
                return
            if isinstance(event, ProtocolError):
                process.kill()
                raise event
            yield event

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb") as pipe:
            try:
                for frame in read_frames(pipe):
                    self._queue.put(frame.event)
            except ProtocolError as error:
                self._queue.put(error)
        self._queue.put(None)

    @staticmethod
    def _line(line: Path, index: int) -> Path:
        return line.with_name(f"{line.name}-{index}")


def _amp_core_alone(scratch: Path) -> Path:
    """A folder with this very `amp_core` and nothing else of ours, for the module path of a foreign environment."""
    folder = scratch / "modules"
    folder.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (folder / "amp_core").symlink_to(Path(amp_core.__file__).parent, target_is_directory=True)
    return folder
