"""The terminal shows the comparison's own figures, with the sign of the metric, and an exit code for its verdict."""

from __future__ import annotations

import pytest

from server.cli.errors import CommandError
from server.cli.verdict_code import verdict_code
from server.cli.verdict_table import difference, print_comparison, ratio

PSNR = {
    "metric": "psnr",
    "label": "PSNR",
    "higher_is_better": True,
    "margin": 0.25,
    "margin_text": "0.25 dB",
    "unit": "dB",
}


def test_the_difference_is_said_in_the_comparisons_own_words() -> None:
    quality = {"difference_text": "−0.07 dB", "interval_text": "−0.12 to −0.02 dB"}
    assert difference(quality) == "−0.07 dB (−0.12 to −0.02 dB)"
    assert difference({"difference_text": "no pair yet", "interval_text": None}) == "no pair yet"
    assert difference(None) == "–"


def test_a_gain_that_was_not_measured_is_no_number() -> None:
    assert ratio(None, "ratio") == "not measured"
    assert ratio({"ratio": None}, "ratio") == "not measured"
    assert ratio({"ratio": 1.834, "interval": [1.8, 1.86]}, "ratio") == "1.83× (1.80 to 1.86)"


def comparison(*verdicts: str | None) -> dict:
    return {
        "experiment_id": 3,
        "state": "judged" if all(verdicts) else "so_far",
        "headline": "bf16-mixed [is] as good as 32-true.",
        "statements": [],
        "primary": PSNR,
        "baseline": {"recipe": "32-true", "mean": 24.2},
        "recipes": [
            {
                "recipe": f"r{i}, [odd] name",
                "verdict": verdict,
                "sentence": "Because.",
                "numerics": "emulated",
                "quality": None,
                "findings": [{"sentence": "99 % of zeros.", "cure": {"sentence": "Scale by 65,536."}}],
                "gain": {"sentence": "Not measured here.", "speed": None, "memory": None},
                "next_step": {"sentence": "Run 5 more seeds."},
            }
            for i, verdict in enumerate(verdicts)
        ],
        "caveats": ["150 steps."],
    }


def test_everything_that_matters_is_printed_plainly(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(comparison("UNSAFE", None), "http://127.0.0.1:1/experiments/3")
    printed = capsys.readouterr().out
    for text in (
        "bf16-mixed [is] as good as 32-true.",
        "r0, [odd] name",
        "UNSAFE",
        "not yet",
        "99 % of zeros.",
        "cure: Scale by 65,536.",
        "next: Run 5 more seeds.",
        "note: 150 steps.",
        "margin fixed at submission: 0.25 dB",
        "http://127.0.0.1:1/experiments/3",
    ):
        assert text in printed
    assert "\x1b" not in printed


def test_a_sentence_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    given = comparison("UNSAFE")
    given["statements"] = ["r0, [odd] name: 99 % of zeros."]
    given["recipes"][0]["next_step"] = {"sentence": "Run the cure: Scale by 65,536."}
    print_comparison(given, "http://127.0.0.1:1/experiments/3")
    printed = capsys.readouterr().out
    assert printed.count("99 % of zeros.") == 1
    assert printed.count("Scale by 65,536.") == 1


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["SAFE"], 0),
        (["SAFE", "SAFE WITH CAUTION"], 10),
        (["SAFE", "INCONCLUSIVE", "SAFE WITH CAUTION"], 11),
        (["UNSAFE", "SAFE", "INCONCLUSIVE"], 12),
        (["UNSAFE", None], 13),
    ],
)
def test_the_exit_code_is_the_worst_verdicts(verdicts: list[str | None], code: int) -> None:
    assert verdict_code(comparison(*verdicts)) == code


def test_one_recipe_can_decide_alone() -> None:
    assert verdict_code(comparison("UNSAFE", "SAFE"), "r1, [odd] name") == 0
    with pytest.raises(CommandError, match=r"'r9'.*'r0, \[odd\] name'"):
        verdict_code(comparison("SAFE"), "r9")
