"""Random secrets. Only their SHA-256 is stored: 256 random bits need no slow hash."""

from __future__ import annotations

import hashlib
import secrets
from typing import Literal

SecretKind = Literal["amp", "link", "ses"]  # API token, sign-in link, session; `server.logs` redacts all three
PREFIX_LENGTH = 10  # of an API token, kept to recognise it in a list


def new_secret(kind: SecretKind) -> str:
    """A secret of 256 bits that shows what it is."""
    return f"{kind}_{secrets.token_urlsafe(32)}"


def digest(secret: str) -> str:
    """What the database keeps of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
