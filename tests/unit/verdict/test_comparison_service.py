"""Rows become evidence, evidence a comparison, and a comparison is stored once, on every database."""

from __future__ import annotations

import json
import math
import threading
from typing import Any

import msgspec
import numpy as np
import pytest
from comparison_rows import end, make_plan, play, report, runs_of, speak_for, submit, training

from amp_core import events
from amp_core.events import Column, Segment
from amp_core.verdict import from_json
from server.comparisons import service
from server.comparisons.evidence import MAX_NUMERICS_STEPS, evidence_of
from server.db.engine import Database
from server.db.tables import Experiment, Run
from server.queue.cancel import retry_run


def read(database: Database, experiment_id: int) -> tuple[Experiment, dict[str, object]]:
    with database.read() as session:
        experiment = session.get_one(Experiment, experiment_id)
        return experiment, service.comparison_of(session, experiment)


def recipe(comparison: dict[str, object], name: str) -> dict[str, object]:
    return next(one for one in comparison["recipes"] if one["recipe"] == name)  # type: ignore[attr-defined, index]


def test_the_demo_from_rows_to_words(database: Database) -> None:
    experiment_id = submit(database, make_plan())
    play(database, experiment_id)
    experiment, comparison = read(database, experiment_id)
    assert experiment.judged_at is None
    assert comparison["state"] == "judged"  # before the judge has come by: the same words
    assert service.judge_ended(database) == [experiment_id]
    experiment, stored = read(database, experiment_id)
    assert experiment.judged_at is not None
    assert stored == comparison
    assert json.loads(json.dumps(stored, allow_nan=False)) == stored
    assert recipe(stored, "bf16-mixed")["verdict"] == "SAFE"
    assert recipe(stored, "bf16-mixed")["gain"]["speed"]["ratio"] == pytest.approx(0.25 / 0.14, rel=0.02)  # type: ignore[index]
    unscaled = recipe(stored, "16-mixed, no scaler")
    assert unscaled["verdict"] == "UNSAFE"
    assert unscaled["gain"]["measured"] is False  # type: ignore[index]
    assert unscaled["findings"][0]["sentence"] == (  # type: ignore[index]
        "More than 99 % of the gradients of net.2 became zero; scaled by 65,536 they return."
    )
    assert stored["control"]["passes"] is True  # type: ignore[index]
    assert stored["conditions"]["device_name"] == "a CPU"  # type: ignore[index]
    assert "1.8× faster on this CPU" in str(stored["headline"])


