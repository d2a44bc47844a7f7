"""Following prints one line per run where nobody watches a terminal."""

from __future__ import annotations

import pytest

from server.cli import follow


def run(number: int, state: str, role: str = "candidate", **more: object) -> dict:
    given = {"id": number, "state": state, "role": role, "recipe_name": "bf16-mixed", "seed": number}
    return given | {"step": 50, "steps": 150, "metrics": {"train/loss": {"last": 0.012345}}, "reason": None} | more


def experiment(state: str, *runs: dict) -> dict:
    names = ("queued", "running", "completed", "failed", "cancelled")
    progress = {name: sum(r["state"] == name for r in runs) for name in names} | {"total": len(runs)}
    return {"state": state, "progress": progress, "runs": list(runs)}


def test_each_run_is_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(follow, "POLL_S", 0)
    failed = {"reason": {"message": "the process was killed by SIGKILL"}, "metrics": {}}
    polls = iter(
        [
            experiment("running", run(1, "running"), run(2, "queued")),
            experiment("running", run(1, "completed"), run(2, "running")),
            experiment("running", run(1, "completed"), run(2, "running")),
            experiment("ended", run(1, "completed"), run(2, "failed", **failed)),
        ]
    )
    follow._follow_plain(lambda: next(polls))
    assert capsys.readouterr().err.splitlines() == [
        "[1/2] bf16-mixed, seed 1: completed, loss 0.01235",
        "[2/2] bf16-mixed, seed 2: failed: the process was killed by SIGKILL",
    ]


def test_titles_and_progress() -> None:
    assert follow.at_work(run(4, "running")) == "bf16-mixed, seed 4: step 50 of 150, loss 0.01235"
    assert follow.at_work(run(4, "running", metrics={"train/loss": {"last": "NaN"}})).endswith("loss NaN")
    assert follow.at_work(run(4, "running", metrics=None)) == "bf16-mixed, seed 4: step 50 of 150"
    assert follow.at_work(run(4, "running", "benchmark")) == "bf16-mixed, speed and memory: measuring"
    assert follow.title(run(4, "running", "control")) == "bf16-mixed, A/A control, seed 4"
