"""A small client of the REST interface: what the command line uses, and a script may.

Errors of the server (problem details, RFC 9457) become `ApiError`, whose text keeps value, rule and remedy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from server.settings import Settings

Json = dict[str, Any]
TIMEOUT = httpx.Timeout(30.0, connect=5.0)


class ClientError(Exception):
    """Base of what this client raises; its text is meant for people."""


class ServerUnreachable(ClientError):
    """No server answers at the address."""


class ApiError(ClientError):
    """The server refused. ``errors`` are the problem's ``{field, value, rule, remedy}`` entries."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.title = str(problem.get("title") or f"HTTP {status}")
        self.detail = str(problem.get("detail") or "")
        errors = problem.get("errors")
        self.errors: list[Json] = [e for e in errors if isinstance(e, dict)] if isinstance(errors, list) else []
        super().__init__("\n".join([self.detail or self.title, *map(_spell, self.errors)]))


def _spell(error: Json) -> str:
    """One entry of a problem's ``errors`` as a line: field=value: rule: remedy."""
    field, value, rule, remedy = (error.get(key) for key in ("field", "value", "rule", "remedy"))
    subject = f"{field}={value!r}" if value is not None else str(field or "request")
    return "  " + ": ".join(str(part) for part in (subject, rule, remedy) if part)


class Client:
    """Speaks JSON with one server; use it as a context manager.

    Args:
        url: address of the server, e.g. ``http://127.0.0.1:8420``.
        token: an API token (``amp_…``), sent as a bearer token.
        transport: replaces the network, for tests.
    """

    def __init__(self, url: str, token: str | None, *, transport: httpx.BaseTransport | None = None) -> None:
        self.url = url.rstrip("/")
        headers = {"Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        # Proxies of the environment are left alone for remote servers but must not see loopback traffic.
        loopback = httpx.URL(self.url).host in {"127.0.0.1", "::1", "localhost"}
        self._http = httpx.Client(
            base_url=self.url, headers=headers, timeout=TIMEOUT, transport=transport, trust_env=not loopback
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, **query: Any) -> Any:
        """The JSON at ``path``; query values of None are left out. Raises `ClientError`."""
        return self._send("GET", path, params={k: v for k, v in query.items() if v is not None})

    def post(self, path: str, body: Json | None = None) -> Any:
        """What the server answers to ``body``. Raises `ClientError`."""
        return self._send("POST", path, json=body if body is not None else {})

    def submit(self, workload: str, **fields: Any) -> Json:
        """Submit an experiment and return what ``POST /api/v1/experiments`` answers; ``fields`` are those of its body.

        A fork: ``client.submit("mine", recipes=["fp32", "bf16"], fork={"run": 12, "step": 1000, "horizon": 200})``.
        Raises `ClientError`.
        """
        made: Json = self.post("/api/v1/experiments", {"workload": workload, **fields})
        return made

    def delete(self, path: str) -> None:
        """Raises `ClientError`."""
        self._send("DELETE", path)

    def text(self, path: str) -> str:
        """A document that is not JSON, such as a report. Raises `ClientError`."""
        return self._answer("GET", path, headers={"Accept": "*/*"}).text

    def _send(self, method: str, path: str, **options: Any) -> Any:
        response = self._answer(method, path, **options)
        if response.status_code == httpx.codes.NO_CONTENT or not response.content:
            return None
        try:
            return response.json()
        except ValueError as error:
            raise ClientError(
                f"{response.url} answered {response.headers.get('content-type', 'nothing known')!r} instead of JSON: "
                "is this address an ampboard server? Check AMPBOARD_URL"
            ) from error

    def _answer(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **options)
        except httpx.TransportError as error:
            raise ServerUnreachable(
                f"no server answers at {self.url} ({error or type(error).__name__}): start one with 'ampboard up', "
                "or name another by AMPBOARD_URL"
            ) from error
        if response.is_error:
            raise ApiError(response.status_code, _problem(response))
        return response


def _problem(response: httpx.Response) -> Json:
    try:
        problem = response.json()
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        return {"detail": f"{response.url} answered {response.status_code} {response.reason_phrase}"}
    if response.status_code == httpx.codes.UNAUTHORIZED:
        problem["detail"] = (
            f"{problem.get('detail') or 'not signed in'}; the command line reads its token from AMPBOARD_TOKEN, "
            "or from the data folder of a local 'ampboard up'"
        )
    return problem


def token_file(settings: Settings) -> Path:
    """Where a local ``ampboard up`` leaves the command line's token (mode 0600)."""
    return settings.data_dir / "local.token"


def url_file(settings: Settings) -> Path:
    """Where a local ``ampboard up`` leaves its address."""
    return settings.data_dir / "local.url"


def server_url(settings: Settings) -> str:
    """The address the environment names, else the local server's."""
    return os.environ.get("AMPBOARD_URL") or _local_url(settings)


def connect(settings: Settings) -> Client:
    """The client that the environment asks for.

    AMPBOARD_URL and AMPBOARD_TOKEN come first. The local token goes only to the local server, never to another address.
    """
    url, token = server_url(settings), os.environ.get("AMPBOARD_TOKEN")
    if token is None and url.rstrip("/") == _local_url(settings).rstrip("/"):
        token = _read(token_file(settings))
    return Client(url, token)


def _local_url(settings: Settings) -> str:
    return _read(url_file(settings)) or f"http://127.0.0.1:{settings.port}"


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None
