"""The last epochs of a producer id, reached one by one. Expected answers: Apache Kafka 4.4 (K18)."""

from __future__ import annotations

import pytest

from fencepost.protocol import codec
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.records.batch import iter_batches
from fencepost.protocol.records.markers import parse_marker
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import Producer, RawClient
from tests.support.txn_requests import producers

pytestmark = pytest.mark.slow

LAST = 32_766  # the last epoch that a client is given; 32767 is only ever in a marker
AT_ONCE = 1000


def at_epoch(client: RawClient, name: str, epoch: int) -> Producer:
    """Initialise the id until it has this epoch."""
    me = client.start_producer(name)
    request = InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    body = codec.encode_request(request, 5)
    while me.epoch < epoch:
        for answer in client.exchange_many(22, 5, [body] * min(AT_ONCE, epoch - me.epoch)):
            given = codec.decode_response(22, 5, answer)
            if given.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:  # Kafka's record of the one before is not written
                assert (given.error_code, given.producer_id) == (0, me.producer_id)
                me = Producer(given.producer_id, given.producer_epoch)
    assert me.epoch == epoch
    return me


def test_the_last_epochs(broker: BrokerUnderTest, client: RawClient) -> None:
    """EndTxn v5 at 32766 gives a new producer id, its marker carries 32767, and it may be repeated."""
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    me = at_epoch(client, name, LAST - 1)
    assert client.produce(topic, [b"a"], transactional_id=name, producer=me, sequence=0).error_code == 0
    ended = client.end_transaction(name, me, commit=True)
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (0, me.producer_id, LAST)
    client.wait_for_state(name, "CompleteCommit")
    last = Producer(me.producer_id, LAST)
    assert client.produce(topic, [b"b"], transactional_id=name, producer=last, sequence=0).error_code == 0
    for _ in range(2):
        ended = client.end_transaction(name, last, commit=True)
        assert (ended.error_code, ended.producer_epoch) == (0, 0)
        assert ended.producer_id != me.producer_id
    client.wait_for_state(name, "CompleteCommit")
    markers = [
        (header.producer_id, header.producer_epoch, parse_marker(batch).commit)
        for header, batch in iter_batches(client.fetch(topic).result.records)
        if header.is_control
    ]
    assert markers == [(me.producer_id, LAST, True), (me.producer_id, LAST + 1, True)]
    new = Producer(ended.producer_id, 0)
    late = client.produce(topic, [b"late"], transactional_id=name, producer=last, sequence=1)
    assert late.error_code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert client.produce(topic, [b"c"], transactional_id=name, producer=new, sequence=0).error_code == 0
    assert client.end_transaction(name, new, commit=False).error_code == 0
    client.wait_for_state(name, "CompleteAbort")
    assert client.fetch(topic, committed=True).values == [b"a", b"b"]
    assert {state.producer_id: state.current_txn_start_offset for state in producers(client, topic)} == {
        me.producer_id: -1,
        new.producer_id: -1,
    }
