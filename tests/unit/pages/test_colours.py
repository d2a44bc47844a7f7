"""One place of colours: fixed by precision, told apart by colour-blind readers, never twice in one experiment."""

from __future__ import annotations

from itertools import combinations

import pytest

from server.pages.colours import STYLES, assign, natural_slot, stylesheet

SURFACE = {"light": "#ffffff", "dark": "#181f29"}
DEUTERANOPE = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))
PROTANOPE = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))


def linear(colour: str) -> tuple[float, float, float]:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return red, green, blue


def contrast(first: str, second: str) -> float:
    """The ratio of WCAG 2.2, section 1.4.11."""
    lights = sorted(
        sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear(x), strict=True)) for x in (first, second)
    )
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def seen_by(matrix: tuple[tuple[float, ...], ...], colour: str) -> tuple[float, ...]:
    """Machado et al. 2009, severity 1, in linear RGB; then the cube root as a rough lightness scale."""
    values = linear(colour)
    seen = (sum(w * c for w, c in zip(row, values, strict=True)) for row in matrix)
    return tuple(max(part, 0.0) ** (1 / 3) for part in seen)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_line_stands_out_from_its_surface(theme: str) -> None:
    for style in STYLES.values():
        assert contrast(getattr(style, theme), SURFACE[theme]) >= 3.0, style.slot


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("matrix", [DEUTERANOPE, PROTANOPE], ids=["deuteranope", "protanope"])
def test_the_usual_recipes_stay_apart_for_colour_blind_readers(
    theme: str, matrix: tuple[tuple[float, ...], ...]
) -> None:
    slots = ("fp32", "bf16", "fp16", "fp16-none")
    for first, second in combinations(slots, 2):
        pair = (seen_by(matrix, getattr(STYLES[slot], theme)) for slot in (first, second))
        one, other = pair
        distance = sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5
        different_dash = STYLES[first].dash != STYLES[second].dash
        assert distance > 0.25 or different_dash, (first, second, distance)


def test_a_recipe_has_the_colour_of_its_precision() -> None:
    assert natural_slot({"precision": "32-true"}) == "fp32"
    assert natural_slot({"precision": "bf16-mixed"}) == "bf16"
    assert natural_slot({"precision": "16-mixed", "scaler": {"kind": "dynamic"}}) == "fp16"
    assert natural_slot({"precision": "16-mixed", "scaler": {"kind": "none"}}) == "fp16-none"
    assert natural_slot({"precision": "16-mixed", "scaler": {"kind": "none"}, "fp32_modules": ["a"]}) == "fp16-kept"


def test_no_hue_twice_in_one_experiment() -> None:
    recipes = [{"name": f"r{index}", "precision": "16-mixed", "scaler": {"kind": "dynamic"}} for index in range(8)]
    styles = assign(recipes)
    assert styles["r0"].slot == "fp16"
    assert len({style.light for style in styles.values()}) == 8


def test_the_stylesheet_holds_every_slot_for_both_themes() -> None:
    css = stylesheet()
    for style in STYLES.values():
        assert f"--slot-{style.slot}:{style.light}" in css
        assert css.count(f"--slot-{style.slot}:{style.dark}") == 2
