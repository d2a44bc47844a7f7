"""Rows of a table of figures, each beside its budget, and the line that says which were met."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure. ``met`` is None where no budget is set."""

    what: str
    figure: str
    budget: str = ""
    met: bool | None = None


def at_most(what: str, figure: float, most: float, unit: str, detail: str = "", digits: int = 0) -> Row:
    """A row whose figure may not exceed ``most``."""
    text = f"{figure:,.{digits}f} {unit}".strip() + (f", {detail}" if detail else "")
    return Row(what=what, figure=text, budget=f"≤ {most:,g} {unit}".strip(), met=figure <= most)


def holds(what: str, met: bool, yes: str, no: str, budget: str) -> Row:
    """A row that is true or not."""
    return Row(what=what, figure=yes if met else no, budget=budget, met=met)


def markdown(rows: list[Row]) -> str:
    """A Markdown table, fit for docs/benchmarks.md."""
    lines = ["| | ampboard | budget | |", "|---|---|---|---|"]
    for row in rows:
        verdict = {None: "", True: "held", False: "**missed**"}[row.met]
        lines.append(f"| {row.what} | {row.figure} | {row.budget} | {verdict} |")
    return "\n".join(lines)


def summary(rows: list[Row]) -> str:
    """The last line: how many budgets are held, and which are missed."""
    judged = [row for row in rows if row.met is not None]
    missed = [row.what for row in judged if not row.met]
    if not missed:
        return f"All {len(judged)} budgets are held."
    return f"{len(judged) - len(missed)} of {len(judged)} budgets are held. Missed: {'; '.join(missed)}."
