"""One connection: negotiation, correlation, timeouts."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.client.net.cluster import AnyNode
from fencepost.client.net.connection import BrokerConnection
from fencepost.client.net.tasks import gather, within
from fencepost.client.net.topology import parse_bootstrap
from fencepost.config import AdminConfig
from fencepost.errors import (
    ConfigurationError,
    DisconnectedError,
    KafkaTimeoutError,
    ProtocolError,
    UnsupportedVersionError,
)
from fencepost.protocol import codec
from fencepost.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from fencepost.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.unit.client.scripted import World, cut, run

CONFIG = AdminConfig(bootstrap_servers="broker", request_timeout_ms=1000)


def test_an_older_broker_is_asked_again_in_its_own_version() -> None:
    """It answers an ApiVersions version it does not know in v0, with 35 and its range."""

    def refuse(version: int, request: Any) -> Any:
        return ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)])

    async def body(world: World) -> None:
        world.broker.scripts[18].append(refuse)
        connection = await BrokerConnection.connect(world.runtime, "broker", 9092, CONFIG)
        assert connection.version(26, 0, 5) == 5
        connection.close()

    broker = run(body)
    assert [version for key, version, _ in broker.requests if key == 18] == [4, 2]


def test_the_client_says_who_it_is() -> None:
    async def body(world: World) -> None:
        connection = await BrokerConnection.connect(world.runtime, "broker", 9092, CONFIG)
        assert connection.features == {"transaction.version": 2}
        connection.close()

    assert run(body).asked(18)[0].client_software_name == "fencepost"


def test_no_common_version() -> None:
    async def body(world: World) -> None:
        connection = await BrokerConnection.connect(world.runtime, "broker", 9092, CONFIG)
        with pytest.raises(UnsupportedVersionError, match="0-5"):
            connection.version(26, 6, 7)
        with pytest.raises(UnsupportedVersionError):
            connection.version(999, 0, 1)
        connection.close()

    run(body)


def test_replies_come_in_order_of_the_requests() -> None:
    async def body(world: World) -> None:
        connection = await BrokerConnection.connect(world.runtime, "broker", 9092, CONFIG)
        calls = [
            connection.request(EndTxnRequest(transactional_id="x", producer_id=number), 5, timeout_ms=500)
            for number in range(20)
        ]
        replies = await gather(world.runtime, calls)
        assert [getattr(reply, "producer_epoch", None) for reply in replies] == list(range(20))
        connection.close()

    run(body)


def test_a_request_after_one_that_nobody_awaits_gets_its_own_reply() -> None:
    """As after the request that closes a fetch session."""

    async def body(world: World) -> None:
        connection = await BrokerConnection.connect(world.runtime, "broker", 9092, CONFIG)
        unawaited = [codec.encode_request(EndTxnRequest(transactional_id="x", producer_id=1), 5)]
        assert not await connection.exchange(26, 5, unawaited, timeout_ms=500, awaited=False)
        reply = await connection.request(EndTxnRequest(transactional_id="x", producer_id=2), 5, timeout_ms=500)
        assert reply.producer_epoch == 1
        connection.close()

    assert len(run(body).asked(26)) == 2


def test_a_wrong_correlation_id_closes_the_connection() -> None:
    async def body(world: World) -> None:
        connection = await BrokerConnection.connect(world.runtime, "broker", 9092, CONFIG)
        world.broker.correlation = lambda header: header.correlation_id + 1
        with pytest.raises(DisconnectedError, match="reply 3 came where 2 was due"):
            await connection.request(EndTxnRequest(), 5, timeout_ms=500)
        assert connection.closed

    run(body)


def test_impatience_keeps_the_connection_and_request_timeout_closes_it() -> None:
    async def body(world: World) -> None:
        connection = await BrokerConnection.connect(world.runtime, "broker", 9092, CONFIG)
        world.broker.scripts[26] += [lambda _, __: None] * 2
        with pytest.raises(KafkaTimeoutError) as raised:
            await connection.request(EndTxnRequest(), 5, timeout_ms=300)
        assert raised.value.outcome_unknown
        assert [connection.closed] == [False]
        with pytest.raises(DisconnectedError) as lost:
            await connection.request(EndTxnRequest(), 5, timeout_ms=5000)
        assert lost.value.sent
        assert [connection.closed] == [True]
        with pytest.raises(DisconnectedError) as refused:
            await connection.request(EndTxnRequest(), 5, timeout_ms=5000)
        assert not refused.value.sent

    run(body)


def test_an_unanswered_request_names_the_limit_of_its_wait() -> None:
    async def body(world: World) -> None:
        connection = await BrokerConnection.connect(world.runtime, "broker", 9092, CONFIG)
        world.broker.scripts[26] += [lambda _, __: None] * 3
        with pytest.raises(KafkaTimeoutError, match=r"did not answer EndTxn in the 500 ms that the call had left$"):
            await connection.request(EndTxnRequest(), 5, timeout_ms=500)
        with pytest.raises(DisconnectedError, match=r"did not answer EndTxn within request_timeout_ms=1000$"):
            await connection.request(EndTxnRequest(), 5, timeout_ms=5000)
        connection = await BrokerConnection.connect(world.runtime, "broker", 9092, CONFIG)
        with pytest.raises(
            DisconnectedError, match=r"within request_timeout_ms=1000 and the 300 ms for which it may hold the request$"
        ):
            await connection.request(EndTxnRequest(), 5, timeout_ms=5000, server_ms=300)
        world.broker.scripts[18].append(lambda _, __: None)
        quick = AdminConfig(bootstrap_servers="broker", socket_connection_setup_timeout_ms=700)
        with pytest.raises(KafkaTimeoutError, match=r"ApiVersions in the 700 ms of socket_connection_setup_timeout_ms"):
            await BrokerConnection.connect(world.runtime, "broker", 9092, quick)

    run(body)


@pytest.mark.parametrize("left_ms", [0, -3])
def test_a_request_without_time_for_a_response_is_sent_all_the_same(left_ms: int) -> None:
    async def body(world: World) -> None:
        connection = await BrokerConnection.connect(world.runtime, "broker", 9092, CONFIG)
        world.broker.scripts[26].append(lambda _, __: None)
        words = "EndTxn was sent to broker:9092, and no time was left to wait for the response"
        with pytest.raises(KafkaTimeoutError, match=words) as raised:
            await connection.request(EndTxnRequest(), 5, timeout_ms=left_ms)
        assert raised.value.outcome_unknown
        connection.close()

    assert len(run(body).asked(26)) == 1


def test_a_reply_that_is_too_large_is_not_read() -> None:
    async def body(world: World) -> None:
        config = AdminConfig(bootstrap_servers="broker", request_timeout_ms=1000, max_response_bytes=600)
        connection = await BrokerConnection.connect(world.runtime, "broker", 9092, config)
        world.broker.partitions = 100
        with pytest.raises(DisconnectedError, match="600"):
            await connection.request(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12, timeout_ms=500)
        assert connection.closed

    run(body)


def test_calls_survive_lost_connections_until_their_deadline() -> None:
    async def body(world: World) -> None:
        cluster = world.cluster()
        world.broker.scripts[3] += [cut] * 3
        request = MetadataRequest(topics=[])
        deadline_ms = world.runtime.now_ms() + 5000
        reply = await cluster.call(AnyNode(), request, (4, 13), deadline_ms=deadline_ms, code_of=lambda _: 0)
        assert reply.brokers[0].node_id == 1
        world.broker.scripts[3] += [cut] * 1000
        begun_ms = world.runtime.now_ms()
        with pytest.raises(KafkaTimeoutError) as raised:
            await cluster.call(AnyNode(), request, (4, 13), deadline_ms=begun_ms + 3000, code_of=lambda _: 0)
        assert raised.value.outcome_unknown
        assert 3000 <= world.runtime.now_ms() - begun_ms < 4500
        cluster.close()

    broker = run(body)
    assert len(broker.asked(3)) < 60, "backing off, not hammering"


def test_within_cancels_what_takes_too_long() -> None:
    async def body(world: World) -> None:
        ended = []

        async def slow() -> int:
            try:
                await world.runtime.sleep_ms(10_000)
            finally:
                ended.append(world.runtime.now_ms())
            return 1

        begun_ms = world.runtime.now_ms()
        with pytest.raises(KafkaTimeoutError):
            await within(world.runtime, slow(), 100, "slow")
        await world.runtime.sleep_ms(1)
        assert ended
        assert ended[0] - begun_ms < 200

    run(body)


def test_gather_gives_results_and_errors_in_order() -> None:
    async def body(world: World) -> None:
        async def delayed(number: int) -> int:
            await world.runtime.sleep_ms(100 - number)
            if number == 1:
                raise ProtocolError("one")
            return number

        results = await gather(world.runtime, [delayed(number) for number in range(3)])
        assert results[0] == 0
        assert isinstance(results[1], ProtocolError)
        assert results[2] == 2

    run(body)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1,b:2", (("a", 1), ("b", 2))),
        ("a", (("a", 9092),)),
        ("[::1]:9093", (("::1", 9093),)),
        ("[::1]", (("::1", 9092),)),
        (["a:1", "b:2,c:3"], (("a", 1), ("b", 2), ("c", 3))),
    ],
)
def test_bootstrap_addresses(text: Any, expected: Any) -> None:
    assert parse_bootstrap(text) == expected


@pytest.mark.parametrize("text", ["", "a:x", "a:0", "a:70000", "::1:9092", []])
def test_bad_bootstrap_addresses(text: Any) -> None:
    with pytest.raises(ConfigurationError):
        parse_bootstrap(text)


def test_a_throttled_client_keeps_quiet() -> None:
    """KIP-219: the answer comes at once and names the time for which nothing more may be sent."""
    arrivals = []

    async def body(world: World) -> None:
        def throttled(version: int, request: Any) -> Any:
            arrivals.append(world.runtime.now_ms())
            return EndTxnResponse(throttle_time_ms=3000 if len(arrivals) == 1 else 0)

        world.broker.scripts[26] += [throttled] * 4
        connection = await BrokerConnection.connect(world.runtime, "broker", 9092, CONFIG)
        await connection.request(EndTxnRequest(), 5, timeout_ms=500)
        calls = [connection.request(EndTxnRequest(transactional_id=str(n)), 5, timeout_ms=9000) for n in range(3)]
        await gather(world.runtime, calls)
        assert [connection.closed] == [False]
        connection.close()

    broker = run(body)
    assert len(arrivals) == 4
    assert all(at - arrivals[0] >= 3000 for at in arrivals[1:])
    assert [end_request.transactional_id for end_request in broker.asked(26)][1:] == ["0", "1", "2"]


def test_a_request_that_was_held_back_was_not_sent() -> None:
    async def body(world: World) -> None:
        connection = await BrokerConnection.connect(world.runtime, "broker", 9092, CONFIG)
        connection.throttle(60_000)
        call = world.runtime.spawn(expect_unsent(connection))
        await world.runtime.sleep_ms(10)
        connection.close()
        while not call.done():
            await world.runtime.sleep_ms(1)

    async def expect_unsent(connection: BrokerConnection) -> None:
        with pytest.raises(DisconnectedError) as raised:
            await connection.request(EndTxnRequest(), 5, timeout_ms=30_000)
        assert not raised.value.sent

    assert run(body).asked(26) == []
