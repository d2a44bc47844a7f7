"""What the account routes read and answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from server.access.principal import Role
from server.db.tables import Token, User


class Body(BaseModel):
    """Base of request bodies: an unknown field is an error, not a silent no-op."""

    model_config = ConfigDict(extra="forbid")


class UserIn(Body):
    name: Annotated[str, Field(max_length=80)]
    role: Role = "viewer"
    password: SecretStr | None = None


class UserChange(Body):
    role: Role | None = None
    disabled: bool | None = None


class PasswordIn(Body):
    password: SecretStr
    current_password: SecretStr | None = Field(default=None, description="Needed when a password is already set.")


class TokenIn(Body):
    name: Annotated[str, Field(max_length=80)]
    role: Role | None = Field(default=None, description="Caps what the token may do; by default the caller's own role.")


class UserOut(BaseModel):
    id: int
    name: str
    role: str
    has_password: bool
    created_at: datetime
    disabled_at: datetime | None

    @classmethod
    def of(cls, user: User) -> UserOut:
        return cls(
            id=user.id,
            name=user.name,
            role=user.role,
            has_password=user.password_hash is not None,
            created_at=user.created_at,
            disabled_at=user.disabled_at,
        )


class UserList(BaseModel):
    items: list[UserOut]
    next_cursor: str | None = None


class Me(BaseModel):
    """Who the caller is. ``role`` is the one in force: a token may lower it."""

    id: int
    name: str
    role: str
    via: str


class SignInLinkOut(BaseModel):
    url: str = Field(description="Signs the person in once, within 15 minutes. Shown only here.")
    expires_in_s: int


class TokenOut(BaseModel):
    id: int
    owner: str
    name: str
    role: str
    prefix: str
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None

    @classmethod
    def of(cls, token: Token, owner: str) -> TokenOut:
        return cls(
            id=token.id,
            owner=owner,
            name=token.name,
            role=token.role,
            prefix=token.prefix,
            created_at=token.created_at,
            last_used_at=token.last_used_at,
            revoked_at=token.revoked_at,
        )


class TokenCreated(TokenOut):
    token: str = Field(description="The secret itself. Shown only here.")


class TokenList(BaseModel):
    items: list[TokenOut]
    next_cursor: str | None = None
