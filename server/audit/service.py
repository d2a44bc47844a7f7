"""Writes the audit trail, in the same transaction as the change it tells of."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from server.db.tables import Audit


def record(session: Session, user_id: int | None, action: str, subject: str, **detail: Any) -> None:
    """Note that ``user_id`` (None: the command line or the server itself) did ``action`` to ``subject``."""
    session.add(Audit(at=datetime.now(UTC), user_id=user_id, action=action, subject=subject, detail=detail))
