"""The audit trail over REST."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel
from sqlalchemy import select

from server.access import admin
from server.db.tables import Audit, User
from server.paging import MAX_LIMIT, decode_cursor, encode_cursor
from server.state import DatabaseOf

router = APIRouter(prefix="/api/v1", tags=["audit"], dependencies=[Depends(admin)])


class AuditOut(BaseModel):
    id: int
    at: datetime
    user: str | None
    action: str
    subject: str
    detail: dict[str, Any]


class AuditList(BaseModel):
    items: list[AuditOut]
    next_cursor: str | None


@router.get("/audit")
def list_audit(
    database: DatabaseOf,
    subject: Annotated[str | None, Query(max_length=120, description="Such as experiment/12.")] = None,
    cursor: Annotated[str | None, Query(max_length=400)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = 100,
) -> AuditList:
    """Who did what, newest first. A user of null means the command line or the server itself."""
    query = select(Audit, User.name).join(User, User.id == Audit.user_id, isouter=True).order_by(Audit.id.desc())
    if subject is not None:
        query = query.where(Audit.subject == subject)
    if cursor is not None:
        (last_id,) = decode_cursor(cursor, int)
        query = query.where(Audit.id < last_id)
    with database.read() as session:
        rows = session.execute(query.limit(limit + 1)).all()
    items = [
        AuditOut(id=row.id, at=row.at, user=name, action=row.action, subject=row.subject, detail=row.detail)
        for row, name in rows[:limit]
    ]
    return AuditList(items=items, next_cursor=encode_cursor(items[-1].id) if len(rows) > limit else None)
