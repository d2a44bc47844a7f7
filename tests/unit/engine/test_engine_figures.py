"""The statistics of the engine's bench: what is known of made-up times comes out, and intervals do not flatter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine_figures import BARE, ENGINE, NUMERICS, Estimate, added_us, answers, estimate, ratio, table

MS = 1e-3


def times(*, engine_us: float, between_us: float = 0.0, starts: int = 6) -> dict[str, np.ndarray]:
    """A bare loop of 1 ms on a machine that is slower and faster by turns, which all arms of a round share."""
    draw = np.random.default_rng(1)
    machine = draw.uniform(0.8, 2.0, size=(starts, 40))
    own = draw.normal(0.0, between_us * 1e-6, size=(starts, 1))
    arms = {BARE: 0.0, "Accelerate": 300.0, "Lightning Fabric": 120.0, ENGINE: engine_us, NUMERICS: engine_us + 150.0}
    return {
        name: machine * MS + more * 1e-6 + draw.normal(0, 2e-6, size=machine.shape) + (own if name == ENGINE else 0.0)
        for name, more in arms.items()
    }


def test_what_is_added_is_found_whatever_the_machine_does() -> None:
    found = added_us(times(engine_us=10.0), ENGINE)
    assert found.value == pytest.approx(10.0, abs=1.0)
    assert found.low < 10.0 < found.high
    assert found.high - found.low < 3.0
    assert added_us(times(engine_us=10.0), ENGINE, "Accelerate").value == pytest.approx(-290.0, abs=1.5)


def test_starts_that_differ_widen_the_interval() -> None:
    """Forty rounds of each start cannot make up for starts that lie apart."""
    alike, apart = added_us(times(engine_us=10.0), ENGINE), added_us(times(engine_us=10.0, between_us=40.0), ENGINE)
    assert apart.high - apart.low > 10 * (alike.high - alike.low)
    assert estimate(np.array([[1.0] * 9, [3.0] * 9])) == Estimate(value=2.0, low=1.0, high=3.0)


def test_one_slow_round_does_not_move_the_estimate() -> None:
    given = times(engine_us=10.0)
    given[ENGINE][0, 3] *= 50
    assert added_us(given, ENGINE).value == pytest.approx(10.0, abs=1.0)


def test_intervals_cover_what_they_should() -> None:
    """Of 200 experiments with starts and rounds that vary, the interval holds the truth in most: six starts are few."""
    draw = np.random.default_rng(2)
    covered = 0
    for _ in range(200):
        values = draw.normal(0, 1, size=(6, 1)) + draw.standard_t(3, size=(6, 12))
        found = estimate(values)
        covered += found.low <= 0.0 <= found.high
    assert 0.80 <= covered / 200 <= 0.99


@pytest.mark.parametrize(
    ("low", "high", "answer"),
    [
        (0.9, 0.99, "held"),
        (0.9, 1.0, "not shown"),
        (0.99, 1.02, "not shown"),
        (1.0, 1.1, "missed"),
        (1.1, 1.2, "missed"),
    ],
)
def test_an_aim_is_held_only_by_a_whole_interval(low: float, high: float, answer: str) -> None:
    assert Estimate(value=(low + high) / 2, low=low, high=high).below(1.0) == answer


def test_tables_say_how_many_and_what_follows() -> None:
    held, missed = times(engine_us=5.0), times(engine_us=130.0)
    assert "n = 6 starts of 40 rounds" in table("mlp", held, "cpu")
    assert f"| {ratio(held, 'Accelerate').value:.4f} |" in table("mlp", held, "cpu")
    rows = answers("mlp", held).splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == [
        "under 25 µs a step over bare", "less than Accelerate", "less than Lightning Fabric",
        "sampled numerics, over the engine without",
    ]  # fmt: skip
    assert [row.split("|")[-2].strip() for row in rows] == ["held", "held", "held", "stated"]
    assert [row.split("|")[-2].strip() for row in answers("mlp", missed).splitlines()[2:]] == [
        "missed", "held", "missed", "stated",
    ]  # fmt: skip
    assert "| under 1 % over bare | +" in answers("gpt", missed)
