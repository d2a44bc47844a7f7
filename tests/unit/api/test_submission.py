"""Submitting: what is accepted, what becomes of it, and what every refusal says."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import func, select
from team import DIGITS, Team

from amp_core.config import RunConfig
from server.db.tables import Experiment, Run

URL = "/api/v1/experiments"


def _submit(team: Team, **body: Any) -> Any:
    response = team.client("submitter").post(URL, json={"workload": "digits-cnn", **body})
    assert response.status_code == 201, response.text
    return response.json()


def _faults(team: Team, **body: Any) -> dict[str, dict[str, Any]]:
    response = team.client("submitter").post(URL, json={"workload": "digits-cnn", **body})
    assert response.status_code == 422, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert set(problem) == {"type", "title", "status", "detail", "errors"}
    for fault in problem["errors"]:
        assert set(fault) == {"field", "value", "rule", "remedy"}
        assert fault["rule"]
        assert fault["remedy"]
    return {fault["field"]: fault for fault in problem["errors"]}


def test_the_workload_alone_is_enough(team: Team) -> None:
    response = team.client("submitter").post(URL, json={"workload": "digits-cnn"})
    made = response.json()
    assert response.headers["location"] == made["links"]["self"] == f"{URL}/{made['id']}"
    assert made["name"] == "Digits"
    assert made["seeds"] == [0, 1, 2, 3, 4]
    assert [recipe["name"] for recipe in made["recipes"]] == ["32-true", "bf16-mixed", "16-mixed"]
    assert (made["baseline"], made["steps"], made["eval_every"]) == ("32-true", 120, 12)
    assert made["params"] == {"width": 32, "lr": 0.001, "norm": "batch", "augment": False}
    assert made["primary"] == {
        "metric": "accuracy", "higher_is_better": True, "margin": 0.005, "relative": False, "unit": "",
        "resolution": 0.002,
    }  # fmt: skip
    assert (made["device"], made["control"], made["state"], made["owner"]) == ("cpu", True, "queued", "submitter")
    assert made["progress"]["total"] == made["progress"]["queued"] == 5 * 3 + 5 + 1
    assert made["submission"] == {"workload": "digits-cnn"}


def test_runs_queue_seed_by_seed_then_control_then_benchmarks(team: Team) -> None:
    made = _submit(team, seeds=[7, 3], recipes=["fp16", "fp32", "bf16"])
    order = [(run["kind"], run["role"], run["recipe_name"], run["seed"]) for run in made["runs"]]
    assert order == [
        ("train", "baseline", "32-true", 7),
        ("train", "candidate", "16-mixed", 7),
        ("train", "candidate", "bf16-mixed", 7),
        ("train", "baseline", "32-true", 3),
        ("train", "candidate", "16-mixed", 3),
        ("train", "candidate", "bf16-mixed", 3),
        ("train", "control", "32-true", 7),
        ("train", "control", "32-true", 3),
        ("benchmark", "benchmark", "bf16-mixed", 7),
    ]
    assert [run["queue_position"] for run in made["runs"]] == list(range(1, 10))


def test_rows_hold_what_a_child_needs(team: Team) -> None:
    made = _submit(team, seeds=1, recipes=["fp32", "bf16"], params={"width": 8}, max_time_s=60)
    with team.database.read() as session:
        runs = session.scalars(select(Run).order_by(Run.id)).all()
    for run in runs:
        config = dict(run.config)
        assert config.pop("max_time_s") == 60
        assert config.pop("max_memory_bytes") is None
        import msgspec

        ready = msgspec.convert(
            {**config, "run_id": run.id, "attempt": 1, "kind": run.kind, "recipe": run.recipe, "seed": run.seed,
             "steps": run.steps},
            RunConfig,
        )  # fmt: skip
        assert ready.workload.params == {"width": 8, "lr": 0.001, "norm": "batch", "augment": False}
        assert ready.workload.path == "/workloads/digits-cnn.py"
        assert ready.init_perturbation == (1e-6 if run.role == "control" else 0.0)
        assert (ready.baseline is not None) == (run.kind == "benchmark")
    assert len(runs) == made["progress"]["total"] == 4


def test_emulated_fp16_is_not_benchmarked_but_native_is(team: Team) -> None:
    native = {"precision": "16-mixed", "fp16_compute": "native", "name": "native"}
    made = _submit(team, seeds=1, recipes=["fp32", "fp16", native])
    assert [run["recipe_name"] for run in made["runs"] if run["kind"] == "benchmark"] == ["native"]
    team.add_worker(kinds=("cpu", "cuda"))
    made = _submit(team, seeds=1, recipes=["fp32", "fp16"])
    assert made["device"] == "cuda"
    assert [run["recipe_name"] for run in made["runs"] if run["kind"] == "benchmark"] == ["16-mixed"]


def test_gain_and_control_can_be_left_out(team: Team) -> None:
    made = _submit(team, seeds=2, recipes=["fp32", "bf16"], measure_gain=False, control=False)
    assert {run["role"] for run in made["runs"]} == {"baseline", "candidate"}


@pytest.mark.parametrize(("steps", "control"), [(500, True), (501, False)])
def test_the_control_is_on_by_default_where_it_is_small(team: Team, steps: int, control: bool) -> None:
    assert _submit(team, steps=steps, seeds=5)["control"] is control


def test_a_named_baseline_and_its_alias(team: Team) -> None:
    assert _submit(team, recipes=["bf16", "fp16"], baseline="bf16-mixed", seeds=1)["baseline"] == "bf16-mixed"
    assert _submit(team, recipes=["fp16", "fp32"], baseline="fp32", seeds=1)["baseline"] == "32-true"


def test_the_margin_can_be_changed_beforehand(team: Team) -> None:
    primary = _submit(team, primary={"margin": 0.02}, seeds=1)["primary"]
    assert (primary["metric"], primary["margin"], primary["resolution"]) == ("accuracy", 0.02, 0.002)
    primary = _submit(team, primary={"metric": "loss", "margin": 0.1, "higher_is_better": False}, seeds=1)["primary"]
    assert (primary["metric"], primary["higher_is_better"], primary["resolution"]) == ("loss", False, None)


def test_an_unknown_workload_names_the_known_ones(team: Team) -> None:
    team.add_workload("broken", error="SyntaxError: line 3")
    fault = _faults(team, workload="digit-cnn")["workload"]
    assert fault["value"] == "digit-cnn"
    assert "digits-cnn" in fault["rule"]
    assert "broken" not in fault["rule"]
    assert "AMPBOARD_WORKLOADS" in fault["remedy"]


def test_a_broken_workload_tells_its_error(team: Team) -> None:
    team.add_workload("broken", error="SyntaxError: line 3")
    assert "SyntaxError: line 3" in _faults(team, workload="broken")["workload"]["rule"]


@pytest.mark.parametrize(
    ("body", "field", "rule"),
    [
        ({"params": {"width": 0}}, "params.width", "at least 1"),
        ({"params": {"width": 513}}, "params.width", "at most 512"),
        ({"params": {"width": "8"}}, "params.width", "must be int"),
        ({"params": {"width": True}}, "params.width", "must be int"),
        ({"params": {"width": 1.5}}, "params.width", "must be int"),
        ({"params": {"lr": -1}}, "params.lr", "at least 0"),
        ({"params": {"norm": "layer"}}, "params.norm", "not one of 'batch', 'none'"),
        ({"params": {"augment": 1}}, "params.augment", "must be bool"),
        ({"params": {"depth": 3}}, "params.depth", "has the parameters width, lr, norm, augment"),
        ({"recipes": ["fp32", "fp4"]}, "recipes.1", "unknown"),
        ({"recipes": ["fp32", {"precision": "fp8", "fp8_compute": "native"}], "device": "cpu"}, "recipes.1", "no fp8"),
        ({"recipes": ["fp32", "tf32"], "device": "cpu"}, "recipes.1", "needs a CUDA device"),
        ({"recipes": ["fp32", {"precision": "bf16", "scaler": "dynamic"}]}, "recipes.1", "only 16-mixed needs"),
        ({"recipes": ["fp32", {"precision": "fp16", "scaler": {"init_scale": -1}}]}, "recipes.1", "positive"),
        ({"recipes": ["fp32", {"precision": "fp16", "colour": 1}]}, "recipes.1", "colour"),
        ({"recipes": ["fp32", {"name": "x"}]}, "recipes.1", "needs a precision"),
        ({"recipes": ["fp32", "32-true", "bf16"]}, "recipes.1", "two recipes are called '32-true'"),
        ({"recipes": ["fp32"]}, "recipes", "at least one recipe with the baseline"),
        ({"recipes": []}, "recipes", "at least one recipe with the baseline"),
        ({"recipes": ["bf16", "fp16"]}, "baseline", "no default baseline"),
        ({"baseline": "tf32"}, "baseline", "one of the recipes: 32-true, bf16-mixed, 16-mixed"),
        ({"seeds": [1, 2, 1]}, "seeds", "distinct; repeated: [1]"),
        ({"seeds": 501}, "seeds", "at most 500 runs"),
        ({"seeds": 400}, "seeds", "at most 500 are accepted"),
        ({"eval_every": 121}, "eval_every", "at most 120 steps apart"),
        ({"primary": {"metric": "loss"}}, "primary", "its direction and its margin"),
        ({"primary": {"higher_is_better": False}}, "primary.higher_is_better", "better when higher"),
    ],
)  # fmt: skip
def test_faults_name_field_rule_and_remedy(team: Team, body: dict[str, Any], field: str, rule: str) -> None:
    assert rule in _faults(team, **body)[field]["rule"]


@pytest.mark.parametrize(
    "body",
    [
        {"seeds": 0}, {"seeds": []}, {"seeds": [-1]}, {"seeds": [2**31]}, {"seeds": True}, {"seeds": 1.0},
        {"seeds": "5"}, {"steps": 0}, {"steps": 10_000_001}, {"steps": "many"}, {"steps": True}, {"eval_every": 0},
        {"device": "tpu"}, {"priority": 101}, {"max_attempts": 0}, {"max_time_s": 0}, {"max_time_s": 1e12},
        {"max_memory_bytes": 1}, {"name": "x" * 201}, {"note": "x" * 10_001}, {"tags": ["x"] * 21}, {"tags": [""]},
        {"tags": "a"}, {"recipes": "fp32"}, {"recipes": [1, 2]}, {"params": []}, {"control": "yes"}, {"typo": 1},
        {"project": ""}, {"primary": {"margin": 0}}, {"name": "a\x00b"}, {"note": "\x1b[31m"},
        {"params": {"a\x00": 1}}, {"name": None, "workload": None},
    ],
)  # fmt: skip
def test_nonsense_is_refused_and_leaves_nothing_behind(team: Team, body: dict[str, Any]) -> None:
    _faults(team, **body)
    with team.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Experiment)) == 0
        assert session.scalar(select(func.count()).select_from(Run)) == 0


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"", 422),
        (b"null", 422),
        (b"[]", 422),
        (b"{", 422),
        (b'{"workload": "digits-cnn", "max_time_s": NaN}', 422),
        (b'{"workload": "digits-cnn", "params": {"lr": NaN}}', 422),
        (b'{"workload": "digits-cnn", "params": {"lr": 1e999}}', 422),
        (b'{"workload": "digits-cnn", "primary": {"margin": Infinity}}', 422),
        (b'{"workload": "digits-cnn", "note": "\\ud800"}', 422),
        (b'{"workload": "digits-cnn", "steps": ' + b"9" * 5000 + b"}", 400),
        (b'{"workload": "digits-cnn", "steps": ' + b"9" * 4000 + b"}", 422),
        (b'{"workload": "digits-cnn", "params": {"a": ' + b"[" * 50 + b"]" * 50 + b"}}", 422),
        (b'{"workload": "digits-cnn", "params": {"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}}", 400),
        (b"\xff\xfe", 422),
    ],
)
def test_bodies_that_are_hardly_json(team: Team, raw: bytes, status: int) -> None:
    response = team.client("submitter").post(URL, content=raw, headers={"Content-Type": "application/json"})
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert len(response.content) < 20_000


def test_every_fault_is_told_at_once(team: Team) -> None:
    faults = _faults(team, recipes=["fp32", "fp4"], seeds=[1, 1], params={"width": 0}, eval_every=999, baseline="x")
    assert set(faults) == {"recipes.1", "seeds", "params.width", "eval_every", "baseline"}


def test_a_device_no_live_worker_has_is_refused(team: Team) -> None:
    assert _submit(team, device="cuda", seeds=1)["device"] == "cuda", "no worker is known: it may come later"
    team.add_worker()
    fault = _faults(team, device="cuda")["device"]
    assert "offer cpu" in fault["rule"]


def test_hostile_names_are_kept_as_they_are(team: Team) -> None:
    name = '<script>alert(1)</script> "{{7*7}}" 漢字 ' + "x" * 100
    made = _submit(team, name=name, tags=["a", "b", "a"], note="line\nline\ttab", seeds=1)
    assert (made["name"], made["tags"], made["note"]) == (name, ["a", "b"], "line\nline\ttab")


def test_an_idempotency_key_makes_repetition_harmless(team: Team) -> None:
    client, body = team.client("submitter"), {"workload": "digits-cnn", "seeds": 1}
    first = client.post(URL, json=body, headers={"Idempotency-Key": "k1"})
    again = client.post(URL, json=body, headers={"Idempotency-Key": "k1"})
    assert first.json()["id"] == again.json()["id"]
    assert client.post(URL, json={**body, "seeds": 2}, headers={"Idempotency-Key": "k1"}).status_code == 409
    assert client.post(URL, json=body, headers={"Idempotency-Key": "k2"}).json()["id"] != first.json()["id"]
    other = team.client("admin").post(URL, json=body, headers={"Idempotency-Key": "k1"})
    assert other.json()["id"] != first.json()["id"], "keys are a person's own"


def test_a_clone_changes_what_it_is_told(team: Team) -> None:
    made = _submit(team, name="mine", seeds=2, params={"width": 8}, recipes=["fp32", "bf16"])
    clone = team.client("admin").post(f"{URL}/{made['id']}/clone", json={"seeds": 3, "note": "more"})
    assert clone.status_code == 201
    body = clone.json()
    assert (body["name"], body["seeds"], body["note"], body["owner"]) == ("mine", [0, 1, 2], "more", "admin")
    assert body["params"]["width"] == 8
    assert body["id"] != made["id"]
    assert team.client("submitter").post(f"{URL}/{made['id']}/clone").json()["seeds"] == [0, 1]
    refused = team.client("submitter").post(f"{URL}/{made['id']}/clone", json={"sedes": 3})
    assert refused.json()["errors"][0]["field"] == "sedes"


def test_the_submission_can_be_submitted_again(team: Team) -> None:
    made = _submit(team, seeds=2, recipes=["fp32", {"precision": "fp16", "scaler": "none"}], primary={"margin": 0.1})
    again = team.client("submitter").post(URL, json=made["submission"]).json()
    assert again["recipes"] == made["recipes"]
    assert again["primary"] == made["primary"]


def test_the_newest_version_of_a_workload_counts(team: Team) -> None:
    with team.database.write() as session:
        from server.db.tables import Workload

        old = session.scalars(select(Workload)).one()
        session.add(
            Workload(
                name=old.name, source_hash="f" * 64, path=old.path, description={**DIGITS, "steps": 77},
                first_seen_at=old.seen_at, seen_at=old.seen_at.replace(year=old.seen_at.year + 1),
            )
        )  # fmt: skip
    made = _submit(team, seeds=1)
    assert (made["steps"], made["source_hash"]) == (77, "f" * 64)
    assert len(team.client("viewer").get("/api/v1/workloads").json()["items"]) == 1


def test_the_estimate_comes_from_history(team: Team) -> None:
    url, client = f"{URL}/estimate", team.client("submitter")
    body = {"workload": "digits-cnn", "recipes": ["fp32", "bf16"], "seeds": 3, "steps": 60}
    unknown = client.post(url, json=body).json()
    assert unknown["runs"] == {"train": 6, "control": 3, "benchmark": 1, "analysis": 0, "total": 10}
    assert unknown["expected_minutes"] is None
    assert client.post(url, json={**body, "seeds": [1, 1]}).status_code == 422
    _submit(team, seeds=1, recipes=["fp32", "bf16"])
    with team.database.write() as session:
        from datetime import timedelta

        for run in session.scalars(select(Run)):
            run.state, run.started_at = "completed", run.created_at
            run.ended_at = run.created_at + timedelta(seconds=24 if run.kind == "train" else 20)
    team.add_worker(slots=2)
    known = client.post(url, json=body).json()
    # 24 s for 120 steps is 12 s for 60; nine of those and one benchmark of 20 s, on two slots.
    assert known["expected_minutes"] == pytest.approx((9 * 12 + 20) / 2 / 60, abs=0.01)
    assert (known["based_on_runs"], known["slots"], known["queued_ahead"]) == (4, 2, 0)
    with team.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Experiment)) == 1


def test_fp8_is_refused_where_the_gpus_are_known_and_none_has_it(team: Team) -> None:
    recipes: list[Any] = ["fp32", "fp8"]
    assert _submit(team, recipes=recipes, device="cuda", seeds=1)["device"] == "cuda", "no worker is known yet"
    team.add_worker(kinds=("cuda",), abilities=("bf16", "tf32"))
    fault = _faults(team, recipes=recipes, device="cuda")["recipes.1"]
    assert "no live worker has one" in fault["rule"]
    assert "fp8_compute='emulated'" in fault["remedy"]
    _submit(team, recipes=["fp32", {"precision": "fp8", "fp8_compute": "emulated"}], device="cuda", seeds=1)
