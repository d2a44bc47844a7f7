"""``ampboard lint``: the AMP linter as a command, a gate for CI and a pre-commit hook."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from amp_core.lint import RULES, Finding, LintError, Severity, lint_file
from amp_core.lint.catalogue import codes_for, explained
from amp_core.lint.discovery import python_files
from amp_core.lint.documentation import explain as explanation
from amp_core.lint.report import as_json, as_sarif, as_text
from server.version import VERSION


class Format(StrEnum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"


class FailOn(StrEnum):
    """The least severity that fails."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    NEVER = "never"


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command()(lint)


def lint(
    paths: Annotated[list[Path] | None, typer.Argument(help="Files, or folders with Python files.")] = None,
    output: Annotated[Format, typer.Option("--format", help="How to print findings.")] = Format.TEXT,
    select: Annotated[str, typer.Option(help="Only these rules: codes, prefixes (AMP1) or names, with commas.")] = "",
    ignore: Annotated[str, typer.Option(help="Not these rules: as for --select.")] = "",
    fail_on: Annotated[
        FailOn, typer.Option(help="Least severity of a finding that makes the exit code 1.")
    ] = FailOn.WARNING,
    explain: Annotated[str | None, typer.Option(help="Explain a rule, by code or name; 'all' lists all.")] = None,
) -> None:
    """Find mistakes of mixed precision in source code. Exit code: 0 clean, 1 findings, 2 a file cannot be linted."""
    try:
        if explain is not None:
            _explain(explain)
            return
        if not paths:
            raise LintError("no path given: ampboard lint PATH…, or --explain CODE")
        rules = (codes_for(select) if select else set(RULES)) - codes_for(ignore)
        files = list(python_files(paths))
    except LintError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from error
    findings, errors = _linted(files, sorted(rules))
    _print(output, findings, len(files), errors)
    if errors:
        raise typer.Exit(2)
    if fail_on is not FailOn.NEVER and any(f.severity >= Severity[fail_on.name] for f in findings):
        raise typer.Exit(1)


def _linted(files: list[Path], rules: list[str]) -> tuple[list[Finding], list[str]]:
    findings: list[Finding] = []
    errors: list[str] = []
    for file in files:
        try:
            findings.extend(lint_file(file, rules))
        except LintError as error:
            errors.append(str(error))
    return findings, errors


def _print(output: Format, findings: list[Finding], num_files: int, errors: list[str]) -> None:
    if output is Format.JSON:
        typer.echo(as_json(findings, num_files, errors))
    elif output is Format.SARIF:
        typer.echo(as_sarif(findings, VERSION, errors))
    else:
        typer.echo(as_text(findings, num_files))
    if output is Format.TEXT:
        for error in errors:
            typer.echo(f"error: {error}", err=True)


def _explain(name: str) -> None:
    if name == "all":
        for rule in RULES.values():
            typer.echo(f"{rule.code}  {rule.severity.label:<8} {rule.name}")
    else:
        typer.echo(explanation(explained(name)), nl=False)
