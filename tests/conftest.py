"""Rules for every test: no setting leaks in from outside, and in CI a skipped test is a failed one."""

from __future__ import annotations

import os

import pytest
from databases import (
    any_database,
    database,
    empty_postgres_url,
    postgres,
    postgres_server_url,
    postgres_url,
    shared_postgres_url,
    sqlite_template,
    sqlite_url,
)
from redis_server import redis, redis_server_url

__all__ = [
    "any_database",
    "database",
    "empty_postgres_url",
    "postgres",
    "postgres_server_url",
    "postgres_url",
    "redis",
    "redis_server_url",
    "shared_postgres_url",
    "sqlite_template",
    "sqlite_url",
]

for _name in [name for name in os.environ if name.startswith("AMPBOARD_")]:
    del os.environ[_name]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked ``gpu`` are only selected where there is one."""
    wanting = [item for item in items if item.get_closest_marker("gpu")]
    if not wanting:
        return
    import torch

    if not torch.cuda.is_available():
        config.hook.pytest_deselected(items=wanting)
        items[:] = [item for item in items if item not in wanting]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI every service must be there: a skip means that something was not tested."""
    if _num_skipped_in_ci(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if num_skipped := _num_skipped_in_ci(config):
        terminalreporter.write_line(f"CI=true: {num_skipped} skipped tests count as failures", red=True)


def _num_skipped_in_ci(config: pytest.Config) -> int:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return len(reporter.stats.get("skipped", [])) if os.environ.get("CI") and reporter else 0
