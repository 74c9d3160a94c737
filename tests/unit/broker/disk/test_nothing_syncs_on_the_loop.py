"""No request and no timer waits for the disk where all are served: only the effects `Sync` and `Write` do."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fencepost.broker.coordinator.txn import snapshot_files
from fencepost.broker.core import BrokerCore
from fencepost.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost_lab.check import disk as memory
from tests.support.batches import batch
from tests.support.broker_driver import BrokerDriver, produce
from tests.support.damage_world import TOPICS, compact, retain, written

SYNCS = ((memory.MemoryDisk, "write_atomic"), (memory.MemoryDisk, "sync_directory"), (memory.MemoryFile, "sync"))


class Guard:
    """Notes each sync, by name, and by what asked for it where that was not an effect, a start or an end."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.elsewhere: Counter[str] = Counter()
        self.on_the_loop: list[str] = []
        self._depth = 0
        for owner, name in (
            (BrokerDriver, "sync"),
            (BrokerDriver, "write"),
            (BrokerCore, "open"),
            (BrokerCore, "close"),
        ):
            patch.setattr(owner, name, self._allowing(getattr(owner, name)))
        for disk, name in SYNCS:
            patch.setattr(disk, name, self._noting(name, getattr(disk, name)))

    @contextmanager
    def _allowed(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def _allowing(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def allowed(*arguments: Any, **named: Any) -> Any:
            with self._allowed():
                return inner(*arguments, **named)

        return allowed

    def _noting(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            if self._depth:
                self.elsewhere[name] += 1
            else:
                self.on_the_loop.append("".join(traceback.format_stack(limit=6)[:-1]))
            with self._allowed():  # a sync within a sync counts once
                return inner(*arguments)

        return noted


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> Guard:
    return Guard(monkeypatch)


def test_a_sync_on_the_loop_is_found(guard: Guard) -> None:
    driver = BrokerDriver()
    driver.disk.sync_directory("")
    assert len(guard.on_the_loop) == 1


def test_nothing_syncs_on_the_loop(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics of every kind are written to, rolled, compacted, shortened and deleted, and every small file changes."""
    monkeypatch.setattr(snapshot_files, "_RECORDS", 4)
    driver = written()
    compact(driver)
    retain(driver, TOPICS)
    for number in range(20):  # each rolls a segment, and has a snapshot
        answer = driver.ask(produce("plain", batch(b"%d" % number * 400)), 9)
        assert answer.partitions[0].error_code == 0
    for number in range(8):
        begun = InitProducerIdRequest(transactional_id=f"id{number}", transaction_timeout_ms=60_000)
        assert driver.ask(begun, 4).error_code == 0
    driver.pass_time(1_000_000)
    compact(driver)
    topics = [DeleteTopicState(name=name) for name in ("plain", "keys")]
    answers = driver.ask(DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6).responses
    assert [each.error_code for each in answers] == [0, 0]
    assert guard.on_the_loop == []
    files = driver.disk.tree("")
    assert any(path.endswith("transactions.fencepost") for path in files)
    assert (
        guard.elsewhere["write_atomic"] > 40 and guard.elsewhere["sync_directory"] > 4 and guard.elsewhere["sync"] > 100
    )
