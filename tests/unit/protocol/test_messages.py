"""Every message in every version against kio, which knows Kafka's schemas by itself; and bytes that are no message."""

from __future__ import annotations

import dataclasses
import random
import subprocess
import sys
import tracemalloc
from typing import Any

import pytest

from fencepost.protocol import codec, wire
from fencepost.protocol.errors import MalformedMessage
from fencepost.protocol.messages.describe_groups import DescribeGroupsResponse
from fencepost.protocol.messages.end_txn import EndTxnRequest
from fencepost.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support import kio_messages
from tests.support.kio_messages import Side

SPOKEN = kio_messages.spoken()
ROUNDS = 6


def encoded(message: Any, version: int, side: Side) -> bytes:
    return (codec.encode_request if side == "Request" else codec.encode_response)(message, version)


def decoded(api_key: int, version: int, side: Side, body: bytes | bytearray | memoryview) -> Any:
    return (codec.decode_request if side == "Request" else codec.decode_response)(api_key, version, body)


def numbers_for(api_key: int, version: int, side: Side) -> random.Random:
    return random.Random(f"{api_key} {version} {side}")


def test_everything_is_looked_at() -> None:
    assert len(SPOKEN) > 400
    assert len({key for key, _, _ in SPOKEN}) >= 43


def test_the_same_bytes_and_the_same_values_as_kio() -> None:
    for api_key, version, side in SPOKEN:
        numbers = numbers_for(api_key, version, side)
        theirs, ours = kio_messages.kio_class(api_key, version, side), kio_messages.our_class(api_key, side)
        for _ in range(ROUNDS):
            entity, message = kio_messages.pair(theirs, ours, numbers)
            body = encoded(message, version, side)
            assert body == kio_messages.kio_bytes(entity), (message, version)
            assert decoded(api_key, version, side, body) == message, version
            assert kio_messages.kio_read(theirs, body) == entity


def test_arrays_whose_count_takes_two_bytes() -> None:
    long = 0
    for api_key, version, side in SPOKEN:
        if version < codec.supported_versions(api_key)[1]:
            continue
        theirs, ours = kio_messages.kio_class(api_key, version, side), kio_messages.our_class(api_key, side)
        entity, message = kio_messages.pair(theirs, ours, numbers_for(api_key, version, side), most=130)
        body = encoded(message, version, side)
        assert body == kio_messages.kio_bytes(entity), (message, version)
        assert decoded(api_key, version, side, body) == message, version
        long += any(getattr(message, field) and len(getattr(message, field)) == 130 for field in arrays_of(message))
    assert long > 30


def arrays_of(message: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(message) if "Sequence" in str(field.type)]


