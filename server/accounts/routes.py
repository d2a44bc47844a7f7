"""People and API tokens over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, status
from sqlalchemy import select

from server.access import Principal, admin, viewer
from server.accounts import service
from server.accounts.passwords import password_matches
from server.accounts.schemas import (
    Me,
    PasswordIn,
    SignInLinkOut,
    TokenCreated,
    TokenIn,
    TokenList,
    TokenOut,
    UserChange,
    UserIn,
    UserList,
    UserOut,
)
from server.db.tables import Token, User
from server.errors import Forbidden
from server.state import DatabaseOf

router = APIRouter(prefix="/api/v1", tags=["accounts"])

Viewer = Annotated[Principal, Depends(viewer)]
Admin = Annotated[Principal, Depends(admin)]


@router.get("/me")
def show_me(principal: Viewer) -> Me:
    """Who the caller is, and with which role."""
    return Me(id=principal.user_id, name=principal.name, role=principal.role, via=principal.via)


@router.put("/me/password", status_code=status.HTTP_204_NO_CONTENT)
def set_my_password(body: PasswordIn, principal: Viewer, database: DatabaseOf) -> None:
    """Set the caller's password; every browser of theirs is signed out. Only from a signed-in browser."""
    if principal.via != "session":
        raise Forbidden("a password is set from a signed-in browser, not with an API token: sign in first")
    current = body.current_password.get_secret_value() if body.current_password else ""
    with database.read() as session:
        _, stored = service.password_hash_of(session, principal.name)
    if stored is not None and not password_matches(stored, current):
        raise Forbidden("current_password is not the one that is set: an admin can make a sign-in link instead")
    with database.write() as session:
        user = service.get_user(session, principal.user_id)
        service.set_password(session, user, body.password.get_secret_value(), principal.user_id)


@router.get("/users", dependencies=[Depends(admin)])
def list_users(database: DatabaseOf) -> UserList:
    """Everybody with an account."""
    with database.read() as session:
        return UserList(items=[UserOut.of(user) for user in session.scalars(select(User).order_by(User.id))])


@router.post("/users", status_code=status.HTTP_201_CREATED)
def create_user(body: UserIn, principal: Admin, database: DatabaseOf) -> UserOut:
    """Add a person. Without a password they sign in by a link."""
    password = body.password.get_secret_value() if body.password else None
    with database.write() as session:
        return UserOut.of(service.create_user(session, body.name, body.role, password, principal.user_id))


@router.patch("/users/{user_id}")
def change_user(user_id: int, body: UserChange, principal: Admin, database: DatabaseOf) -> UserOut:
    """Change a role; disable a person, which ends their sessions and tokens at once; enable them again."""
    with database.write() as session:
        user = service.get_user(session, user_id)
        service.change_user(session, user, role=body.role, disabled=body.disabled, actor_id=principal.user_id)
        return UserOut.of(user)


@router.post("/users/{user_id}/sign-in-link", status_code=status.HTTP_201_CREATED)
def create_sign_in_link(user_id: int, request: Request, principal: Admin, database: DatabaseOf) -> SignInLinkOut:
    """A one-time sign-in link for a person, to be handed to them."""
    with database.write() as session:
        secret = service.create_sign_in_link(session, service.get_user(session, user_id), principal.user_id)
    url = service.sign_in_url(str(request.base_url), secret)
    return SignInLinkOut(url=url, expires_in_s=int(service.LINK_LIFETIME.total_seconds()))


@router.get("/tokens")
def list_tokens(principal: Viewer, database: DatabaseOf) -> TokenList:
    """The caller's API tokens; an admin sees everybody's."""
    query = select(Token, User.name).join(User, User.id == Token.user_id).order_by(Token.id)
    if not principal.may("admin"):
        query = query.where(Token.user_id == principal.user_id)
    with database.read() as session:
        return TokenList(items=[TokenOut.of(token, owner) for token, owner in session.execute(query)])


@router.post("/tokens", status_code=status.HTTP_201_CREATED)
def create_token(body: TokenIn, principal: Viewer, database: DatabaseOf) -> TokenCreated:
    """An API token of the caller, never stronger than the caller is now. The secret is in this answer only."""
    with database.write() as session:
        user = service.get_user(session, principal.user_id)
        token, secret = service.create_token(session, user, body.name, body.role, actor=principal)
        return TokenCreated(**TokenOut.of(token, user.name).model_dump(), token=secret)


@router.delete("/tokens/{token_id}", status_code=status.HTTP_204_NO_CONTENT)
def revoke_token(token_id: int, principal: Viewer, database: DatabaseOf) -> None:
    """End one of the caller's tokens at once; an admin may end anybody's."""
    with database.write() as session:
        service.revoke_token(session, token_id, principal)
