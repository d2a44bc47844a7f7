"""The authenticated caller of a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Role = Literal["viewer", "submitter", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)  # each may do what those before it may


@dataclass(frozen=True, kw_only=True)
class Principal:
    """Who is asking, and as what. ``role`` is already capped by the token, ``via`` tells how they proved it."""

    user_id: int
    name: str
    role: Role
    via: Literal["session", "token", "proxy"]

    def may(self, role: Role) -> bool:
        """Whether this caller has at least ``role``."""
        return ROLES.index(self.role) >= ROLES.index(role)


def lower_role(first: str, second: str) -> Role:
    """The weaker of two roles; an unknown one counts as the weakest there is."""
    ranks = [ROLES.index(role) if role in ROLES else 0 for role in (first, second)]
    return ROLES[min(ranks)]
