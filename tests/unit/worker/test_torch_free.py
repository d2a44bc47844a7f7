"""The worker's own process stays small: only its children load torch."""

from __future__ import annotations

import subprocess
import sys


def test_importing_the_worker_loads_no_torch_and_no_scipy() -> None:
    code = "import sys, worker.main; print([name for name in ('torch', 'scipy', 'sklearn') if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.strip() == "[]"
