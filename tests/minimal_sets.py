"""`make minimal-sets`: the search for the smallest FP32 set on planted models, and a table of what it cost.

A planted model passes exactly if all its culprits are kept. ``ranked`` stands for a sensitivity pass that is usually
right about the order (culprits score e³ times as high in the median, log-normally scattered), ``shuffled`` for one that
knows nothing.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from amp_core.analysis.minimal_set import Found, Search

SIZES = (50, 100, 200)
CULPRITS = range(1, 7)
CULPRIT_SCORE = 3.0  # of the log-normal's mean, in its own standard deviations above the others


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A model of ``size`` modules of which ``culprits`` must stay in FP32, and a ranking of them."""

    order: tuple[str, ...]
    culprits: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table: averages over models."""

    ranking: str
    error_rate: float
    num_culprits: int
    models: int
    exact: int
    evaluations: float
    bound: float  # 2k·log2(n)


def planted(size: int, num_culprits: int, seed: int, ranked: bool) -> Planted:
    """A planted model from a seed."""
    draw = random.Random(seed)
    names = [f"blocks.{place}" for place in range(size)]
    culprits = frozenset(draw.sample(names, num_culprits))
    scores = {
        name: draw.lognormvariate(CULPRIT_SCORE if name in culprits else 0.0, 1.0) if ranked else draw.random()
        for name in names
    }
    return Planted(order=tuple(sorted(names, key=lambda name: -scores[name])), culprits=culprits)


def search(model: Planted, error_rate: float, seed: int) -> Found:
    """Run the search against an oracle that errs at that rate."""
    draw = random.Random(f"oracle {seed}")
    queries = Search(model.order, error_rate=error_rate).queries()
    kept = next(queries)
    while True:
        answer = model.culprits <= kept
        if draw.random() < error_rate:
            answer = not answer
        try:
            kept = queries.send(answer)
        except StopIteration as end:
            found: Found = end.value
            return found


def rows(models: int = 30) -> Iterator[Row]:
    """Every combination of ranking, error rate and number of culprits."""
    for ranking in ("ranked", "shuffled"):
        for error_rate in (0.0, 0.02, 0.05):
            for num_culprits in CULPRITS:
                yield _row(ranking, error_rate, num_culprits, models)


def _row(ranking: str, error_rate: float, num_culprits: int, models: int) -> Row:
    exact = evaluations = 0
    bound = 0.0
    for number in range(models):
        size = SIZES[number % len(SIZES)]
        seed = 1000 * num_culprits + number
        model = planted(size, num_culprits, seed, ranked=ranking == "ranked")
        found = search(model, error_rate, seed)
        exact += found.minimal is not None and frozenset(found.minimal) == model.culprits
        evaluations += found.evaluations
        bound += 2 * num_culprits * math.log2(size)
    return Row(
        ranking=ranking,
        error_rate=error_rate,
        num_culprits=num_culprits,
        models=models,
        exact=exact,
        evaluations=evaluations / models,
        bound=bound / models,
    )


def main() -> int:
    print(f"{'ranking':9} {'oracle errs':>11} {'culprits':>8} {'exact set':>9} {'evaluations':>11} {'2k·log2(n)':>10}")
    for row in rows():
        print(
            f"{row.ranking:9} {row.error_rate:>11.0%} {row.num_culprits:>8} {row.exact:>6}/{row.models} "
            f"{row.evaluations:>11.1f} {row.bound:>10.1f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
