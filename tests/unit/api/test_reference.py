"""The generated reference pages are those of this code."""

from __future__ import annotations

from pathlib import Path

from team import Team

from server.reference import configuration_markdown, rest_markdown
from server.settings import Settings

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_rest_page_is_this_interface() -> None:
    assert (DOCS / "rest.md").read_text() == rest_markdown(), "run `make docs`"


def test_the_configuration_page_is_these_settings() -> None:
    assert (DOCS / "configuration.md").read_text() == configuration_markdown(), "run `make docs`"


def test_every_setting_says_what_it_is_for() -> None:
    undocumented = [name for name, field in Settings.model_fields.items() if not field.description]
    assert not undocumented


def test_every_operation_and_parameter_type_is_described(team: Team) -> None:
    schema = team.client("viewer").get("/api/v1/openapi.json").json()
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            assert operation.get("description"), f"{method} {path} has no docstring"


def test_the_designs_routes_are_there(team: Team) -> None:
    paths = team.client("viewer").get("/api/v1/openapi.json").json()["paths"]
    for promised in (
        "experiments", "experiments/{experiment_id}", "experiments/{experiment_id}/comparison",
        "experiments/{experiment_id}/cancel", "experiments/{experiment_id}/retry", "experiments/{experiment_id}/clone",
        "runs", "runs/{run_id}", "runs/{run_id}/cancel", "runs/{run_id}/series", "runs/{run_id}/series/{name}",
        "runs/{run_id}/events", "runs/{run_id}/logs", "runs/{run_id}/stream", "runs/{run_id}/artifacts", "workloads",
        "workers", "queue", "projects", "users", "tokens", "audit",
    ):  # fmt: skip
        assert f"/api/v1/{promised}" in paths
    assert {"/healthz", "/readyz", "/metrics"} <= set(paths)
