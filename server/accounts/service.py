"""The rules of accounts. Every function works inside the caller's transaction and leaves an audit row."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.orm import Session as Sql

from server.access.principal import ROLES, Principal, lower_role
from server.accounts.passwords import hash_password
from server.accounts.secret import PREFIX_LENGTH, digest, new_secret
from server.audit.service import record
from server.db.tables import Session, SignInLink, Token, User
from server.errors import Conflict, Fault, Forbidden, Invalid, NotFound, Unauthenticated

LINK_LIFETIME = timedelta(minutes=15)
FIRST_ADMIN = "admin"
WRONG_LINK = "this sign-in link was used, is older than 15 minutes or is not ours: `ampboard user link` makes a new one"
WRONG_PASSWORD = "name and password do not match: try again, or ask an admin for a sign-in link"  # noqa: S105 - no secret
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@+-]{0,79}")


def find_user(session: Sql, name: str) -> User:
    """The user of that name. Raises `NotFound`."""
    user = session.scalars(select(User).where(User.name == name)).one_or_none()
    if user is None:
        raise NotFound(f"user {name[:80]!r} does not exist: `ampboard user list` shows who does")
    return user


def get_user(session: Sql, user_id: int) -> User:
    """The user of that id. Raises `NotFound`."""
    user = session.get(User, user_id)
    if user is None:
        raise NotFound(f"user {user_id} does not exist")
    return user


def create_user(session: Sql, name: str, role: str, password: str | None = None, actor_id: int | None = None) -> User:
    """Add a person; without a password they sign in by a link. Raises `Invalid`, or `Conflict` for a taken name."""
    faults = _name_faults(name) + _role_faults(role)
    if faults:
        raise Invalid(faults)
    if session.scalars(select(User.id).where(func.lower(User.name) == name.lower())).first() is not None:
        raise Conflict(f"the name {name!r} is taken: choose another")
    user = User(
        name=name,
        role=role,
        password_hash=hash_password(password) if password is not None else None,
        created_at=datetime.now(UTC),
    )
    session.add(user)
    session.flush()
    record(session, actor_id, "user.create", f"user/{user.id}", name=name, role=role)
    return user


def change_user(
    session: Sql, user: User, *, role: str | None = None, disabled: bool | None = None, actor_id: int | None = None
) -> User:
    """Change a role, disable (sessions end at once) or enable. Raises `Conflict` if no admin would be left."""
    if role is not None and (faults := _role_faults(role)):
        raise Invalid(faults)
    loses_admin = user.role == "admin" and ((role is not None and role != "admin") or disabled is True)
    if loses_admin and _num_other_admins(session, user) == 0:
        raise Conflict(f"{user.name} is the only admin: make someone else an admin first")
    if role is not None and role != user.role:
        record(session, actor_id, "user.role", f"user/{user.id}", before=user.role, after=role)
        user.role = role
    if disabled is not None and disabled != (user.disabled_at is not None):
        user.disabled_at = datetime.now(UTC) if disabled else None
        record(session, actor_id, "user.disable" if disabled else "user.enable", f"user/{user.id}")
        if disabled:
            _close_everything(session, user)
    session.flush()
    return user


def _close_everything(session: Sql, user: User) -> None:
    """Sessions and links die with the account, so that enabling it again revives none of them."""
    session.execute(delete(Session).where(Session.user_id == user.id))
    session.execute(delete(SignInLink).where(SignInLink.user_id == user.id))


def _num_other_admins(session: Sql, user: User) -> int:
    others = select(func.count()).where(User.role == "admin", User.disabled_at.is_(None), User.id != user.id)
    return session.scalar(others) or 0


def _name_faults(name: str) -> list[Fault]:
    if _NAME.fullmatch(name):
        return []
    rule = "a name has 1 to 80 letters, digits, spaces and ._@+-, and starts with a letter or digit"
    return [Fault(field="name", value=name, rule=rule, remedy="choose another name")]


def _role_faults(role: str) -> list[Fault]:
    if role in ROLES:
        return []
    return [Fault(field="role", value=role, rule=f"a role is one of {', '.join(ROLES)}", remedy="choose one of them")]


def set_password(session: Sql, user: User, password: str, actor_id: int | None = None) -> None:
    """Set a password; every session of the person ends."""
    user.password_hash = hash_password(password)
    session.execute(delete(Session).where(Session.user_id == user.id))
    record(session, actor_id if actor_id is not None else user.id, "user.password", f"user/{user.id}")


def first_sign_in_link(session: Sql) -> str:
    """A sign-in secret for the first admin, who is created when nobody is there. For `sign_in_url`."""
    oldest = select(User).where(User.role == "admin", User.disabled_at.is_(None)).order_by(User.id).limit(1)
    user = session.scalars(oldest).first()
    if user is None:
        user = create_user(session, FIRST_ADMIN, "admin")
    return create_sign_in_link(session, user)


def create_sign_in_link(session: Sql, user: User, actor_id: int | None = None) -> str:
    """A secret that signs `user` in once within 15 minutes. Raises `Conflict` for a disabled person."""
    if user.disabled_at is not None:
        raise Conflict(f"{user.name} is disabled: enable the account first")
    secret, now = new_secret("link"), datetime.now(UTC)
    session.execute(delete(SignInLink).where(or_(SignInLink.expires_at < now, SignInLink.used_at.is_not(None))))
    session.add(SignInLink(token_hash=digest(secret), user_id=user.id, created_at=now, expires_at=now + LINK_LIFETIME))
    record(session, actor_id, "link.create", f"user/{user.id}")
    session.flush()
    return secret


def sign_in_url(base_url: str, secret: str) -> str:
    """Where a person opens the link; the page shows a button, and only pressing it uses the link up."""
    return f"{base_url.rstrip('/')}/signin?token={quote(secret, safe='')}"


def consume_sign_in_link(session: Sql, secret: str) -> User:
    """Use a link up and tell whose it is; of two at the same moment one wins. Raises `Unauthenticated`."""
    now = datetime.now(UTC)
    taken = session.execute(
        update(SignInLink)
        .where(SignInLink.token_hash == digest(secret), SignInLink.used_at.is_(None), SignInLink.expires_at > now)
        .values(used_at=now)
        .returning(SignInLink.user_id)
    ).scalar_one_or_none()
    user = session.get(User, taken) if taken is not None else None
    if user is None or user.disabled_at is not None:
        raise Unauthenticated(WRONG_LINK)
    record(session, user.id, "signin.link", f"user/{user.id}")
    return user


def link_is_live(session: Sql, secret: str) -> bool:
    """Whether the link could still be used; a look that changes nothing."""
    live = select(SignInLink.user_id).where(
        SignInLink.token_hash == digest(secret), SignInLink.used_at.is_(None), SignInLink.expires_at > datetime.now(UTC)
    )
    return session.scalars(live).first() is not None


def password_hash_of(session: Sql, name: str) -> tuple[int | None, str | None]:
    """Id and stored hash of the person of that name who may sign in; two Nones for anybody else."""
    query = select(User.id, User.password_hash).where(User.name == name, User.disabled_at.is_(None))
    row = session.execute(query).one_or_none()
    return (row.id, row.password_hash) if row is not None else (None, None)


def enter_with_password(session: Sql, user_id: int) -> User:
    """The person whose password was found right, unless they were disabled meanwhile. Raises `Unauthenticated`."""
    user = session.get(User, user_id)
    if user is None or user.disabled_at is not None:
        raise Unauthenticated(WRONG_PASSWORD)
    record(session, user.id, "signin.password", f"user/{user.id}")
    return user


def open_session(session: Sql, user: User, days: int) -> str:
    """The secret for a browser's cookie."""
    secret, now = new_secret("ses"), datetime.now(UTC)
    session.execute(delete(Session).where(Session.expires_at < now))
    session.add(
        Session(token_hash=digest(secret), user_id=user.id, created_at=now, expires_at=now + timedelta(days=days))
    )
    session.flush()
    return secret


