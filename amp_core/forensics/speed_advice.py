"""Whether low precision can pay at all, from the shapes of the matrix products of a step.

Tensor cores speed up products that are large and whose sizes are multiples of 8 (16-bit types; NVIDIA's "Train With
Mixed Precision" guide). A product of few operations is over before its launch is: there, casts only add work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNED = 8
SMALL_FLOPS = 2.0**25  # 34 million: a few microseconds at 10 TFLOP/s, what one launch costs
THIN = 16  # with fewer rows or columns a product waits for memory, not for arithmetic
WORTH = 0.5  # share of the arithmetic that must be able to gain


@dataclass(frozen=True, kw_only=True)
class Product:
    """A batch of ``batch`` products of ``(m, k)`` by ``(k, n)``."""

    m: int
    n: int
    k: int
    batch: int = 1

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def is_small(self) -> bool:
        return self.flops < SMALL_FLOPS

    @property
    def is_thin(self) -> bool:
        return min(self.m, self.n, self.k) < THIN

    @property
    def is_aligned(self) -> bool:
        return all(size % ALIGNED == 0 for size in (self.m, self.n, self.k))


@dataclass(frozen=True, kw_only=True)
class Advice:
    """``gains``: share of the arithmetic in products that tensor cores can speed up, and what to expect of it."""

    gains: float
    expects_gain: bool
    sentence: str
    fix: str


def advise(products: Sequence[Product]) -> Advice | None:
    """What to expect of low precision for a step with these products; None for a step without any."""
    total = sum(product.flops for product in products)
    if not total:
        return None
    fit = sum(p.flops for p in products if not p.is_small and not p.is_thin and p.is_aligned)
    share = fit / total
    if share >= WORTH:
        text = (
            f"{share:.0%} of the arithmetic is in large products with sizes in multiples of {ALIGNED}: they can gain."
        )
        return Advice(gains=share, expects_gain=True, sentence=text, fix="")
    reasons = []
    for words, found in (
        (f"too small (below {SMALL_FLOPS:.0e} operations each)", [p for p in products if p.is_small]),
        (f"of sizes that are no multiples of {ALIGNED}", [p for p in products if not p.is_aligned]),
        (f"thin (a side below {THIN})", [p for p in products if p.is_thin]),
    ):
        if found:
            reasons.append(f"{len(found)} of {len(products)} are {words}")
    sizes = sorted({size for p in products for size in (p.m, p.n, p.k) if size % ALIGNED})[:6]
    odd = f" ({', '.join(map(str, sizes))})" if sizes else ""
    return Advice(
        gains=share,
        expects_gain=False,
        sentence=f"No speed-up is to be expected: of the step's matrix products {'; '.join(reasons)}{odd}. "
        "Casts and bookkeeping cost more than such products save.",
        fix=f"Stay in FP32, or raise batch size and width and pad sizes to multiples of {ALIGNED}.",
    )
