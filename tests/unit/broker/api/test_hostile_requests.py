"""Requests that no honest client sends: the core answers them or closes the connection, and goes on."""

from __future__ import annotations

import random

import pytest

from fencepost.broker.api.apis import SERVED
from fencepost.broker.disk.changes import Write
from fencepost.broker.effects import Failed
from fencepost.protocol.frame import encode_request_frame
from fencepost.protocol.messages.metadata import MetadataRequest
from tests.support.broker_driver import BrokerDriver, plain_request

MUTATIONS = 40


def mutated(body: bytes, numbers: random.Random) -> bytes:
    changed = bytearray(body)
    for _ in range(numbers.choice((1, 1, 2, 5))):
        kind = numbers.randrange(4)
        position = numbers.randrange(len(changed) + 1)
        if kind == 0 and changed:
            changed[min(position, len(changed) - 1)] = numbers.choice((0, 1, 2, 127, 128, 255))
        elif kind == 1:
            changed[position:position] = numbers.randbytes(numbers.choice((1, 2, 4, 9)))
        elif kind == 2:
            del changed[position : position + numbers.choice((1, 2, 8))]
        else:
            changed += bytes(numbers.choice((1, 4, 40)))
    return bytes(changed)


@pytest.mark.parametrize("key", SERVED, ids=lambda key: SERVED[key].name)
def test_nothing_but_a_closed_connection_comes_of_damaged_requests(key: int) -> None:
    driver = BrokerDriver({"fsync": "never"})
    numbers = random.Random(key)
    handled = 0
    for version in range(SERVED[key].min_version, SERVED[key].max_version + 1):
        body = plain_request(key, version)
        for _ in range(MUTATIONS):
            connection = 1000 + handled
            driver.core.connected(driver.now_ms, connection, ("127.0.0.1", 9092), ("127.0.0.1", 1))
            frame = encode_request_frame(key, version, 1, "hostile", mutated(body, numbers))
            driver.core.handle_frame(driver.now_ms, connection, memoryview(frame)[4:])
            assert not any(isinstance(effect, Failed) for effect in driver.core.take_effects())
            driver.core.disconnected(driver.now_ms, connection)
            handled += 1
    driver.pass_time(10_000)
    assert driver.ask(MetadataRequest(topics=[]), 12).cluster_id == driver.core.meta.cluster_id
    assert handled >= MUTATIONS
    driver.start()
    assert driver.ask(MetadataRequest(topics=[]), 12).cluster_id == driver.core.meta.cluster_id


@pytest.mark.parametrize("key", SERVED, ids=lambda key: SERVED[key].name)
def test_a_request_with_nothing_in_it_is_answered(key: int) -> None:
    driver = BrokerDriver({"fsync": "never"})
    answered = 0
    for version in range(SERVED[key].min_version, SERVED[key].max_version + 1):
        if (key, version) in ((0, 13), (1, 13), (1, 14), (1, 15), (1, 16), (1, 17), (1, 18)):
            continue  # topic ids: the body above has names
        frame = encode_request_frame(key, version, 1, None, plain_request(key, version))
        driver.core.handle_frame(driver.now_ms, 1, memoryview(frame)[4:])
        effects = driver.core.take_effects()
        if len(effects) == 1 and isinstance(effects[0], Write):  # answered when it is written down
            effects[0].step()
            driver.core.written(driver.now_ms, effects[0].token, None)
            effects = driver.core.take_effects()
        assert [type(effect).__name__ for effect in effects] == ["Reply"], f"version {version}"
        answered += 1
    assert answered > 0
