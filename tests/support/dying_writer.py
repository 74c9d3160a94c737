"""The dual write of examples/ as a process that is killed at a given step."""

from __future__ import annotations

import os
import signal

from examples import dual_write

__all__ = ["write"]


def write(servers: str, address: str, topic: str, transactional_id: str, last_step: str, count: int) -> None:
    """Payments up to `count`, from where the last process has stopped; -9 at `last_step`."""

    def at(step: str) -> None:
        if step == last_step:
            os.kill(os.getpid(), signal.SIGKILL)

    database = dual_write.Database(address)
    with dual_write.DualWriter(servers, database, topic, transactional_id, at) as writer:
        for payment in range(writer.last_payment() + 1, count):
            writer.write(payment, 100 + payment)
