"""Lint scripts of a folder of cases: the answer at the end of each is cut off before the linter sees the source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amp_core.lint import Finding, lint_source

ANSWER = "\n# EXPECT\n"
LINE = re.compile(r"^# line: (\d+)", re.MULTILINE)
RULE = re.compile(r"^# rule: (\S+)", re.MULTILINE)


@dataclass(kw_only=True)
class Linted:
    """A script, the lines where its answer wants findings, and what the linter found."""

    script: str
    rules: list[str]
    lines: list[int]
    findings: list[Finding]

    @property
    def all_right(self) -> bool:
        return sorted({finding.line for finding in self.findings}) == sorted(set(self.lines))

    def to_json(self) -> dict[str, Any]:
        return {
            "script": self.script,
            "expected": [{"rule": r, "line": n} for r, n in zip(self.rules, self.lines, strict=True)],
            "found": [
                {"code": f.code, "name": f.name, "line": f.line, "severity": f.severity.label, "message": f.message}
                for f in self.findings
            ],
            "all_right": self.all_right,
        }


def lint_script(path: Path) -> Linted:
    """Lint one script without its answer."""
    source, _, answer = path.read_text().partition(ANSWER)
    findings = lint_source(source + "\n", path.name)
    lines = [int(number) for number in LINE.findall(answer)]
    return Linted(script=path.stem, rules=RULE.findall(answer), lines=lines, findings=findings)
