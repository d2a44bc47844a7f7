"""The settings that scheduling obeys, as every claim and every forecast is given them."""

from __future__ import annotations

from dataclasses import dataclass

from server.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Half-life of fair share, the length of a lease, and the limits on concurrent runs (None: no limit)."""

    half_life_s: float = 86_400.0
    lease_s: float = 15.0
    max_running_per_user: int | None = None
    max_running_per_project: int | None = None

    @classmethod
    def of(cls, settings: Settings) -> Policy:
        return cls(
            half_life_s=settings.fair_share_half_life_s,
            lease_s=settings.lease_s,
            max_running_per_user=settings.max_running_per_user,
            max_running_per_project=settings.max_running_per_project,
        )
