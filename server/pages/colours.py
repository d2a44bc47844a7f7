"""The one place of precision colours: every badge, legend and chart takes them from here.

The hues are those of Okabe and Ito (2008), "Color Universal Design", which stay apart for colour-blind readers; dash
and name carry the same information, so colour is never alone. A slot belongs to a precision and its scaler, and one
experiment never uses a slot twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Style:
    """How one recipe is drawn. ``dash`` is a Plotly dash name; ``light`` and ``dark`` are the theme's hex colours."""

    slot: str
    light: str
    dark: str
    dash: str
    svg_dash: str


STYLES: dict[str, Style] = {
    style.slot: style
    for style in (
        Style(slot="fp32", light="#30343b", dark="#e8ebf0", dash="solid", svg_dash="none"),
        Style(slot="bf16", light="#0072b2", dark="#4ba7e0", dash="solid", svg_dash="none"),
        Style(slot="fp16", light="#008361", dark="#2fc39a", dash="solid", svg_dash="none"),
        Style(slot="fp16-none", light="#d55e00", dark="#f0803c", dash="dot", svg_dash="2 2.5"),
        Style(slot="fp16-static", light="#a87400", dark="#e9b13b", dash="dash", svg_dash="5 3"),
        Style(slot="bf16-kept", light="#3f8fc0", dark="#8fd0f5", dash="dash", svg_dash="5 3"),
        Style(slot="fp16-kept", light="#b9568c", dark="#e08dbb", dash="dash", svg_dash="5 3"),
        Style(slot="other-1", light="#6d62c4", dark="#aaa2f2", dash="dashdot", svg_dash="6 2 2 2"),
        Style(slot="other-2", light="#7d7a1c", dark="#d6d05a", dash="longdash", svg_dash="7 3"),
        Style(slot="other-3", light="#8a5a44", dark="#cf9a80", dash="longdashdot", svg_dash="7 2 2 2"),
    )
}
_FALLBACK = ("other-1", "other-2", "other-3", "fp16-kept", "bf16-kept", "fp16-static", "fp16-none")


def natural_slot(recipe: dict[str, Any]) -> str:
    """The slot of a recipe on its own: its precision, then what is special about it."""
    precision = recipe.get("precision", "")
    kept = bool(recipe.get("fp32_modules"))
    if precision == "bf16-mixed":
        return "bf16-kept" if kept else "bf16"
    if precision == "16-mixed":
        if kept:
            return "fp16-kept"
        kind = (recipe.get("scaler") or {}).get("kind", "dynamic")
        return {"none": "fp16-none", "static": "fp16-static"}.get(kind, "fp16")
    return {"bf16-true": "other-1", "16-true": "other-2", "tf32": "other-3"}.get(precision, "fp32")


def natural_style(recipe: dict[str, Any]) -> Style:
    """The style of a recipe on its own."""
    return STYLES[natural_slot(recipe)]


def assign(recipes: Iterable[dict[str, Any]]) -> dict[str, Style]:
    """Give each recipe of an experiment a style, by name, none used twice while any is free.

    The first recipe of a kind keeps the kind's own colour; later ones of the same kind take free hues in a fixed order.
    """
    styles: dict[str, Style] = {}
    used: set[str] = set()
    for recipe in recipes:
        slot = natural_slot(recipe)
        if slot in used:
            slot = next((name for name in _FALLBACK if name not in used), slot)
        used.add(slot)
        styles[str(recipe["name"])] = STYLES[slot]
    return styles


def stylesheet() -> str:
    """The custom properties of all slots and one class per slot, for both themes."""
    light = "".join(f"--slot-{s.slot}:{s.light};" for s in STYLES.values())
    dark = "".join(f"--slot-{s.slot}:{s.dark};" for s in STYLES.values())
    classes = "".join(f".slot-{slot}{{--slot:var(--slot-{slot})}}" for slot in STYLES)
    return (
        f":root{{{light}}}"
        f"@media(prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f":root[data-theme=dark]{{{dark}}}{classes}\n"
    )
