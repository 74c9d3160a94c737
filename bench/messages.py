"""Control-plane messages: bytes to objects and back, beside kio, which knows the same schemas.

    python -m bench.messages

kio's classes are those of one version with wire types; ours are the plain ones that handlers and clients use.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fencepost.protocol import codec
from fencepost.protocol.messages import end_txn, heartbeat, metadata, offset_commit
from tests.support.kio_messages import Side, kio_bytes, kio_class, kio_read

ROUNDS = 15


def messages() -> dict[str, tuple[Any, int, Side]]:
    """What is measured: (message, version, side)."""
    topics = [
        metadata.MetadataResponseTopic(
            name=f"topic-{number}",
            partitions=[
                metadata.MetadataResponsePartition(partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1])
                for index in range(50)
            ],
        )
        for number in range(10)
    ]
    commits = [
        offset_commit.OffsetCommitRequestTopic(
            name=f"topic-{number}",
            partitions=[
                offset_commit.OffsetCommitRequestPartition(partition_index=index, committed_offset=5)
                for index in range(10)
            ],
        )
        for number in range(5)
    ]
    brokers = [metadata.MetadataResponseBroker(node_id=1, host="broker", port=9092)]
    transactional_id = "fencepost-sink/orders/0123456789abcdef"
    return {
        "Metadata, 500 partitions": (metadata.MetadataResponse(brokers=brokers, topics=topics), 9, "Response"),
        "OffsetCommit, 50 partitions": (offset_commit.OffsetCommitRequest(group_id="g", topics=commits), 9, "Request"),
        "EndTxn": (end_txn.EndTxnRequest(transactional_id=transactional_id, producer_id=1), 5, "Request"),
        "Heartbeat": (heartbeat.HeartbeatRequest(group_id="group", member_id="member"), 4, "Request"),
    }


def fastest_us(work: Callable[[], Any]) -> float:
    """Microseconds of processor time of one call, in the fastest of some rounds."""
    begun, calls = time.process_time(), 0
    while time.process_time() - begun < 0.01:
        work()
        calls += 1
    fastest = float("inf")
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(calls):
            work()
        fastest = min(fastest, (time.process_time() - begun) / calls)
    return fastest * 1e6


def main() -> None:
    print(f"{'microseconds':30} {'encode':>9} {'kio':>9} {'ratio':>7} {'decode':>9} {'kio':>9} {'ratio':>7}")
    for name, (message, version, side) in messages().items():
        key = message.API_KEY
        encode = codec.encode_request if side == "Request" else codec.encode_response
        decode = codec.decode_request if side == "Request" else codec.decode_response
        body, theirs = encode(message, version), kio_class(key, version, side)
        entity = kio_read(theirs, body)
        measured = [
            fastest_us(lambda: encode(message, version)),  # noqa: B023 - called before the next round
            fastest_us(lambda: kio_bytes(entity)),  # noqa: B023
            fastest_us(lambda: decode(key, version, body)),  # noqa: B023
            fastest_us(lambda: kio_read(theirs, body)),  # noqa: B023
        ]
        ours, kios, read, kio_reads = measured
        print(
            f"{name:30} {ours:9.1f} {kios:9.1f} {kios / ours:6.1f}x {read:9.1f} {kio_reads:9.1f}"
            f" {kio_reads / read:6.1f}x"
        )


if __name__ == "__main__":
    main()
