"""Frames of Kafka's own clients and broker: read whole, and written back to the same bytes."""

from __future__ import annotations

from collections import Counter

import pytest

from fencepost.protocol import codec, fetch_wire, frame, produce_wire
from fencepost.protocol.records.batch import iter_batches, verify_crc
from fencepost.protocol.records.decoding import decode_batches
from tests.golden.load import exchanges
from tests.golden.scenario import CODECS, RECORDS, TOPIC_LIBRDKAFKA, TOPIC_TRANSACTIONS
from tests.support.recording_proxy import Exchange

PRODUCE, FETCH = 0, 1
BY_HAND = {PRODUCE, FETCH}
FOREIGN = {46}  # ListPartitionReassignments: an admin command of Kafka's asks it, nothing of ours speaks it
EXCHANGES = exchanges()


def kind(exchange: Exchange) -> str:
    return f"{exchange.label}-k{exchange.api_key}v{exchange.api_version}"


def body(exchange: Exchange, *, response: bool) -> memoryview:
    if response:
        _, start = frame.decode_response_header(exchange.api_key, exchange.api_version, exchange.response)
        return memoryview(exchange.response)[start:]
    _, start = frame.decode_request_header(exchange.request)
    return memoryview(exchange.request)[start:]


def of(label: str, api_key: int) -> list[Exchange]:
    found = [exchange for exchange in EXCHANGES if exchange.label == label and exchange.api_key == api_key]
    assert found, f"nothing captured for {label}, API key {api_key}"
    return found


def test_enough_was_captured() -> None:
    """A capture that lost a step must not make the tests below pass on less."""
    keys = {exchange.api_key for exchange in EXCHANGES}
    assert keys >= {
        0,
        1,
        2,
        3,
        8,
        9,
        10,
        11,
        12,
        13,
        14,
        15,
        16,
        18,
        19,
        20,
        22,
        24,
        25,
        26,
        27,
        28,
        32,
        61,
        65,
        66,
        68,
    }
    labels = Counter(exchange.label for exchange in EXCHANGES)
    wanted = {f"{client}/produce-{name}" for client in ("java", "librdkafka") for name in CODECS}
    wanted |= {"java/transaction", "librdkafka/transaction", "broker/transaction", "librdkafka/produce-idempotent"}
    assert set(labels) >= wanted


@pytest.mark.parametrize("exchange", EXCHANGES, ids=kind)
def test_headers_are_read_and_written_back(exchange: Exchange) -> None:
    header, start = frame.decode_request_header(exchange.request)
    assert (header.api_key, header.api_version) == (exchange.api_key, exchange.api_version)
    written = frame.encode_request_frame(
        header.api_key, header.api_version, header.correlation_id, header.client_id, exchange.request[start:]
    )
    assert bytes(written)[4:] == exchange.request
    correlation_id, start = frame.decode_response_header(exchange.api_key, exchange.api_version, exchange.response)
    assert correlation_id == header.correlation_id
    written = frame.encode_response_frame(
        exchange.api_key, exchange.api_version, correlation_id, exchange.response[start:]
    )
    assert bytes(written)[4:] == exchange.response


@pytest.mark.parametrize(
    "exchange", [exchange for exchange in EXCHANGES if exchange.api_key not in BY_HAND | FOREIGN], ids=kind
)
def test_bodies_are_read_and_written_back(exchange: Exchange) -> None:
    request = body(exchange, response=False)
    read = codec.decode_request(exchange.api_key, exchange.api_version, request)
    assert codec.encode_request(read, exchange.api_version) == bytes(request)
    response = body(exchange, response=True)
    read = codec.decode_response(exchange.api_key, exchange.api_version, response)
    assert codec.encode_response(read, exchange.api_version) == bytes(response)


@pytest.mark.parametrize("exchange", [exchange for exchange in EXCHANGES if exchange.api_key == PRODUCE], ids=kind)
def test_produce_is_read_and_written_back(exchange: Exchange) -> None:
    request = body(exchange, response=False)
    read = produce_wire.decode_request(request, exchange.api_version)
    assert b"".join(produce_wire.encode_request(read, exchange.api_version)) == bytes(request)
    response = body(exchange, response=True)
    answer = produce_wire.decode_response(response, exchange.api_version)
    assert b"".join(produce_wire.encode_response(answer, exchange.api_version)) == bytes(response)
    assert [result.partition for result in answer.partitions] == [sent.partition for sent in read.partitions]


