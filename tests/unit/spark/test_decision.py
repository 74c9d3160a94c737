"""The decision record's bytes."""

from __future__ import annotations

import random
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.spark.errors import CorruptDecisionError, SinkContradictionError
from fencepost.spark.sink import names
from fencepost.spark.sink.decision import (
    MAX_OFFSETS_BYTES,
    MAX_WINNERS,
    Content,
    Decision,
    Pair,
    SourceOffsets,
    Winner,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

PAIRS = st.builds(Pair, st.integers(0, 2**63 - 1), st.integers(0, 32767))


def decision(sink: str = "s", uniques: list[bytes] | None = None, pairs: list[Pair] | None = None) -> Decision:
    uniques = [bytes(16)] if uniques is None else uniques
    pairs = pairs or [Pair(7, 3)] * len(uniques)
    return Decision(
        sink, "q", 5, tuple(Winner(names.task_id(sink, u), p) for u, p in zip(uniques, pairs, strict=False))
    )


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30),
    st.integers(0, 2**63 - 1),
    st.lists(st.tuples(st.binary(min_size=16, max_size=16), PAIRS), max_size=5, unique_by=lambda item: item[0]),
)
def test_round_trip(sink: str, query: str, batch: int, winners: list[tuple[bytes, Pair]]) -> None:
    original = Decision(sink, query, batch, tuple(Winner(names.task_id(sink, u), p) for u, p in winners))
    assert decode_value(encode_value(original)) == original
    assert decode_key(encode_key(sink, query)) == (sink, query)


def test_the_bytes_without_known_rows() -> None:
    # Written out by hand from the layout in the module's docstring; the checksum is CRC-32C of what follows it.
    body = bytes.fromhex("000000000000000500017300017100000001" + "00" * 16 + "00000000000000070003")
    assert decode_value(b"FPD\x01" + crc32c_bitwise(body).to_bytes(4, "big") + body) == decision()
    assert encode_key("s", "q") == b"FPK\x01\x00\x01s\x00\x01q"


def crc32c_bitwise(data: bytes) -> int:
    """CRC-32C by its definition (RFC 3720: reflected polynomial 0x82F63B78)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    whole = encode_value(decision(uniques=[bytes(16), b"x" * 16]))
    tried = 0
    for position in range(len(whole)):
        for bit in range(8):
            bad = bytearray(whole)
            bad[position] ^= 1 << bit
            with pytest.raises(CorruptDecisionError):
                decode_value(bytes(bad))
            tried += 1
        with pytest.raises(CorruptDecisionError):
            decode_value(whole[:position])
    assert tried == 8 * len(whole) > 0
    with pytest.raises(CorruptDecisionError):
        decode_value(whole + b"\0")


def test_a_newer_version_is_named() -> None:
    with pytest.raises(CorruptDecisionError, match="version 2"):
        decode_value(b"FPD\x02" + encode_value(decision())[4:])


OFFSETS = st.one_of(
    st.none(),
    st.builds(SourceOffsets, st.text(st.characters(exclude_categories=["Cs"])), st.none() | st.just("v1\n{}")),
)


@given(st.builds(Content, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), OFFSETS)
def test_round_trip_of_what_the_batch_was(content: Content, offsets: SourceOffsets | None) -> None:
    original = replace(decision(), content=content, offsets=offsets)
    assert decode_value(encode_value(original)) == original


def test_the_bytes_with_known_rows() -> None:
    """As the module's docstring lays them out."""
    body = bytes.fromhex("000000000000000500017300017100000001" + "00" * 16 + "00000000000000070003")
    body += (3).to_bytes(8) + (2**64 - 1).to_bytes(8) + (0).to_bytes(4)
    whole = b"FPD\x01" + crc32c_bitwise(body).to_bytes(4, "big") + body
    assert decode_value(whole) == replace(decision(), content=Content(3, 2**64 - 1))


def test_every_flipped_bit_of_known_rows_is_noticed() -> None:
    whole = encode_value(replace(decision(), content=Content(3, 9), offsets=SourceOffsets("v1\n{}\n{}", None)))
    assert whole[3] == 1
    tried = 0
    for position in range(len(whole)):
        bad = bytearray(whole)
        bad[position] ^= 1
        with pytest.raises(CorruptDecisionError):
            decode_value(bytes(bad))
        with pytest.raises(CorruptDecisionError):
            decode_value(whole[:position])
        tried += 1
    assert tried > 60


def test_offsets_that_are_too_long_are_left_out() -> None:
    noise = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=2 * MAX_OFFSETS_BYTES))
    uniques = [i.to_bytes(16, "big") for i in range(MAX_WINNERS)]
    original = replace(decision(uniques=uniques), content=Content(1, 1), offsets=SourceOffsets(noise, None))
    encoded = encode_value(original)
    assert len(encoded) < 1_000_000
    assert decode_value(encoded) == replace(original, offsets=None)


def test_offsets_that_are_no_json_of_texts_are_refused() -> None:
    head = encode_value(replace(decision(), content=Content(1, 1)))[8:-4]
    for text in (b"[1]", b"{}", b'{"batch": 1, "before": null}', b'{"batch": "", "before": 2}', b"\xff"):
        packed = zlib.compress(text)
        for tail in (packed, packed[:-2], b"plain"):
            body = head + len(tail).to_bytes(4) + tail
            with pytest.raises(CorruptDecisionError, match="offsets"):
                decode_value(b"FPD\x01" + crc32c_bitwise(body).to_bytes(4, "big") + body)


def test_limits() -> None:
    uniques = [i.to_bytes(16, "big") for i in range(MAX_WINNERS + 1)]
    assert len(encode_value(decision(uniques=uniques[:-1]))) < 1_000_000
    with pytest.raises(SinkContradictionError):
        encode_value(decision(uniques=uniques))


@pytest.mark.parametrize("pair", [Pair(-1, 0), Pair(1, -1), Pair(1, 32768), Pair(2**63, 0)])
def test_a_pair_that_cannot_be_is_refused(pair: Pair) -> None:
    with pytest.raises(SinkContradictionError):
        encode_value(decision(pairs=[pair]))


def test_only_the_sinks_own_transactions_and_each_once() -> None:
    for winners in (
        (Winner(names.task_id("other", bytes(16)), Pair(1, 0)),),
        (Winner(names.sink_id("s"), Pair(1, 0)),),
        (Winner("plain", Pair(1, 0)),),
        (Winner(names.task_id("s", bytes(16)), Pair(1, 0)), Winner(names.task_id("s", bytes(16)), Pair(2, 0))),
    ):
        with pytest.raises(SinkContradictionError):
            encode_value(Decision("s", "q", 1, winners))


def test_foreign_keys_are_not_ours() -> None:
    assert decode_key(b"something") is None
    with pytest.raises(CorruptDecisionError):
        decode_key(encode_key("s", "q") + b"x")
