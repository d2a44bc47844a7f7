"""The search for the smallest passing set: exact on planted models, within its bound, and honest about its proofs."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amp_core.analysis.minimal_set import Found, Search
from tests.minimal_sets import CULPRITS, Row, planted, rows, search


@pytest.fixture(scope="module")
def table() -> list[Row]:
    return list(rows(models=15))


def test_every_planted_set_is_found_exactly(table: list[Row]) -> None:
    assert {(row.ranking, row.error_rate) for row in table} >= {("ranked", 0.0), ("ranked", 0.05), ("shuffled", 0.0)}
    assert [row for row in table if row.exact != row.models] == []


def test_evaluations_stay_below_the_bound(table: list[Row]) -> None:
    bounded = [row for row in table if row.ranking == "ranked" or row.error_rate == 0.0]
    assert len(bounded) == 4 * len(CULPRITS)
    assert [row for row in bounded if row.evaluations > row.bound] == []


def test_a_good_ranking_saves_evaluations(table: list[Row]) -> None:
    cost = {(row.ranking, row.error_rate, row.num_culprits): row.evaluations for row in table}
    assert all(cost["ranked", 0.0, k] < 0.7 * cost["shuffled", 0.0, k] for k in CULPRITS)


def _drive(order: list[str], passes: object) -> Found:
    queries = Search(order).queries()
    kept = next(queries)
    while True:
        try:
            kept = queries.send(passes(kept))  # type: ignore[operator]
        except StopIteration as end:
            found: Found = end.value
            return found


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 9), st.integers(0, 2**32 - 1))
def test_the_set_is_one_minimal_for_any_monotone_oracle(size: int, seed: int) -> None:
    """Any family of sufficient sets: what is found passes, and without any member it does not."""
    draw = random.Random(seed)
    names = [f"m{place}" for place in range(size)]
    sufficient = [frozenset(draw.sample(names, draw.randint(0, size))) for _ in range(draw.randint(0, 3))]

    def passes(kept: frozenset[str]) -> bool:
        return any(one <= kept for one in sufficient)

    found = _drive(names, passes)
    if not sufficient:
        assert found.minimal is None
        return
    assert found.minimal is not None
    whole = frozenset(found.minimal)
    assert passes(whole)
    assert set(found.proofs) == whole
    assert all(not passes(whole - {name}) for name in whole)


def test_an_oracle_that_is_not_monotone_ends_the_search() -> None:
    names = [f"m{place}" for place in range(12)]
    for seed in range(20):
        answers: dict[frozenset[str], bool] = {}
        draw = random.Random(seed)
        found = _drive(names, lambda kept, a=answers, d=draw: a.setdefault(kept, d.random() < 0.5))
        if found.minimal is not None:
            whole = frozenset(found.minimal)
            assert answers[whole]
            assert not any(answers[whole - {name}] for name in whole)


def test_what_is_known_can_be_read_before_the_end() -> None:
    model = planted(60, 3, 5, ranked=True)
    one = Search(model.order)
    queries = one.queries()
    kept = next(queries)
    for _ in range(14):
        try:
            kept = queries.send(model.culprits <= kept)
        except StopIteration:
            break
        assert one.best is None or model.culprits <= one.best
    assert one.best is not None


def test_rates_and_rankings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match=r"error_rate=0\.5 .* below 0\.5"):
        Search(["a"], error_rate=0.5)
    with pytest.raises(ValueError, match="twice"):
        Search(["a", "a"])


def test_a_search_is_the_same_for_the_same_answers() -> None:
    model = planted(50, 2, 9, ranked=False)
    first, second = (search(model, 0.05, 4) for _ in range(2))
    assert first == second
    assert all(len(pair) == 2 for pair in itertools.chain(first.proofs.values()))
