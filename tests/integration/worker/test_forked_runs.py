"""A fork through real workers: a baseline keeps a checkpoint, others begin there, and a verdict is given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update
from worker_site import Site, wait_for

from amp_core.loader import describe
from server.access import Principal
from server.broker.publish import ring
from server.comparisons.report import About, markdown
from server.comparisons.service import comparison_of, judge_once
from server.db.tables import Checkpoint, Experiment, Run, Workload
from server.errors import Conflict, Invalid
from server.experiments.schemas import ExperimentIn
from server.experiments.service import submit
from server.runs.delete import delete_run
from worker.checkpoints import drop_forgotten
from worker.workload_files import BUNDLED
from worker.workload_rows import DESCRIBED_BY

ANN = Principal(user_id=1, name="ann", role="admin", via="token")
STEPS, AT, HORIZON = 24, 10, 8
RECIPES = ["fp32", "bf16", {"precision": "bf16-true", "name": "low"}]
BASE: dict[str, Any] = {
    "workload": "digits-cnn", "params": {"width": 4}, "measure_gain": False, "control": False, "eval_every": 4,
}  # fmt: skip
KEEPING = {**BASE, "recipes": ["fp32", "bf16"], "seeds": [3], "steps": STEPS, "keep_checkpoints": [AT, STEPS]}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        yield from described(site)


@pytest.fixture
def sharing(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path, {"AMPBOARD_ARTIFACTS": str(tmp_path / "shared")}) as site:
        yield from described(site)


def described(site: Site) -> Iterator[Site]:
    """The workload as a worker's scan tells of it."""
    (told,) = describe(BUNDLED / "digits_cnn.py")
    own = {name: value for name, value in told.items() if name not in ("path", "name", "source_hash", "error")}
    with site.database.write() as session:
        row = session.scalars(select(Workload).where(Workload.name == "digits-cnn")).one()
        row.description = {**own, DESCRIBED_BY: row.description[DESCRIBED_BY]}
    yield site


def submitted(site: Site, **body: Any) -> list[Run]:
    with site.database.write() as session:
        experiment, num_runs = submit(session, site.settings, ExperimentIn.model_validate(body), ANN)
        ids = session.scalars(select(Run.id).where(Run.experiment_id == experiment.id).order_by(Run.id)).all()
    ring(site.settings, num_runs)
    return [site.run(run_id) for run_id in ids]


def ended(site: Site, runs: list[Run]) -> list[Run]:
    found = [site.await_end(run.id, 120) for run in runs]
    for run in found:
        assert run.state == "completed", (run.reason, site.logs())
    return found


def files_of(site: Site, run_id: int, data: str = "data") -> list[int]:
    folder = site.folder / data / "checkpoints" / f"run-{run_id}"
    return sorted(int(path.name[5:15]) for path in folder.glob("step-*")) if folder.exists() else []


def wait_until_online(site: Site, name: str) -> None:
    wait_for(lambda: f"worker {name} offers" in site.logs(), f"worker {name} is not there", 60, site.logs)


