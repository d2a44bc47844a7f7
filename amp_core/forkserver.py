"""The fork server: one process with torch imported that forks a child for each request of its launcher.

A fork is safe only while this process has one thread and no device: it never runs an OpenMP parallel region, autograd
or CUDA, and serves one request at a time without threads. See docs/decisions/fork-server.md.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import traceback
from typing import NoReturn

from amp_core.child_process import kill_group

PRELOADED = ("amp_core.training", "amp_core.loader", "amp_core.benchmark", "sklearn.datasets", "PIL.Image")


def serve(socket_fd: int) -> int:
    """Serve until the launcher is gone, then kill the children that are left."""
    os.set_inheritable(socket_fd, False)
    _warm_up()
    server = _Server(socket.socket(fileno=socket_fd))
    try:
        server.run()
    finally:
        server.kill_children()
    return 0


def _warm_up() -> None:
    """Import what every run needs. Nothing in here may compute."""
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # asking for a GPU must not open one before the fork
    import torch

    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])  # its first constructor imports torch._dynamo: a second
    gc.collect()
    gc.freeze()  # children collecting garbage do not copy these pages


class _Server:
    """The loop of one thread: requests from the socket, ended children from SIGCHLD."""

    def __init__(self, launcher: socket.socket) -> None:
        self._launcher = launcher
        self._children: set[int] = set()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def run(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler, so that the wake-up descriptor is written
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._launcher, selectors.EVENT_READ)
            selector.register(self._wake_read, selectors.EVENT_READ)
            self._say({"ready": True})
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._launcher:
                        if not self._take_request():
                            return
                    else:
                        self._reap()

    def kill_children(self) -> None:
        """Kill the groups of the children that still run."""
        for pid in self._children:
            kill_group(pid)

    def _take_request(self) -> bool:
        """Fork one child; False when the launcher is gone."""
        try:
            message, descriptors, _, _ = socket.recv_fds(self._launcher, 64, 3)
        except OSError:
            return False
        if not message:
            return False
        try:
            pid = os.fork()
        except OSError as error:
            self._say({"error": str(error)})
            return True
        if pid == 0:
            self._become_child(descriptors)
        with contextlib.suppress(OSError):  # both sides make the group: whoever hears of the pid can kill the group
            os.setpgid(pid, pid)
        self._children.add(pid)
        for descriptor in descriptors:
            os.close(descriptor)
        self._say({"pid": pid})
        return True

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_read, 512):
                pass
        for pid in list(self._children):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            kill_group(pid)  # while the zombie keeps the group's number from being given away
            _, status = os.waitpid(pid, 0)
            self._children.discard(pid)
            self._say({"exited": pid, "code": os.waitstatus_to_exitcode(status)})

    def _say(self, message: dict[str, object]) -> None:
        with contextlib.suppress(OSError):  # the launcher is gone: the next select ends the loop
            self._launcher.sendall(json.dumps(message).encode() + b"\n")

    def _become_child(self, descriptors: list[int]) -> NoReturn:
        """In the fork: leave everything of the server behind and run."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setpgid(0, 0)
            stdin, log, events = descriptors
            os.dup2(stdin, 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            for descriptor in (stdin, log, self._wake_read, self._wake_write):
                os.close(descriptor)
            self._launcher.close()
            from amp_core import child

            child.run_and_exit(events)
        except BaseException:  # noqa: BLE001 - nothing may run on into the server's loop
            traceback.print_exc()
        os._exit(1)
