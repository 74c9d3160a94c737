"""A broker that is sent everything but what it should be, over real sockets, with somebody beside it who works.

Long runs: `python -m tests.support.fuzz broker --seed 1 --minutes 15`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.broker import core
from fencepost.broker.core import BrokerCore
from fencepost.broker.network.backpressure import UnreadResponses
from fencepost.protocol.codec import decode_request, write_response
from tests.support.fuzz import broker_side
from tests.support.fuzz.runs import attack_broker


@pytest.mark.slow
def test_nothing_comes_of_any_attack() -> None:
    report = attack_broker(1, deeds=200)
    assert report.happened["answered"] > 500
    assert report.happened["closed"] > 1_000
    assert report.happened["connections of a crowd"] == 1_000
    assert report.transactions > 20


def unread_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UnreadResponses, "room", lambda self: 1 << 40)
    monkeypatch.setattr(UnreadResponses, "given_up", lambda self, now_ms: [])


def ends_of_bodies_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(key: int, version: int, body: memoryview) -> Any:
        try:
            return decode_request(key, version, body)
        except ValueError as error:
            raise IndexError(error) from error

    monkeypatch.setattr(core, "decode_request", decode)


def answers_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an API that the neighbour does not use."""

    def write(out: bytearray, response: Any, version: int) -> None:
        write_response(out, response, version)
        if type(response).__name__ == "ListGroupsResponse":
            del out[-1]

    monkeypatch.setattr(core, "write_response", write)


def nonsense_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrokerCore, "drop", lambda self, now_ms, connection: None)
    monkeypatch.setattr(broker_side, "PATIENCE_S", 0.5)


def nonsense_ends_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrokerCore, "drop", lambda self, now_ms, connection: self.disconnect())


@pytest.mark.parametrize(
    ("plant", "attack", "message"),
    [
        (unread_without_bound, "unread answers", "MiB of memory were taken"),
        (ends_of_bodies_unchecked, "random requests", "a request failed"),
        (answers_cut_short, "every request", "the answer to"),
        (nonsense_is_passed_over, "random requests", "neither answered nor closed"),
        (nonsense_ends_all_connections, "random requests", "defects"),
    ],
)
def test_a_planted_defect_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], attack: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)

    def attack_several_times() -> None:
        for seed in range(1, 6):  # what is drawn changes with every new API
            attack_broker(seed, deeds=100, only=attack)

    with pytest.raises(AssertionError, match=message):
        attack_several_times()
