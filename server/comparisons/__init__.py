"""Comparisons: evidence from rows, the verdict of `amp_core.verdict` over it, and the report."""
