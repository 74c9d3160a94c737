"""The checks of a client's batch, beyond what the conformance tests ask of both brokers."""

from __future__ import annotations

import pytest

from fencepost.broker.log import validate
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.validate import Flaw, admitted
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.records.batch import seal
from fencepost.protocol.records.compression import MAX_DECOMPRESSED_BYTES, compress
from fencepost.protocol.records.encoding import encode_batch
from tests.support.batches import records_section, varint

NOW_MS = 1_000_000


def sealed(section: bytes, count: int, codec: str = "none") -> bytes:
    return bytes(seal(section, record_count=count, base_timestamp=NOW_MS, max_timestamp=NOW_MS, compression=codec))


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_a_bomb(codec: str) -> None:
    bomb = bytes(compress(codec, bytes(MAX_DECOMPRESSED_BYTES + 1)))
    assert len(bomb) < MAX_DECOMPRESSED_BYTES / 100
    flaw = admitted(sealed(bomb, 1, codec), LogConfig(), NOW_MS)
    assert isinstance(flaw, Flaw)
    assert flaw.code == ErrorCode.INVALID_RECORD
    assert str(MAX_DECOMPRESSED_BYTES) in flaw.message


@pytest.mark.parametrize("compacted", [False, True])
def test_a_number_without_an_end(compacted: bool) -> None:
    """Read as far as a number may go, not to the end of a megabyte."""
    config = LogConfig(cleanup_policy="compact" if compacted else "delete")
    for count in (1, 100):
        flaw = admitted(sealed(b"\x80" * 1_000_000, count), config, NOW_MS)
        assert isinstance(flaw, Flaw)
        assert flaw.code == ErrorCode.INVALID_RECORD


def test_not_every_record_is_named() -> None:
    batch = encode_batch(values=[b"v"] * 150, timestamps=NOW_MS)
    flaw = admitted(bytes(batch), LogConfig(cleanup_policy="compact"), NOW_MS)
    assert isinstance(flaw, Flaw)
    assert [error.batch_index for error in flaw.record_errors] == list(range(100))


def test_what_becomes_too_large_by_another_codec() -> None:
    section = records_section([bytes(5000)], [NOW_MS])
    config = LogConfig(compression_type="none", max_message_bytes=1000)
    flaw = admitted(sealed(bytes(compress("zstd", section)), 1, "zstd"), config, NOW_MS)
    assert isinstance(flaw, Flaw)
    assert flaw.code == ErrorCode.MESSAGE_TOO_LARGE


def test_timestamps_wrap_as_int64() -> None:
    """As Java's do, and are then as far from now as can be."""
    body = b"\0" + varint(2**63 - 1) + b"\0" + varint(-1) + varint(0) + b"\0"
    found = admitted(sealed(varint(len(body)) + body, 1), LogConfig(), NOW_MS)
    assert isinstance(found, Flaw)
    assert found.code == ErrorCode.INVALID_TIMESTAMP


def test_as_it_came_it_is_not_copied() -> None:
    batch = bytes(encode_batch(values=[b"v"], timestamps=NOW_MS))
    found = admitted(batch, LogConfig(), NOW_MS)
    assert not isinstance(found, Flaw)
    assert found[1] is batch
    assert validate.header_of(batch) == found[0]
