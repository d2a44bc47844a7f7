"""A proxy between workers and their store that can be cut: connections are broken and refused, or fall silent."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from pathlib import Path

BLOCK_BYTES = 65536
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset


class Proxy:
    """Listens on loopback and passes on to a unix socket, from threads of its own."""

    def __init__(self, target: Path) -> None:
        self._target = str(target)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._flows = threading.Event()
        self._flows.set()
        self._refuses = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break every connection, and each new one at once."""
        with self._lock:
            self._refuses = True
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                _reset(end)

    def silence(self) -> None:
        """Pass nothing on, either way; connections stay open, as behind a cable that was pulled."""
        self._flows.clear()

    def mend(self) -> None:
        """Pass on again what was held back, and take new connections."""
        with self._lock:
            self._refuses = False
        self._flows.set()

    def close(self) -> None:
        self.cut()
        self._flows.set()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        self._flows.wait()
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(self._target)
        except OSError:
            _reset(client)
            return
        with self._lock:
            refused = self._refuses
            if not refused:
                self._pairs.append((client, server))
        if refused:
            _reset(client)
            server.close()
            return
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(BLOCK_BYTES):
                self._flows.wait()
                sink.sendall(block)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        end.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        end.close()
