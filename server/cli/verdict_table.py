"""A comparison as a table for the terminal: the verdicts first, their figures, then the sentences that matter."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape

from server.cli.terminal import out, table
from server.client import Json

STYLES = {"SAFE": "bold green", "SAFE WITH CAUTION": "bold yellow", "UNSAFE": "bold red", "INCONCLUSIVE": "bold cyan"}


def print_comparison(comparison: Json, url: str) -> None:
    """Print verdicts, figures, causes and caveats, and where the page is."""
    console = out()
    console.print()
    console.print(escape(str(comparison["headline"])), style="bold")
    for statement in comparison.get("statements", []):
        if statement != comparison["headline"]:
            console.print(f"  {escape(str(statement))}")
    _print_table(console, comparison)
    _print_reasons(console, comparison)
    for caveat in comparison.get("caveats", []):
        console.print(f"  note: {escape(str(caveat))}", style="dim")
    console.print(f"\n  {escape(url)}", soft_wrap=True)


def _print_table(console: Console, comparison: Json) -> None:
    primary = comparison["primary"]
    rows = table("recipe", "verdict", f"{primary['label']} difference", "speed", "memory", "numerics")
    baseline = comparison["baseline"]
    rows.add_row(
        escape(str(baseline["recipe"])),
        "baseline",
        f"mean {number(baseline.get('mean'))}{unit(primary)}",
        "1×",
        "1×",
        "",
    )
    for recipe in comparison["recipes"]:
        verdict = recipe["verdict"]
        rows.add_row(
            escape(str(recipe["recipe"])),
            f"[{STYLES.get(verdict, '')}]{verdict}[/]" if verdict in STYLES else "not yet",
            difference(recipe.get("quality")),
            ratio((recipe.get("gain") or {}).get("speed"), "ratio"),
            ratio((recipe.get("gain") or {}).get("memory"), "saved_for_backward_ratio"),
            str(recipe.get("numerics") or ""),
        )
    console.print(rows, soft_wrap=False)
    console.print(f"  margin fixed at submission: {escape(str(primary['margin_text']))}", style="dim")


def _print_reasons(console: Console, comparison: Json) -> None:
    for recipe in comparison["recipes"]:
        console.print(f"  [bold]{escape(str(recipe['recipe']))}[/]: {escape(str(recipe['sentence']))}")
        for finding in recipe.get("findings", [])[:2]:
            console.print(f"      {escape(str(finding['sentence']))}")
            if finding.get("cure"):
                console.print(f"      cure: {escape(str(finding['cure']['sentence']))}")
        gain = recipe.get("gain") or {}
        if gain.get("sentence"):
            console.print(f"      {escape(str(gain['sentence']))}")
        if recipe.get("next_step"):
            console.print(f"      next: {escape(str(recipe['next_step']['sentence']))}")


def difference(quality: Json | None) -> str:
    """Candidate against baseline with its 90 % interval, in the words that page and report use."""
    if not quality:
        return "–"
    interval = quality.get("interval_text")
    return f"{quality['difference_text']} ({interval})" if interval else str(quality["difference_text"])


def ratio(figures: Json | None, key: str) -> str:
    """``1.83×``, with its interval where there is one; ``not measured`` is said, never guessed."""
    value = (figures or {}).get(key)
    if not isinstance(value, int | float):
        return "not measured"
    interval = (figures or {}).get("interval") if key == "ratio" else None
    text = f"{value:.2f}×"
    return f"{text} [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else text


def number(value: Any) -> str:
    return "–" if value is None else value if isinstance(value, str) else f"{value:.4g}"


def unit(primary: Json) -> str:
    """The unit to put behind a number, with its space."""
    return f" {primary['unit']}" if primary.get("unit") else ""
