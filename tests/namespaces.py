"""Hosts made of network namespaces of this machine: each has an address of its own, and a wire to a bridge."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

SITE = "10.213.77.254"  # this machine itself, as the namespaces reach it
ADDRESSES = ("10.213.77.1", "10.213.77.2")


class MayNot(Exception):
    """This machine, or this user, cannot make network namespaces; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Namespace:
    """A host: its name, its address, its end of the wire, and what runs a command there."""

    name: str
    address: str
    device: str

    @property
    def prefix(self) -> list[str]:
        return ["ip", "netns", "exec", self.name]

    def is_apart(self) -> bool:
        """Whether no way leads out of it but the wire."""
        asked = subprocess.run([*self.prefix, "ip", "route", "get", "1.1.1.1"], capture_output=True, check=False)
        return asked.returncode != 0

    def cut(self) -> None:
        """Take the wire away; nobody is told, packets just come to nothing."""
        _ip("-n", self.name, "link", "set", self.device, "down")

    def mend(self) -> None:
        _ip("-n", self.name, "link", "set", self.device, "up")


@contextmanager
def two_namespaces() -> Iterator[Sequence[Namespace]]:
    """Two hosts and a bridge on which this machine is `SITE`; all of it is gone afterwards. Raises `MayNot`."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise MayNot("network namespaces need root and the program ip (package iproute2)")
    mark = os.getpid() % 100000
    bridge = f"ampbr{mark}"
    hosts = [
        Namespace(name=f"ampboard{mark}{letter}", address=address, device=f"amp{mark}{letter}")
        for letter, address in zip("ab", ADDRESSES, strict=True)
    ]
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{SITE}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for host in hosts:
            inside, outside = host.device, f"{host.device}o"
            _ip("netns", "add", host.name)
            _ip("link", "add", inside, "type", "veth", "peer", "name", outside)
            _ip("link", "set", inside, "netns", host.name)
            _ip("link", "set", outside, "master", bridge, "up")
            _ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", inside)
            for device in (inside, "lo"):
                _ip("-n", host.name, "link", "set", device, "up")
        yield hosts
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "delete", host.name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "delete", bridge], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MayNot(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
