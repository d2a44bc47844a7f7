"""The consumer of messages: one that fails is followed by another, and a signal ends the worker."""

from __future__ import annotations

from typing import Any

import pytest
from celery.signals import worker_shutting_down

from worker import app as celery_side


class FailingApp:
    """Stands in for Celery: its consumers end with these exit codes, one after the other."""

    def __init__(self, *exit_codes: int | None, signalled: bool = False) -> None:
        self._exit_codes, self._signalled = list(exit_codes), signalled
        self.num_started = 0

    def Worker(self, **_: Any) -> FailingApp:  # noqa: N802 - Celery's name
        return self

    def start(self) -> None:
        self.num_started += 1
        self.exitcode = self._exit_codes.pop(0)
        if self._signalled:
            worker_shutting_down.send(sender="test")


class Stopped:
    def __init__(self) -> None:
        self.num = 0

    def stop(self) -> None:
        self.num += 1


def serve(app: FailingApp, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """The exit code, and how often the foreman was told to stop."""
    monkeypatch.setattr(celery_side, "RESTART_S", 0.01)
    foreman = Stopped()
    exit_code = celery_side.serve(app, foreman, "one", 1)  # type: ignore[arg-type]
    return exit_code, foreman.num


def test_a_consumer_that_fails_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    app = FailingApp(1, 1, 0)
    assert serve(app, monkeypatch) == (0, 0)
    assert app.num_started == 3


def test_a_signal_ends_the_worker_whatever_the_consumer_says(monkeypatch: pytest.MonkeyPatch) -> None:
    app = FailingApp(1, signalled=True)
    assert serve(app, monkeypatch) == (1, 1)
    assert app.num_started == 1
