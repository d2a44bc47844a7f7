"""Loading and describing workload files: a broken one says where, and stops nothing."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests_child import ZOO

from amp_core.config import WorkloadRef
from amp_core.errors import WorkloadError
from amp_core.loader import describe, load

GOOD = '''
import torch
from torch import nn
from amp_core import Metric, Workload
from amp_core.workload import param

class Regression(Workload):
    """Fits a line.

    More words.
    """

    primary = Metric("loss", higher_is_better=False, margin=0.02, relative=True)
    steps = 40
    recipes = ("fp32", {"precision": "16-mixed", "scaler": "none"})
    width: int = param(4, min=1, max=64, help="Inputs")
    kind: str = param("plain", choices=("plain", "fancy"))
    shuffle: bool = True

    def model(self):
        return nn.Linear(self.width, 1)

    def batches(self, split, seed):
        yield torch.zeros(2, self.width), torch.zeros(2, 1)
'''


def write(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_description_holds_what_a_form_needs(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    (found,) = describe(path)
    assert found == {
        "path": str(path),
        "name": "regression",
        "source_hash": hashlib.sha256(GOOD.encode()).hexdigest(),
        "title": "Regression",
        "summary": "Fits a line.",
        "steps": 40,
        "recipes": ["fp32", {"precision": "16-mixed", "scaler": "none"}],
        "primary": {
            "name": "loss",
            "higher_is_better": False,
            "margin": 0.02,
            "relative": True,
            "unit": "",
            "resolution": None,
        },
        "is_script": False,
        "may_schedule": False,
        "parameters": [
            parameter("width", "int", 4, 1, 64, help="Inputs"),
            parameter("kind", "str", "plain", choices=["plain", "fancy"]),
            parameter("shuffle", "bool", True),
        ],
        "error": None,
    }


def parameter(name: str, kind: str, default: object, *limits: float, **more: object) -> dict[str, object]:
    minimum, maximum = limits or (None, None)
    fields = {"name": name, "type": kind, "default": default, "min": minimum, "max": maximum}
    return {**fields, "choices": None, "help": "", **more}


def test_loading_gives_the_parameters_and_refuses_bad_ones(tmp_path: Path) -> None:
    path = str(write(tmp_path, GOOD))
    workload = load(WorkloadRef(name="regression", path=path, params={"width": 8}))
    assert workload.values()["width"] == 8
    with pytest.raises(WorkloadError, match="width=65 must be at most 64"):
        load(WorkloadRef(name="regression", path=path, params={"width": 65}))
    with pytest.raises(WorkloadError, match="no parameter 'depth'"):
        load(WorkloadRef(name="regression", path=path, params={"depth": 1}))
    with pytest.raises(WorkloadError, match="defines no workload 'other': it defines regression"):
        load(WorkloadRef(name="other", path=path))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("# Workload\nx = (", "mine.py line 2 raises SyntaxError"),
        ("# Workload\nimport nothing_of_this_name", "mine.py line 2 raises ModuleNotFoundError"),
        ("import sys  # Workload\nsys.exit(2)", "mine.py line 2 raises SystemExit: 2"),
        ("x = 1", "mine.py defines no workload: write a subclass"),
        ("1 / 0", "(not imported: it never says Workload)"),
        ("from amp_core import Workload", "mine.py defines no workload"),
        (GOOD + "\nclass Other(Regression):\n    name = 'regression'\n", "two workloads named 'regression'"),
        (GOOD.replace("    steps = 40", "    width2: int\n"), "parameter 'width2' of Regression has no default"),
        (GOOD.replace("    def model(self):", "    def modell(self):"), "does not define model(): write it"),
        (GOOD.replace('"fp32"', '"fp12"'), "precision='fp12' is unknown"),
        (GOOD.replace("steps = 40", "steps = 0"), "steps=0 of Regression must be a whole number"),
        (GOOD.replace("margin=0.02", "margin=0.0"), "must be positive and finite"),
        (GOOD.replace("param(4,", "param(0,"), "must be at least 1"),
    ],
)
def test_a_broken_file_is_listed_with_its_error(tmp_path: Path, text: str, error: str) -> None:
    path = write(tmp_path, text)
    (found,) = describe(path)
    assert error in found["error"]
    assert found["path"] == str(path)
    assert found["source_hash"] == hashlib.sha256(text.encode()).hexdigest()
    assert found["parameters"] == []


def test_a_missing_file_is_listed_too(tmp_path: Path) -> None:
    (found,) = describe(tmp_path / "gone.py")
    assert "cannot be read" in found["error"]


def test_a_module_beside_the_file_can_be_imported_and_cannot_hide_a_library(tmp_path: Path) -> None:
    write(tmp_path, "WIDTH = 4\n", "my_sizes.py")
    write(tmp_path, "raise RuntimeError('the wrong json')\n", "json.py")
    path = write(tmp_path, "import json, my_sizes\n" + GOOD)
    (found,) = describe(path)
    assert found["error"] is None


def test_the_command_prints_lines_of_json_only(tmp_path: Path) -> None:
    noisy = write(tmp_path, "import os\nprint('noise')\nos.write(1, b'more noise')\n" + GOOD, "noisy.py")
    broken = write(tmp_path, "1/0", "broken.py")
    command = [sys.executable, "-m", "amp_core", "describe", str(noisy), str(broken), str(ZOO)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["name"] for line in lines][:2] == ["regression", "broken"]
    assert [line["error"] is None for line in lines][:3] == [True, False, True]
    assert "noise" in done.stderr