def test_judged_exactly_once(any_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment_id = submit(any_database, make_plan())
    play(any_database, experiment_id)
    barrier = threading.Barrier(4)
    judging = service.judge

    def judge_together(evidence: object) -> object:
        barrier.wait(timeout=30)
        return judging(evidence)  # type: ignore[arg-type]

    monkeypatch.setattr(service, "judge", judge_together)
    outcomes: list[bool] = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(service.judge_once(any_database, experiment_id)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False, False, False, True]
    assert service.judge_ended(any_database) == []


def test_no_verdict_is_stored_while_a_run_is_running(database: Database) -> None:
    experiment_id = submit(database, make_plan())
    *others, last = runs_of(database, experiment_id)
    for run in others:
        report(database, run, speak_for(run))
        end(database, run)
    assert service.judge_ended(database) == []
    assert not service.judge_once(database, experiment_id)
    _, comparison = read(database, experiment_id)
    assert comparison["state"] == "so_far"
    assert {one["verdict"] for one in comparison["recipes"]} == {None}  # type: ignore[attr-defined]
    report(database, last, speak_for(last))
    end(database, last)
    assert service.judge_ended(database) == [experiment_id]


def test_a_retry_between_reading_and_storing_keeps_stale_words_out(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment_id = submit(database, make_plan())
    play(database, experiment_id)
    failed = runs_of(database, experiment_id)[1]
    end(database, failed, "failed", {"kind": "exception", "message": "boom"})
    judging = service.judge

    def judge_late(evidence: object) -> object:
        with database.write() as session:
            retry_run(session, failed.id)
        return judging(evidence)  # type: ignore[arg-type]

    monkeypatch.setattr(service, "judge", judge_late)
    assert not service.judge_once(database, experiment_id)
    assert read(database, experiment_id)[0].judged_at is None


def test_one_unreadable_experiment_keeps_no_other_from_its_verdict(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    broken, fine = submit(database, make_plan()), submit(database, make_plan())
    play(database, broken)
    play(database, fine)
    with database.write() as session:
        session.get_one(Experiment, broken).plan = {}
    assert service.judge_ended(database) == [fine]
    assert f"experiment {broken} could not be judged" in caplog.text


def test_what_ends_without_a_verdict_is_not_judged_again_each_time(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    incomplete = submit(database, make_plan())
    play(database, incomplete)
    with database.write() as session:
        session.delete(session.get_one(Run, runs_of(database, incomplete)[0].id))  # planned, and never to come
    judged: list[int] = []
    once = service.judge_once

    def counted(store: Database, experiment_id: int) -> bool:
        judged.append(experiment_id)
        return once(store, experiment_id)

    monkeypatch.setattr(service, "judge_once", counted)
    tried: service.Tried = {}
    assert [service.judge_ended(database, tried) for _ in range(3)] == [[], [], []]
    assert judged == [incomplete]
    with database.write() as session:
        session.get_one(Run, runs_of(database, incomplete)[0].id).attempt += 1
    assert service.judge_ended(database, tried) == []
    assert judged == [incomplete] * 2, "one of its runs was tried again"
    monkeypatch.setattr(service, "TRY_AGAIN_S", 0.0)
    service.judge_ended(database, tried)
    assert judged == [incomplete] * 3
    other = submit(database, make_plan())
    play(database, other)
    assert service.judge_ended(database, tried) == [other]


def test_nan_travels_from_frame_to_json_and_back(any_database: Database) -> None:
    experiment_id = submit(any_database, make_plan())
    for run in runs_of(any_database, experiment_id):
        said = speak_for(run)
        if run.recipe_name == "bf16-mixed" and run.kind == "train" and run.seed == 2:
            bad = events.NonFinite(step=9, where="weight", name="net.2.weight", value="nan")
            said = training(math.nan, bad)
        report(any_database, run, said)
        end(any_database, run)
    assert service.judge_ended(any_database) == [experiment_id]
    _, stored = read(any_database, experiment_id)
    json.dumps(stored, allow_nan=False)
    bf16 = recipe(stored, "bf16-mixed")
    assert bf16["verdict"] == "UNSAFE"
    pair = bf16["quality"]["pairs"][2]  # type: ignore[index]
    assert (pair["candidate"], pair["harm"]) == ("NaN", "NaN")
    again = from_json(stored)
    assert math.isnan(again.recipes[0].quality.pairs[2].candidate)  # type: ignore[union-attr]


def test_only_the_newest_attempt_speaks(database: Database) -> None:
    experiment_id = submit(database, make_plan(control=False, measure_gain=False))
    run = next(one for one in runs_of(database, experiment_id) if one.recipe_name == "bf16-mixed")
    report(database, run, [events.NonFinite(step=9, where="weight", name="net.2.weight", value="nan")])
    end(database, run, "failed", {"kind": "lost", "message": "gone"})
    with database.write() as session:
        retry_run(session, run.id)
        row = session.get_one(type(run), run.id)
        row.state, row.attempt = "running", 2
    for one in runs_of(database, experiment_id):
        report(database, one, speak_for(one))
        end(database, one)
    _, comparison = read(database, experiment_id)
    assert recipe(comparison, "bf16-mixed")["verdict"] == "SAFE"
    assert comparison["conditions"]["restarted_runs"] == 1  # type: ignore[index]


def test_a_resumed_attempt_keeps_what_was_said_of_the_steps_before(database: Database) -> None:
    """Facts up to the checkpoint come from the first attempt, all later ones from the second."""
    experiment_id = submit(database, make_plan(control=False, measure_gain=False))
    run = next(one for one in runs_of(database, experiment_id) if one.recipe_name == "bf16-mixed")
    started, *later = training(24.0, skipped_steps=2)
    skips = [events.StepSkipped(step=step, scale_before=2.0, scale_after=1.0) for step in (40, 90, 95)]
    early = events.Evaluated(step=50, metrics={"psnr": 20.0}, num_samples=4096, final=False)
    late = events.Evaluated(step=85, metrics={"psnr": 1.0}, num_samples=4096, final=False)
    report(database, run, [started, skips[0], early, late, skips[1]])
    with database.write() as session:
        session.get_one(type(run), run.id).attempt = 2
    (again,) = [one for one in runs_of(database, experiment_id) if one.id == run.id]
    report(database, again, [msgspec.structs.replace(started, resumed_step=60), skips[2], *later])
    with database.read() as session:
        evidence = evidence_of(session, session.get_one(Experiment, experiment_id))
    (told,) = [one for one in evidence.runs if one.run_id == run.id]
    assert [(each.step, each.metrics["psnr"]) for each in told.evaluations] == [(50, 20.0), (150, 24.0)]
    assert [each.step for each in told.skips] == [40, 95]
    assert told.skipped_steps == 2


def test_long_runs_are_compared_at_evenly_chosen_steps(database: Database) -> None:
    experiment_id = submit(database, make_plan(num_seeds=1, control=False, measure_gain=False))
    steps = range(1, 2502, 10)
    for run in runs_of(database, experiment_id):
        samples = [events.Numerics(step=step, loss_scale=1.0, modules=[]) for step in steps]
        report(database, run, training(24.0, *samples))
    with database.read() as session:
        evidence = evidence_of(session, session.get_one(Experiment, experiment_id))
    chosen = [[sample.step for sample in run.numerics_samples] for run in evidence.runs]
    assert all(one == chosen[0] for one in chosen)
    assert len(chosen[0]) <= MAX_NUMERICS_STEPS
    assert chosen[0][0] == 1
    assert chosen[0][-1] == 2501


def test_a_cancelled_experiment_is_judged_inconclusive(database: Database) -> None:
    experiment_id = submit(database, make_plan(measure_gain=False))
    for run in runs_of(database, experiment_id):
        end(database, run, "cancelled", {"kind": "cancelled", "message": "Cancelled by ann."})
    assert service.judge_ended(database) == [experiment_id]
    _, stored = read(database, experiment_id)
    assert {one["verdict"] for one in stored["recipes"]} == {"INCONCLUSIVE"}  # type: ignore[attr-defined]


def test_a_diverging_loss_is_dated_from_the_stored_points(database: Database) -> None:
    experiment_id = submit(database, make_plan(control=False, measure_gain=False))
    steps = np.arange(1, 151)
    for run in runs_of(database, experiment_id):
        losses = 2.0 - steps / 150 + 0.01 * run.seed
        if run.recipe_name.startswith("16"):
            losses = np.where(steps > 75, 50.0, losses)
        column = Column(
            name="train/loss",
            steps=steps.astype("<i8").tobytes(),
            values=losses.astype("<f8").tobytes(),
            times=steps.astype("<f8").tobytes(),
        )
        report(database, run, [Segment(columns=[column])])
    _, comparison = read(database, experiment_id)
    recipes: Any = comparison["recipes"]
    found = {item["recipe"]: item["divergence"] for item in recipes}
    assert found["bf16-mixed"]["step"] is None
    assert 70 <= found["16-mixed, no scaler"]["step"] <= 80
    assert "5 of 5 seeds" in found["16-mixed, no scaler"]["sentence"]
