"""The recipes of examples/ as processes that are killed at a given step."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import fencepost
from examples import dead_letters, topic_and_database
from fencepost import TopicPartition

__all__ = ["letters", "transfers"]


def _dies_at(last_step: str, recipe: ModuleType) -> Callable[[str], None]:
    """Return what kills this process at a step, with every record of the recipe's producer at the broker."""
    producers: list[fencepost.Producer] = []

    class Known(fencepost.Producer):
        def init_transactions(self, keep_prepared: bool = False) -> Any:
            producers.append(self)
            return super().init_transactions(keep_prepared)

    recipe.Producer = Known  # type: ignore[attr-defined]

    def at(step: str) -> None:
        if step == last_step:
            if step == "sent":
                producers[-1].flush()
            os.kill(os.getpid(), signal.SIGKILL)

    return at


def _stop_at_the_end(servers: str, group: str, topic: str, count: int, stopping: threading.Event) -> threading.Thread:
    """Set `stopping` when the group has committed the position `count` of the topic's only partition."""

    def watch() -> None:
        partition = TopicPartition(topic, 0)
        with fencepost.Admin(servers) as admin:
            while not stopping.wait(0.05):
                found = admin.group_offsets(group).get(partition)
                if found is not None and found.offset >= count:
                    stopping.set()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def letters(servers: str, source: str, target: str, dead: str, name: str, last_step: str, count: int) -> None:
    """Process `count` orders; -9 at `last_step`."""
    stopping = threading.Event()
    watching = _stop_at_the_end(servers, f"{source}-to-{target}", source, count, stopping)
    dead_letters.process(servers, source, target, dead, name, stopping, at=_dies_at(last_step, dead_letters))
    watching.join()


def transfers(servers: str, address: str, source: str, target: str, name: str, last_step: str, count: int) -> None:
    """Work on `count` transfers, at most five in a transaction; -9 at `last_step`."""
    stopping = threading.Event()
    watching = _stop_at_the_end(servers, f"{source}-to-{target}", source, count, stopping)
    at = _dies_at(last_step, topic_and_database)
    topic_and_database.Consumer = partial(fencepost.Consumer, max_poll_records=5)  # type: ignore[attr-defined,assignment]
    database = topic_and_database.Database(address)
    with topic_and_database.Bank(servers, database, source, target, name, at) as bank:
        while not stopping.is_set():
            bank.work_once(100)
    database.close()
    watching.join()
