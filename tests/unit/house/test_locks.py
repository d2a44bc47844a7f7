"""The lock files are exact, complete, and the same for every machine."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def locked(name: str) -> dict[str, str]:
    lines = [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("==") for line in lines)


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_lines_are_names_with_exact_public_versions(name: str) -> None:
    for line in (ROOT / name).read_text().splitlines():
        assert re.fullmatch(r"#.*|[a-z0-9-]+==[0-9][0-9a-z.]*", line), line
    assert locked(name)["torch"] == "2.13.0"
    assert not [package for package in locked(name) if package.startswith(("nvidia", "cuda", "triton"))]


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("requirements.lock", PROJECT["dependencies"]),
        ("requirements-dev.lock", PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]),
    ],
)
def test_every_dependency_is_locked_at_a_version_it_allows(name: str, needed: list[str]) -> None:
    versions = locked(name)
    for text in needed:
        requirement = Requirement(text)
        version = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{text} is locked at {version}: run `make lock`"


def test_development_runs_what_users_run() -> None:
    assert locked("requirements.lock").items() <= locked("requirements-dev.lock").items()
