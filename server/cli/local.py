"""What a local ``ampboard up`` needs before its first process starts: folder, database, first admin, token, link."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.accounts import service
from server.accounts.secret import digest
from server.cli.errors import CommandError
from server.client import token_file, url_file
from server.db.engine import Database
from server.db.tables import Token, User
from server.settings import Settings

TOKEN_NAME = "local command line"  # noqa: S105 - the name shown in the list of tokens, not a secret


@dataclass(frozen=True, kw_only=True)
class Access:
    """How this machine's user gets in: the command line's token, and a one-time sign-in secret for the browser."""

    token: str
    sign_in: str


def prepare_folder(settings: Settings) -> None:
    """Make the data folder, readable by its owner only.

    Raises:
        CommandError: it cannot be made or written.
    """
    folder = settings.data_dir
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid == os.getuid():
            folder.chmod(0o700)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise CommandError(
            f"AMPBOARD_DATA_DIR={folder}: the data folder must be a folder that this user may write "
            f"({error.strerror}); name another one"
        ) from error


@contextmanager
def held(settings: Settings) -> Iterator[None]:
    """Hold the data folder: one ``ampboard up`` at a time works on it.

    Raises:
        CommandError: another one holds it.
    """
    path = settings.data_dir / "up.lock"
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            raise CommandError(
                f"AMPBOARD_DATA_DIR={settings.data_dir} is in use by 'ampboard up' with process id "
                f"{lock.read().strip() or 'unknown'}{_at_address(settings)}: a data folder serves one at a time; "
                "stop that one, or set AMPBOARD_DATA_DIR to another folder"
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _at_address(settings: Settings) -> str:
    try:
        return f" at {url_file(settings).read_text().strip()}"
    except OSError:
        return ""


def grant_access(settings: Settings, database: Database) -> Access:
    """The local token, kept when it still works, and a fresh sign-in secret; the first admin is made when missing."""
    path = token_file(settings)
    with database.write() as session:
        sign_in = service.first_sign_in_link(session)
        token = _living_token(session, path)
        if token is None:
            oldest_admin = select(User).where(User.role == "admin", User.disabled_at.is_(None)).order_by(User.id)
            _, token = service.create_token(session, session.scalars(oldest_admin.limit(1)).one(), TOKEN_NAME)
    write_private(path, token)
    return Access(token=token, sign_in=sign_in)


def _living_token(session: Session, path: Path) -> str | None:
    try:
        secret = path.read_text().strip()
    except OSError:
        return None
    query = select(Token.id).where(Token.token_hash == digest(secret), Token.revoked_at.is_(None))
    return secret if session.scalars(query).first() is not None else None


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text + "\n")
    partial.replace(path)
