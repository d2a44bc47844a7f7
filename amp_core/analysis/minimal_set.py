"""The smallest set that passes: iterated bisection over prefixes of a ranking, then single deletions as proof. Pure.

The oracle says whether a set passes. It may err: with ``error_rate`` p each answer is wrong with probability p, and the
search keeps the probability of every hypothesis (Bayesian bisection, Horstein 1963) instead of halving an interval, so
that one wrong answer costs a few more and leads nowhere. With p = 0 this is bisection that starts near the front of the
ranking. Errors of the search itself are found in the end: what is missing makes the set fail and is searched for again,
what is too much falls to its deletion.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Set: TypeAlias = frozenset[str]
Queries: TypeAlias = Generator[Set, bool, "Found"]

EXACT = 1e-9  # stands for an oracle that never errs: logarithms need a number
STAGE_DOUBT = 0.15  # a stage may err: the end finds out
PASSING_DOUBT = 3e-3  # of the set that a stage ends with: later stages look inside it, and suspect it if they end there
NONE_WEIGHT = 0.05  # a priori: that not even the whole ranking passes
DONE_WEIGHT = 0.5  # a priori: that the modules found so far suffice


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The end of a search. ``minimal`` is None if not even all candidates together pass.

    ``proofs``: for every member the answers for the set without it, as (passed, failed).
    """

    minimal: tuple[str, ...] | None
    evaluations: int
    proofs: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class Search:
    """One search; `queries` asks, and whoever drives it may stop at any time and read what is known.

    ``ranked``: candidates, the most suspect first. ``error_rate``: how often the oracle errs, below 1/2.
    ``doubt``: how probable an error of each final statement may be.
    """

    ranked: Sequence[str]
    error_rate: float = 0.0
    doubt: float = 1e-3
    tallies: dict[Set, list[int]] = field(default_factory=dict)  # answers by set: [failed, passed]
    evaluations: int = 0
    fixed: list[str] = field(default_factory=list)
    _ends: list[Set] = field(default_factory=list)  # the passing set of each stage

    def __post_init__(self) -> None:
        if not 0.0 <= self.error_rate < 0.5:
            raise ValueError(f"error_rate={self.error_rate!r} must be at least 0 and below 0.5: a coin tells nothing")
        if len(set(self.ranked)) != len(self.ranked):
            raise ValueError("a name is ranked twice")

    @property
    def best(self) -> Set | None:
        """The smallest set that has passed so far, by majority of its answers."""
        passing = [one for one, (failed, passed) in self.tallies.items() if passed > failed]
        return min(passing, key=len) if passing else None

    @property
    def expected_total(self) -> int:
        """About how many evaluations it takes if one more is to be found."""
        rest = math.ceil(math.log2(len(self.ranked) + 1)) + len(self.fixed) + 2
        return max(self.evaluations + 1, (len(self.fixed) + 1) * rest)

    def queries(self) -> Queries:
        """Yield sets, be sent whether each passes, and return what was found."""
        while True:
            if not (yield from self._find()):
                return Found(minimal=None, evaluations=self.evaluations)
            if not (yield from self._confirmed(frozenset(self.fixed), self.doubt)):
                continue
            if (yield from self._delete()):
                order = {name: place for place, name in enumerate(self.ranked)}
                self.fixed.sort(key=order.__getitem__)
                proofs = {name: self._tally(frozenset(self.fixed) - {name}) for name in self.fixed}
                return Found(minimal=tuple(self.fixed), evaluations=self.evaluations, proofs=proofs)

    def _find(self) -> Generator[Set, bool, bool]:
        """Fix one module after the other until what is fixed seems to pass; False if nothing does."""
        while True:
            kept = frozenset(self.fixed)
            rest = [name for name in self.ranked if name not in kept]
            place = yield from self._last_needed(kept, rest)
            if place == 0:
                return True
            if place > len(rest):
                if not (yield from self._confirmed(frozenset(self.ranked), self.doubt)):
                    return False
                continue
            passing = kept.union(rest[:place])
            doubt = PASSING_DOUBT / 10 ** min(self._ends.count(passing), 6)
            if (yield from self._confirmed(passing, doubt)):
                self._ends.append(passing)
                self.fixed.append(rest[place - 1])

    def _last_needed(self, kept: Set, rest: Sequence[str]) -> Generator[Set, bool, int]:
        """How many of ``rest``, in order, pass together with ``kept``: 0 to all of them, or one more if none does.

        The prior is 1/(1 + place): right for every ranking within a factor, good for a good one.
        """
        prefixes = [kept.union(rest[:place]) for place in range(len(rest) + 1)]
        while True:
            weights = self._posterior(prefixes)
            place = max(range(len(weights)), key=weights.__getitem__)
            if weights[place] >= 1.0 - STAGE_DOUBT:
                return place
            asked = self._informative(prefixes, weights)
            if asked is None:
                return place
            yield from self._ask(prefixes[asked])

    def _posterior(self, prefixes: Sequence[Set]) -> list[float]:
        """Probability that ``place`` is the smallest one that passes, for each place and for none."""
        count = len(prefixes)
        tail = sum(1.0 / (1 + place) for place in range(1, count)) or 1.0
        share = 1.0 - DONE_WEIGHT - NONE_WEIGHT
        logs = [math.log(DONE_WEIGHT), *(math.log(share / (1 + place) / tail) for place in range(1, count))]
        logs.append(math.log(NONE_WEIGHT))
        right, wrong = self._log_rates()
        gains = []  # of a place at or before the prefix over one after it
        for prefix in prefixes:
            failed, passed = self.tallies.get(prefix, (0, 0))
            gains.append((passed - failed) * (right - wrong))
            if passed and self.error_rate == 0.0:
                break  # where longer ones fail the oracle is not monotone: they are none of this stage's concern
        gains += [0.0] * (count - len(gains))
        total = 0.0
        for place in range(count - 1, -1, -1):  # a place gains from its own prefix and from every longer one
            total += gains[place]
            logs[place] += total
        top = max(logs)
        weights = [math.exp(log - top) for log in logs]
        whole = sum(weights)
        return [weight / whole for weight in weights]

    def _informative(self, prefixes: Sequence[Set], weights: Sequence[float]) -> int | None:
        """The prefix whose answer is nearest to even odds; an oracle that never errs is not asked twice."""
        best, distance = None, 1.0
        below = 0.0
        for place, prefix in enumerate(prefixes):
            below += weights[place]
            off = abs(below - 0.5)
            if off < distance and not (self.error_rate == 0.0 and prefix in self.tallies):
                best, distance = place, off
        return best

    def _delete(self) -> Generator[Set, bool, bool]:
        """Take out each module once; False after one could go, as the others' proofs were of another set."""
        for name in list(self.fixed):
            without = frozenset(self.fixed) - {name}
            if (yield from self._confirmed(without, self.doubt)):
                self.fixed.remove(name)
                return False
        return True

    def _confirmed(self, one: Set, doubt: float) -> Generator[Set, bool, bool]:
        """Whether a set passes, asked until the doubt is small enough."""
        right, wrong = self._log_rates()
        needed = math.log((1.0 - doubt) / doubt)
        while True:
            passed, failed = self._tally(one)
            lead = passed - failed
            if (self.error_rate == 0.0 and lead) or abs(lead) * (right - wrong) >= needed:
                return lead > 0
            yield from self._ask(one)

    def _ask(self, one: Set) -> Generator[Set, bool, None]:
        passed = yield one
        self.evaluations += 1
        self.tallies.setdefault(one, [0, 0])[int(passed)] += 1

    def _tally(self, one: Set) -> tuple[int, int]:
        """(passed, failed)"""
        failed, passed = self.tallies.get(one, (0, 0))
        return passed, failed

    def _log_rates(self) -> tuple[float, float]:
        rate = max(self.error_rate, EXACT)
        return math.log(1.0 - rate), math.log(rate)
