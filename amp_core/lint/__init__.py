"""The AMP linter: mistakes of mixed precision that the source shows. Standard library only, imports no torch."""

from amp_core.lint.catalogue import RULES
from amp_core.lint.engine import lint_file, lint_source
from amp_core.lint.finding import Finding, LintError, Severity

__all__ = ["RULES", "Finding", "LintError", "Severity", "lint_file", "lint_source"]
