"""What tests of forks and of kept checkpoints share: submissions, and runs that wrote checkpoints."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import select
from team import Team

from amp_core.config import RunConfig
from amp_core.events import Checkpointed, Frame, Started
from server.db.tables import Run, Worker
from server.metrics.write import store_frames
from server.queue.claim import claim
from server.queue.finish import finish

URL = "/api/v1/experiments"
BODY = {"workload": "digits-cnn", "recipes": ["fp32", "bf16"], "seeds": 3, "measure_gain": False, "control": False}
KEPT = {**BODY, "seeds": 1, "steps": 100, "keep_checkpoints": [40, 100], "params": {"width": 8}}


def name_at(step: int) -> str:
    return f"step-{step:010d}-{'ab' * 16}.pt"


def submit(team: Team, **body: Any) -> Any:
    response = team.client("submitter").post(URL, json={**BODY, **body})
    assert response.status_code == 201, response.text
    return response.json()


def faults_of(team: Team, **body: Any) -> dict[str, dict[str, Any]]:
    response = team.client("submitter").post(URL, json={**BODY, **body})
    assert response.status_code == 422, response.text
    for fault in response.json()["errors"]:
        assert fault["rule"]
        assert fault["remedy"]
    return {fault["field"]: fault for fault in response.json()["errors"]}


def work(team: Team, run_id: int, *, kept: tuple[int, ...] = (), outcome: str | None = "completed") -> None:
    """Let worker-1 claim the run, write checkpoints, and end it."""
    with team.database.write() as session:
        worker = session.scalars(select(Worker).where(Worker.name == "worker-1")).one()
        for other in session.scalars(select(Run).where(Run.state == "queued", Run.id != run_id)):
            other.priority = -100
        session.flush()
        claimed = claim(session, worker.id, ["cpu"], 60.0)
        assert claimed is not None
        assert claimed.run_id == run_id
    started = Started(numerics="native", environment={}, num_parameters=1, setup_s=0.0)
    told = [
        Checkpointed(step=step, path=f"/data/run-{run_id}/{name_at(step)}", num_bytes=1000, seconds=0.1, kept=True)
        for step in kept
    ]
    frames = [Frame(sequence=number, at=1e9, event=event) for number, event in enumerate([started, *told], 1)]
    with team.database.write() as session:
        store_frames(session, run_id, 1, frames)
        if outcome is not None:
            finish(session, run_id, 1, outcome)  # type: ignore[arg-type]


def fork_of(origin: int, **fields: Any) -> dict[str, Any]:
    return {"fork": {"run": origin, "step": 40, "horizon": 20, **fields}, "params": {"width": 8}}


def configs_of(team: Team, experiment_id: int) -> list[tuple[Run, RunConfig]]:
    with team.database.read() as session:
        runs = session.scalars(select(Run).where(Run.experiment_id == experiment_id).order_by(Run.id)).all()
    found = []
    for run in runs:
        known = {name: value for name, value in run.config.items() if name in RunConfig.__struct_fields__}
        fields = {"run_id": run.id, "attempt": 1, "recipe": run.recipe, "seed": run.seed, "steps": run.steps}
        found.append((run, msgspec.convert({**known, **fields}, RunConfig)))
    return found