@pytest.mark.parametrize("exchange", [exchange for exchange in EXCHANGES if exchange.api_key == FETCH], ids=kind)
def test_fetch_is_read_and_written_back(exchange: Exchange) -> None:
    request = body(exchange, response=False)
    read = fetch_wire.decode_request(request, exchange.api_version)
    assert b"".join(fetch_wire.encode_request(read, exchange.api_version)) == bytes(request)
    response = body(exchange, response=True)
    answer = fetch_wire.decode_response(response, exchange.api_version)
    assert b"".join(fetch_wire.encode_response(answer, exchange.api_version)) == bytes(response)


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("client", ["java", "librdkafka"])
def test_produced_records_are_those_of_the_scenario(client: str, name: str) -> None:
    sent = b""  # in order; librdkafka may send the first record on its own
    for exchange in of(f"{client}/produce-{name}", PRODUCE):
        (partition,) = produce_wire.decode_request(body(exchange, response=False), exchange.api_version).partitions
        sent += partition.records
    headers = [header for header, _batch in iter_batches(sent)]
    assert [header.compression for header in headers] == [name] * len(headers)
    assert all(verify_crc(batch) for _header, batch in iter_batches(sent))
    columns = decode_batches(sent)
    assert len(columns) == len(RECORDS)
    for index, record in enumerate(RECORDS):
        assert columns.key(index) == record.key
        assert columns.value(index) == record.value
        assert tuple(columns.headers(index)) == record.headers
    if client == "librdkafka":  # the console producer stamps the time of day
        assert columns.timestamps.tolist() == [record.timestamp_ms for record in RECORDS]


def test_idempotent_and_transactional_batches_say_so() -> None:
    (exchange,) = of("librdkafka/produce-idempotent", PRODUCE)
    (sent,) = produce_wire.decode_request(body(exchange, response=False), exchange.api_version).partitions
    ((header, _batch),) = iter_batches(sent.records)
    (init,) = of("librdkafka/produce-idempotent", 22)[-1:]
    given = codec.decode_response(22, init.api_version, body(init, response=True))
    assert (header.producer_id, header.producer_epoch) == (given.producer_id, given.producer_epoch)
    assert (header.base_sequence, header.last_sequence) == (0, len(RECORDS) - 1)
    assert not header.is_transactional
    for exchange in of("java/transaction", PRODUCE) + of("librdkafka/transaction", PRODUCE):
        request = produce_wire.decode_request(body(exchange, response=False), exchange.api_version)
        assert request.transactional_id == f"golden-{exchange.label.partition('/')[0]}"
        assert request.acks == -1
        assert all(header.is_transactional for sent in request.partitions for header, _ in iter_batches(sent.records))


def test_java_ends_its_transactions_with_a_new_epoch_each() -> None:
    """KIP-890: EndTxn v5 answers with the epoch of the next transaction."""
    init = of("java/transaction", 22)[0]
    given = codec.decode_response(22, init.api_version, body(init, response=True))
    epochs = []
    for exchange in of("java/transaction", 26):
        assert exchange.api_version == 5
        ended = codec.decode_response(26, 5, body(exchange, response=True))
        assert (ended.error_code, ended.producer_id) == (0, given.producer_id)
        epochs.append(ended.producer_epoch)
    assert epochs == [given.producer_epoch + 1, given.producer_epoch + 2]


def test_fetched_transactions_hide_what_was_aborted() -> None:
    """The console consumer's read_committed fetch: the broker sends everything and names the aborted transactions."""
    seen: list[bytes | None] = []
    for exchange in of("java/group-classic", FETCH):
        for topic in fetch_wire.decode_response(body(exchange, response=True), exchange.api_version).topics:
            for partition in topic.partitions:
                columns = decode_batches(partition.records, aborted=partition.aborted)
                seen += [columns.value(index) for index in range(len(columns))]
                if partition.records:
                    everything = decode_batches(partition.records)
                    values = [everything.value(index) for index in range(len(everything))]
                    assert b"librdkafka abort 0" in values
                    assert partition.aborted
    committed = [f"librdkafka commit {number}".encode() for number in range(3)]
    assert seen[:6] == committed + committed
    assert b"librdkafka abort 0" not in seen


def test_a_group_agrees_on_its_members() -> None:
    join = of("librdkafka/group", 11)[-1]
    joined = codec.decode_response(11, join.api_version, body(join, response=True))
    (sync,) = of("librdkafka/group", 14)
    synced = codec.decode_request(14, sync.api_version, body(sync, response=False))
    assert joined.error_code == 0
    assert joined.leader == joined.member_id == synced.member_id
    assert [member.member_id for member in joined.members] == [joined.member_id]
    assert joined.generation_id == synced.generation_id == 1
    (sent,) = of("librdkafka/transaction", 28)[:1]
    offsets = codec.decode_request(28, sent.api_version, body(sent, response=False))
    assert (offsets.group_id, offsets.member_id, offsets.generation_id) == ("golden-librdkafka", joined.member_id, 1)
    ((topic,), partition) = offsets.topics, offsets.topics[0].partitions[0]
    assert (topic.name, partition.partition_index, partition.committed_offset) == (TOPIC_LIBRDKAFKA, 0, 5)


def test_the_broker_marks_the_partitions_it_was_told() -> None:
    for exchange in of("broker/transaction", 27):
        request = codec.decode_request(27, exchange.api_version, body(exchange, response=False))
        topics = {topic.name for marker in request.markers for topic in marker.topics}
        assert topics <= {TOPIC_TRANSACTIONS, "__consumer_offsets"} and topics
