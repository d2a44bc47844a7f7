"""Templates can be read: a line holds one thing. Scripts and styles are formatted by `make check`."""

from __future__ import annotations

from pathlib import Path

import pytest

TEMPLATES = Path(__file__).parents[3] / "web" / "templates"
MAX_COLUMNS = 200  # a long sentence or an attribute cannot be broken


@pytest.mark.parametrize("path", sorted(TEMPLATES.rglob("*.html")), ids=lambda path: str(path.relative_to(TEMPLATES)))
def test_lines_can_be_read(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert max(map(len, lines), default=0) <= MAX_COLUMNS
    assert sum(len(line) > 120 for line in lines) <= 0.1 * len(lines) + 1
