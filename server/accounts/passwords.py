"""Argon2id passwords."""

from __future__ import annotations

from functools import cache
from threading import BoundedSemaphore

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from server.errors import Fault, Invalid, TooManyRequests

MIN_LENGTH, MAX_LENGTH = 10, 200

MAX_AT_ONCE, MAX_WAIT_S = 4, 2.0

_hasher = PasswordHasher()
_turns = BoundedSemaphore(MAX_AT_ONCE)


@cache
def _nobody() -> str:
    """The hash of a password nobody has: unknown names cost as much time as known ones."""
    return _hasher.hash("nobody has this password")


def hash_password(password: str) -> str:
    """The argon2id hash to store. Raises `Invalid` for a password too short or too long."""
    if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
        rule = f"a password has {MIN_LENGTH} to {MAX_LENGTH} characters; this has {len(password)}"
        raise Invalid([Fault(field="password", value="[redacted]", rule=rule, remedy="choose another")])
    return _hasher.hash(password)


def password_matches(stored: str | None, password: str) -> bool:
    """Whether the password is right; takes the same time when there is no stored hash.

    Raises `TooManyRequests` when many are being checked at once: each takes 64 MiB. Call it outside transactions.
    """
    if not _turns.acquire(timeout=MAX_WAIT_S):
        raise TooManyRequests("too many passwords are being checked: try again in a moment")
    try:
        _hasher.verify(stored or _nobody(), password[: MAX_LENGTH + 1])
    except (VerificationError, InvalidHashError):
        return False
    finally:
        _turns.release()
    return stored is not None
