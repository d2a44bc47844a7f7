"""One kept connection to a server, from the standard library alone."""

from __future__ import annotations

import http.client
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_S = 30.0


class TrackingError(Exception):
    """The server refused; the text says what and why. Trying again changes nothing."""


class Unreachable(Exception):
    """No server answers, or it cannot answer now: try again later."""


class Connection:
    """Speaks with one server; not to be used by two threads at once."""

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        folder = Path(os.environ.get("AMPBOARD_DATA_DIR") or Path.home() / ".ampboard")
        local = _read(folder / "local.url") or "http://127.0.0.1:8420"
        self.url = (url or os.environ.get("AMPBOARD_URL") or local).rstrip("/")
        self._token = token or os.environ.get("AMPBOARD_TOKEN")
        if self._token is None and self.url == local.rstrip("/"):
            self._token = _read(folder / "local.token")  # goes to the local server only
        self._http: http.client.HTTPConnection | None = None

    def post(self, path: str, body: bytes, kind: str) -> dict[str, Any]:
        """The server's answer. Raises `TrackingError` and `Unreachable`."""
        headers = {"Content-Type": kind, "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        response, content = self._sent(urlsplit(self.url).path + path, body, headers)
        if response.status >= 500 or response.status == 429:
            raise Unreachable(f"{self.url} answered {response.status} {response.reason}")
        answer = _parsed(content)
        if response.status >= 400:
            faults = "; ".join(f"{item.get('rule')}: {item.get('remedy')}" for item in answer.get("errors") or [])
            raise TrackingError(
                f"{self.url} answered {response.status}: {answer.get('detail') or faults or response.reason}"
            )
        return answer

    def _sent(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[http.client.HTTPResponse, bytes]:
        """The answer; a kept connection that the server closed meanwhile is made anew, once."""
        while True:
            was_kept = self._http is not None
            try:
                self._http = self._http or self._connect()
                self._http.request("POST", path, body, headers)
                response = self._http.getresponse()
                return response, response.read()
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if not was_kept:
                    raise Unreachable(f"no server answers at {self.url} ({error or type(error).__name__})") from error

    def close(self) -> None:
        """Drop the connection; the next request makes another."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def _connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise TrackingError(f"AMPBOARD_URL={self.url!r} is no address: write http://host:port")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(parts.hostname, parts.port, timeout=TIMEOUT_S)


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None
