"""The compose file follows the schema, waits for health, and refuses unset secrets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[3]
COMPOSE = ROOT / "docker-compose.yml"


def validate(path: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", path]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_follows_the_compose_schema() -> None:
    done = validate(COMPOSE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_validation_notices_a_planted_error(tmp_path: Path) -> None:
    (tmp_path / "docker-compose.yml").write_text(COMPOSE.read_text().replace("interval: 3s", "intervall: 3s"))
    assert validate(tmp_path / "docker-compose.yml").returncode != 0


@pytest.fixture(scope="module")
def services() -> dict:
    return YAML(typ="safe").load(COMPOSE.read_text())["services"]


def test_server_and_workers_wait_for_health_and_migration(services: dict) -> None:
    for name in ("server", "worker", "worker-gpu"):
        conditions = {on: how["condition"] for on, how in services[name]["depends_on"].items()}
        assert conditions == {"migrate": "service_completed_successfully", "redis": "service_healthy"}
    assert services["migrate"]["depends_on"] == {"db": {"condition": "service_healthy"}}
    for name in ("db", "redis", "server"):
        assert services[name]["healthcheck"]["test"]


def test_secrets_have_no_default_and_the_example_leaves_them_empty() -> None:
    text = COMPOSE.read_text()
    example = (ROOT / ".env.example").read_text().splitlines()
    for secret in ("POSTGRES_PASSWORD", "REDIS_PASSWORD"):
        assert text.count("${" + secret) == text.count("${" + secret + ":?")
        assert f"{secret}=" in example


def test_only_loopback_is_published_and_gpu_is_a_choice(services: dict) -> None:
    assert [name for name, service in services.items() if "ports" in service] == ["server"]
    assert services["server"]["ports"] == ["${AMPBOARD_PUBLISH:-127.0.0.1:8420}:8420"]
    assert services["worker-gpu"]["profiles"] == ["gpu"]
    assert "profiles" not in services["worker"]
