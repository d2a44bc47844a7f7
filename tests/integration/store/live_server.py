"""The real application on a real port, and a client that reads server-sent events."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import uvicorn
from team import Team

from server.app import create_app, listen
from server.db.engine import Database


class Message(NamedTuple):
    id: str
    event: str
    data: Any
    at: float


class LiveServer:
    """A server in a thread; `stop` ends it as a signal would."""

    def __init__(self, database: Database, folder: Path, *, port: int = 0, team: Team | None = None) -> None:
        self.team = team or Team(database, folder)
        self.app = self.team.app if team is None else create_app(team.settings, database)
        self._listener = listen("127.0.0.1", port)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        config = uvicorn.Config(self.app, log_config=None, access_log=False, timeout_graceful_shutdown=5)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: self._server.run(sockets=[self._listener]))

    def start(self) -> None:
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    def stop(self) -> float:
        """End streams and server; returns how long it took."""
        began = time.monotonic()
        self.app.state.stop.set()
        self._server.should_exit = True
        self._thread.join(timeout=20)
        assert not self._thread.is_alive()
        self._listener.close()
        return time.monotonic() - began

    def client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.team.tokens['viewer']}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=20, trust_env=False)

    @contextmanager
    def stream(self, path: str, last_event_id: str | None = None) -> Iterator[Iterator[Message]]:
        headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        with self.client() as client, client.stream("GET", path, headers=headers) as response:
            assert response.status_code == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            yield messages(response)


def messages(response: httpx.Response) -> Iterator[Message]:
    """Parse the wire format as a browser does; comments and retry are skipped."""
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = f"{fields[name]}\n{value}" if name in fields else value
        elif not line:
            if "data" in fields:
                yield Message(fields.get("id", ""), fields["event"], json.loads(fields["data"]), time.monotonic())
            fields = {}
