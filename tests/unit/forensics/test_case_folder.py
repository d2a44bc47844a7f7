"""The collection of cases beside the repository, where there is one: all of it right."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from tests.cases.case_file import load
from tests.cases.scoring import policies_of, run_case

FOLDER = Path(__file__).parents[4] / "shared" / "cases"
PATHS = sorted(FOLDER.glob("C[0-9]*.py"))
SAMPLE = PATHS[::4]  # `make cases` runs all of them


@pytest.mark.skipif(not PATHS, reason="the folder of cases is not beside this repository")
@pytest.mark.parametrize("path", SAMPLE, ids=lambda path: path.stem)
def test_a_case_is_diagnosed_right(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases are scripts of their own
        case = load(path)
        if getattr(case, "SPECIAL", False):
            return
        for policy in policies_of(case):
            scored = run_case(path, policy)
            assert scored.all_right, scored.to_json()
