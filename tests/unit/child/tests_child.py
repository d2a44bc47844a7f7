"""Launching children in tests: one warm launcher for all, and a driver that reads a child to its end."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from amp_core.config import RunConfig, WorkloadRef, parse_recipe
from amp_core.events import Event, Failed, Frame, Segment, read_frames
from amp_core.launcher import Child, Launcher

ZOO = Path(__file__).parent / "workload_zoo.py"
E = TypeVar("E", bound=Event)


@dataclass
class Watched:
    """A child whose pipes are read by threads as they fill."""

    child: Child
    frames: list[Frame] = field(default_factory=list)
    log: bytes = b""
    exit_code: int | None = None

    def __post_init__(self) -> None:
        self._threads = [threading.Thread(target=read) for read in (self._read_events, self._read_log)]
        for thread in self._threads:
            thread.start()

    def _read_events(self) -> None:
        with self.child.events as pipe:
            self.frames.extend(read_frames(pipe))

    def _read_log(self) -> None:
        with self.child.log as pipe:
            while data := pipe.read1(4096):  # type: ignore[attr-defined]
                self.log += data

    def end(self, timeout_s: float = 120) -> Watched:
        self.exit_code = self.child.wait(timeout_s)
        self.child.kill()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive(), "a pipe stayed open after the child's end"
        return self

    def wait_for_log(self, text: bytes, timeout_s: float = 60) -> None:
        wait_until(lambda: text in self.log, timeout_s)

    def all(self, kind: type[E]) -> list[E]:
        return [frame.event for frame in self.frames if isinstance(frame.event, kind)]

    @property
    def failed(self) -> Failed:
        (failed,) = self.all(Failed)
        assert self.frames[-1].event is failed
        return failed

    def trace(self, name: str = "train/loss") -> list[float]:
        columns = [column for segment in self.all(Segment) for column in segment.columns if column.name == name]
        return [float(value) for column in columns for value in np.frombuffer(column.values, "<f8")]


def wait_until(condition: Callable[[], bool], timeout_s: float) -> float:
    """Wait for a condition; return how long that took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout_s, "timed out"
        time.sleep(0.005)
    return time.monotonic() - began


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def run_config(name: str, scratch: Path, **fields: Any) -> RunConfig:
    """A short single-threaded run of a workload of the zoo."""
    given: dict[str, Any] = {
        "run_id": 1,
        "attempt": 1,
        "workload": WorkloadRef(name=name, path=str(ZOO)),
        "recipe": parse_recipe("32-true"),
        "seed": 3,
        "steps": 12,
        "num_threads": 1,
        "scratch_dir": str(scratch),
        **fields,
    }
    return RunConfig(**given)


@pytest.fixture(scope="session")
def warm() -> Iterator[Launcher]:
    with Launcher(warm=True) as launcher:
        yield launcher


@pytest.fixture(scope="session")
def cold() -> Iterator[Launcher]:
    with Launcher(warm=False) as launcher:
        yield launcher


@pytest.fixture
def watch(warm: Launcher, tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    """``watch(name, launcher=…, **config)`` launches a workload of the zoo and reads it."""
    watched: list[Watched] = []

    def launch(name: str, launcher: Launcher = warm, **fields: Any) -> Watched:
        watched.append(Watched(launcher.launch(run_config(name, tmp_path / "scratch", **fields))))
        return watched[-1]

    yield launch
    for one in watched:
        one.child.kill()
        one.end()


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "AMPBOARD_DATABASE_URL", "postgresql://user:hunter2@db/x")
    monkeypatch.setitem(os.environ, "AMPBOARD_TOKEN", "amp_hunter2")
    monkeypatch.setitem(os.environ, "TORCH_HUB_TOKEN", "hunter2")
    monkeypatch.setitem(os.environ, "AWS_SECRET_ACCESS_KEY", "hunter2")
