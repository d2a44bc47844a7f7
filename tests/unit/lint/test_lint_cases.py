"""The collection of small scripts beside the repository, where it is at hand: exact lines and names, nothing else."""

import re
from pathlib import Path

import pytest

from amp_core.lint import lint_source

FOLDER = Path(__file__).resolve().parents[4] / "shared" / "cases" / "lint"
CASES = sorted(FOLDER.glob("*.py")) if FOLDER.is_dir() else []


def answer(text: str) -> tuple[str, set[tuple[str, int]], set[int]]:
    """The source without its EXPECT block, the finding it must give, and lines where more is acceptable."""
    source, _, block = text.partition("# EXPECT")
    wanted = re.search(r"# rule: (\S+)\s+# line: (\d+)", block)
    lenient = {
        int(number) for line in re.findall(r"also_acceptable:(.*)", block) for number in re.findall(r"line (\d+)", line)
    }
    return source, {(wanted[1], int(wanted[2]))} if wanted else set(), lenient


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path):
    source, wanted, lenient = answer(path.read_text())
    found = {(finding.name, finding.line) for finding in lint_source(source)}
    assert wanted <= found
    assert {line for _, line in found - wanted} <= lenient
