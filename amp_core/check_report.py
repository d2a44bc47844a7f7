"""A check in words: Markdown for terminals and CI, HTML for notebooks, from the same sections."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import msgspec

from amp_core.forensics.diagnosis import Diagnosis

if TYPE_CHECKING:
    from amp_core.checking import Check

HORIZON = "It looked at {steps} steps{seeds}: it finds faults early; an experiment of full length judges final quality."


def markdown(check: Check) -> str:
    """The check as Markdown."""
    lines = [f"# {_title(check)}", ""]
    for name, found in check.diagnoses.items():
        lines += [f"## {name}", "", *_verdict(check, name), *_finding(found), ""]
    if check.speed is not None:
        lines += ["## Speed", "", " ".join(part for part in (check.speed.sentence, check.speed.fix) if part), ""]
    if check.lint:
        lines += ["## Source", ""]
        lines += [f"- {f.path}:{f.line} {f.code} {f.message}" for f in check.lint]
        lines += [""]
    return "\n".join([*lines, _horizon(check)])


def html_of(check: Check) -> str:
    """The check as HTML: one section a recipe, nothing to load."""
    parts = [f"<h3>{_escaped(_title(check))}</h3>"]
    for name, found in check.diagnoses.items():
        parts.append(f"<h4>{_escaped(name)}</h4>")
        parts += [f"<p>{_escaped(line.replace('**', ''))}</p>" for line in _verdict(check, name) if line]
        if found is None:
            parts.append("<p>No symptom beside FP32.</p>")
            continue
        parts.append(f"<p><strong>{_escaped(found.symptom.sentence)}</strong> {_escaped(found.sentence)}</p>")
        parts.append(f"<p>{_escaped(found.fix)}</p><p>{_escaped(_proof(found))}</p>")
        parts.append(f"<pre>{_escaped(_recipe(found))}</pre>")
    if check.speed is not None:
        parts.append(f"<p>{_escaped(check.speed.sentence)} {_escaped(check.speed.fix)}</p>")
    if check.lint:
        rows = [
            f"<tr><td>{f.line}</td><td>{_escaped(f.code)}</td><td>{_escaped(f.message)}</td></tr>" for f in check.lint
        ]
        head = "<tr><th>Line</th><th>Code</th><th>Finding</th></tr>"
        parts.append(f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>")
    return "\n".join([*parts, f"<p><small>{_escaped(_horizon(check))}</small></p>"])


def _title(check: Check) -> str:
    return "Nothing found" if check.sound else "Not sound"


def _verdict(check: Check, name: str) -> list[str]:
    if check.comparison is None:
        return []
    found = next((one for one in check.comparison.recipes if one.recipe == name), None)
    return [] if found is None else [f"**{found.verdict or 'no verdict'}**: {found.sentence}", ""]


def _finding(found: Diagnosis | None) -> list[str]:
    if found is None:
        return ["No symptom beside FP32."]
    told = f"**{found.symptom.sentence}** {found.sentence}"
    return [told, "", found.fix, "", f"{_proof(found)} `{_recipe(found)}`"]


def _proof(found: Diagnosis) -> str:
    return f"Recipe ({'repeated under it, the symptom was gone' if found.verified else 'not proved to help'}):"


def _recipe(found: Diagnosis) -> str:
    return msgspec.json.encode(found.recipe).decode() if found.recipe is not None else "none found"


def _horizon(check: Check) -> str:
    seeds = "" if check.comparison is None else f" and {check.comparison.baseline.num_seeds} seeds"
    return HORIZON.format(steps=check.steps, seeds=seeds or " with one seed")


def _escaped(text: str) -> str:
    return html.escape(text)
