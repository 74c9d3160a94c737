"""Union message classes to bytes and back, in every version, and the headers around them."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from fencepost.protocol import codec, frame
from fencepost.protocol.codes import ErrorCode, describe, retriable
from fencepost.protocol.errors import FrameTooLarge, MalformedMessage
from fencepost.protocol.messages.describe_transactions import DescribeTransactionsResponse, TransactionState
from fencepost.protocol.messages.end_txn import EndTxnRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.join_group import JoinGroupResponse
from fencepost.protocol.receiver import Receiver

ROOT = Path(__file__).resolve().parents[3]


def messages() -> list[tuple[int, int, str, Any]]:
    """Every (API key, version, side, class) that has a generated module."""
    found = []
    for api_key, name in api_key_map.items():
        if not (ROOT / "src/fencepost/protocol/messages" / f"{name}.py").exists():
            continue
        module = import_module(f"fencepost.protocol.messages.{name}")
        low, high = codec.supported_versions(api_key)
        for side in ("Request", "Response"):
            cls = next(v for k, v in vars(module).items() if k.endswith(side) and hasattr(v, "API_KEY"))
            found += [(api_key, version, side, cls) for version in range(low, high + 1)]
    return found


def test_every_message_keeps_its_bytes_in_every_version() -> None:
    count = 0
    for api_key, version, side, cls in messages():
        encode = getattr(codec, f"encode_{side.lower()}")
        decode = getattr(codec, f"decode_{side.lower()}")
        body = encode(cls(), version)
        assert encode(decode(api_key, version, body), version) == body, (cls.__name__, version)
        count += 1
    assert count > 300


def test_fields_survive_in_the_versions_that_have_them() -> None:
    request = InitProducerIdRequest(
        transactional_id="t", transaction_timeout_ms=2**31 - 1, producer_id=4, producer_epoch=2, keep_prepared_txn=True
    )
    assert codec.decode_request(22, 6, codec.encode_request(request, 6)) == request
    old = codec.decode_request(22, 2, codec.encode_request(request, 2))
    assert (old.producer_id, old.producer_epoch, old.keep_prepared_txn) == (-1, -1, False)


def test_a_known_request_has_the_bytes_of_kafkas_schema() -> None:
    # EndTxn v5 by hand: compact string, int64, int16, bool, no tagged fields.
    body = codec.encode_request(
        EndTxnRequest(transactional_id="ab", producer_id=1, producer_epoch=2, committed=True), 5
    )
    assert body == b"\x03ab" + (1).to_bytes(8, "big") + (2).to_bytes(2, "big") + b"\x01" + b"\x00"


def test_no_start_time_is_minus_one() -> None:
    response = DescribeTransactionsResponse(
        transaction_states=[TransactionState(transactional_id="t", transaction_start_time_ms=-1, error_code=105)]
    )
    decoded = codec.decode_response(65, 0, codec.encode_response(response, 0))
    assert decoded.transaction_states[0].transaction_start_time_ms == -1


def test_null_becomes_empty_where_a_version_has_no_null() -> None:
    body = codec.encode_response(JoinGroupResponse(protocol_name=None), 5)
    assert codec.decode_response(11, 5, body).protocol_name == ""


@pytest.mark.parametrize("body", [b"", b"\xff" * 40, b"\x02a"])
def test_bytes_that_are_no_message_are_malformed(body: bytes) -> None:
    with pytest.raises(MalformedMessage):
        codec.decode_request(22, 6, body)


def test_an_impossible_length_in_a_reply_is_malformed_before_room_is_made_for_it() -> None:
    # ListTransactions v0: throttle time, error code, then arrays that claim two thousand million elements.
    body = bytes(6) + b"\xff\xff\xff\xff\x07" * 2
    with pytest.raises(MalformedMessage, match="elements"):
        codec.decode_response(66, 0, body)


def test_flexible_versions_agree_with_the_schemas() -> None:
    checked = 0
    for api_key, name in api_key_map.items():
        for version, paths in schema_name_map[name].items():
            if EntityType.request not in paths:
                continue
            module, _, attribute = paths[EntityType.request].partition(":")
            assert getattr(import_module(module), attribute).__flexible__ == frame.is_flexible(api_key, version), (
                name,
                version,
            )
            checked += 1
    assert checked > 200


@pytest.mark.parametrize(("api_key", "version"), [(22, 0), (22, 6), (18, 4)])
def test_headers_round_trip(api_key: int, version: int) -> None:
    whole = frame.encode_request_frame(api_key, version, 77, "cliént", b"body")
    (cut,) = Receiver().feed(whole)
    header, position = frame.decode_request_header(cut)
    assert (header, bytes(cut[position:])) == (frame.RequestHeader(api_key, version, 77, "cliént"), b"body")
    (reply,) = Receiver().feed(frame.encode_response_frame(api_key, version, 77, b"answer"))
    correlation_id, position = frame.decode_response_header(api_key, version, reply)
    assert (correlation_id, bytes(reply[position:])) == (77, b"answer")


def test_frames_are_cut_however_the_bytes_arrive() -> None:
    stream = b"".join(frame.encode_request_frame(18, 0, n, None, b"x" * n) for n in range(50))
    for step in (1, 2, 7, len(stream)):
        reader, seen = Receiver(), []
        for start in range(0, len(stream), step):
            seen += [
                frame.decode_request_header(cut)[0].correlation_id for cut in reader.feed(stream[start : start + step])
            ]
        assert seen == list(range(50))


@pytest.mark.parametrize("kind", [bytes, memoryview, pytest.param(lambda piece: piece, id="bytearray")])
def test_large_frames_are_cut_however_the_bytes_arrive(
    kind: Callable[[bytearray], bytes | bytearray | memoryview],
) -> None:
    bodies = [bytes([n]) * size for n, size in enumerate((100_000, 3, 40_000, 70_000, 0, 200_000))]
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    for step in (999, 20_000, 65_536, 150_000):
        reader, seen = Receiver(), []
        for start in range(0, len(stream), step):
            piece = bytearray(stream[start : start + step])
            seen += reader.feed(kind(piece))
            piece[:] = bytes(len(piece))  # whoever hands it in uses it again
        assert [bytes(body) for body in seen] == bodies


def test_a_frame_that_comes_byte_by_byte_takes_no_more_than_its_size() -> None:
    reader, size = Receiver(), 200_000
    tracemalloc.start()
    try:
        reader.feed(size.to_bytes(4, "big"))
        for _ in range(size - 1):
            assert reader.feed(b"x") == []
        held, _most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < held < 1.5 * size
    assert [len(body) for body in reader.feed(b"x")] == [size]


@pytest.mark.parametrize(("size", "error"), [(1001, FrameTooLarge), (-5, MalformedMessage)])
def test_a_dishonest_size_is_refused(size: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        Receiver(max_frame_bytes=1000).feed(size.to_bytes(4, "big", signed=True))


def test_codes() -> None:
    assert (ErrorCode.PRODUCER_FENCED, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNSTABLE_OFFSET_COMMIT) == (
        90,
        120,
        88,
    )
    assert retriable(51) and not retriable(90)
    assert describe(47) == "INVALID_PRODUCER_EPOCH (47)"
    assert "9999" in describe(9999)


def test_the_generated_classes_are_current() -> None:
    command = [sys.executable, "-m", "tools.gen_messages", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
