"""What the engine needs of torch, tested with the lowest and the newest torch that the project declares.

Each has a virtual environment of its own under .bench/, never the project's. Usage: python -m tests.torch_range
[--index URL] [VERSION ...]; versions default to the floor in pyproject.toml and the newest release. The builds are the
registry's own, which are large where they hold CUDA; --index names an index of CPU builds.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".bench" / "torch-range"
NEEDS = ("numpy", "msgspec", "psutil", "pillow", "scikit-learn", "scipy", "hypothesis", "pytest", "pytest-timeout")
TESTS = (
    "tests/unit/engine/test_torch_private.py",
    "tests/unit/engine/test_optimizer_steps.py",
    "tests/unit/engine/test_fp32_ops.py",
    "tests/unit/engine/test_fp8.py",
    "tests/unit/engine/test_scaler_rules.py",
    "tests/unit/engine/test_fp32_modules.py",
)


def floor() -> str:
    """The lowest torch that pyproject.toml allows, as ``2.9``."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    return next(found[1] for one in declared if (found := re.fullmatch(r"torch>=([0-9.]+)", one)))


def check(version: str, index: str) -> bool:
    """Whether the tests pass with a torch of this version (``newest``, or the start of one such as ``2.9``)."""
    wanted = "torch" if version == "newest" else f"torch=={version}.*"
    home = FOLDER / version
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
    source = ["--index-url", index] if index else []
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in ([*pip, *source, wanted], [*pip, *NEEDS]):
        if subprocess.run(command).returncode:
            print(f"torch {version}: it cannot be installed here (see above); nothing was tested", file=sys.stderr)
            return False
    told = subprocess.run([str(python), "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    print(f"torch {told.stdout.strip() or told.stderr.strip()}", flush=True)
    pytest = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", "-c", "/dev/null"]
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests/unit/engine'}", "PATH": "/usr/bin:/bin"}
    return not subprocess.run([*pytest, f"--rootdir={ROOT}", *TESTS], cwd=ROOT, env=environment).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", default=[], metavar="VERSION")
    parser.add_argument("--index", default="", help="package index of torch, such as one of CPU builds")
    given = parser.parse_args()
    results = {version: check(version, given.index) for version in given.versions or (floor(), "newest")}
    for version, passed in results.items():
        print(f"torch {version}: {'passed' if passed else 'FAILED'}")
    sys.exit(not all(results.values()))


if __name__ == "__main__":
    main()
