"""Annotated sources: `# !! rule-name` marks a line on which exactly that finding is expected.

`programs/*.txt` hold many of them, each under a line `#### title`.
"""

import re
from pathlib import Path
from textwrap import dedent

from amp_core.lint import lint_source

MARK = re.compile(r"#\s*!!\s*(?P<names>[\w\- ]+)")
PROGRAMS = Path(__file__).with_name("programs")


def programs(group: str) -> dict[str, str]:
    """The programs of one file by title."""
    text = (PROGRAMS / f"{group}.txt").read_text()
    found = {}
    for part in text.split("\n#### ")[1:]:
        title, source = part.split("\n", 1)
        found[title] = source
    return found


def expected(source: str) -> set[tuple[int, str]]:
    """The findings that the marks of a source ask for."""
    wanted = set()
    for number, line in enumerate(source.splitlines(), start=1):
        match = MARK.search(line)
        if match:
            wanted |= {(number, name) for name in match["names"].split()}
    return wanted


def found(source: str) -> set[tuple[int, str]]:
    """The findings of the linter, by line and name."""
    return {(finding.line, finding.name) for finding in lint_source(source)}


def check(source: str) -> None:
    """Every marked finding, and no other."""
    text = dedent(source)
    assert found(text) == expected(text)
