"""A diagnosis on the pages, in the report and in the form that its recipe fills."""

from __future__ import annotations

from typing import Any

from team import Team, one_line

from amp_core.events import Artifact, Diagnosis, Frame, Replay
from server.db.tables import Run
from server.metrics.write import store_frames

RECIPE = {"precision": "16-mixed", "fp32_modules": ["blocks.1"]}


def diagnosis(**changes: Any) -> Diagnosis:
    fields: dict[str, Any] = {
        "severity": "fault", "symptom": "non_finite_loss", "symptom_sentence": "The loss is not finite at step 8.",
        "kind": "overflow", "family": "overflow", "module": "blocks.1", "op": "mm", "phase": "forward", "step": 8,
        "batch": 7, "max_abs": 947000.0, "scale": 256.0, "caused_by": "data", "sentence": "In blocks.1 <it> overflows.",
        "fix": "Keep blocks.1 in FP32.", "recipe": RECIPE, "fp32_weights": False, "verified": True,
        "replays": [Replay(numbers="fp32", scale=1.0, loss=float("nan"), finite=True)], "bundle": "repro-step-8.zip",
    }  # fmt: skip
    return Diagnosis(**{**fields, **changes})


def experiment_with(team: Team, *events: Any) -> tuple[int, int]:
    """An experiment whose second run has said these events: its id and the run's."""
    body = {"workload": "digits-cnn", "seeds": [1, 2], "recipes": ["fp32", "fp16"], "control": False}
    made = team.client("submitter").post("/api/v1/experiments", json=body).json()
    run_id = next(run["id"] for run in made["runs"] if run["recipe_name"] == "16-mixed" and run["kind"] == "train")
    with team.database.write() as session:
        row = session.get_one(Run, run_id)
        row.state, row.attempt = "running", 1
        session.flush()
        store_frames(session, run_id, 1, [Frame(sequence=n + 1, at=0.0, event=e) for n, e in enumerate(events)])
    return made["id"], run_id


def bundle() -> Artifact:
    return Artifact(name="repro-step-8.zip", media_type="application/zip", content=b"PK fault", step=8)


def test_the_run_and_the_experiment_show_finding_recipe_and_bundle(team: Team) -> None:
    experiment, run = experiment_with(team, diagnosis(), bundle())
    browser = team.browser("submitter")
    for page in (browser.get(f"/runs/{run}").text, browser.get(f"/experiments/{experiment}").text):
        assert "In blocks.1 &lt;it&gt; overflows." in page
        assert "blocks.1, forward of step 8, batch 7" in page
        assert "Keep blocks.1 in FP32." in page
        assert "Proved" in page
        assert f"/experiments/new?from={experiment}&amp;cure={run}.1.1" in page
    link = page.split('<a class="button small" href="/api/v1/artifacts/')[1].split('"')[0]
    answer = browser.get(f"/api/v1/artifacts/{link}")
    assert answer.content == b"PK fault"
    assert "attachment" in answer.headers["Content-Disposition"]
    assert "Try this recipe" not in team.browser("viewer").get(f"/runs/{run}").text


def test_the_button_opens_the_form_with_the_recipe_filled_in(team: Team) -> None:
    experiment, run = experiment_with(team, diagnosis(), bundle())
    browser = team.browser("submitter")
    form = browser.get(f"/experiments/new?from={experiment}&cure={run}.1.1").text
    assert 'value="blocks.1"' in form
    assert "blocks.1" not in browser.get(f"/experiments/new?from={experiment}&cure={run}.1.9").text
    assert browser.get(f"/experiments/new?from={experiment}&cure=nonsense").status_code == 422


def test_the_report_tells_faults_and_leaves_notes_out(team: Team) -> None:
    note = diagnosis(severity="note", op="mul", sentence="A scale that settles.", recipe=None, bundle="")
    experiment, run = experiment_with(team, note, diagnosis(), bundle())
    viewer = team.client("viewer")
    for kind in ("md", "html"):
        report = viewer.get(f"/api/v1/experiments/{experiment}/report.{kind}").text
        assert "Faults found" in report
        assert "Keep blocks" in report
        assert "settles" not in report
    assert "settles" in team.browser("viewer").get(f"/runs/{run}").text
    events = viewer.get(f"/api/v1/runs/{run}/events", params={"kind": "diagnosis"}).json()["items"]
    assert [event["payload"]["kind"] for event in events] == ["overflow", "overflow"]
    assert events[1]["payload"]["recipe"] == RECIPE


def test_equal_findings_of_several_runs_are_told_once(team: Team) -> None:
    experiment, run = experiment_with(team, diagnosis(), diagnosis(step=9))
    page = one_line(team.browser("viewer").get(f"/experiments/{experiment}").text)
    assert page.count('data-diagnosis="fault"') == 1
    assert f"run {run}" in page


def test_a_run_without_a_finding_shows_no_empty_section(team: Team) -> None:
    experiment, run = experiment_with(team)
    assert "What went wrong" not in team.browser("viewer").get(f"/runs/{run}").text
    assert "What went wrong" not in team.browser("viewer").get(f"/experiments/{experiment}").text
