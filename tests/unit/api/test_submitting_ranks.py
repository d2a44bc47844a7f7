"""Ranks and scripts in a submission."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import select
from team import Team

from amp_core.config import RunConfig
from server.db.tables import Run, Workload

URL = "/api/v1/experiments"
TWO = {"workload": "digits-cnn", "ranks": 2, "seeds": 1, "recipes": ["fp32", "bf16"], "control": True}


def test_training_runs_carry_their_ranks(team: Team) -> None:
    made = team.client("submitter").post(URL, json={**TWO, "strategy": "fsdp"}).json()
    assert {run["kind"] for run in made["runs"]} == {"train"}, "a benchmark takes one rank: none is planned"
    with team.database.read() as session:
        runs = session.scalars(select(Run).where(Run.experiment_id == made["id"])).all()
    assert len(runs) == 3
    for run in runs:
        known = {name: value for name, value in run.config.items() if name in RunConfig.__struct_fields__}
        fields = {"run_id": run.id, "attempt": 1, "recipe": run.recipe, **known}
        config = msgspec.convert(fields, RunConfig)
        assert (config.ranks, config.distribution.strategy) == (2, "fsdp")


def test_one_rank_is_the_default_and_leaves_no_trace(team: Team) -> None:
    made = team.client("submitter").post(URL, json={"workload": "digits-cnn", "seeds": 1}).json()
    with team.database.read() as session:
        run = session.scalars(select(Run).where(Run.experiment_id == made["id"])).first()
    assert run is not None
    assert "ranks" not in run.config


def _faults(team: Team, body: dict[str, Any]) -> dict[str, dict[str, Any]]:
    response = team.client("submitter").post(URL, json=body)
    assert response.status_code == 422, response.text
    return {fault["field"]: fault for fault in response.json()["errors"]}


def test_what_ranks_cannot_do_is_told_at_submission(team: Team) -> None:
    shards = {**TWO, "strategy": "fsdp", "recipes": ["fp32", {"precision": "bf16-mixed", "ema_decay": 0.9}]}
    fault = _faults(team, shards)["strategy"]
    assert "ema_decay" in fault["rule"]
    assert "ddp" in fault["remedy"]
    assert "several ranks" in _faults(team, {**TWO, "ranks": 1, "strategy": "fsdp"})["strategy"]["rule"]
    assert team.client("submitter").post(URL, json={**TWO, "ranks": 0}).status_code == 422
    assert team.client("submitter").post(URL, json={**TWO, "strategy": "pipeline"}).status_code == 422


def test_a_script_is_trained_but_not_benchmarked(team: Team) -> None:
    with team.database.write() as session:
        row = session.scalars(select(Workload).where(Workload.name == "digits-cnn")).first()
        assert row is not None
        row.description = {**row.description, "is_script": True}
    made = team.client("submitter").post(URL, json={**TWO, "ranks": 1}).json()
    assert {run["kind"] for run in made["runs"]} == {"train"}
    assert "its own ranks" in _faults(team, TWO)["ranks"]["rule"]
