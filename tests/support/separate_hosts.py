"""Hosts that can be cut off the network: network namespaces on a bridge. Linux, as root, with iproute2.

with SeparateHosts(3) as hosts:
    subprocess.Popen([*hosts.prefix(1), "kafka"...])    # listens on hosts.address(1), which this process reaches
    hosts.cut(1)                                         # nobody reaches it, nor it anybody; nobody is told
    hosts.mend(1)
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from types import TracebackType
from typing import Self

__all__ = ["SeparateHosts"]


class SeparateHosts:
    """Hosts 1 to `count`; this process is one more on their network."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._name = f"fp{os.getpid()}"
        self._network = f"10.213.{os.getpid() % 250}"

    def address(self, number: int) -> str:
        return f"{self._network}.{number}"

    def prefix(self, number: int) -> tuple[str, ...]:
        """Return the words before a command that run it on the host. The process keeps its id."""
        return ("ip", "netns", "exec", self._space(number))

    def cut(self, number: int) -> None:
        """Packets to and from the host are dropped; no connection is told."""
        _ip("link", "set", self._port(number), "down")

    def mend(self, number: int) -> None:
        _ip("link", "set", self._port(number), "up")

    def __enter__(self) -> Self:
        try:
            _ip("link", "add", self._name, "type", "bridge")
            _ip("address", "add", f"{self.address(254)}/24", "dev", self._name)
            _ip("link", "set", self._name, "up")
            for number in range(1, self._count + 1):
                self._add(number)
        except BaseException:
            self._remove()
            raise
        return self

    def _add(self, number: int) -> None:
        space, port = self._space(number), self._port(number)
        _ip("netns", "add", space)
        _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", port, "master", self._name, "up")
        _ip("-n", space, "address", "add", f"{self.address(number)}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        _ip("-n", space, "link", "set", "lo", "up")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        for number in range(1, self._count + 1):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", self._space(number))  # with its end of the pair, and so with the other
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "delete", self._name)

    def _space(self, number: int) -> str:
        return f"{self._name}-{number}"

    def _port(self, number: int) -> str:
        return f"{self._name}p{number}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
