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
    said = _Said(console)
    console.print()
    said.line(comparison["headline"], style="bold")
    if comparison.get("segment"):
        said.line(comparison["segment"]["sentence"], indent=2)
    for statement in comparison.get("statements", []):
        said.line(statement, indent=2)
    _print_table(console, comparison)
    for recipe in comparison["recipes"]:
        _print_reasons(said, recipe)
    for caveat in comparison.get("caveats", []):
        said.line(f"note: {caveat}", indent=2, style="dim")
    console.print(f"\n  {escape(url)}", soft_wrap=True)


class _Said:
    """Prints sentences, each once: findings come up in statements, reasons and next steps alike."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._text = ""

    def line(self, sentence: str, *, lead: str = "", indent: int = 0, style: str | None = None) -> None:
        if sentence.lower() in self._text:
            return
        self._text += f"\n{lead}{sentence}".lower()
        self._console.print(f"{' ' * indent}{escape(lead + sentence)}", style=style)


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


def _print_reasons(said: _Said, recipe: Json) -> None:
    said.line(f"{recipe['recipe']}: {recipe['sentence']}", indent=2)
    if recipe.get("gain"):
        said.line(recipe["gain"]["sentence"], indent=6)
    if recipe.get("next_step"):
        said.line(recipe["next_step"]["sentence"], lead="next: ", indent=6)
    for finding in recipe.get("findings", [])[:2]:
        said.line(finding["sentence"], indent=6)
        if finding.get("cure"):
            said.line(finding["cure"]["sentence"], lead="cure: ", indent=6)


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
    return f"{text} ({interval[0]:.2f} to {interval[1]:.2f})" if interval else text


def number(value: Any) -> str:
    return "–" if value is None else value if isinstance(value, str) else f"{value:.4g}"


def unit(primary: Json) -> str:
    """The unit to put behind a number, with its space."""
    return f" {primary['unit']}" if primary.get("unit") else ""
