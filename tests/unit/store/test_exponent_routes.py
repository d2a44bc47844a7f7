"""Exponent histograms over REST: bins of one module or of all, by step, the newest attempt's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from histories import add_run, change_run, frame
from team import Team

from amp_core import events
from amp_core.telemetry.exponents import EDGES, FIRST_ROW, MIN_EXPONENT, Histogram, empty, pack
from server.db.engine import Database
from server.metrics.write import store_frames
from server.records.schemas import ExponentsOut


@pytest.fixture
def client(database: Database, tmp_path: Path) -> TestClient:
    return Team(database, tmp_path).client("viewer")


def histogram(counts: dict[int, int], zeros: int = 0) -> Histogram:
    """Powers of two, by exponent."""
    made = empty()
    made.table[0, 0] = zeros
    for exponent, count in counts.items():
        made.table[FIRST_ROW + exponent - MIN_EXPONENT, 0] = count
    return made


def sample(sequence: int, step: int, modules: dict[str, Histogram], kind: str = "gradients") -> events.Frame:
    counts = pack(list(modules.values()))
    event = events.ExponentHistograms(step=step, kind=kind, scale=1024.0, modules=list(modules), counts=counts)
    return frame(sequence, event)


def store(database: Database, run_id: int, *frames: events.Frame, attempt: int = 1) -> None:
    with database.write() as session:
        store_frames(session, run_id, attempt, frames)


def asked(client: TestClient, run_id: int, **query: object) -> ExponentsOut:
    answer = client.get(f"/api/v1/runs/{run_id}/exponents", params=query)  # type: ignore[arg-type]  # words and numbers
    assert answer.status_code == 200, answer.text
    return ExponentsOut.model_validate_json(answer.content)


def test_bins_of_all_modules_and_of_one(client: TestClient, database: Database) -> None:
    run_id = add_run(database)
    first = {"conv": histogram({-30: 5, -28: 1}, zeros=2), "head": histogram({-28: 4})}
    store(
        database, run_id, sample(1, 1, first), sample(2, 25, {"conv": histogram({0: 1})}), sample(3, 1, {}, "weights")
    )
    everything = asked(client, run_id)
    assert (everything.modules, everything.edges) == (["conv", "head"], list(EDGES))
    assert [one.step for one in everything.samples] == [1, 25]
    merged = everything.samples[0]
    assert (merged.exponents, merged.counts, merged.zeros, merged.num_elements) == ([-30, -29, -28], [5, 0, 5], 2, 12)
    assert merged.scale == 1024.0
    assert np.asarray(merged.classes).sum(axis=1).tolist() == merged.counts
    head = asked(client, run_id, module="head")
    assert [(one.step, one.counts) for one in head.samples] == [(1, [4])]
    assert [one.step for one in asked(client, run_id, step=25).samples] == [25]
    assert asked(client, run_id, kind="weights").modules == []
    assert asked(client, run_id, kind="activations").samples == []


def test_the_newest_attempt_that_made_a_step_counts(client: TestClient, database: Database) -> None:
    run_id = add_run(database)
    store(database, run_id, sample(1, 1, {"a": histogram({1: 1})}), sample(2, 25, {"a": histogram({2: 1})}))
    change_run(database, run_id, attempt=2)
    store(database, run_id, sample(1, 25, {"a": histogram({3: 1})}), attempt=2)
    assert [(one.step, one.attempt, one.exponents) for one in asked(client, run_id).samples] == [
        (1, 1, [1]),
        (25, 2, [3]),
    ]


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/v1/runs/999/exponents", 404, "run 999 is not here"),
        ("/api/v1/runs/{run}/exponents?module=x", 404, "no exponents of gradients of module 'x': leave module"),
        ("/api/v1/runs/{run}/exponents?kind=x", 422, "activations"),
        ("/api/v1/runs/{run}/exponents?step=0", 422, "step"),
    ],
)
def test_wrong_questions_are_told_so(
    client: TestClient, database: Database, path: str, status: int, words: str
) -> None:
    answer = client.get(path.format(run=add_run(database)))
    assert answer.status_code == status
    assert words in answer.text
