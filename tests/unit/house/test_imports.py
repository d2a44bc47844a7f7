"""Who may import whom, shown in a fresh interpreter and by the import contracts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    "module", ["server.app", "server.cli.main", "server.cli.up", "amp_core.config", "amp_core.verdict"]
)
def test_the_server_never_loads_torch(module: str) -> None:
    code = f"import {module}, sys; raise SystemExit('torch' in sys.modules or 'worker' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_the_import_contracts_hold() -> None:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "kept" in done.stdout
