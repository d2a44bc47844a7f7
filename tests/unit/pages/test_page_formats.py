"""Figures, times and names as the pages write them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markupsafe import escape

from server.pages.formats import (
    ago,
    between,
    duration,
    middle,
    number,
    percent,
    signed,
    size,
    steady,
)

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (24.1734, "24.17"),
        (0.000425, "0.000425"),
        (65536, "65,536"),
        (1.5e9, "1.500e9"),
        (3e-7, "3.000e−7"),
        (-2, "−2"),
        (0.0, "0"),
        (None, "–"),
        ("NaN", "NaN"),
        ("-Infinity", "−∞"),
        (math.inf, "+∞"),
    ],
)
def test_numbers(value: object, text: str) -> None:
    assert number(value) == text


@given(st.floats(min_value=-1e300, max_value=1e300))
@example(0.00010937018564964798)
def test_a_written_number_reads_back_within_its_digits(value: float) -> None:
    text = number(value).replace("−", "-").replace(",", "")
    sixth_decimal = 0.5e-6 if 1e-4 <= abs(value) < 1e-3 else 1e-300
    assert float(text) == pytest.approx(value, rel=6e-4, abs=sixth_decimal)


def test_signs_and_shares() -> None:
    assert signed(0.5) == "+0.500"
    assert signed(-0.5) == "−0.500"
    assert percent(0.034) == "3.4 %"
    assert percent(None) == "–"


@pytest.mark.parametrize(
    ("value", "text"), [(6_500_000_000, "6.5 GB"), (905, "905 B"), (14.2e6, "14.2 MB"), (None, "–")]
)
def test_bytes(value: object, text: str) -> None:
    assert size(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.05, "50 ms"),
        (4.46, "4.5 s"),
        (48, "48 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (180_000, "2 d 2 h"),
        (-1, "–"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_times_carry_the_exact_moment() -> None:
    html = ago(NOW - timedelta(minutes=21), NOW)
    assert "21 min ago" in html
    assert 'datetime="2026-12-01T11:39:00+00:00"' in html
    assert between(NOW, None, NOW + timedelta(seconds=90)) == "1 min 30 s"
    assert ago(None) == "–"


def test_long_names_keep_both_ends_and_stay_text() -> None:
    name = "<b>" + "x" * 100 + "-seed-7"
    html = middle(name, 30)
    assert str(html).endswith("-seed-7</span>")
    assert "<b>" not in html
    assert str(escape(name)) in html
    assert middle("short") == "short"


def test_precisions_are_not_broken_at_their_hyphen_and_text_is_escaped() -> None:
    assert steady("bf16-mixed <x>") == '<span class="nowrap">bf16-mixed</span> &lt;x&gt;'
