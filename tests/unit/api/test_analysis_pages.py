"""Analyses on the pages: buttons, progress, answers, certificates, and the recipe that fills the form."""

from __future__ import annotations

from typing import Any

import pytest
from team import Team

from amp_core.events import Frame, Progress, Report, StressFinding
from server.db.tables import Run
from server.metrics.write import store_frames

RECIPE = {"name": "16-mixed, 1 in FP32", "precision": "16-mixed", "fp32_modules": ["blocks.1"]}
SENSITIVITY: dict[str, Any] = {
    "state": "found", "answer": "Keep blocks.1 <it> in FP32.", "minimal": ["blocks.1"],
    "smallest_passing": ["blocks.1"], "recipe": RECIPE, "evaluations": 9, "seconds": 3.2,
    "speed": {"measured": False, "sentence": "Speed is not measured."},
    "modules": [
        {"module": "blocks.1", "kind": "Linear", "sensitivity": 2.5, "error": "NaN", "max_abs": 70000.0, "overflow": 3,
         "gradient_overflow": 0, "gradient_lost": 1, "gradient_nonzero": 4, "out_of_range": True, "kept": True},
    ],
    "certificate": {
        "checkpoint": {"step": 20, "training": "32-true", "sha256": "ab" * 32}, "batches": ["cd" * 32], "horizon": 10,
        "seed": 1, "alone": {"passed": False, "reason": "the loss of step 21 is nan"}, "with_set": {"passed": True},
        "limits": {"loss": 0.01, "loss_noise": 1e-7, "update": 0.5, "update_noise": 1e-6, "repeatable": True},
        "without": [{"module": "blocks.1", "fails": {"reason": "gradients of step 21 are not finite"}}],
    },
}  # fmt: skip
STRESS: dict[str, Any] = {
    "state": "done", "answer": "16-mixed bears 1 of 2 cases as FP64 does.", "reference": "FP64", "mode": "training",
    "cases": [{"case": "huge_inputs", "what": "large", "outcome": "finding", "sentence": "The output is infinite."}],
    "findings": [], "modules": [{"module": "0", "ordinary": 1e-3, "worst": "Infinity", "case": "huge_inputs"}],
    "recipe": None, "mended": [], "seconds": 1.0,
}  # fmt: skip


def _trained(team: Team) -> tuple[int, int]:
    body = {"workload": "digits-cnn", "seeds": [1], "recipes": ["fp32", "fp16"], "control": False}
    made = team.client("submitter").post("/api/v1/experiments", json=body).json()
    return made["id"], next(run["id"] for run in made["runs"] if run["recipe_name"] == "16-mixed")


def _asked(team: Team, run_id: int, kind: str) -> int:
    answer = team.browser("submitter").post(f"/runs/{run_id}/analyse", data={"kind": kind}, follow_redirects=False)
    assert answer.status_code == 303, answer.text
    return int(answer.headers["location"].rpartition("/")[2])


def _says(team: Team, run_id: int, *events: Any) -> None:
    with team.database.write() as session:
        row = session.get_one(Run, run_id)
        row.state, row.attempt = "running", 1
        session.flush()
        store_frames(session, run_id, 1, [Frame(sequence=n + 1, at=0.0, event=e) for n, e in enumerate(events)])


@pytest.mark.parametrize("kind", ["sensitivity", "stress", "layers"])
def test_a_button_queues_the_analysis_and_shows_it(team: Team, kind: str) -> None:
    experiment, run = _trained(team)
    page = team.browser("submitter").get(f"/runs/{run}").text
    assert f'name="kind" value="{kind}"' in page
    assert 'name="kind"' not in team.browser("viewer").get(f"/runs/{run}").text
    made = _asked(team, run, kind)
    shown = team.browser("viewer").get(f"/runs/{made}").text
    assert f'data-analysis="{kind}"' in shown
    assert "It waits in the queue." in shown
    assert f'href="/runs/{made}"' in team.browser("viewer").get(f"/experiments/{experiment}").text


def test_an_fp32_run_offers_no_analysis_of_low_precision(team: Team) -> None:
    body = {"workload": "digits-cnn", "seeds": [1], "recipes": ["fp32", "fp16"], "control": False}
    runs = team.client("submitter").post("/api/v1/experiments", json=body).json()["runs"]
    run = next(run["id"] for run in runs if run["recipe_name"] == "32-true")
    assert 'name="kind"' not in team.browser("submitter").get(f"/runs/{run}").text


def test_the_answer_comes_with_certificate_modules_and_recipe(team: Team) -> None:
    experiment, run = _trained(team)
    made = _asked(team, run, "sensitivity")
    progress = Progress(done=4, total=9, message="Trying with 3 modules in FP32")
    _says(team, made, progress, Report(kind="sensitivity", content={**SENSITIVITY, "answer": "So far."}, final=False))
    page = team.browser("submitter").get(f"/runs/{made}").text
    assert "Trying with 3 modules in FP32" in page
    _says(team, made, progress, progress, Report(kind="sensitivity", content=SENSITIVITY, final=True))
    page = team.browser("submitter").get(f"/runs/{made}").text
    assert "Keep blocks.1 &lt;it&gt; in FP32." in page
    assert "gradients of step 21 are not finite" in page
    assert "the loss of step 21 is nan" in page
    assert "leaves it" in page
    assert page.index(">blocks</th>") < page.index('title="blocks.1"'), "its parent is a heading above it"
    link = f"/experiments/new?from={experiment}&cure={made}.1.3"
    assert link.replace("&", "&amp;") in page
    form = team.browser("submitter").get(link).text
    assert "blocks.1" in form
    assert "Keep blocks.1 &lt;it&gt; in FP32." in team.browser("viewer").get(f"/experiments/{experiment}").text


def test_stress_shows_cases_and_findings(team: Team) -> None:
    _, run = _trained(team)
    made = _asked(team, run, "stress")
    found = StressFinding(
        case="huge_inputs", kind="non_finite", module="0", caused_by="recipe", sentence="The output of 0 is infinite."
    )
    _says(team, made, found, Report(kind="stress", content=STRESS, final=True))
    page = team.browser("viewer").get(f"/runs/{made}").text
    assert "16-mixed bears 1 of 2 cases as FP64 does." in page
    assert "huge inputs: The output of 0 is infinite." in page
    assert "∞" in page


def test_an_unknown_kind_is_refused(team: Team) -> None:
    _, run = _trained(team)
    answer = team.browser("submitter").post(f"/runs/{run}/analyse", data={"kind": "guess"}, follow_redirects=False)
    assert answer.status_code == 422
