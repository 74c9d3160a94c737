"""Tell systemd about the state of the broker: sd_notify(3)."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping
from typing import Final

__all__ = ["ServiceManager"]

_log = logging.getLogger("fencepost.broker")

_ABSTRACT: Final = "@"


class ServiceManager:
    """The socket of the service manager. Without NOTIFY_SOCKET in the environment nothing is sent."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith(_ABSTRACT) else address
        period_us = environ.get("WATCHDOG_USEC", "")
        self.watchdog_s = int(period_us) / 1_000_000 if period_us.isascii() and period_us.isdecimal() else 0.0
        """The longest time between two signs of life, or 0 if the manager expects none."""

    def notify(self, state: str) -> None:
        """Send a state such as READY=1. A failure is logged: the broker works without the manager."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(state.encode(), self._address)
        except OSError as error:
            _log.warning("the service manager did not receive %s: %s", state, error)

    async def send_keepalives(self) -> None:
        """Send signs of life until cancelled, from the loop that serves clients."""
        while self._address and self.watchdog_s > 0:
            self.notify("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_s / 3)
