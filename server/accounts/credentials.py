"""From a secret to the person behind it: the two look-ups that every request may cost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import select, update

from server.access.principal import ROLES, Principal, lower_role
from server.accounts.secret import digest
from server.db.tables import Session, Token, User

if TYPE_CHECKING:
    from server.db.engine import Database

LAST_USE_RESOLUTION = timedelta(minutes=1)  # `last_used_at` is written at most this often


def principal_of_session(database: Database, secret: str) -> Principal | None:
    """The person of a session cookie; None when it is unknown or expired or the person is disabled."""
    query = (
        select(User)
        .join(Session, Session.user_id == User.id)
        .where(Session.token_hash == digest(secret), Session.expires_at > datetime.now(UTC), User.disabled_at.is_(None))
    )
    with database.read() as session:
        user = session.scalars(query).one_or_none()
    if user is None or user.role not in ROLES:
        return None
    return Principal(user_id=user.id, name=user.name, role=lower_role(user.role, user.role), via="session")


def principal_of_name(database: Database, name: str) -> Principal | None:
    """The person of that name, for whom a trusted proxy speaks; None when unknown or disabled."""
    with database.read() as session:
        user = session.scalars(select(User).where(User.name == name, User.disabled_at.is_(None))).one_or_none()
    if user is None or user.role not in ROLES:
        return None
    return Principal(user_id=user.id, name=user.name, role=lower_role(user.role, user.role), via="proxy")


def principal_of_token(database: Database, secret: str) -> Principal | None:
    """The person of an API token, with the weaker of both roles; None when revoked, unknown or disabled."""
    now = datetime.now(UTC)
    query = (
        select(User, Token)
        .join(Token, Token.user_id == User.id)
        .where(Token.token_hash == digest(secret), Token.revoked_at.is_(None), User.disabled_at.is_(None))
    )
    with database.read() as session:
        row = session.execute(query).one_or_none()
    if row is None:
        return None
    user, token = row
    if user.role not in ROLES or token.role not in ROLES:
        return None
    if token.last_used_at is None or now - token.last_used_at > LAST_USE_RESOLUTION:
        with database.write() as session:
            session.execute(update(Token).where(Token.id == token.id).values(last_used_at=now))
    return Principal(user_id=user.id, name=user.name, role=lower_role(user.role, token.role), via="token")