def test_a_fork_is_trained_where_its_checkpoint_lies_and_judged(site: Site) -> None:
    site.start_worker("one")
    wait_until_online(site, "one")
    origin, rival = ended(site, submitted(site, **KEEPING))
    wait_for(lambda: files_of(site, origin.id) == [AT, STEPS], "only the kept ones stay", 10, site.logs)
    assert files_of(site, rival.id) == []
    elsewhere = {"AMPBOARD_DATA_DIR": str(site.folder / "elsewhere")}
    site.start_worker("two", AMPBOARD_DATABASE_URL=site.settings.sqlalchemy_url, **elsewhere)
    wait_until_online(site, "two")

    fork = {"run": origin.id, "step": AT, "horizon": HORIZON}
    queued = submitted(site, **BASE, recipes=RECIPES, seeds=[3, 0, 1], fork=fork)
    with site.database.write() as session, pytest.raises(Conflict, match="begins at one of them"):
        delete_run(session, origin.id, ANN)
    runs = ended(site, queued)
    assert {attempt.worker_name for run in runs for attempt in site.attempts(run.id)} == {"one"}
    for run in runs:
        assert run.result is not None
        assert run.result["steps"] == HORIZON
        assert site.series(run.id)[0] == list(range(1, HORIZON + 1))

    own = next(run for run in runs if (run.recipe_name, run.seed) == ("32-true", 3))
    steps, losses = site.series(origin.id)
    whole = dict(zip(steps, losses, strict=True))
    assert site.series(own.id)[1] == [whole[AT + step] for step in range(1, HORIZON + 1)], "bitwise what the run did"
    assert site.series(own.id, "eval/accuracy")[1] != []

    experiment = site.experiment(own.id)
    judge_once(site.database, experiment.id)
    with site.database.read() as session:
        row = session.get_one(Experiment, experiment.id)
        comparison = comparison_of(session, row)
        about = About(
            experiment_id=row.id, name=row.name, workload="digits-cnn", owner="ann", created_at=row.created_at,
            judged_at=row.judged_at,
        )  # fmt: skip
    assert comparison["state"] == "judged"
    segment = comparison["segment"]
    assert (segment["run_id"], segment["step"], segment["horizon"], segment["steps"]) == (origin.id, AT, HORIZON, STEPS)
    assert all(recipe["quality"]["num_pairs"] == 3 for recipe in comparison["recipes"])
    assert f"{HORIZON} steps from step {AT} of run {origin.id}" in comparison["headline"]
    assert "says nothing about a whole training" in markdown(about, comparison)

    with site.database.write() as session:
        delete_run(session, origin.id, ANN)  # nothing needs it any more; it can still be restored
    drop_forgotten(site.database, site.settings.data_dir, None, "one")
    assert files_of(site, origin.id) == [AT, STEPS]
    with site.database.write() as session:
        for one in session.scalars(select(Checkpoint)):
            session.delete(one)
    drop_forgotten(site.database, site.settings.data_dir, None, "one")
    assert files_of(site, origin.id) == []


def test_a_checkpoint_that_is_gone_fails_the_fork_with_the_reason(site: Site) -> None:
    site.start_worker("one")
    wait_until_online(site, "one")
    origin, _ = ended(site, submitted(site, **KEEPING))
    for path in (site.settings.data_dir / "checkpoints" / f"run-{origin.id}").iterdir():
        path.unlink()
    fork = {"run": origin.id, "step": AT, "horizon": HORIZON}
    run = site.await_end(submitted(site, **BASE, recipes=["fp32", "bf16"], seeds=1, fork=fork)[0].id, 60)
    assert run.state == "failed"
    assert run.reason is not None
    assert run.reason["kind"] == "fork"
    assert f"step {AT} of run {origin.id}" in run.reason["message"]
    assert "kept checkpoint" in run.reason["remedy"]


def test_shared_checkpoints_are_fetched_by_another_host(sharing: Site) -> None:
    site = sharing
    first = site.start_worker("one")
    wait_until_online(site, "one")
    origin, _ = ended(site, submitted(site, **KEEPING))

    def is_shared() -> bool:
        with site.database.read() as session:
            return [row.is_shared for row in session.scalars(select(Checkpoint))] == [True, True]

    wait_for(is_shared, "kept checkpoints are not shared", 20, site.logs)
    site.stop(first)
    fork = {"run": origin.id, "step": AT, "horizon": HORIZON}
    with site.database.write() as session:
        session.execute(update(Checkpoint).values(is_shared=False))
    with pytest.raises(Invalid, match="fork"):
        submitted(site, **BASE, recipes=["fp32", "bf16"], seeds=1, fork=fork)
    with site.database.write() as session:
        session.execute(update(Checkpoint).values(is_shared=True))
    queued = submitted(site, **BASE, recipes=["fp32", "bf16"], seeds=[3], fork=fork)
    site.start_worker(
        "two",
        AMPBOARD_DATABASE_URL=site.settings.sqlalchemy_url,
        AMPBOARD_DATA_DIR=str(site.folder / "elsewhere"),
    )
    own, _ = ended(site, queued)
    steps, losses = site.series(origin.id)
    whole = dict(zip(steps, losses, strict=True))
    assert site.series(own.id)[1] == [whole[AT + step] for step in range(1, HORIZON + 1)]
    assert files_of(site, origin.id, "elsewhere") == [AT]
    drop_forgotten(site.database, site.folder / "elsewhere", None, "two")
    assert files_of(site, origin.id, "elsewhere") == [], "what was fetched goes when the fork has ended"
