"""Reading of annotated sources: `# !! rule-name` marks a line on which exactly that finding is expected."""

import re
from textwrap import dedent

from amp_core.lint import lint_source

MARK = re.compile(r"#\s*!!\s*(?P<names>[\w\- ]+)")


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