def test_tagged_fields_that_no_schema_knows_are_skipped() -> None:
    count = 0
    for api_key, version, side in SPOKEN:
        theirs, ours = kio_messages.kio_class(api_key, version, side), kio_messages.our_class(api_key, side)
        if not theirs.__flexible__:
            continue
        later, numbers = kio_messages.of_the_future(theirs), numbers_for(api_key, version, side)
        for _ in range(ROUNDS // 2):
            entity, message = kio_messages.pair(later, ours, numbers)
            body = kio_messages.kio_bytes(entity)
            assert decoded(api_key, version, side, body) == message, version
        count += 1
    assert count > 190


def test_a_message_cut_short_anywhere_is_malformed() -> None:
    cuts = 0
    for api_key, version, side in SPOKEN:
        theirs, ours = kio_messages.kio_class(api_key, version, side), kio_messages.our_class(api_key, side)
        _, message = kio_messages.pair(theirs, ours, numbers_for(api_key, version, side))
        body = encoded(message, version, side)
        indexes = range(len(body)) if len(body) < 100 else random.Random(version).sample(range(len(body)), 100)
        for cut in indexes:
            with pytest.raises(MalformedMessage):
                decoded(api_key, version, side, body[:cut])
            cuts += 1
    assert cuts > 10_000


def room_taken(api_key: int, version: int, side: Side, body: bytes) -> tuple[int, bool]:
    """Bytes at the peak of decoding `body`, and whether it was refused."""
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    try:
        decoded(api_key, version, side, body)
        refused = False
    except MalformedMessage:
        refused = True
    return tracemalloc.get_traced_memory()[1] - before, refused


@pytest.mark.parametrize("claim", [b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff"])
def test_no_claimed_length_makes_room_for_more_than_there_is(claim: bytes) -> None:
    """A length that lies, at every place of every message: refused, or read as something small."""
    refused = 0
    tracemalloc.start()
    try:
        for api_key, version, side in SPOKEN:
            theirs, ours = kio_messages.kio_class(api_key, version, side), kio_messages.our_class(api_key, side)
            _, message = kio_messages.pair(theirs, ours, numbers_for(api_key, version, side), most=1)
            body = encoded(message, version, side)[:120]
            for cut in range(len(body)):
                lying = body[:cut] + claim + body[cut + len(claim) :]
                taken, was_refused = room_taken(api_key, version, side, lying)
                if taken >= 200_000:  # a thread that another test left may have: what the decoder takes, it takes again
                    taken, _ = room_taken(api_key, version, side, lying)
                assert taken < 200_000, (api_key, version, side, cut)
                refused += was_refused
    finally:
        tracemalloc.stop()
    assert refused > 10_000


def test_a_count_is_held_against_the_smallest_elements() -> None:
    # Metadata v10 topics take 18 bytes each: of 2320 bytes, 129 cannot be.
    with pytest.raises(MalformedMessage, match="an array of 129 elements in 2320 bytes"):
        codec.decode_request(3, 10, b"\x82\x01" + bytes(2320))
    with pytest.raises(MalformedMessage):
        codec.decode_request(3, 10, b"\x04" + bytes(40))
    with pytest.raises(MalformedMessage, match="an array of 11 elements in 40 bytes"):
        wire.read_int32s((11).to_bytes(4) + bytes(40), 0)


def test_any_buffer_can_be_read() -> None:
    message = EndTxnRequest(transactional_id="ab", producer_id=1, producer_epoch=2, committed=True)
    body = codec.encode_request(message, 5)
    spread = bytes(byte for each in body for byte in (each, 0))
    writable, read_only = memoryview(bytearray(body)), memoryview(bytearray(body)).toreadonly()
    parts = [memoryview(b"??" + body)[2:], memoryview(spread)[::2]]
    buffers: list[bytes | bytearray | memoryview] = [body, bytearray(body), writable, read_only, *parts]
    for buffer in buffers:
        assert codec.decode_request(26, 5, buffer) == message


def test_what_is_read_does_not_hold_the_frame() -> None:
    frame = bytearray(codec.encode_request(JoinGroupRequest(protocols=[JoinGroupRequestProtocol(metadata=b"old")]), 6))
    read = codec.decode_request(11, 6, memoryview(frame))
    frame[:] = bytes(len(frame))  # would be refused while somebody looks into it
    assert read.protocols[0].metadata == b"old"


def test_a_known_tagged_field_must_be_as_long_as_it_says() -> None:
    # ApiVersions v3 response: no error, no keys, throttle 0; tag 3 (bool) that claims two bytes.
    head = bytes(2) + b"\x01" + bytes(4)
    assert codec.decode_response(18, 3, head + b"\x01\x03\x01\x01").zk_migration_ready
    with pytest.raises(MalformedMessage, match="tagged field"):
        codec.decode_response(18, 3, head + b"\x01\x03\x02\x01\x01")
    with pytest.raises(MalformedMessage, match="tagged field"):
        codec.decode_response(18, 3, head + b"\x01\x03\x00\x01")


def test_strings_have_kafkas_limit_on_both_ways() -> None:
    longest, too_long = "x" * 32_767, "x" * 32_768
    for version in (0, 3):
        assert codec.decode_request(26, version, codec.encode_request(EndTxnRequest(transactional_id=longest), version))
        with pytest.raises(ValueError, match="at most 32767"):
            codec.encode_request(EndTxnRequest(transactional_id=too_long), version)
    compact = bytearray()
    wire.write_compact_bytes(compact, too_long.encode())
    with pytest.raises(MalformedMessage, match="at most 32767"):
        codec.decode_request(26, 3, bytes(compact) + bytes(12))


def test_what_the_wire_cannot_say_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="MetadataRequest v0 cannot be encoded: topics is null"):
        codec.encode_request(MetadataRequest(topics=None), 0)
    with pytest.raises(ValueError, match="EndTxnRequest v5"):
        codec.encode_request(EndTxnRequest(producer_epoch=40_000), 5)
    with pytest.raises(ValueError, match="MetadataRequest v9"):
        codec.encode_request(MetadataRequest(topics=[MetadataRequestTopic(name="\ud800")]), 9)


def test_nulls_where_a_schema_has_none_are_malformed() -> None:
    for version, body in ((0, b"\xff\xff" + bytes(11)), (3, b"\x00" + bytes(12))):
        with pytest.raises(MalformedMessage, match="null"):
            codec.decode_request(26, version, body)
    with pytest.raises(MalformedMessage, match="null"):
        codec.decode_response(15, 0, b"\xff\xff\xff\xff")
    assert codec.decode_response(15, 0, bytes(4)) == DescribeGroupsResponse(groups=[])


USE = """
import sys
sys.modules["kio"] = None
import fencepost
with fencepost.Broker() as broker, fencepost.Admin(broker.bootstrap_servers) as admin:
    admin.create_topic("t", 1)
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        print(producer.send("t", value=b"v").result().offset)
print(*sorted(sys.modules))
"""


def test_the_schema_library_is_not_needed_at_run_time() -> None:
    done = subprocess.run([sys.executable, "-c", USE], capture_output=True, text=True, check=True)
    offset, *modules = done.stdout.split()
    assert offset == "0"
    assert "fencepost.protocol.messages.create_topics" in modules
    assert not [module for module in modules if module.startswith(("kio.", "hypothesis"))]
