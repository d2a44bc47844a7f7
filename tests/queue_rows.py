"""Rows for tests of the queue and the worker: a user, a project, a workload, two workers, experiments and runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from server.db.tables import Experiment, Project, Run, User, Worker, Workload

START = datetime(2026, 1, 1, tzinfo=UTC)


class Queue:
    """One open session and the rows it needs; ``at(seconds)`` is a time after the start."""

    def __init__(self, session: Session) -> None:
        self.session = session
        session.add(User(id=1, name="ann", role="admin", created_at=START))
        session.add(Project(id=1, name="default", created_at=START))
        session.add(
            Workload(id=1, name="w", source_hash="h", path="w.py", description={}, first_seen_at=START, seen_at=START)
        )
        session.flush()
        for number in (1, 2):
            session.add(
                Worker(id=number, name=f"host-{number}", host="host", pid=number, version="0", slots=1, devices=[],
                       state="online", started_at=START, heartbeat_at=START)
            )  # fmt: skip
        session.flush()

    @classmethod
    def over(cls, session: Session) -> Queue:
        """The same rows in a later session."""
        queue = cls.__new__(cls)
        queue.session = session
        return queue

    @staticmethod
    def at(seconds: float) -> datetime:
        return START + timedelta(seconds=seconds)

    def experiment(
        self, num_runs: int = 1, *, priority: int = 0, device: str = "cpu", created_s: float = 0
    ) -> list[int]:
        """Submit an experiment; return the ids of its runs."""
        experiment = Experiment(project_id=1, workload_id=1, owner_id=1, name="e", state="queued", plan={},
                                created_at=self.at(created_s))  # fmt: skip
        self.session.add(experiment)
        self.session.flush()
        runs = [
            Run(experiment_id=experiment.id, kind="train", role="baseline", recipe_name="32-true", recipe={}, seed=seed,
                steps=10, config={"device": device}, state="queued", priority=priority, created_at=self.at(created_s))
            for seed in range(num_runs)
        ]  # fmt: skip
        self.session.add_all(runs)
        self.session.flush()
        return [run.id for run in runs]

    def gives(self, worker_id: int, *devices: dict[str, Any]) -> None:
        """What a worker's row says of its devices."""
        self.worker(worker_id).devices = list(devices)
        self.session.flush()

    def worker(self, worker_id: int) -> Worker:
        return self.session.get_one(Worker, worker_id, populate_existing=True)

    def run(self, run_id: int) -> Run:
        return self.session.get_one(Run, run_id, populate_existing=True)

    def experiment_of(self, run_id: int) -> Experiment:
        return self.session.get_one(Experiment, self.run(run_id).experiment_id, populate_existing=True)
