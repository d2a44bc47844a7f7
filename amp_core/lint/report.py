"""Findings as text for people and as JSON or SARIF for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from amp_core.lint.catalogue import RULES
from amp_core.lint.finding import Finding, Severity
from amp_core.lint.rule import Rule

SARIF_LEVELS = {Severity.INFO: "note", Severity.WARNING: "warning", Severity.ERROR: "error"}
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_text(findings: Sequence[Finding], num_files: int) -> str:
    """One line and a fix per finding, and a summary."""
    lines = []
    for finding in findings:
        place = f"{finding.path}:{finding.line}:{finding.column}"
        lines.append(f"{place}: {finding.severity.label} {finding.code} [{finding.name}] {finding.message}")
        lines.append(f"    fix: {finding.fix}")
    files = "1 file" if num_files == 1 else f"{num_files} files"
    if not findings:
        return f"{files}: no finding"
    counts = ", ".join(_counted(findings, severity) for severity in sorted(Severity, reverse=True))
    return "\n".join([*lines, f"{files}: {counts}"])


def _counted(findings: Sequence[Finding], severity: Severity) -> str:
    num = sum(finding.severity is severity for finding in findings)
    return f"{num} {severity.label}{'' if num == 1 or severity is Severity.INFO else 's'}"


def as_json(findings: Sequence[Finding], num_files: int, errors: Sequence[str]) -> str:
    """`{files, findings: [{path, line, column, end_line, code, name, severity, message, fix}], errors}`."""
    return json.dumps(
        {"files": num_files, "findings": [as_dict(finding) for finding in findings], "errors": list(errors)},
        indent=2,
        ensure_ascii=False,
    )


def as_dict(finding: Finding) -> dict[str, Any]:
    """A finding with plain values."""
    return {
        "path": finding.path,
        "line": finding.line,
        "column": finding.column,
        "end_line": finding.end_line,
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.label,
        "message": finding.message,
        "fix": finding.fix,
    }


def as_sarif(findings: Sequence[Finding], version: str, errors: Sequence[str]) -> str:
    """SARIF 2.1.0, with the whole rule table."""
    codes = list(RULES)
    run = {
        "tool": {
            "driver": {"name": "ampboard lint", "version": version, "rules": [_sarif_rule(r) for r in RULES.values()]}
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not errors,
                "toolExecutionNotifications": [{"level": "error", "message": {"text": text}} for text in errors],
            }
        ],
        "results": [_sarif_result(finding, codes.index(finding.code)) for finding in findings],
    }
    return json.dumps({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)


def _sarif_rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.what},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{rule.fix[0].upper()}{rule.fix[1:]}.\n\nWrong:\n{rule.before}\n\nRight:\n{rule.after}"},
        "defaultConfiguration": {"level": SARIF_LEVELS[rule.severity]},
    }


def _sarif_result(finding: Finding, index: int) -> dict[str, Any]:
    region = {"startLine": finding.line, "startColumn": finding.column, "endLine": finding.end_line}
    location = {"artifactLocation": {"uri": quote(PurePath(finding.path).as_posix())}, "region": region}
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": SARIF_LEVELS[finding.severity],
        "message": {"text": f"{finding.message}. Fix: {finding.fix}"},
        "locations": [{"physicalLocation": location}],
    }
