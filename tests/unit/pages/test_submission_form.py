"""The form of a new experiment: what it sends is what REST would accept, and a copy fills it the same way."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from typer.testing import CliRunner

from server.cli import submit as cli
from server.errors import Fault
from server.experiments.schemas import ExperimentIn
from server.pages.submission_form import blank, copied, placed, submission_of, typed
from server.pages.terminal_commands import cli_of, curl_of

WORKLOAD: dict[str, Any] = {
    "name": "digits-cnn",
    "title": "Handwritten digits",
    "steps": 200,
    "recipes": ["32-true", "bf16-mixed", {"precision": "16-mixed", "scaler": "none"}],
    "primary": {"name": "accuracy", "margin": 0.005, "higher_is_better": True, "relative": False, "unit": ""},
    "parameters": [
        {"name": "lr", "type": "float", "default": 0.001},
        {"name": "width", "type": "int", "default": 64},
        {"name": "bias", "type": "bool", "default": True},
        {"name": "activation", "type": "str", "default": "relu"},
    ],
}


def test_an_untouched_form_spells_the_workloads_defaults() -> None:
    body, rows = submission_of(blank(WORKLOAD), WORKLOAD)
    assert body == {
        "name": "Handwritten digits",
        "workload": "digits-cnn",
        "recipes": ["32-true", "bf16-mixed", {"precision": "16-mixed", "scaler": {"kind": "none"}}],
        "seeds": 5,
        "steps": 200,
        "control": True,
        "measure_gain": True,
    }
    assert rows == [0, 1, 4]
    ExperimentIn.model_validate(body)


def changed_form() -> dict[str, str]:
    return blank(WORKLOAD) | {
        "params.lr": "0.01",
        "params.width": "128",
        "params.bias": "false",
        "seeds": "3, 7,11",
        "recipe.2.on": "1",
        "recipe.2.init_scale": "1024",
        "recipe.1.fp32_modules": "head, blocks.*.norm",
        "margin": "0.01",
        "control": "",
        "device": "cpu",
        "tags": "a, b",
        "note": "why",
        "priority": "3",
    }


def test_typed_fields_become_typed_values() -> None:
    body, _ = submission_of(changed_form(), WORKLOAD)
    assert body["params"] == {"lr": 0.01, "width": 128, "bias": False}
    assert body["seeds"] == [3, 7, 11]
    assert body["primary"] == {"margin": 0.01}
    assert body["control"] is False
    assert body["recipes"][2] == {"precision": "16-mixed", "scaler": {"kind": "dynamic", "init_scale": 1024}}
    assert body["recipes"][1]["fp32_modules"] == ["head", "blocks.*.norm"]
    assert (body["tags"], body["note"], body["priority"]) == (["a", "b"], "why", 3)
    ExperimentIn.model_validate(body)


def test_a_copied_submission_fills_the_form_so_that_it_spells_the_same() -> None:
    body, _ = submission_of(changed_form(), WORKLOAD)
    again, _ = submission_of(copied(WORKLOAD, body), WORKLOAD)
    assert again == body


def test_analyses_are_asked_of_every_candidate_and_copied() -> None:
    body, _ = submission_of(changed_form() | {"also.stress": "1", "also.layers": "1"}, WORKLOAD)
    names = ["bf16-mixed, head, blocks.*.norm in FP32", "16-mixed"]
    assert [(one["kind"], one["recipe"]) for one in body["analyses"]] == [
        (kind, name) for kind in ("stress", "layers") for name in [*names, "16-mixed, no scaler"]
    ]
    ExperimentIn.model_validate(body)
    again, _ = submission_of(copied(WORKLOAD, body), WORKLOAD)
    assert again["analyses"] == body["analyses"]
    fault = Fault(field="analyses.0.recipe", value=None, rule="r", remedy="m")
    assert [item["field"] for item in placed((fault,), [0])] == ["also"]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("5", "int", 5),
        ("1e-3", "float", 0.001),
        ("2", "float", 2.0),
        ("true", "bool", True),
        ("x", "int", "x"),
        ("1", "str", "1"),
    ],
)
def test_text_that_is_no_figure_stays_text_for_the_service_to_refuse(text: str, kind: str, value: object) -> None:
    assert typed(text, kind) == value


def test_faults_are_placed_at_the_fields_of_the_form() -> None:
    faults = (
        Fault(field="recipes.1", value={}, rule="r", remedy="m"),
        Fault(field="params.lr", value=7, rule="at most 1", remedy="lower it"),
        Fault(field="params.width", value=7.5, rule="width=7.5 is no whole number - at `$.x`", remedy="m"),
        Fault(field="seeds.0", value=-1, rule="r", remedy="m"),
        Fault(field="baseline", value=None, rule="r", remedy="m"),
    )
    found = placed(faults, [0, 4])
    assert [item["field"] for item in found] == ["recipe.4", "params.lr", "params.width", "seeds", "recipes"]
    assert found[1]["rule"] == "7: at most 1"
    assert found[2]["rule"] == "width=7.5 is no whole number"


def test_curl_carries_the_body_and_no_secret() -> None:
    body, _ = submission_of(changed_form() | {"name": "it's 5 o'clock"}, WORKLOAD)
    words = shlex.split(curl_of(body, "http://127.0.0.1:8420/"))
    assert words[1] == "http://127.0.0.1:8420/api/v1/experiments"
    assert "Authorization: Bearer $AMPBOARD_TOKEN" in words
    assert json.loads(words[words.index("-d") + 1]) == body


def test_the_command_line_sends_the_same_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    over = {"hosts": "2", "ranks": "4", "strategy": "fsdp"}
    body, _ = submission_of(changed_form() | over | {"note": "", "priority": "0"}, WORKLOAD)
    assert (body["hosts"], body["ranks"], body["strategy"]) == (2, 4, "fsdp")
    assert submission_of(copied(WORKLOAD, body), WORKLOAD)[0]["hosts"] == 2
    sent: list[dict[str, Any]] = []

    class Client:
        url = "http://x"

        def __enter__(self) -> Client:
            return self

        def __exit__(self, *args: object) -> None:
            pass

        def submit(self, **given: Any) -> dict[str, Any]:
            sent.append(given)
            return {"id": 1, "progress": {"total": 1}}

    monkeypatch.setattr(cli, "connect", lambda settings: Client())
    from server.cli.main import app

    result = CliRunner().invoke(app, shlex.split(cli_of(body).replace("\\\n", ""))[1:])
    assert result.exit_code == 0, result.output
    mine = ExperimentIn.model_validate(body).model_dump(exclude={"recipes"})
    assert ExperimentIn.model_validate(sent[0]).model_dump(exclude={"recipes"}) == mine
    assert len(sent[0]["recipes"]) == len(body["recipes"])


def test_a_fork_and_kept_steps_are_spelled_and_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    fork = {"fork.run": "12", "fork.step": "40", "fork.horizon": "20"}
    body, _ = submission_of(blank(WORKLOAD) | fork, WORKLOAD)
    assert body["fork"] == {"run": 12, "step": 40, "horizon": 20}
    assert "steps" not in body, "the horizon is the length"
    assert "--fork 12@40 --horizon 20" in cli_of(body)
    again, _ = submission_of(copied(WORKLOAD, body), WORKLOAD)
    assert again == body
    body, _ = submission_of(blank(WORKLOAD) | fork | {"fork.step": ""}, WORKLOAD)
    assert body["fork"] == {"run": 12, "horizon": 20}, "the last one"
    for text, kept in (("100, 200", [100, 200]), ("last", "last"), ("7", [7])):
        body, _ = submission_of(blank(WORKLOAD) | {"keep_checkpoints": text}, WORKLOAD)
        assert body["keep_checkpoints"] == kept
        assert submission_of(copied(WORKLOAD, body), WORKLOAD)[0] == body
    assert "fork" not in submission_of(blank(WORKLOAD), WORKLOAD)[0]


def test_faults_of_a_fork_stand_at_its_fields() -> None:
    fields = ["fork.horizon", "fork", "keep_checkpoints.0"]
    faults = tuple(Fault(field=field, value=1, rule="no", remedy="mend it") for field in fields)
    assert [item["field"] for item in placed(faults, [])] == ["fork.horizon", "fork.run", "keep_checkpoints"]


def test_what_the_command_line_cannot_say_is_said() -> None:
    body, _ = submission_of(changed_form(), WORKLOAD)
    assert cli_of(body).endswith("# priority, note: only by curl")
