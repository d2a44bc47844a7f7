"""Means and deviations of figures whose sum is beyond float64, in every table that shows them."""

from __future__ import annotations

import math
from statistics import fmean, stdev
from types import SimpleNamespace
from typing import Any

import pytest

from server.pages import experiment_metrics, runs_table
from server.runs.groups import _Fact, _spreads
from server.runs.spread import deviation, mean

HUGE = [1.7e308, 1.6e308]


def test_they_agree_with_the_library_where_that_can_count() -> None:
    for numbers in ([1.0, 2.5, -3.0], [1e-300, 3e-300], [0.0, 0.0], [-7.0, 70.0, 7.25]):
        assert mean(numbers) == pytest.approx(fmean(numbers), rel=1e-12)
        assert deviation(numbers) == pytest.approx(stdev(numbers), rel=1e-12)
    assert deviation([4.0]) is None


def test_neither_overflows() -> None:
    with pytest.raises(OverflowError):
        fmean(HUGE)
    assert mean(HUGE) == pytest.approx(1.65e308)
    assert deviation(HUGE) == pytest.approx(1e307 / math.sqrt(2))


def test_tables_show_them() -> None:
    assert experiment_metrics._text("train/loss", HUGE) == "1.650e308 ± 7.1e306"
    assert runs_table._mean_text(HUGE) == "1.650e308 ± 7.1e306"
    assert runs_table._mean_text([2.0]) == "2"


def test_differences_of_groups_are_averaged() -> None:
    facts = [_Fact(number, 1, number, False, True, "completed", ("bf16",)) for number in (1, 2)]
    values = {1: ("loss", HUGE[0]), 2: ("loss", HUGE[1])}
    baseline = {(1, 1, "loss"): 0.0, (1, 2, "loss"): 0.0}
    (spread,) = _spreads(facts, values, baseline)
    assert (spread.delta, spread.num_pairs) == (pytest.approx(1.65e308), 2)


def test_the_difference_of_a_recipe_is_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []
    known: Any = SimpleNamespace(higher_is_better=False, relative=False)
    monkeypatch.setattr(runs_table, "primary_of", lambda primary: known)
    monkeypatch.setattr(runs_table.sentences, "signed", lambda primary, harm: told.append(harm) or "much")
    assert runs_table._delta_text({0: HUGE[0], 1: HUGE[1]}, {0: 0.0, 1: 0.0}, {}) == "Δ much over 2 pairs"
    assert told == [pytest.approx(1.65e308)]
