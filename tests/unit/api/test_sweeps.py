"""Sweeps: which sets of values, one experiment each, all of them or none."""

from __future__ import annotations

from typing import Any

import pytest
from team import DIGITS, Team

from server.errors import Invalid
from server.experiments.sweep_text import sweep_of, sweep_text
from server.experiments.sweeps import Sweep, expand
from server.pages.submission_form import spelled

KINDS = {"width": "int", "lr": "float", "norm": "str"}
URL = "/api/v1/sweeps"


def test_a_grid_is_every_combination_once() -> None:
    sets = expand(Sweep(params={"width": [16, 32, 16], "norm": ["a", "b"]}), KINDS)
    assert sets == [{"width": w, "norm": n} for w in (16, 32) for n in ("a", "b")]


def test_random_draws_are_repeatable_distinct_and_within_bounds() -> None:
    params = {"width": {"min": 8, "max": 64, "log": True}, "lr": {"min": 1e-4, "max": 1e-1, "log": True}}
    sweep = Sweep.model_validate({"method": "random", "params": params, "num": 40, "seed": 3})
    sets = expand(sweep, KINDS)
    assert sets == expand(sweep, KINDS)
    assert sets != expand(sweep.model_copy(update={"seed": 4}), KINDS)
    assert len({tuple(values.items()) for values in sets}) == 40
    assert all(isinstance(values["width"], int) and 8 <= values["width"] <= 64 for values in sets)
    assert all(1e-4 <= values["lr"] <= 1e-1 for values in sets)
    assert sum(values["lr"] < 3e-3 for values in sets) in range(10, 31), "even in the logarithm"
    few = Sweep.model_validate({"method": "random", "params": {"norm": ["a", "b"]}, "num": 9})
    assert len(expand(few, KINDS)) == 2, "a small space is drawn empty"


@pytest.mark.parametrize(
    ("sweep", "field"),
    [
        ({"params": {"depth": [1]}}, "sweep.params.depth"),
        ({"params": {"width": []}}, "sweep.params.width"),
        ({"params": {"width": {"min": 1, "max": 2}}}, "sweep.params.width"),
        ({"params": {"norm": {"min": 1, "max": 2}}, "method": "random", "num": 2}, "sweep.params.norm"),
        ({"params": {"lr": {"min": 0, "max": 2, "log": True}}, "method": "random", "num": 2}, "sweep.params.lr"),
        ({"params": {"width": [1]}, "method": "random"}, "sweep.num"),
        ({"params": {"width": list(range(15)), "lr": list(range(15))}}, "sweep"),
    ],
)
def test_what_cannot_be_swept_is_refused(sweep: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        expand(Sweep.model_validate(sweep), KINDS)
    assert [fault.field for fault in caught.value.faults] == [field]


def test_each_set_is_an_experiment_and_the_tag_finds_all(team: Team) -> None:
    client = team.client("submitter")
    body = {"workload": "digits-cnn", "recipes": ["fp32", "bf16"], "seeds": 1, "control": False, "name": "widths",
            "tags": ["mine"], "sweep": {"params": {"width": [16, 32, 64]}}}  # fmt: skip
    made = client.post(URL, json=body)
    assert made.status_code == 201, made.text
    sweep = made.json()
    assert [item["name"] for item in sweep["experiments"]] == [f"widths: width={width}" for width in (16, 32, 64)]
    found = client.get("/api/v1/experiments", params={"q": f"tag:{sweep['tag']}"}).json()["items"]
    assert sorted(item["params"]["width"] for item in found) == [16, 32, 64]
    assert sweep["num_runs"] == sum(item["progress"]["total"] for item in found)
    assert all(item["tags"] == ["mine", sweep["tag"]] for item in found)


def test_a_fault_in_one_set_queues_none(team: Team) -> None:
    client = team.client("submitter")
    body = {"workload": "digits-cnn", "recipes": ["fp32", "bf16"], "sweep": {"params": {"width": [16, -5]}}}
    answer = client.post(URL, json=body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "params.width")
    assert client.get("/api/v1/experiments").json()["items"] == []
    unknown = client.post(URL, json={**body, "workload": "nothing"})
    assert unknown.json()["errors"][0]["field"] == "workload"


def test_the_command_line_spells_lists_and_ranges() -> None:
    assert sweep_of(["width=16,32", "norm=layer"], None, 0) == {
        "method": "grid", "params": {"width": [16, 32], "norm": ["layer"]},
    }  # fmt: skip
    drawn = sweep_of(["lr=0.001..0.1:log"], 5, 7)
    assert drawn == {
        "method": "random", "params": {"lr": {"min": 0.001, "max": 0.1, "log": True}}, "num": 5, "seed": 7,
    }  # fmt: skip
    assert sweep_of(sweep_text(drawn), 5, 7) == drawn
    for wrong in ("width", "lr=a..b", "lr=1..2:linear"):
        with pytest.raises(ValueError, match=wrong.partition("=")[0]):
            sweep_of([wrong], None, 0)


def test_the_form_submits_a_sweep_and_spells_it_for_the_terminal(team: Team) -> None:
    client = team.client("submitter")
    form = {"workload": "digits-cnn", "name": "w", "seeds": "1", "steps": "9", "eval_every": "", "margin": "",
            "device": "cpu", "priority": "0", "tags": "", "note": "", "recipe.0.on": "1", "recipe.1.on": "1",
            "sweep": "width=16, 32\n", "draws": ""}  # fmt: skip
    form |= {f"params.{item['name']}": spelled(item["default"]) for item in DIGITS["parameters"]}
    told = client.post("/experiments/preview", data=form).json()
    assert "--sweep width=16,32" in told["cli"]
    assert "/api/v1/sweeps" in told["curl"]
    assert told["runs"].startswith("2 experiments of ")
    answer = client.post("/experiments/new", data=form, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/experiments?q=tag%3Asweep-1")
    assert len(client.get("/api/v1/experiments").json()["items"]) == 2
    wrong = client.post("/experiments/new", data={**form, "sweep": "width"}, follow_redirects=False)
    assert wrong.status_code == 422
    assert "must have the form NAME=VALUE,VALUE" in wrong.text
    assert "has the parameters" in client.post("/experiments/new", data={**form, "sweep": "depth=1"}).text


def test_a_sweep_has_so_many_runs(team: Team) -> None:
    team.settings.max_runs_per_experiment = 4
    body = {"workload": "digits-cnn", "seeds": 2, "recipes": ["fp32", "bf16"], "control": False, "measure_gain": False,
            "sweep": {"params": {"width": list(range(1, 12))}}}  # fmt: skip
    answer = team.client("submitter").post(URL, json=body)
    assert (answer.status_code, "more than 40 runs" in answer.text) == (422, True)
    assert team.client("viewer").get("/api/v1/experiments").json()["items"] == [], "all of them or none"
    body["sweep"] = {"params": {"width": list(range(1, 11))}}
    assert team.client("submitter").post(URL, json=body).status_code == 201


def test_a_range_wider_than_any_number_is_refused() -> None:
    sweep = Sweep.model_validate({"method": "random", "params": {"lr": {"min": -1e308, "max": 1e308}}, "num": 3})
    with pytest.raises(Invalid, match="difference"):
        expand(sweep, KINDS)