def close_session(session: Sql, secret: str) -> None:
    """Sign one browser out; an unknown secret is no error."""
    session.execute(delete(Session).where(Session.token_hash == digest(secret)))


def create_token(
    session: Sql, user: User, name: str, role: str | None = None, *, actor: Principal | None = None
) -> tuple[Token, str]:
    """An API token and its secret, which is shown once. ``role`` caps what it may do, by default the owner's own.

    Raises `Forbidden` when ``actor`` asks for more than they may do themselves.
    """
    role = role or (actor.role if actor is not None else user.role)
    faults = _role_faults(role)
    if not 1 <= len(name.strip()) <= 80:
        faults.append(Fault(field="name", value=name, rule="a token's name has 1 to 80 characters", remedy="name it"))
    if faults:
        raise Invalid(faults)
    if actor is not None and lower_role(role, actor.role) != role:
        raise Forbidden(f"{actor.name} acts as {actor.role} and cannot create a token with the role {role}")
    secret = new_secret("amp")
    token = Token(
        user_id=user.id,
        name=name.strip(),
        role=role,
        prefix=secret[:PREFIX_LENGTH],
        token_hash=digest(secret),
        created_at=datetime.now(UTC),
    )
    session.add(token)
    session.flush()
    record(session, actor.user_id if actor else None, "token.create", f"token/{token.id}", name=token.name, role=role)
    return token, secret


def revoke_token(session: Sql, token_id: int, actor: Principal | None = None) -> Token:
    """End a token at once; its row stays for the record. Others' tokens only as an admin."""
    token = session.get(Token, token_id)
    if token is None or (actor is not None and token.user_id != actor.user_id and not actor.may("admin")):
        raise NotFound(f"token {token_id} does not exist, or is not yours")
    if token.revoked_at is None:
        token.revoked_at = datetime.now(UTC)
        record(session, actor.user_id if actor else None, "token.revoke", f"token/{token.id}", name=token.name)
    session.flush()
    return token


def has_account(session: Sql) -> bool:
    """Whether anybody could prove who they are: a person with a password or a live API token."""
    token_owner = select(Token.user_id).where(Token.revoked_at.is_(None))
    able = select(User.id).where(
        User.disabled_at.is_(None), or_(User.password_hash.is_not(None), User.id.in_(token_owner))
    )
    return session.scalars(able.limit(1)).first() is not None
