"""What a script is started with: the run's configuration, the pipe for events and the line to the parent process.

The names of the environment are the contract between `amp_core.script.process`, which starts a script, and the engine
inside it. Outside the worker they are missing.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from amp_core.config import RunConfig
from amp_core.errors import ContractError, RecipeError

RUN = "AMPBOARD_SCRIPT_RUN"  # file with the RunConfig as JSON
EVENTS = "AMPBOARD_SCRIPT_EVENTS"  # named pipe: frames of amp_core.events
LINE = "AMPBOARD_SCRIPT_LINE"  # named pipes from the parent, one a rank: "cancel", "pause", and their end is its death


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What the worker's child process gave this script."""

    config: RunConfig
    events: str
    line: str


def surroundings(environ: Mapping[str, str] | None = None) -> Surroundings | None:
    """What this process was started with, or None outside the worker. Raises `ContractError` for an unreadable one."""
    given = os.environ if environ is None else environ
    if RUN not in given:
        return None
    try:
        config = msgspec.json.decode(Path(given[RUN]).read_bytes(), type=RunConfig)
        return Surroundings(config=config, events=given[EVENTS], line=f"{given[LINE]}-{given.get('LOCAL_RANK', '0')}")
    except (OSError, KeyError, msgspec.MsgspecError, RecipeError) as error:
        raise ContractError(
            f"{RUN}={given[RUN]} does not lead to a run: {error}; unset it to run the script outside the worker"
        ) from error


class ParentLine:
    """Listens to the parent: ``cancel`` and ``pause`` set their flags; its death is this process's."""

    def __init__(self, path: str) -> None:
        self.cancelled = threading.Event()
        self.paused = threading.Event()
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # without a parent: an end at once
        os.set_blocking(self._fd, True)
        threading.Thread(target=self._watch, name="parent line", daemon=True).start()

    @property
    def is_asked_to_stop(self) -> bool:
        return self.cancelled.is_set() or self.paused.is_set()

    def _watch(self) -> None:
        while given := os.read(self._fd, 4096):
            if b"cancel" in given:
                self.cancelled.set()
            if b"pause" in given:
                self.paused.set()
        os.kill(os.getpid(), signal.SIGKILL)
