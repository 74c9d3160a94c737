"""The release of Apache Kafka that introduced an API version, for the text of an UnsupportedVersionError only.

The releases are those of the KIPs. Other brokers choose versions in their own order. For these the text names the
release that they resemble.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_PREVIEWED: Final = frozenset({(22, 6), (68, 0), (69, 0)})  # older releases also offer these if so configured

# API key and version -> the first release that offers it, oldest first.
SINCE: Final[Mapping[tuple[int, int], str]] = {
    (0, 3): "0.11",  # Produce: record batches (KIP-98)
    (1, 4): "0.11",  # Fetch
    (22, 0): "0.11",  # InitProducerId
    (34, 0): "1.0",  # AlterReplicaLogDirs (KIP-113)
    (42, 0): "1.1",  # DeleteGroups (KIP-229)
    (9, 4): "2.0",  # OffsetFetch: throttles (KIP-219)
    (23, 2): "2.1",  # OffsetForLeaderEpoch (KIP-320)
    (11, 4): "2.2",  # JoinGroup: two steps (KIP-394)
    (8, 7): "2.3",  # OffsetCommit: static members (KIP-345)
    (44, 0): "2.3",  # IncrementalAlterConfigs (KIP-339)
    (13, 3): "2.4",  # LeaveGroup of several (KIP-345)
    (19, 4): "2.4",  # CreateTopics: the broker's defaults (KIP-464)
    (45, 0): "2.4",  # AlterPartitionReassignments (KIP-455)
    (46, 0): "2.4",  # ListPartitionReassignments (KIP-455)
    (47, 0): "2.4",  # OffsetDelete (KIP-496)
    (9, 7): "2.5",  # OffsetFetch: stable offsets (KIP-447)
    (28, 3): "2.5",  # TxnOffsetCommit: of members (KIP-447)
    (22, 3): "2.5",  # InitProducerId: the next epoch (KIP-360)
    (16, 4): "2.6",  # ListGroups by state (KIP-518)
    (32, 3): "2.6",  # DescribeConfigs: documentation (KIP-569)
    (50, 0): "2.7 (with KRaft: 3.5)",  # DescribeUserScramCredentials (KIP-554)
    (51, 0): "2.7 (with KRaft: 3.5)",  # AlterUserScramCredentials (KIP-554)
    (60, 0): "2.8",  # DescribeCluster (KIP-700)
    (61, 0): "2.8",  # DescribeProducers (KIP-664)
    (65, 0): "3.0",  # DescribeTransactions (KIP-664)
    (66, 0): "3.0",  # ListTransactions (KIP-664)
    (2, 7): "3.0",  # ListOffsets: the latest timestamp (KIP-734)
    (1, 13): "3.1",  # Fetch by topic id (KIP-516)
    (55, 0): "3.3 with KRaft",  # DescribeQuorum (KIP-595)
    (1, 15): "3.5",  # Fetch (KIP-903)
    (1, 16): "3.7",  # Fetch (KIP-951)
    (16, 5): "3.8",  # ListGroups by type (KIP-848)
    (66, 1): "3.8",  # ListTransactions by duration (KIP-994)
    (1, 17): "3.9",  # Fetch (KIP-853)
    (0, 12): "4.0",  # Produce: enlists by itself (KIP-890)
    (68, 0): "4.0",  # ConsumerGroupHeartbeat (KIP-848)
    (69, 0): "4.0",  # ConsumerGroupDescribe (KIP-848)
    (66, 2): "4.1",  # ListTransactions by pattern (KIP-1152)
    (22, 6): "4.1 with unstable.api.versions.enable=true",  # InitProducerId: two-phase commit (KIP-939)
}


def like(offered: Mapping[int, tuple[int, int]]) -> str:
    """Return the newest release that a broker with these versions resembles; "" if none.

    `offered`: API key -> lowest and highest version.
    """
    found = ""
    for (api_key, version), release in SINCE.items():
        if api_key in offered and offered[api_key][1] >= version and (api_key, version) not in _PREVIEWED:
            found = release.split()[0]
    return found


def needed(api_key: int, version: int) -> str:
    """Return the first release that offers this version of an API or a newer one; "" if unknown."""
    newer = [release for (key, since), release in SINCE.items() if key == api_key and since >= version]
    return newer[0] if newer else ""
