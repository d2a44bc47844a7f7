"""Speed against quality: what is drawn, what is left out and said, which recipes nothing beats."""

from __future__ import annotations

import re
from typing import Any

from server.pages import tradeoff
from server.pages.colours import STYLES

NAMES = ("32-true", "bf16-mixed", "16-mixed")
LOOKS = {name: STYLES[slot] for name, slot in zip(NAMES, ("fp32", "bf16", "fp16"), strict=True)}
PRIMARY = {"metric": "psnr", "label": "PSNR", "higher_is_better": True, "margin": 0.25, "relative": False, "unit": "dB"}


def recipe(name: str, harm: Any, speed: float | None, **quality: Any) -> dict[str, Any]:
    told = {"mean_harm": harm, "interval": [harm - 0.02, harm + 0.02] if isinstance(harm, float) else None}
    return {
        "recipe": name,
        "quality": {**told, "margin": 0.25, **quality},
        "gain": {
            "sentence": "Not measured here: fp16 is emulated on this CPU." if speed is None else "Faster.",
            "speed": None if speed is None else {"ratio": speed, "interval": [speed - 0.1, speed + 0.1]},
        },
    }


def told(*recipes: dict[str, Any]) -> dict[str, Any]:
    return {"primary": PRIMARY, "baseline": {"recipe": "32-true"}, "recipes": list(recipes)}


def dots(svg: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r'class="dot" cx="([\d.]+)" cy="([\d.]+)"', svg)]


def test_the_baseline_is_at_one_and_zero_and_faster_lies_right_worse_lies_below() -> None:
    made = tradeoff.tradeoff(told(recipe("bf16-mixed", 0.04, 1.6)), LOOKS)
    assert made is not None
    (base_x, base_y), (x, y) = dots(made["svg"])
    assert x > base_x
    assert y > base_y, "y grows downwards in SVG"
    assert made["rows"][0] == {
        "recipe": "32-true",
        "speed": "1×",
        "quality": "0.00 dB",
        "front": made["rows"][0]["front"],
    }
    assert made["rows"][1]["speed"] == "1.60× (1.50 to 1.70)"
    assert made["rows"][1]["quality"] == "−0.04 dB (−0.06 to −0.02 dB)"


def test_both_intervals_are_drawn() -> None:
    made = tradeoff.tradeoff(told(recipe("bf16-mixed", 0.04, 1.6)), LOOKS)
    assert made is not None
    assert made["svg"].count('class="bar"') == 2


def test_an_emulated_recipe_has_no_place_and_is_told_apart() -> None:
    made = tradeoff.tradeoff(told(recipe("bf16-mixed", 0.04, 1.6), recipe("16-mixed", 0.0, None)), LOOKS)
    assert made is not None
    assert "16-mixed:" not in made["svg"].replace("bf16-mixed:", "")
    assert [one["recipe"] for one in made["missing"]] == ["16-mixed"]
    assert "emulated" in made["missing"][0]["reason"]
    assert tradeoff.tradeoff(told(recipe("16-mixed", 0.0, None)), LOOKS) is None


def test_the_front_is_what_nothing_beats_in_both() -> None:
    made = tradeoff.tradeoff(told(recipe("bf16-mixed", -0.01, 1.6), recipe("16-mixed", 0.1, 1.4)), LOOKS)
    assert made is not None
    assert [bool(row["front"]) for row in made["rows"]] == [False, True, False], "better and faster than FP32 itself"


def test_a_hopeless_recipe_is_an_arrow_and_does_not_shrink_the_others() -> None:
    made = tradeoff.tradeoff(told(recipe("bf16-mixed", 0.04, 1.6), recipe("16-mixed", 6.4, 1.7)), LOOKS)
    assert made is not None
    assert '<path class="dot"' in made["svg"]
    far = tradeoff.Point(recipe="b", slot="fp16", speed=1.7, speed_interval=None, gain=-6.4, gain_interval=None)
    _, y = tradeoff.axes([far], 0.25)
    assert y.high - y.low < 5 * 0.25


def test_values_that_are_no_numbers_are_left_out() -> None:
    assert tradeoff.tradeoff(told(recipe("bf16-mixed", "NaN", 1.6)), LOOKS) is None
    made = tradeoff.tradeoff(told(recipe("bf16-mixed", 0.04, 1.6, interval=None)), LOOKS)
    assert made is not None
    assert made["svg"].count('class="bar"') == 1


def test_names_are_text() -> None:
    hostile = '"><script>alert(1)</script>'
    made = tradeoff.tradeoff(told(recipe(hostile, 0.04, 1.6)), LOOKS | {hostile: STYLES["fp16"]})
    assert made is not None
    assert "<script>" not in made["svg"]
